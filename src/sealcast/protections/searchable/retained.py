"""Both orders of paper 002, without being asked: which filters are new to a batch, and what they are matched with.

    a batch at version v1, after one at v0     its own frames        x  every filter at v1          (`table`)
                                               what is retained      x  filters that came after v0  (`late`)

So every filter meets every event at most once: with the event's own batch, if it was registered by then, or else with
the first batch that knows of it. Both are functions of the ledger and of what the batch is pinned to. A batch that is
run again finds the same.

Retained are the newest batches until they hold as many events as the topic's setting says, as far as they were
committed within its span of time and their frames are still kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sealcast.log.entry import PieceRef
from sealcast.log.ledger import Committed
from sealcast.model.protection import Retention
from sealcast.model.subscription import Subscription
from sealcast.trust.handles import OpenRealm
from sealcast.trust.realm.changes import AddSubscription
from sealcast.trust.realm.state import RealmState

_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class RetainedPiece:
    """A piece of frames that an earlier batch took."""

    record: int
    #: What that batch was pinned to: its frames are admitted as they were then.
    version: int
    ref: PieceRef


def retained(
    record: Callable[[int], Committed], end: int, retention: Retention | None, now_us: int
) -> list[RetainedPiece]:
    """What of a ledger's first `end` records is retained at a time, the oldest first."""
    found, left = list[RetainedPiece](), 0 if retention is None else retention.events
    since = now_us if retention is None else now_us - retention.seconds * _SECOND_US
    for index in range(end - 1, -1, -1):
        committed = record(index)
        if left <= 0 or committed.time_us < since:
            break
        entry = committed.entry
        left -= entry.counts.get("admitted", 0)
        found += [RetainedPiece(index, entry.version, ref) for ref in reversed(entry.own)]
    return found[::-1]


def new_filters(
    realm: OpenRealm, topic: str, broker: str, before: RealmState, now: RealmState
) -> Mapping[str, Subscription]:
    """The subscriptions that came between two versions and that a broker owes what is retained.

    Who moves to another broker is owed by the one that served it when the filter came: that one has handled what was
    published before. It goes on until it has done so (`overlay.moves`).
    """
    known = before.topic_state(topic).subscriptions
    came = {id: each for id, each in now.subscriptions_at(topic, broker).items() if id not in known}
    if all(len(now.stays_of(topic, each.subscriber)) == 1 for each in came.values()):
        return came
    added = {
        change.id: version
        for version, _, change in realm.registry.changes(before.version + 1, now.version)
        if isinstance(change, AddSubscription)
    }
    return {id: each for id, each in came.items() if serving(realm.state(added[id]), topic, each.subscriber) == broker}


def serving(state: RealmState, topic: str, subscriber: str) -> str:
    """The broker that serves a subscriber; while it moves, the one that it leaves."""
    return next(stay.broker for stay in state.stays_of(topic, subscriber) if stay.until is None)
