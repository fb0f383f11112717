"""Forwarding, keys of filters and moves, turn by turn, beside the pipelines of the brokers that run here."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, Self

from sealcast.errors import NotFound, SealcastError, Unavailable
from sealcast.log import failing
from sealcast.log.carriers import CarrierAway
from sealcast.log.closing import Closing
from sealcast.log.failing import FailureNote
from sealcast.overlay import moves
from sealcast.overlay.filter_keys import FilterKeyHandover
from sealcast.overlay.routing import Forwarder, Link
from sealcast.transports.problems import GatewayUnreachable
from sealcast.trust.certificates.roles import Role
from sealcast.trust.handles import BrokerRealm, OpenRealm
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.state import RealmState
from sealcast.trust.storage.trouble import CommitLost

IDLE_SECONDS: Final = 0.1
#: After a turn that failed.
FAILED_SECONDS: Final = 5.0
#: Another machine, or the way to it, is down for now. The next turn goes on where this one stopped.
AWAY: Final = (GatewayUnreachable, CommitLost, CarrierAway)


def brokers_here(realm: OpenRealm, state: RealmState, node: str | None = None) -> list[str]:
    """The brokers that can run here: the one named, or all whose keys are here."""
    if node is not None:
        if Role.BROKER not in state.entity(node).roles:
            raise NotFound(f"entity {node!r} is no broker", hint="those that are: sealcast broker list")
        return [node]
    here = [b.name for b in state.holders(Role.BROKER) if realm.paths.broker_key_of(b.name).exists()]
    return here or [FIRST_BROKER]


class Relay(Closing):
    """Forwards what these brokers admit, hands over keys of filters, and ends moves that can be ended. A thread of its
    own while it is entered."""

    def __init__(self, realm: BrokerRealm, brokers: Sequence[str], topics: Sequence[str] = ()) -> None:
        self._realm = realm
        self._authors = [author for name in brokers if (author := realm.author(name)) is not None]
        self._handover = FilterKeyHandover(realm, brokers)
        self._forwarders = [Forwarder(realm, broker, topics) for broker in brokers]
        #: Since when links have failed of which there is a note.
        self._noted: dict[Link, FailureNote] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        #: What went wrong in its last turn.
        self.failure: SealcastError | None = None

    def once(self) -> dict[Link, int]:
        """Frames that went over each link. All are tried before what went wrong with one is raised. A machine that
        cannot be reached is nothing wrong: what is for it waits, and `sealcast status` says so."""
        sent: dict[Link, int] = {}
        if len(self._realm.state().brokers()) < 2:
            return sent
        for forwarder in self._forwarders:
            sent |= forwarder.once()
        self._handover.once()
        moves.settle(self._realm, *self._authors)
        failures = {link: error for forwarder in self._forwarders for link, error in forwarder.failures.items()}
        self._note(failures)
        for error in failures.values():
            if not isinstance(error, AWAY):
                raise error
        return sent

    def _note(self, failures: Mapping[Link, SealcastError]) -> None:
        """For `sealcast status`. A note that cannot be written changes nothing of what it would say."""
        now, topics = time.time_ns() // 1000, self._realm.paths
        for link, error in failures.items():
            before = self._noted.get(link)
            since, times = (now, 0) if before is None else (before.since_us, before.attempts)
            step = f"to-{link.destination}"
            self._noted[link] = note = FailureNote(step, since, now, times + 1, error.message, error.hint or "")
            with suppress(Unavailable):
                failing.write(topics.topic(link.topic, link.origin).root, note)
        for link in self._noted.keys() - failures.keys():
            with suppress(Unavailable):
                failing.clear(topics.topic(link.topic, link.origin).root, self._noted.pop(link).step)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                pause, self.failure = (0.0 if any(self.once().values()) else IDLE_SECONDS), None
            except AWAY:  # where the registry is written, say
                pause, self.failure = FAILED_SECONDS, None
            except SealcastError as error:
                pause, self.failure = FAILED_SECONDS, error
            self._stop.wait(pause)

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        for forwarder in self._forwarders:
            forwarder.close()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="sealcast relay", daemon=True)
        self._thread.start()
        return self
