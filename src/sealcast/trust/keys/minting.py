"""Tokens: what a key center signs for an entity, out of what was decided and nothing else.

A token gives the right that was asked for, and whatever other right the entity holds on the same terms, from now until
the first of: the end of the right's term, the end of the entity's certificate, the longest life that the topic's owner
allows. It is never minted for what one may not do now.
"""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from typing import Final

from sealcast.errors import Misuse, Rejected
from sealcast.trust.keys.centers import CenterSecrets
from sealcast.trust.realm.changes import Credential, Right
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.templates import Template
from sealcast.trust.tokens.claims import ID_BYTES, MICROS, Claims
from sealcast.trust.tokens.gates import credential
from sealcast.trust.tokens.token import mint, parse

_TEMPLATES: Final = 1024


def claims_for(state: RealmState, topic: str, entity: str, right: Right, at_us: int) -> Claims:
    """What a token for that right says; Rejected, with the reason, for who may not."""
    state.require(right, topic, entity, at_us)
    about, who, terms = state.topic(topic), state.entity(entity), state.terms_of(topic, entity)
    term, center = terms[right], state.entity(about.center)
    if state.founding is None:
        raise Misuse("this realm was never founded: its centers sign nothing", hint="make one with `sealcast init`")
    # Whole seconds: from the one that has begun, so that it is valid at once.
    begins = max(-(-term.not_before_us // MICROS), at_us // MICROS)
    ends = [begins + about.parameters.token_lifetime_s, who.expires_us // MICROS]
    ends += [] if term.until_us is None else [term.until_us // MICROS]
    if min(ends) <= begins:
        raise Rejected(
            f"entity {entity!r} gets no token for topic {topic!r}: its right or its certificate ends this second",
            hint=f"renew what ends: sealcast entity renew {entity}; sealcast grant {topic} {entity} {right} --for 30d",
        )
    return Claims(
        issuer=center.name,
        issuer_certificate=hashlib.sha256(center.certificate).digest(),
        subject=who.name,
        subject_certificate=hashlib.sha256(who.certificate).digest(),
        subject_serial=who.serials[-1],
        holder_key=who.verify_key,
        realm=state.founding.id,
        topic=about.id,
        template=_template(term.template),
        rights=frozenset(held for held, its in terms.items() if its == term),
        epoch=about.epoch,
        not_before=begins,
        expires=min(ends),
        issued=at_us // MICROS,
        id=os.urandom(ID_BYTES),
    )


def token_for(center: CenterSecrets, state: RealmState, topic: str, entity: str, right: Right, at_us: int) -> bytes:
    """The token itself, signed by the topic's center."""
    about = state.topic(topic)
    if about.center != center.name:
        raise Misuse(f"topic {topic!r} is managed by center {about.center!r}, not by {center.name!r}")
    return mint(center.identity.key, claims_for(state, topic, entity, right, at_us), about.parameters.token_hash)


def credential_for(center: CenterSecrets, state: RealmState, topic: str, entity: str, at_us: int) -> Credential:
    """A token to subscribe with, as a subscription keeps it."""
    data = token_for(center, state, topic, entity, Right.SUBSCRIBE, at_us)
    return credential(data, parse(data))


@lru_cache(_TEMPLATES)
def _template(text: str) -> Template:
    return Template.parse(text)
