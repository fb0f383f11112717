"""What cryptography costs a simulated peer: seconds of one core for each operation, measured with the real scheme."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from sealcast.errors import Bug

if TYPE_CHECKING:
    from sealcast.lab.tariq.real import RealTopic


@dataclass(frozen=True, slots=True)
class CryptoCosts:
    """Seconds. What grows with the attributes of an event has a part for each of them."""

    #: A connection request: the key server's signature, then one pairing and the trials of all slots.
    open_request: float
    #: The publisher's signature, as every relay checks it.
    check_event: float
    #: One tag test on one attribute.
    tag_test: float
    #: Opening and verifying an event: once, and for each attribute.
    open_event: float
    open_attribute: float
    #: Sealing and signing one: once, and for each attribute.
    seal_event: float
    seal_attribute: float
    #: At the key server: a subscription's key for each label, and a connection request.
    issue_label: float = 0.0
    issue_request: float = 0.0
    #: At a rendezvous: a look at an event's points, for each attribute.
    check_attribute: float = 0.0

    def opening(self, attributes: int) -> float:
        return self.open_event + attributes * self.open_attribute

    def sealing(self, attributes: int) -> float:
        return self.seal_event + attributes * self.seal_attribute


#: The same protocol, and nothing to compute.
NO_SECURITY: Final = CryptoCosts(0, 0, 0, 0, 0, 0, 0)
#: Attributes of the two events that the costs of an event are fitted to.
FEW: Final = 1
MANY: Final = 4


def measured_costs(repeats: int = 15) -> CryptoCosts:
    """Times the real scheme in this process: profile A, keyed tags, trees of depth 8, and the library that is best
    here. Each is the median of so many."""
    from sealcast.lab.tariq.ideal import Meter
    from sealcast.lab.tariq.real import RealTopic  # which imports the simulation, which imports this
    from sealcast.lab.tariq.workloads import attribute_names

    topics = {number: RealTopic(attribute_names(number)) for number in (FEW, MANY)}
    topic = topics[FEW]
    asking, taking = topic.credentials("asking", Meter()), topic.credentials("taking", Meter())
    asking.subscribe({"a0": ("01010101",)})
    taking.subscribe({"a0": ("01",)})
    request, event = asking.ask(0).request, topic.event({"a0": "01010101"})
    opening = {number: _opening(each, repeats) for number, each in topics.items()}
    sealing = {number: _sealing(each, repeats) for number, each in topics.items()}
    open_attribute, seal_attribute = _slope(opening), _slope(sealing)
    return CryptoCosts(
        open_request=timed(lambda: taking.open_request(0, request, "asking"), repeats),
        check_event=timed(lambda: topic.sealed(event), repeats),
        tag_test=timed(lambda: taking.matches(0, event), repeats),
        open_event=max(0.0, opening[FEW] - FEW * open_attribute),
        open_attribute=open_attribute,
        seal_event=max(0.0, sealing[FEW] - FEW * seal_attribute),
        seal_attribute=seal_attribute,
        issue_label=timed(lambda: topic.opener([{"a0": ("0101",)}]), repeats),
        check_attribute=timed(lambda: taking.check_points(event), repeats),
        issue_request=timed(lambda: topic.request("a0", "01010101", "asking"), repeats),
    )


def _opening(topic: RealTopic, repeats: int) -> float:
    opener = topic.opener([dict.fromkeys(topic.attributes, ("0101",))])
    events = iter([topic.sealed(topic.event(_values(topic))) for _ in range(repeats + 1)])
    return timed(lambda: opener.open(next(events)), repeats)


def _sealing(topic: RealTopic, repeats: int) -> float:
    return timed(lambda: topic.event(_values(topic)), repeats)


def _values(topic: RealTopic) -> dict[str, str]:
    return dict.fromkeys(topic.attributes, "01010101")


def timed(run: Callable[[], object], repeats: int) -> float:
    """The median of so many runs, in CPU seconds of this process; the first run is not counted."""
    if repeats < 1:
        raise Bug("a median needs a value")
    run()
    found = []
    for _ in range(repeats):
        begin = time.process_time()
        run()
        found.append(time.process_time() - begin)
    return median(found)


def _slope(times: dict[int, float]) -> float:
    return max(0.0, (times[MANY] - times[FEW]) / (MANY - FEW))
