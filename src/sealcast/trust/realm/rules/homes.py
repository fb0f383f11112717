"""Which broker seals for whom: a subscriber has one home, and while it moves, two.

A move overlaps, so that nothing falls between: the broker that is left goes on until it has sealed everything that the
new one took in before it knew of the subscriber. What both have sealed, the reader recognises (`protections.stays`).
"""

from __future__ import annotations

from dataclasses import replace

from sealcast.errors import Misuse, Rejected
from sealcast.trust.certificates.roles import Role
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.changes import AttachSubscriber, SettleSubscriber
from sealcast.trust.realm.rules.draft import Draft, TopicTables
from sealcast.trust.realm.rules.filter_keys import check_handed
from sealcast.trust.realm.topics import Stay


def attach_subscriber(draft: Draft, change: AttachSubscriber) -> None:
    tables, who = draft.tables(change.topic), draft.entity(change.subscriber)
    broker = draft.holder(change.broker, Role.BROKER)
    if who.revoked:
        raise Rejected(f"entity {who.name!r} was revoked (at version {who.revoked_at_version}); it moves nowhere")
    if (tables.topic.epoch, broker.name) not in tables.topic_keys.read:
        raise Rejected(
            f"broker {broker.name!r} does not serve topic {change.topic!r}",
            hint=f"let it: sealcast topic serve {change.topic} {broker.name}",
        )
    if change.first < 0:
        raise Misuse("a ledger has no fewer than 0 records")
    before = _stays(tables, who.name)
    if sum(stay.until is None for stay in before) > 1:
        raise Misuse(
            f"{who.name!r} is still on its way to broker {before[-1].broker!r}",
            hint="it has arrived when both brokers have run; then it can move on",
        )
    if before and before[-1].broker == broker.name:
        raise Misuse(f"{who.name!r} is at broker {broker.name!r} already")
    if tables.topic.protection.brokers_read and who.name in tables.slots.read:
        for each in tables.subscriptions.read.values():
            if each.subscriber == who.name:
                check_handed(tables, each, broker.name)
    tables.stays.write()[who.name] = (*before, Stay(broker.name, draft.version + 1, change.first))


def settle_subscriber(draft: Draft, change: SettleSubscriber) -> None:
    tables = draft.tables(change.topic)
    stays = _stays(tables, draft.entity(change.subscriber).name)
    moving = len(stays) > 1 and stays[-1].until is None and stays[-2].until is None
    if not moving:
        raise Misuse(f"{change.subscriber!r} is not moving on topic {change.topic!r}")
    left, home = stays[-2], stays[-1]
    ends = [*(stay.until for stay in stays[:-2]), change.until]
    shape = len(change.overlaps) == len(ends) and change.until >= left.first
    if not shape or any(end is None or not 0 <= at <= end for at, end in zip(change.overlaps, ends, strict=True)):
        raise Misuse(f"{change.subscriber!r} cannot have left broker {left.broker!r} like this")
    settled = (*stays[:-2], replace(left, until=change.until), replace(home, overlaps=change.overlaps))
    tables.stays.write()[change.subscriber] = settled


def settle_in(draft: Draft, tables: TopicTables, subscriber: str) -> None:
    """Whoever has no subscription yet is at its home from now on: what was published before is not forwarded for it.

    That matters only where there are several brokers.
    """
    several = any(broker != FIRST_BROKER for _, broker in tables.topic_keys.read)
    known = several and subscriber in tables.slots.read
    if not several or (known and any(s.subscriber == subscriber for s in tables.subscriptions.read.values())):
        return
    now, stays = draft.version + 1, tables.stays.read.get(subscriber, (Stay(FIRST_BROKER),))
    tables.stays.write()[subscriber] = tuple(replace(s, since=now) if s.until is None else s for s in stays)


def _stays(tables: TopicTables, subscriber: str) -> tuple[Stay, ...]:
    """Who never subscribed is nowhere yet; who did is at the first broker, unless something else was decided."""
    found = tables.stays.read.get(subscriber)
    if found is not None:
        return found
    return (Stay(FIRST_BROKER),) if subscriber in tables.slots.read else ()
