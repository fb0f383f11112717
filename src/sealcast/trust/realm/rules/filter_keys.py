"""Which brokers can read which filters, where brokers read them: those that were handed the key it is sealed under."""

from __future__ import annotations

from sealcast.errors import Misuse, Rejected
from sealcast.model.subscription import Subscription
from sealcast.trust.certificates.roles import Role
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.changes import HandFilterKey
from sealcast.trust.realm.rules.draft import Draft, TopicTables
from sealcast.wire.sealed_texts import HANDED_KEY_SIZES, KEY_ID_BYTES, is_sealed_text, key_id_of


def hand_filter_key(draft: Draft, change: HandFilterKey) -> None:
    tables, broker = draft.tables(change.topic), draft.holder(change.broker, Role.BROKER)
    if not tables.topic.protection.brokers_read:
        raise Misuse(f"brokers of topic {change.topic!r} do not read filters")
    if not _serves(tables, broker.name):
        raise Rejected(
            f"broker {broker.name!r} does not serve topic {change.topic!r}",
            hint=f"let it: sealcast topic serve {change.topic} {broker.name}",
        )
    if len(change.id) != KEY_ID_BYTES or not any(change.id) or len(change.sealed) not in HANDED_KEY_SIZES:
        raise Misuse(
            f"a filter key has an id of {KEY_ID_BYTES} bytes, not all zero, and is sealed in "
            f"{' or '.join(map(str, HANDED_KEY_SIZES))} bytes"
        )
    if (change.id, broker.name) in tables.filter_keys.read:
        raise Misuse(f"broker {broker.name!r} was handed this filter key before")
    tables.filter_keys.write()[change.id, broker.name] = change.sealed


def check_readable(draft: Draft, tables: TopicTables, subscription: Subscription) -> None:
    """Refuses a sealed filter that a broker at which its subscriber is could not read."""
    stays = tables.stays.read.get(subscription.subscriber)
    homes = [FIRST_BROKER] if stays is None else [stay.broker for stay in stays if stay.until is None]
    for broker in homes:
        who = draft.entities.read.get(broker)
        if who is not None and not who.revoked and _serves(tables, broker):
            check_handed(tables, subscription, broker)


def check_handed(tables: TopicTables, subscription: Subscription, broker: str) -> None:
    """Refuses a sealed filter whose key was not handed to a broker."""
    if is_sealed_text(subscription.filter) and (key_id_of(subscription.filter), broker) not in tables.filter_keys.read:
        raise Rejected(
            f"broker {broker!r} was not handed the key of subscription {subscription.id!r}, and could not read it",
            hint="another broker that serves the topic hands it over while it runs: sealcast run",
        )


def _serves(tables: TopicTables, broker: str) -> bool:
    return (tables.topic.epoch, broker) in tables.topic_keys.read
