"""Frame logs and ledgers of brokers, opened where they are: in a broker's directory, or on a carrier that the registry
names.

How this machine proves who it is to a carrier stands in `secrets/carriers/NAME.conf` of the realm or the home, which
only its owner may read. Without the file, nothing is proved.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from sealcast.log.carried import CarriedLog
from sealcast.log.carried_journal import CarriedJournal
from sealcast.log.carried_overlay import HOPS_SUFFIX, CarriedOverlay
from sealcast.log.carriers import Carrier, CarrierAddress, carrier_settings, connect
from sealcast.log.embedded import Moved
from sealcast.log.forwarded import BrokerTopic
from sealcast.log.journal import DirectoryJournal, JournalPart, KeptJournal, Turn
from sealcast.log.post_log import FilterPosts, PostLog
from sealcast.primitives.secrets import Unpicklable
from sealcast.trust.layout import Layout
from sealcast.trust.realm.state import CarriedName, RealmState


class Carriers(Unpicklable):
    """The carriers of a realm, each connected once in a process."""

    def __init__(self, paths: Layout, turn: Callable[[str], Turn], state: Callable[[], RealmState]) -> None:
        """`turn` says who of several machines may run what is on a carrier, and `state` how the realm is now."""
        self._paths, self._turn, self._state = paths, turn, state
        self._guard = threading.Lock()
        #: By process, name and address: connections do not survive a fork, and a carrier may move.
        self._connected: dict[tuple[int, str, str], Carrier] = {}
        #: By process, carrier and name there: all who read a journal share what is known of where its pieces are. What
        #: left a carrier may come back under the same name: nothing that was known of it holds then.
        self._journals: dict[tuple[int, str, str, int], CarriedJournal] = {}

    def carrier(self, state: RealmState, name: str) -> Carrier:
        """A carrier by its name in the registry."""
        address = state.carrier(name)
        with self._guard:
            at = os.getpid(), name, address
            if at not in self._connected:
                settings = carrier_settings(self._paths.carrier_settings(name))
                self._connected[at] = connect(CarrierAddress.parse(address), settings)
            return self._connected[at]

    def frames(self, state: RealmState, topic: str, broker: str, *, read_only: bool = False) -> BrokerTopic:
        """A topic's frame log at one of its brokers; Moved, if it is to be appended to while it leaves a carrier."""
        number, brokers, each = state.broker_number(broker), len(state.brokers()), state.topic(topic).partitions
        place, root = state.carried.get((topic, broker)), self._paths.topic(topic, broker).frames_root
        if place is None:
            return BrokerTopic(root, each, number, brokers, read_only=read_only)
        if not read_only and (topic, broker) in state.leaving:
            raise _on_its_way(topic)
        carrier = self.carrier(state, place.carrier)
        is_there = self._still_here(topic, broker, lambda now: now.carried.get((topic, broker)) == place)
        still_here = (lambda: None) if read_only else is_there

        def carried(number: int) -> CarriedLog:
            at = place.positions[number], place.numbers[number]
            return CarriedLog(carrier.partition(place.name, number), *at, still_here)

        return BrokerTopic(root, each, number, brokers, read_only=read_only, carried=carried)

    def published(self, state: RealmState, topic: str, broker: str, number: int) -> CarriedLog | None:
        """One partition of the frames that were published to a broker, to be read; None where no carrier has it."""
        place = state.carried.get((topic, broker))
        if place is None:
            return None
        there = self.carrier(state, place.carrier).partition(place.name, number)
        return CarriedLog(there, place.positions[number], place.numbers[number])

    def journal(self, state: RealmState, topic: str, broker: str, part: JournalPart = "") -> KeptJournal:
        """A topic's ledger at one of its brokers, with all that belongs to it."""
        place = state.journals.get((topic, broker))
        if place is None:
            return DirectoryJournal(self._paths.topic(topic, broker).root / part)
        at = hops_of(place) if part == "hops" else place  # notes on replays are of the ledger that they are beside
        found = self.journal_at(state, at, state.topic(topic).partitions)
        found.still_here = self._still_here(topic, broker, lambda now: now.journals.get((topic, broker)) == place)
        return found

    def journal_at(self, state: RealmState, place: CarriedName, partitions: int) -> CarriedJournal:
        """A journal on a carrier."""
        carrier = self.carrier(state, place.carrier)
        with self._guard:
            at = os.getpid(), state.carrier(place.carrier), place.name, state.departures
            if at not in self._journals:
                self._journals[at] = CarriedJournal(
                    carrier, place.name, partitions, self._turn(f"{at[1]}/{place.name}")
                )
            return self._journals[at]

    def overlay(self, state: RealmState, topic: str, broker: str) -> CarriedOverlay | None:
        """What a broker of a topic's overlay has beside its ledgers; None where that is in its directory."""
        place = state.journals.get((topic, broker))
        return None if place is None else self.overlay_at(state, place)

    def overlay_at(self, state: RealmState, place: CarriedName) -> CarriedOverlay:
        """The same, on a carrier."""
        return CarriedOverlay(self.carrier(state, place.carrier), place.name)

    def posts(self, state: RealmState, topic: str, broker: str) -> FilterPosts:
        """What those below a broker of a topic's overlay post to it, for whoever posts."""
        place = state.journals.get((topic, broker))
        if place is None:
            return PostLog(self._paths.topic(topic, broker).filter_posts)
        still_here = self._still_here(topic, broker, lambda now: now.journals.get((topic, broker)) == place)
        return self.overlay_at(state, place).posts(still_here=still_here)

    def remove(self, state: RealmState, topic: str, broker: str | None = None) -> list[str]:
        """Removes all that carriers have of a topic, or what they have of one broker's part. Done twice, it does
        nothing more. A topic of a carrier that held records of others before it held frames stays, and is named."""
        left = list[str]()
        for (name, holder), at in state.journals.items():
            if name == topic and broker in (None, holder):
                for each in (at, hops_of(at)):
                    self.journal_at(state, each, 1).remove()
                self.overlay_at(state, at).remove()
        for (name, holder), place in state.carried.items():
            if name == topic and broker in (None, holder):
                if any(place.positions):
                    left.append(f"{place.name} on {place.carrier}")
                else:
                    self.carrier(state, place.carrier).remove(place.name)
        return left

    def _still_here(self, topic: str, broker: str, is_there: Callable[[RealmState], bool]) -> Callable[[], None]:
        """Raises Moved when a broker's part of a topic is not there any more, or on its way elsewhere."""

        def check() -> None:
            now = self._state()
            if (topic, broker) in now.leaving or not is_there(now):
                raise _on_its_way(topic)

        return check


def _on_its_way(topic: str) -> Moved:
    return Moved(
        f"topic {topic!r} is being moved from its carrier",
        hint="try again in a moment; a move that was cut short is finished by `sealcast topic move`",
    )


def hops_of(place: CarriedName) -> CarriedName:
    """Where what a broker of an overlay hands on is, beside what it admits."""
    return place._replace(name=place.name + HOPS_SUFFIX)
