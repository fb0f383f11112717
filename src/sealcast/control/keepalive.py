"""Keeping subscriptions alive: a later token for a reader's own, when half of the life of theirs is over.

A subscription ends with its token. Whoever reads is there to renew it: asks the topic's key center for the next token,
answering its challenge if there is one, and shows it at a broker's desk. That happens beside the reading, in a thread
that is there while it is needed: a center that takes its time keeps nobody from the events that are delivered. If it is
of no use, it is tried again a little later; what is delivered until the token ends is read either way.
"""

from __future__ import annotations

import threading
from typing import Final

from sealcast.errors import Misuse, Rejected, SealcastError, Unavailable
from sealcast.primitives.secrets import Unpicklable
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.realm.state import RealmState

RETRY_US: Final = 30_000_000


class KeepAlive(Unpicklable):
    """One reader's subscriptions on one topic."""

    def __init__(self, realm: EntityRealm, topic: str, identity: Identity) -> None:
        self._realm, self._topic, self._identity = realm, topic, identity
        self._state: RealmState | None = None
        self._ids: tuple[str, ...] = ()
        self._due_us = 0
        self._next_us = 0
        self._thread: threading.Thread | None = None
        #: Why the last attempt came to nothing, if it did.
        self.trouble: SealcastError | None = None

    def look(self, state: RealmState) -> None:
        """Renews beside the caller what is due by the newest state, which costs nothing while nothing is."""
        if state is not self._state:
            self._state = state
            self._due(state)
        now = self._realm.clock()
        busy = self._thread is not None and self._thread.is_alive()
        if self._ids and now >= max(self._due_us, self._next_us) and not busy:
            self._next_us = now + RETRY_US
            self._thread = threading.Thread(target=self._renew, args=(self._ids,), daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Until what is under way is over."""
        if self._thread is not None:
            self._thread.join()

    def _due(self, state: RealmState) -> None:
        found, epoch = state.topic_state(self._topic), state.topic(self._topic).epoch
        mine = {
            id: credential
            for id, credential in found.credentials.items()
            if found.subscriptions[id].subscriber == self._identity.name
        }
        halves = ((c.not_before_us + c.expires_us) // 2 if c.epoch == epoch else 0 for c in mine.values())
        self._ids, self._due_us = tuple(mine), min(halves, default=0)

    def _renew(self, ids: tuple[str, ...]) -> None:
        # A handle of its own: the reader's belongs to the reader's thread.
        realm = self._realm.reopen()
        try:
            # Only now: most readers have nothing to renew, and this takes a while to import.
            from sealcast.control.desk import MAX_IDS
            from sealcast.control.requests import renew_subscriptions
            from sealcast.control.wallet import Wallet

            with Wallet(realm, self._identity.name, identity=self._identity) as wallet:
                for first in range(0, len(ids), MAX_IDS):
                    renew_subscriptions(wallet, self._topic, ids[first : first + MAX_IDS])
            self.trouble = None
        except (Rejected, Misuse, Unavailable) as error:
            self.trouble = error
