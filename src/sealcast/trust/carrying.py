"""Frame logs and ledgers of brokers, opened where they are: in a broker's directory, or on a carrier that the registry
names.

How this machine proves who it is to a carrier stands in `secrets/carriers/NAME.conf` of the realm or the home, which
only its owner may read. Without the file, nothing is proved.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial

from sealcast.log.carried import CarriedLog
from sealcast.log.carried_journal import CarriedJournal
from sealcast.log.carried_overlay import HOPS_SUFFIX, CarriedOverlay
from sealcast.log.carriers import Carrier, CarrierAddress, carrier_settings, connect
from sealcast.log.forwarded import BrokerTopic
from sealcast.log.journal import DirectoryJournal, JournalPart, KeptJournal, Turn
from sealcast.log.post_log import FilterPosts, PostLog
from sealcast.primitives.secrets import Unpicklable
from sealcast.trust.layout import Layout
from sealcast.trust.realm.state import Carried, CarriedName, RealmState


class Carriers(Unpicklable):
    """The carriers of a realm, each connected once in a process."""

    def __init__(self, paths: Layout, turn: Callable[[str], Turn] = lambda what: Turn()) -> None:
        """`turn` says who of several machines may run what is on a carrier."""
        self._paths, self._turn = paths, turn
        self._guard = threading.Lock()
        #: By process, name and address: connections do not survive a fork, and a carrier may move.
        self._connected: dict[tuple[int, str, str], Carrier] = {}
        #: By process, carrier and name there: all who read a journal share what is known of where its pieces are.
        self._journals: dict[tuple[int, str, str], CarriedJournal] = {}

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
        """A topic's frame log at one of its brokers."""
        number, brokers, each = state.broker_number(broker), len(state.brokers()), state.topic(topic).partitions
        place, root = state.carried.get((topic, broker)), self._paths.topic(topic, broker).frames_root
        carried = None if place is None else partial(self._carried, self.carrier(state, place.carrier), place)
        return BrokerTopic(root, each, number, brokers, read_only=read_only, carried=carried)

    def journal(self, state: RealmState, topic: str, broker: str, part: JournalPart = "") -> KeptJournal:
        """A topic's ledger at one of its brokers, with all that belongs to it."""
        place = state.journals.get((topic, broker))
        if place is None:
            return DirectoryJournal(self._paths.topic(topic, broker).root / part)
        at = hops_of(place) if part == "hops" else place  # notes on replays are of the ledger that they are beside
        return self.journal_at(state, at, state.topic(topic).partitions)

    def journal_at(self, state: RealmState, place: CarriedName, partitions: int) -> CarriedJournal:
        """A journal on a carrier."""
        carrier = self.carrier(state, place.carrier)
        with self._guard:
            at = os.getpid(), state.carrier(place.carrier), place.name
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
        there = self.overlay(state, topic, broker)
        return PostLog(self._paths.topic(topic, broker).filter_posts) if there is None else there.posts()

    def remove(self, state: RealmState, topic: str) -> None:
        """Removes all that carriers have of a topic. Done twice, it does nothing more. A topic of a carrier that held
        records of others before it held frames stays."""
        for (name, _), at in state.journals.items():
            if name == topic:
                for each in (at, hops_of(at)):
                    self.journal_at(state, each, 1).remove()
                self.overlay_at(state, at).remove()
        for (name, _), place in state.carried.items():
            if name == topic and not any(place.positions):
                self.carrier(state, place.carrier).remove(place.name)

    def _carried(self, carrier: Carrier, place: Carried, number: int) -> CarriedLog:
        partition = carrier.partition(place.name, number)
        return CarriedLog(partition, place.positions[number], place.numbers[number])


def hops_of(place: CarriedName) -> CarriedName:
    """Where what a broker of an overlay hands on is, beside what it admits."""
    return place._replace(name=place.name + HOPS_SUFFIX)
