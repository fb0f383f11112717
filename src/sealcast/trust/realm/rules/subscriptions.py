"""Who may do what and for how long, and who wants what."""

from __future__ import annotations

from sealcast.errors import Misuse, Rejected
from sealcast.model.subscription import Subscription
from sealcast.trust.realm.changes import (
    AddSubscription,
    Credential,
    Grant,
    RemoveSubscription,
    RenewSubscription,
    Revoke,
    Right,
)
from sealcast.trust.realm.rules import filter_keys, homes
from sealcast.trust.realm.rules.draft import Draft
from sealcast.trust.realm.rules.names import check_name
from sealcast.trust.realm.topics import Term
from sealcast.wire.limits import MAX_SEALED_TEXT_CHARACTERS
from sealcast.wire.sealed_texts import is_sealed_text


def change_rights(draft: Draft, change: Grant | Revoke) -> None:
    if not change.rights:
        raise Misuse("no right was named", hint=f"rights are {' and '.join(Right)}")
    who, tables = draft.entity(change.entity), draft.tables(change.topic)
    if isinstance(change, Grant):
        if who.revoked:
            raise Rejected(
                f"entity {change.entity!r} was revoked (at version {who.revoked_at_version}); it gets no rights"
            )
        term = _check_term(change)
        after = {**tables.terms_of(who), **dict.fromkeys(change.rights, term)}
    else:
        after = {right: term for right, term in tables.terms_of(who).items() if right not in change.rights}
    tables.terms.write()[change.entity] = after


def add_subscription(draft: Draft, change: AddSubscription) -> None:
    check_name("subscription", change.id)
    if change.id in draft.owners.read:
        raise Misuse(
            f"subscription id {change.id!r} was given before", hint="ids are never given twice: choose another"
        )
    who, tables = draft.entity(change.subscriber), draft.tables(change.topic)
    sealed = tables.topic.protection.brokers_read and is_sealed_text(change.filter)
    most = MAX_SEALED_TEXT_CHARACTERS if sealed else tables.topic.protection.max_filter_characters
    if not change.filter or len(change.filter) > most:
        raise Rejected(f"subscription {change.id!r}: a filter has 1 to {most} characters")
    if _not_unicode(change.filter):
        raise Rejected(f"subscription {change.id!r}: its filter is not valid Unicode (a lone surrogate)")
    if who.revoked or Right.SUBSCRIBE not in tables.terms_of(who):
        draft.state().require(Right.SUBSCRIBE, change.topic, change.subscriber)
    if tables.topic.protection.overlay:
        raise Misuse(
            f"topic {change.topic!r} is layered: its filters are encrypted and go to brokers, never into the registry",
            hint=f"subscribe as the entity itself: sealcast subscription add {change.topic} FILTER --as {who.name}",
        )
    credential = _check_credential(draft, change.id, change.credential)
    # Names as the realm has them: a million subscriptions share them.
    subscription = Subscription(change.id, tables.topic.name, who.name, change.filter)
    if sealed:
        filter_keys.check_readable(draft, tables, subscription)
    homes.settle_in(draft, tables, who.name)
    if who.name not in tables.slots.read:
        tables.slots.write()[who.name] = len(tables.slots.read)
    tables.subscriptions.write()[change.id] = subscription
    if credential is not None:
        tables.credentials.write()[change.id] = credential
    draft.owners.write()[change.id] = tables.topic.name


def renew_subscription(draft: Draft, change: RenewSubscription) -> None:
    live = [draft.subscription(id) for id in change.ids]
    if not live or len({(s.topic, s.subscriber) for s in live}) != 1:
        raise Misuse("a token is for subscriptions of one subscriber on one topic")
    credential = _check_credential(draft, live[0].id, change.credential)
    assert credential is not None
    table = draft.tables(live[0].topic).credentials.write()
    table.update(dict.fromkeys(change.ids, credential))


def _check_credential(draft: Draft, id: str, credential: Credential | None) -> Credential | None:
    if credential is None:
        if draft.founding is not None:
            raise Rejected(
                f"subscription {id!r} came without a token",
                hint="ask the topic's key center for one: sealcast token request",
            )
        return None
    if not credential.token or credential.expires_us <= credential.not_before_us or not credential.template:
        raise Misuse(f"subscription {id!r}: its token is empty, never valid, or for nothing")
    return credential


def remove_subscription(draft: Draft, change: RemoveSubscription) -> None:
    gone = draft.subscription(change.id)
    tables = draft.tables(gone.topic)
    del tables.subscriptions.write()[change.id]
    if change.id in tables.credentials.read:
        del tables.credentials.write()[change.id]
    draft.owners.write()[change.id] = None
    draft.ended.write()[change.id] = gone.subscriber


def _check_term(grant: Grant) -> Term:
    if grant.until_us is not None and grant.until_us <= grant.not_before_us:
        raise Misuse(f"a right on topic {grant.topic!r} that ends before it begins is none")
    if not grant.template:
        raise Misuse("a template that is empty admits nothing", hint="write * for everything")
    return Term(grant.not_before_us, grant.until_us, grant.template)


def _not_unicode(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)
