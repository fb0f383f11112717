"""What the bridge and the broker count, as a page for Prometheus. Nothing is labelled by topic or entity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from sealcast.broker.metrics_page import MetricsPage, serve
from sealcast.primitives.secrets import Secret


class _Counts(Collector):
    def __init__(self, what: str, counts: Mapping[str, int]) -> None:
        self._what, self._counts = what, counts

    def collect(self) -> Iterator[Metric]:
        for name, count in sorted(dict(self._counts).items()):
            text = f"{name.replace('_', ' ')} of the MQTT {self._what}".capitalize()
            yield CounterMetricFamily(f"sealcast_mqtt_{self._what}_{name}", text, value=count)


def serve_counts(what: str, counts: Mapping[str, int], port: int, token: Secret | None = None) -> MetricsPage:
    """Serves the counts as they are when somebody looks."""
    registry = CollectorRegistry()
    registry.register(_Counts(what, counts))
    return serve(registry, port, token)
