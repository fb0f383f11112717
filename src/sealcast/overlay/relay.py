"""Forwarding and moves, turn by turn, beside the pipelines of the brokers that run here."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, Self

from sealcast.errors import NotFound, SealcastError
from sealcast.log.closing import Closing
from sealcast.overlay import moves
from sealcast.overlay.routing import Forwarder, Link
from sealcast.trust.certificates.roles import Role
from sealcast.trust.handles import OpenRealm
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.state import RealmState

IDLE_SECONDS: Final = 0.1


def brokers_here(realm: OpenRealm, state: RealmState, node: str | None = None) -> list[str]:
    """The brokers that can run here: the one named, or all whose keys are here."""
    if node is not None:
        if Role.BROKER not in state.entity(node).roles:
            raise NotFound(f"entity {node!r} is no broker", hint="those that are: sealcast broker list")
        return [node]
    here = [b.name for b in state.holders(Role.BROKER) if realm.paths.broker_key_of(b.name).exists()]
    return here or [FIRST_BROKER]


class Relay(Closing):
    """Forwards what these brokers admit, and ends moves that can be ended. A thread of its own while it is entered."""

    def __init__(self, realm: OpenRealm, brokers: Sequence[str], topics: Sequence[str] = ()) -> None:
        self._realm = realm
        self._forwarders = [Forwarder(realm, broker, topics) for broker in brokers]
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        #: What ended the thread before it was asked to.
        self.failure: SealcastError | None = None

    def once(self) -> dict[Link, int]:
        """Frames that went over each link."""
        sent: dict[Link, int] = {}
        for forwarder in self._forwarders:
            sent |= forwarder.once()
        moves.settle(self._realm)
        return sent

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if not any(self.once().values()):
                    self._stop.wait(IDLE_SECONDS)
        except SealcastError as error:
            self.failure = error

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
