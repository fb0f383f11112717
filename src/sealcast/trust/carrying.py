"""Frame logs of brokers, opened where they are: in the broker's directory, or on a carrier that the registry names.

How this machine proves who it is to a carrier stands in `secrets/carriers/NAME.conf` of the realm or the home, which
only its owner may read. Without the file, nothing is proved.
"""

from __future__ import annotations

import os
import threading
from functools import partial

from sealcast.log.carried import CarriedLog
from sealcast.log.carriers import Carrier, CarrierAddress, carrier_settings, connect
from sealcast.log.forwarded import BrokerTopic
from sealcast.primitives.secrets import Unpicklable
from sealcast.trust.layout import Layout
from sealcast.trust.realm.state import Carried, RealmState


class Carriers(Unpicklable):
    """The carriers of a realm, each connected once in a process."""

    def __init__(self, paths: Layout) -> None:
        self._paths = paths
        self._guard = threading.Lock()
        #: By process, name and address: connections do not survive a fork, and a carrier may move.
        self._connected: dict[tuple[int, str, str], Carrier] = {}

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

    def _carried(self, carrier: Carrier, place: Carried, number: int) -> CarriedLog:
        partition = carrier.partition(place.name, number)
        return CarriedLog(partition, place.positions[number], place.numbers[number])
