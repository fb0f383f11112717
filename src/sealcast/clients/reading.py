"""How subscribers hand out events, whatever protects their topic.

    poll() or iteration     events, in order; the cursor stays
    ack()                   everything handed out so far is done with: durable, and never handed out again

Between the two a crash means that events are handed out once more after a restart, never that one is lost.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final, Self

from sealcast.errors import CannotOpen, Misuse
from sealcast.model.event import OpenedEvent, Position
from sealcast.primitives.sign import VerifyKey
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.state import RealmState

EVENTS_PER_POLL: Final = 1_000
#: How often a waiting subscriber looks for new batches.
LOOK_SECONDS: Final = 0.05


class Reading(ABC):
    """One entity's mailbox on one topic. Not shared between threads."""

    realm: EntityRealm
    topic: str
    name: str

    def poll(self, max_events: int = EVENTS_PER_POLL, timeout: float = 0.0) -> list[OpenedEvent]:
        """The next events, at most so many; waits up to `timeout` seconds for the first, and may return none."""
        deadline = time.monotonic() + timeout
        while True:
            self._look()
            events = self._take(max_events)
            left = deadline - time.monotonic()
            if events or left <= 0:
                return events
            time.sleep(min(LOOK_SECONDS, left))

    def __iter__(self) -> Iterator[OpenedEvent]:
        """Everything that is there by now."""
        while events := self.poll():
            yield from events

    def follow(self, stop: Callable[[], bool] = lambda: False) -> Iterator[OpenedEvent]:
        """Everything, and then every event as it is delivered, until `stop` says so."""
        while not stop():
            yield from self.poll(timeout=1.0)

    @abstractmethod
    def events_of(self, first: int, end: int) -> Iterator[OpenedEvent]:
        """What the ledger's records `first` to before `end` hold for it: for a reader that keeps its place itself."""

    @property
    @abstractmethod
    def handed_out(self) -> Any:
        """How far `ack` goes, now or later; None when there is nothing to acknowledge."""

    @abstractmethod
    def ack(self, upto: Any = None) -> None:
        """Durably done with everything that was handed out so far, or up to what was `handed_out` before."""

    @abstractmethod
    def lag(self) -> int:
        """How many events wait after the durable cursor."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    # --- inside ---------------------------------------------------------------------------------------

    @abstractmethod
    def _look(self) -> None:
        """Before every look at the mailbox: whether it may read, and whether anyone has to be told something."""

    @abstractmethod
    def _take(self, max_events: int) -> list[OpenedEvent]:
        """The next events, opened."""

    def _current(self) -> RealmState:
        """The newest registry. Reading obeys the rights of now, also for what was delivered before."""
        state = self.realm.state()
        state.require(Right.SUBSCRIBE, self.topic, self.name, self.realm.clock())
        return state

    def _verify_key_of(self, publisher: str) -> VerifyKey:
        # Also of one who was revoked since: what was admitted before stays readable.
        entity = self.realm.state().entities.get(publisher)
        if entity is None:
            raise CannotOpen(f"it names a publisher, {publisher!r}, whom nobody enrolled")
        return VerifyKey(entity.verify_key)


def place_named(given: str | int | Position | datetime) -> str:
    """A place in a mailbox, as `log.place` reads it."""
    if isinstance(given, Position):
        return str(given)
    if isinstance(given, bool):
        raise Misuse(f"{given!r} is no place in a mailbox")
    return given.isoformat() if isinstance(given, datetime) else str(given)
