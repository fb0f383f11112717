"""How long a subscription is served: what its token says, what its subscriber's right says, and who was revoked.

A function of the realm's state: at one version every subscription has an interval of time, perhaps an empty one. A
batch is pinned to a version and to a time, so who gets its events is decided, and decided the same when it is run
again. A stream that runs for months needs nobody to tell it that a token has ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sealcast.model.subscription import Subscription
from sealcast.trust.certificates.roles import Role
from sealcast.trust.realm.changes import EVERYTHING, Credential, Right
from sealcast.trust.realm.machine import RealmState, Topic
from sealcast.trust.realm.templates import Template

#: Later than any time that can be pinned.
FOR_EVER: Final = (1 << 62) - 1
_NEVER: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class ServedInterval:
    """What a subscription is served, and from when to when; the end is not included."""

    filter: str
    #: What its token is for: the filter counts within it.
    template: str
    from_us: int
    until_us: int

    def holds(self, time_us: int) -> bool:
        return self.from_us <= time_us < self.until_us


def served_intervals(
    state: RealmState, topic: Topic, subscriptions: Mapping[str, Subscription]
) -> Iterator[tuple[str, ServedInterval]]:
    """Returns the intervals of these subscriptions, in their order."""
    credentials = state.credentials_of(topic.name)
    void = _void_centers(state)
    for id, subscription in subscriptions.items():
        credential = credentials.get(id)
        right = _right(state, topic, subscription.subscriber)
        begins, ends = _token(state, topic, credential, void)
        template = _template(state, topic, subscription.subscriber, credential)
        if template is None:
            begins, ends = _NEVER
        yield (
            id,
            ServedInterval(subscription.filter, template or EVERYTHING, max(begins, right[0]), min(ends, right[1])),
        )


def _right(state: RealmState, topic: Topic, subscriber: str) -> tuple[int, int]:
    term = state.terms_of(topic.name, subscriber).get(Right.SUBSCRIBE)
    if term is None:
        return _NEVER
    return term.not_before_us, FOR_EVER if term.until_us is None else term.until_us


def _template(state: RealmState, topic: Topic, subscriber: str, credential: Credential | None) -> str | None:
    """What its token is for, within what was decided since; None for nothing."""
    term = state.terms_of(topic.name, subscriber).get(Right.SUBSCRIBE)
    given = EVERYTHING if credential is None else credential.template
    if term is None or term.template == given:
        return given
    both = Template.parse(given).meet(Template.parse(term.template), topic.schema)
    return None if both is None else str(both)


def _token(state: RealmState, topic: Topic, credential: Credential | None, void: frozenset[bytes]) -> tuple[int, int]:
    """A token that begins a moment from now by its center's clock has begun; one that has ended has ended."""
    if credential is None:
        # Only a realm without an authority takes a subscription without a token.
        return (0, FOR_EVER) if state.founding is None else _NEVER
    if state.revoked.is_revoked(credential.serial) or credential.center in void:
        return _NEVER
    return credential.not_before_us - topic.parameters.max_skew_us, credential.expires_us


def _void_centers(state: RealmState) -> frozenset[bytes]:
    """The certificates of key centers that were revoked: what was signed under them counts no more."""
    return frozenset(
        hashlib.sha256(der).digest()
        for center in state.entities.values()
        if Role.KEY_CENTER in center.roles
        for der, serial in zip((*center.former, center.certificate), center.serials, strict=False)
        if state.revoked.is_revoked(serial)
    )
