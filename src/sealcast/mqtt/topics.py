"""The topics that one client has to do with: how its events go, what it wants of each, and what it had already.

Whoever delivers has to know what is wanted: in a new epoch filters are registered anew, and tokens end. So a client
that listens looks every few seconds whether anybody has to be told something.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Final

from sealcast.errors import Misuse, Rejected, SealcastError, Unavailable
from sealcast.log.closing import Closing
from sealcast.mqtt.carriers import EventCarrier
from sealcast.mqtt.choice import carrier_for
from sealcast.mqtt.seen import SeenEvents
from sealcast.mqtt.wanted import Wanted
from sealcast.trust.handles import EntityRealm

#: How often a client that listens looks whether anybody has to be told something.
LOOK_SECONDS: Final = 5.0


class ClientTopics(Closing):
    """The topics of one entity on one connection. Whoever uses a carrier holds `guard`."""

    def __init__(self, realm: EntityRealm, name: str, broker: str, through: str | None) -> None:
        self._realm, self._name, self._broker, self._through = realm, name, broker, through
        self._carriers: dict[str, EventCarrier] = {}
        self._seen: dict[str, SeenEvents] = {}
        self._wanted: dict[str, Wanted] = {}
        self._held = ExitStack()
        self._looking: threading.Thread | None = None
        self._closing = threading.Event()
        self.guard = threading.RLock()
        #: Those that the client listens to, and at which QoS.
        self.listened: dict[str, int] = {}
        #: Why a broker could not be told what is wanted, the last time it was tried.
        self.trouble: SealcastError | None = None

    def carrier(self, topic: str) -> EventCarrier:
        with self.guard:
            if topic not in self._carriers:
                made = carrier_for(self._realm, topic, self._name, self._broker, self._through)
                self._held.callback(made.close)
                self._carriers[topic] = made
            return self._carriers[topic]

    def wants(self, topic: str) -> Wanted:
        with self.guard:
            if topic not in self._wanted:
                self._wanted[topic] = Wanted(self._realm, topic, self._name)
            return self._wanted[topic]

    def seen(self, topic: str) -> SeenEvents:
        return self._seen.setdefault(topic, SeenEvents())

    def listen(self, topic: str, qos: int) -> None:
        """Listens from now on, and keeps looking."""
        self.listened[topic] = qos
        self.look()
        if self._looking is None:
            self._looking = threading.Thread(target=self._look_often, name=f"sealcast-{self._name}", daemon=True)
            self._looking.start()

    def look(self) -> None:
        """Keeps what is wanted known to those who deliver: in a new epoch, and when a token is about to end."""
        with self.guard:
            for topic in self.listened:
                try:
                    self.carrier(topic).look()
                except (Rejected, Misuse, Unavailable) as error:
                    self.trouble = error  # it is tried again
                else:
                    self.trouble = None

    def _look_often(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            self.look()

    def stop(self) -> None:
        """Looks no more."""
        self._closing.set()

    def close(self) -> None:
        """Lets go of keys and files."""
        self.stop()
        self._held.close()
        self._carriers.clear()
        self._wanted.clear()
