"""How many frames wait for brokers, as it is when somebody looks: the lag in metrics of pipelines and gateways."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sealcast.errors import SealcastError
from sealcast.log.ledger import LedgerReader
from sealcast.trust.handles import OpenRealm

#: (topic, broker, frames that wait)
Lags = Callable[[], list[tuple[str, str, int]]]


class LagCollector(Collector):
    """The metric `sealcast_lag_frames`."""

    def __init__(self, lags: Lags) -> None:
        self._lags = lags

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "sealcast_lag_frames", "Frames that no pipeline has taken yet", labels=["topic", "broker"]
        )
        for topic, broker, waiting in self._lags():
            family.add_metric([topic, broker], waiting)
        yield family


def waiting(realm: OpenRealm, topic: str, broker: str) -> int:
    """Frames in a broker's log that its ledger does not account for. Nothing is kept open."""
    paths = realm.paths.topic(topic, broker)
    if not paths.frames_root.is_dir():
        return 0
    with realm.frames(topic, broker, read_only=True) as log:
        with LedgerReader(realm.journal(topic, broker)) as ledger:
            last = ledger.last_span()
        taken = () if last is None else last.end.partitions
        ends = [log.partition(number).end() for number in range(log.partitions)]
    return sum(max(0, end - (taken[number] if number < len(taken) else 0)) for number, end in enumerate(ends))


def lags_at(realm: OpenRealm, places: list[tuple[str, str]]) -> Lags:
    """Of these topics at these brokers. What cannot be read at the moment is left out, and so is seen to be missing."""

    def look() -> list[tuple[str, str, int]]:
        found = list[tuple[str, str, int]]()
        for topic, broker in places:
            try:
                found.append((topic, broker, waiting(realm, topic, broker)))
            except SealcastError:
                continue
        return found

    return look
