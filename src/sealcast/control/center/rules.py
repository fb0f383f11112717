"""What a key center decides: a proven request, a state, its secrets and a time -> changes and an answer.

Nothing is read or written here. The envelope's checks came first: the request was signed by the holder of a certificate
that this realm's authority issued and has not revoked, is fresh, is meant for this center, and did not come before.
Then, numbered, the first failure wins, each with its own reason:

     1 form        the fields are not those of its kind
     2 sender      nobody of that name is enrolled with these keys, or it was revoked
    register                                                owner's requests
     3 parameter   a parameter that cannot be; it is named     7 owner       there is no such topic, or it is not yours
     4 center      your topic, which another center manages credentials
     5 taken       the name is someone else's topic            8 right       there is no such topic, or not for you
     6 quota       the owner has registered too many           9 elsewhere   another center manages it
    prove                                                     10 term        your right has not begun, or has ended
    12 challenge   none is open, or this is not it            11 suspended   too many challenges were missed
    13 late        it was answered too late
    14 proof       not signed by the key that frames are signed with

Protections whose keys are asked for add rules, with checks of their own (15 and on).

"No such topic" and "not yours" are the same words: who has no right on a topic does not learn from its center that it
exists. Every request can be asked twice and is done once: a topic's id follows from its registration, a rotation names
the epoch that it ends, rights are what they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final, TypeAlias, TypeVar

from sealcast.control.bodies import Body
from sealcast.control.center import requests
from sealcast.control.center.proofs import NOTHING_KNOWN, ProofRecord
from sealcast.control.center.requests import (
    Authorise,
    Challenge,
    Credentials,
    Deauthorise,
    Proof,
    Register,
    Rotate,
    WantCredentials,
)
from sealcast.control.service import Answer
from sealcast.errors import FilterRejected, FrameRejected, Misuse, ParameterRejected, ReasonedRejection, SchemaRejected
from sealcast.primitives.secrets import Unpicklable
from sealcast.primitives.sign import VerifyKey
from sealcast.trust.certificates.certificate import Certificate
from sealcast.trust.keys import minting
from sealcast.trust.keys.centers import CenterSecrets
from sealcast.trust.keys.issuing import Issuer, rotation_due
from sealcast.trust.realm.changes import Access, Change, CreateTopic, Grant, RenewSubscription, Revoke, Right
from sealcast.trust.realm.leaving import unplaced
from sealcast.trust.realm.machine import apply, apply_all
from sealcast.trust.realm.parameters import KeyParameters
from sealcast.trust.realm.state import Entity, RealmState
from sealcast.trust.realm.templates import Template
from sealcast.trust.realm.topics import FIRST_EPOCH, Topic
from sealcast.wire import cbor

#: Topics that one owner can register with one center.
MAX_TOPICS_EACH: Final = 1_024
#: Members of a realm up to which anyone may register a topic for all of them.
MAX_MEMBERS: Final = 1_000


class CenterReason(StrEnum):
    """Why a center says no; the table above, in its order."""

    FORM = "form"
    SENDER = "sender"
    PARAMETER = "parameter"
    CENTER = "center"
    TAKEN = "taken"
    QUOTA = "quota"
    OWNER = "owner"
    RIGHT = "right"
    ELSEWHERE = "elsewhere"
    TERM = "term"
    SUSPENDED = "suspended"
    CHALLENGE = "challenge"
    LATE = "late"
    PROOF = "proof"
    PROTECTION = "protection"
    EPOCH = "epoch"
    SUBSCRIPTION = "subscription"


class CenterRejected(ReasonedRejection[CenterReason]):
    """A request that a key center refuses."""

    code = "center"


@dataclass(frozen=True, slots=True)
class ToRemember:
    """What the center is to remember of an entity on a topic."""

    topic: bytes
    entity: str
    record: ProofRecord


@dataclass(frozen=True, slots=True)
class CenterDecision:
    """What is to change, what to remember, and what to say."""

    answer: Answer | CenterRejected
    changes: tuple[Change, ...] = ()
    known: ToRemember | None = None


RecordOf = Callable[[bytes, str], ProofRecord]
#: What is decided about a body from an entity, on a state and at a time.
Rule = Callable[[bytes, Entity, RealmState, int], CenterDecision]
#: What a center is asked besides, by kind of request: rules that are made beside its own, and use them.
MoreRules: TypeAlias = "Callable[[Rules], Iterable[tuple[str, Rule]]]"
B = TypeVar("B", bound=Body)


def rule(body: type[B], decide: Callable[[B, Entity, RealmState, int], CenterDecision]) -> tuple[str, Rule]:
    """A kind of request, and its rule on bodies as they came."""
    return body.KIND, lambda data, who, state, now_us: decide(body.from_bytes(data), who, state, now_us)


def nothing_more(rules: Rules) -> Iterable[tuple[str, Rule]]:
    """For a center that is asked nothing besides."""
    return ()


class OwnIssuer(Issuer):
    """Hands out what one center may hand out; which of it goes to whom, the rules decide by who was challenged."""

    vouches = True

    def __init__(self, secrets: CenterSecrets) -> None:
        def mine(name: str) -> CenterSecrets:
            if name != secrets.name:
                raise Misuse(f"center {name!r} is another than {secrets.name!r}")
            return secrets

        self.center = cache(mine)


class Rules(Unpicklable):
    """One center's rules: its secrets, and what it knows of who was challenged."""

    def __init__(self, secrets: CenterSecrets, realm: bytes, record: RecordOf, more: MoreRules = nothing_more) -> None:
        """`more` are rules on further kinds of request, of protections whose keys are asked for."""
        self._secrets, self._realm, self._proofs = secrets, realm, record
        self._issuer = OwnIssuer(secrets)
        self._rules: Mapping[str, Rule] = dict(
            [
                rule(Register, self._register),
                rule(Authorise, self._authorise),
                rule(Deauthorise, self._deauthorise),
                rule(Rotate, self._rotate),
                rule(WantCredentials, self._credentials),
                rule(Proof, self._prove),
                *more(self),
            ]
        )
        self.kinds = frozenset(self._rules)

    @property
    def name(self) -> str:
        return self._secrets.name

    @property
    def secrets(self) -> CenterSecrets:
        return self._secrets

    def decide(self, kind: str, body: bytes, sender: Certificate, state: RealmState, now_us: int) -> CenterDecision:
        """CenterRejected, or what the realm's own rules refuse, when it is no."""
        try:
            return self._decide(kind, body, sender, state, now_us)
        except (FrameRejected, SchemaRejected, FilterRejected) as error:
            raise no(CenterReason.FORM, error.message, error.hint) from None
        except ParameterRejected as error:
            raise no(CenterReason.PARAMETER, error.message, error.hint) from None

    def _decide(self, kind: str, body: bytes, sender: Certificate, state: RealmState, now_us: int) -> CenterDecision:
        who = _enrolled(state, sender)
        rule = self._rules.get(kind)
        if rule is None:
            raise no(CenterReason.FORM, f"a key center is not asked for {kind!r}")
        return rule(body, who, state, now_us)

    # --- the owner's -----------------------------------------------------------------------------

    def _register(self, wanted: Register, who: Entity, state: RealmState, now_us: int) -> CenterDecision:
        # (3)
        parameters = KeyParameters.parse(wanted.parameters)
        id = requests.topic_id(self._realm, self.name, who.name, wanted.name, wanted.nonce)
        create = CreateTopic(
            wanted.name, id, wanted.schema, wanted.partitions,
            access=Access(wanted.access), center=self.name, parameters=parameters, owner=who.name, at_us=now_us,
        )  # fmt: skip
        found = state.topics.get(wanted.name)
        if found is not None:
            self._check_taken(create, found.topic)
            return CenterDecision(_registered(found.topic))
        # (6) what one request may cost the realm is bounded: a key for every member is not everyone's to ask for
        members = sum(e.member and not e.revoked for e in state.entities.values())
        if create.access is Access.MEMBERS and members > MAX_MEMBERS:
            raise no(
                CenterReason.QUOTA,
                f"this realm has {members} members: a topic for all of them is made by its administrator",
                "register it for those who are granted rights, and authorise them",
            )
        if sum(t.topic.owner == who.name for t in state.topics.values()) >= MAX_TOPICS_EACH:
            raise no(CenterReason.QUOTA, f"{who.name!r} has registered {MAX_TOPICS_EACH} topics, which is all it may")
        after = apply(state, create)
        changes = (create, *self._issuer.opening(after, wanted.name, now_us))
        return CenterDecision(_registered(after.topic(wanted.name)), changes)

    def _check_taken(self, wanted: CreateTopic, topic: Topic) -> None:
        # (4) one topic, one center; who manages a topic of somebody else's is nothing that its name gives away
        if topic.center != self.name and topic.owner == wanted.owner:
            raise no(
                CenterReason.CENTER,
                f"topic {topic.name!r} is managed by another key center",
                "a topic has one key center; find it: sealcast topic show",
            )
        # (5) unless it is this very registration, asked once more
        same = (topic.id, topic.owner, topic.schema, topic.partitions, topic.access, topic.parameters)
        if same != (wanted.id, wanted.owner, wanted.schema, wanted.partitions, wanted.access, wanted.parameters):
            raise no(CenterReason.TAKEN, f"topic {topic.name!r} exists already", "choose another name")

    def _authorise(self, wanted: Authorise, who: Entity, state: RealmState, now_us: int) -> CenterDecision:
        about = self._owned(wanted.topic, who, state)
        rights = tuple(sorted(wanted.rights))
        normal = str(Template.parse(wanted.template))
        grant = Grant(wanted.topic, wanted.entity, rights, wanted.not_before_us, wanted.until_us, normal)
        after = apply(state, grant)
        # Whoever decides anew about an entity takes back what its silence had cost it.
        missed = self._proofs(about.id, wanted.entity).missed
        known = ToRemember(about.id, wanted.entity, NOTHING_KNOWN) if missed else None
        keys = self._issuer.missing_pair_keys(after, wanted.topic, [wanted.entity], now_us)
        decided = [found.topic_state(wanted.topic).terms.get(wanted.entity) for found in (state, after)]
        if decided[0] == decided[1]:  # by name, also if the topic lets it in anyhow: that may change
            return CenterDecision(_done(state.version + len(keys)), tuple(keys), known)
        renewals = self._vouched(after, self._issuer.renewals(after, wanted.topic, now_us, [wanted.entity]), now_us)
        made: list[Change] = [grant, *keys, *renewals]
        rekeyed = self._issuer.rekeying(state, apply_all(state, made), wanted.entity, now_us)
        changes = (*made, *self._vouched(after, rekeyed, now_us))
        return CenterDecision(_done(state.version + len(changes)), changes, known)

    def _deauthorise(self, wanted: Deauthorise, who: Entity, state: RealmState, now_us: int) -> CenterDecision:
        self._owned(wanted.topic, who, state)
        revoke = Revoke(wanted.topic, wanted.entity, tuple(sorted(wanted.rights)))
        after = apply(state, revoke)
        same = state.terms_of(wanted.topic, wanted.entity) == after.terms_of(wanted.topic, wanted.entity)
        if same:
            return CenterDecision(_done(state.version))
        made: list[Change] = [revoke, *unplaced(after, now_us, wanted.entity, [wanted.topic])]
        changes = (*made, *self._issuer.rekeying(state, apply_all(state, made), wanted.entity, now_us))
        return CenterDecision(_done(state.version + len(changes)), changes)

    def _rotate(self, wanted: Rotate, who: Entity, state: RealmState, now_us: int) -> CenterDecision:
        about = self._owned(wanted.topic, who, state)
        if wanted.epoch > about.epoch or wanted.epoch < FIRST_EPOCH:
            raise Misuse(f"topic {about.name!r} is in epoch {about.epoch}; it has no epoch {wanted.epoch}")
        if wanted.epoch < about.epoch:
            return CenterDecision(_registered(about))
        changes = self._rotation(state, about.name, now_us)
        return CenterDecision(Answer(requests.REGISTERED, cbor.encode([about.epoch + 1])), changes)

    def due(self, state: RealmState, now_us: int, messages: Mapping[str, int]) -> tuple[dict[str, str], list[Change]]:
        """Its topics whose keys are to be replaced, with the reason; and what replaces them."""
        mine = [name for name, found in state.topics.items() if found.topic.center == self.name]
        due = {name: why for name in mine if (why := rotation_due(state, name, now_us, messages.get(name, 0)))}
        return due, [change for topic in due for change in self._rotation(state, topic, now_us)]

    def _rotation(self, state: RealmState, topic: str, now_us: int) -> tuple[Change, ...]:
        return tuple(self._vouched(state, self._issuer.rotation(state, topic, now_us), now_us))

    def _vouched(self, state: RealmState, changes: list[Change], now_us: int) -> list[Change]:
        """Without new tokens for who has a challenge to answer first."""

        def fine(change: Change) -> bool:
            if not isinstance(change, RenewSubscription):
                return True
            subscription = state.subscription(change.ids[0])
            about = state.topic(subscription.topic)
            record = self._proofs(about.id, subscription.subscriber)
            every = about.parameters.challenge_every_s
            return not every or not (record.suspended or record.due(every, now_us))

        return [change for change in changes if fine(change)]

    def _owned(self, name: str, who: Entity, state: RealmState) -> Topic:
        # (7)
        found = state.topics.get(name)
        if found is None or found.topic.owner != who.name:
            raise no(
                CenterReason.OWNER,
                f"there is no topic {name!r} that {who.name!r} registered",
                "only who registered a topic decides about it",
            )
        return self._mine(found.topic)

    def _mine(self, topic: Topic) -> Topic:
        # (9)
        if topic.center != self.name:
            raise no(
                CenterReason.ELSEWHERE, f"topic {topic.name!r} is managed by {topic.center!r}", f"ask {topic.center!r}"
            )
        return topic

    # --- everyone's ------------------------------------------------------------------------------

    def _credentials(self, wanted: WantCredentials, who: Entity, state: RealmState, now_us: int) -> CenterDecision:
        about = self.authorised(wanted.topic, wanted.right, who, state, now_us)
        challenge = self.challenged(about, who, now_us)
        if challenge is not None:
            return challenge
        keys = dict(_pair_keys(state, about, who.name))
        changes = self._issuer.missing_pair_keys(state, about.name, [who.name], now_us)
        keys |= {change.epoch: change.sealed for change in changes}
        token = minting.token_for(self._secrets, state, about.name, who.name, wanted.right, now_us)
        made = Credentials(token, about.epoch, keys)
        return CenterDecision(Answer(Credentials.KIND, made.to_bytes()), tuple(changes))

    def authorised(self, topic: str, right: Right, who: Entity, state: RealmState, now_us: int) -> Topic:
        """A topic of this center's on which an entity has a right now."""
        # (8)
        if not state.may(right, topic, who.name):
            raise no(
                CenterReason.RIGHT,
                f"there is no topic {topic!r} on which {who.name!r} may {right}",
                "its owner, or the realm's administrator, gives rights: sealcast grant",
            )
        about = self._mine(state.topic(topic))
        # (10)
        term = state.terms_of(about.name, who.name)[right]
        if not term.holds(now_us):
            early = now_us < term.not_before_us
            raise no(
                CenterReason.TERM,
                f"the right of {who.name!r} to {right} on topic {about.name!r} "
                f"{'has not begun' if early else 'has ended'}",
                f"give it another term: sealcast grant {about.name} {who.name} {right} --for 30d",
            )
        return about

    def challenged(self, about: Topic, who: Entity, now_us: int) -> CenterDecision | None:
        """A challenge in place of an answer, where the topic's owner asks for one and it is due."""
        every, record = about.parameters.challenge_every_s, self._proofs(about.id, who.name)
        if not every:
            return None
        # (11)
        if record.suspended:
            raise no(
                CenterReason.SUSPENDED,
                f"{who.name!r} has missed {record.missed} challenges on topic {about.name!r}",
                "its owner authorises it anew, once it knows that the keys are in the right hands",
            )
        return self._challenge(about, who.name, record, now_us) if record.due(every, now_us) else None

    def _challenge(self, about: Topic, entity: str, record: ProofRecord, now_us: int) -> CenterDecision:
        within = about.parameters.challenge_within_s
        after = record.challenge(os.urandom(requests.NONCE_BYTES), within, now_us)
        known = None if after == record else ToRemember(about.id, entity, after)
        if after.suspended:
            refusal = no(CenterReason.SUSPENDED, f"{entity!r} has missed {after.missed} challenges in a row")
            return CenterDecision(refusal, known=known)
        asked = Challenge(about.name, after.nonce, after.before_us)
        return CenterDecision(Answer(Challenge.KIND, asked.to_bytes()), known=known)

    def _prove(self, proof: Proof, who: Entity, state: RealmState, now_us: int) -> CenterDecision:
        if not any(state.may(right, proof.topic, who.name) for right in Right):
            raise no(CenterReason.RIGHT, f"there is no topic {proof.topic!r} that {who.name!r} may use")
        about = self._mine(state.topic(proof.topic))
        record = self._proofs(about.id, who.name)
        if record.proved == proof.nonce:
            return CenterDecision(_done(state.version))
        # (12)
        if not record.nonce or record.nonce != proof.nonce:
            raise no(CenterReason.CHALLENGE, "no such challenge is open", "ask for a token: it comes with another")
        # (13)
        failed = ToRemember(about.id, who.name, record.failed())
        if now_us > record.before_us:
            return CenterDecision(
                no(CenterReason.LATE, "the challenge was answered too late", "ask again"), known=failed
            )
        # (14)
        signed = requests.challenged(self._realm, self.name, about.name, proof.nonce)
        if not VerifyKey(who.verify_key).verify(signed, proof.signature):
            return CenterDecision(no(CenterReason.PROOF, f"{who.name!r} did not sign this challenge"), known=failed)
        return CenterDecision(_done(state.version), known=ToRemember(about.id, who.name, record.answered(now_us)))


def _enrolled(state: RealmState, sender: Certificate) -> Entity:
    # (2) the registry's word, beside the certificate's: keys that it does not know for this name are nobody's here
    who = state.entities.get(sender.name)
    if who is None or who.revoked or (who.verify_key, who.kem_public) != (sender.verify_key, sender.kem_public):
        raise no(CenterReason.SENDER, f"{sender.name!r} is not enrolled in this realm, with these keys")
    return who


def _pair_keys(state: RealmState, about: Topic, entity: str) -> list[tuple[int, bytes]]:
    """Those that were made for it before, the newest last, as many as an answer has room for besides a new one."""
    first = max(FIRST_EPOCH, about.epoch - requests.MAX_KEYS + 1)
    found = ((epoch, state.pair_key(about.name, epoch, entity)) for epoch in range(first, about.epoch + 1))
    return [(epoch, sealed) for epoch, sealed in found if sealed is not None]


def _registered(topic: Topic) -> Answer:
    return Answer(requests.REGISTERED, cbor.encode([topic.epoch]))


def _done(version: int) -> Answer:
    return Answer(requests.DONE, cbor.encode([version]))


def no(reason: CenterReason, message: str, hint: str | None = None) -> CenterRejected:
    return CenterRejected(reason, message, hint=hint)
