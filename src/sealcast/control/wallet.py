"""An entity's wallet: the token and the keys that its key center gave it, for each topic and right, while they last.

    with Wallet(realm, "alice") as wallet:
        held = wallet.get("quotes", Right.PUBLISH)        held.token, wallet.pair_key(held)

Asked for once, over the center's control topic, and kept: in memory, and in a file of the entity's own, so that a
client that starts again asks nobody. Nothing in the file needs a lock: a token is no use without its owner's key, and
pair keys are there as they came, sealed (HPKE) to that entity alone. What is held is replaced when half its life is
over, when the topic's epoch has ended, or when what was decided about the entity is not what the token says any more.
If nobody answers then, it serves until its end. A center that challenges is answered: that the keys are at work here is
what the wallet can prove.

    REALM/wallets/NAME/<topic's id>.<right>               the center's answer, as it came
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sealcast.control.center import requests
from sealcast.control.center.requests import Challenge, Credentials, Proof, WantCredentials
from sealcast.control.envelopes import ControlMessage, ProvenMessage
from sealcast.errors import CannotOpen, FrameRejected, Misuse, Rejected, TokenRejected, Unavailable
from sealcast.log import files
from sealcast.log.closing import Closing
from sealcast.model.dataclass import dataclass
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.topic_keys import EntityKeys, open_entity_keys
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.state import RealmState
from sealcast.trust.tokens import claims, gates
from sealcast.trust.tokens.claims import Claims

if TYPE_CHECKING:
    from sealcast.control.center.rules import MoreRules
    from sealcast.control.correspondence import Correspondent
    from sealcast.control.serving import AtHand

#: How often a center that does not answer is asked again while what is held still serves.
RETRY_US: Final = 5_000_000
#: A center asks for one proof and then answers; one that goes on asking is not gone along with.
_ROUNDS: Final = 2
_MAX_FILE_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Held:
    """A token and sealed pair keys, as the center gave them."""

    topic: str
    right: Right
    given: Credentials
    claims: Claims

    @property
    def token(self) -> bytes:
        return self.given.token

    @property
    def epoch(self) -> int:
        return self.given.epoch

    def serves(self, state: RealmState, now_us: int) -> bool:
        """Whether it says what was decided: for this topic and epoch, on these terms, under today's certificates."""
        about, said = state.topic(self.topic), self.claims
        term = state.terms_of(self.topic, said.subject).get(self.right)
        who, center = state.entity(said.subject), state.entity(about.center)
        return (
            said.not_before_us <= now_us < said.expires_us
            and (said.realm, said.topic, said.epoch) == (_realm_of(state), about.id, about.epoch)
            and self.epoch == about.epoch
            and self.right in said.rights
            and term is not None
            and str(said.template) == term.template
            and said.holder_key == who.verify_key
            and said.subject_certificate == hashlib.sha256(who.certificate).digest()
            and said.issuer_certificate == hashlib.sha256(center.certificate).digest()
        )

    def half_over(self, now_us: int) -> bool:
        return 2 * now_us >= self.claims.not_before_us + self.claims.expires_us


class Wallet(Unpicklable, Closing):
    """One entity's. Not shared between threads; close it, for the topic on which it hears answers."""

    def __init__(
        self,
        realm: EntityRealm | str | Path,
        name: str,
        *,
        identity: Identity | None = None,
        keep: bool = True,
        at_hand: bool = True,
        center_more: MoreRules | None = None,
    ) -> None:
        """Without `keep`, in memory alone; without `at_hand`, or in a realm that does not say so, asking whoever runs
        the center, also if its keys are here. `center_more` are rules on further requests, for a center that is at
        hand."""
        self.realm = realm if isinstance(realm, EntityRealm) else EntityRealm(realm)
        self.identity = self.realm.identity(name) if identity is None else identity
        self._directory = self.realm.paths.root / "wallets" / name if keep else None
        self._held: dict[tuple[str, Right], Held] = {}
        self._asked: dict[tuple[str, Right], int] = {}
        self._at_hand, self._center_more = at_hand and self.realm.at_hand, center_more
        self._correspondent: Correspondent | None = None

    @property
    def name(self) -> str:
        return self.identity.name

    def get(self, topic: str, right: Right, state: RealmState | None = None) -> Held:
        """What is held, or is asked for now; Rejected, with the reason, for who may not.

        A caller that has just read the realm's newest state can say so.
        """
        state, now = self.realm.state() if state is None else state, self.realm.clock()
        state.require(right, topic, self.name, now)
        held = self._held.get((topic, right)) or self._read(state, topic, right)
        if held is not None and held.serves(state, now):
            self._held[topic, right] = held
            if not held.half_over(now) or now < self._asked.get((topic, right), -RETRY_US) + RETRY_US:
                return held
            self._asked[topic, right] = now
            with suppress(Unavailable):
                return self.ask(topic, right)
            return held
        return self.ask(topic, right)

    def lacks(self, topic: str, right: Right, state: RealmState) -> bool:
        """Whether a center at hand should be asked now."""
        held, now = self._held.get((topic, right)) or self._read(state, topic, right), self.realm.clock()
        return self._at_hand and (held is None or not held.serves(state, now) or held.half_over(now))

    def ask(self, topic: str, right: Right) -> Held:
        """A new token, whatever is held; ServiceRefused when the center says no, Unavailable when it says nothing."""
        state = self.realm.state()
        center, ends_us = state.topic(topic).center, state.entity(self.name).expires_us
        if ends_us <= self.realm.clock():
            # Nobody answers whoever signs under a certificate that is over: better said here than waited for.
            raise Rejected(
                f"the certificate of entity {self.name!r} is over: no center answers it",
                hint=f"the authority issues the next one: sealcast entity renew {self.name}",
            )
        for _ in range(_ROUNDS):
            reply = self.correspondent.ask_center(
                center, WantCredentials.KIND, WantCredentials(topic, right).to_bytes()
            )
            if reply.message.kind != Challenge.KIND:
                return self.take(topic, right, reply.message.body)
            self._prove(center, reply.message.body)
        raise Rejected(f"center {center!r} challenges {self.name!r} again and again", hint="do the clocks agree?")

    def take(self, topic: str, right: Right, body: bytes) -> Held:
        """A center's answer, kept if it is one, and for this entity."""
        state = self.realm.state()
        held = _held(topic, right, body)
        if held is None or not held.serves(state, self.realm.clock()) or held.claims.subject != self.name:
            raise _strange(state.topic(topic).center)
        self.pair_key(held)
        self._held[topic, right] = held
        path = self._path(state, topic, right)
        if path is not None:
            files.make_directory(path.parent)
            files.replace_file(path, body)
        return held

    def pair_key(self, held: Held, epoch: int | None = None) -> Secret:
        """The key of an epoch (the token's, unless another is named) that the entity shares with brokers."""
        return self.topic_keys(held, epoch).pair

    def topic_keys(self, held: Held, epoch: int | None = None) -> EntityKeys:
        """All that it was given for an epoch, opened with the entity's own key."""
        epoch = held.epoch if epoch is None else epoch
        sealed = held.given.pair_keys.get(epoch)
        if sealed is None:
            raise CannotOpen(f"no key of topic {held.topic!r} (epoch {epoch}) was given to {self.name!r}")
        return open_entity_keys(self.identity.kem, sealed, held.claims.topic, epoch, self.name)

    @property
    def correspondent(self) -> Correspondent:
        """What it asks with; made when it is first needed."""
        if self._correspondent is None:
            from sealcast.control.correspondence import Correspondent

            here = _services_at_hand(self.realm, self._center_more) if self._at_hand else None
            self._correspondent = Correspondent(self.realm, self.identity, at_hand=here)
        return self._correspondent

    def close(self) -> None:
        if self._correspondent is not None:
            self._correspondent.close()
            self._correspondent = None

    # --- inside -------------------------------------------------------------------------------------

    def _prove(self, center: str, body: bytes) -> None:
        try:
            asked = Challenge.from_bytes(body)
        except FrameRejected:
            raise _strange(center) from None
        signed = requests.challenged(self.realm.id, center, asked.topic, asked.nonce)
        proof = Proof(asked.topic, asked.nonce, self.identity.signer.sign(signed))
        self.correspondent.ask_center(center, Proof.KIND, proof.to_bytes())

    def _read(self, state: RealmState, topic: str, right: Right) -> Held | None:
        """What the file holds. Whatever is wrong with it, a center can be asked."""
        path = self._path(state, topic, right)
        with suppress(OSError):
            if path is not None and path.stat().st_size <= _MAX_FILE_BYTES:
                held = _held(topic, right, path.read_bytes())
                return held if held is not None and self._is_whole(held, state) else None
        return None

    def _is_whole(self, held: Held, state: RealmState) -> bool:
        """Whether a file still has what the center gave: a token that it signed for this entity, and keys that open. A
        broker would refuse events under another one, after their publisher was told that they are published."""
        about, key = state.topic(held.topic), state.entity(self.name).verify_key
        try:
            gate = gates.gate(state.founding, [state.entity(about.center)], state.revoked)
            gate.verify(held.token, about, self.realm.clock(), held.right, key, holder=self.name)
            for epoch in held.given.pair_keys:
                self.topic_keys(held, epoch)
        except (Rejected, Misuse):
            return False
        return True

    def _path(self, state: RealmState, topic: str, right: Right) -> Path | None:
        return None if self._directory is None else self._directory / f"{state.topic(topic).id.hex()}.{right}"


def fill(wallets: Sequence[Wallet], topic: str, right: Right) -> None:
    """Tokens for many entities of one machine, where the topic's key center is at hand: it decides about each of them
    by its own rules, and no envelope travels from this process to itself. Whoever gets no token that way, because it
    may not have one or is challenged first, hears why when it asks."""
    if not wallets:
        return
    realm = wallets[0].realm
    state = realm.state()
    key = realm.paths.center_key(state.topic(topic).center)
    lacking = [wallet for wallet in wallets if wallet.lacks(topic, right, state)]
    if not lacking or not key.exists():
        return
    from sealcast.control.center.service import KeyCenter
    from sealcast.trust.keys.centers import CenterSecrets

    trust, body = realm.trust(state), WantCredentials(topic, right).to_bytes()
    with suppress(Unavailable), closing(KeyCenter(realm, CenterSecrets.load(key))) as center:
        for wallet in lacking:
            now = realm.clock()
            with suppress(Rejected):
                sender = trust.verify(state.entity(wallet.name).certificate, now, state.revoked, name=wallet.name)
                answer = center.handle(
                    ProvenMessage(sender, ControlMessage.request(WantCredentials.KIND, body, b"", now)), now
                )
                if answer.kind != Challenge.KIND:
                    wallet.take(topic, right, answer.body)


def _services_at_hand(realm: EntityRealm, center_more: MoreRules | None) -> AtHand | None:
    # Services take a while to import, and whoever has its tokens already asks none.
    from sealcast.control.at_hand import services_at_hand
    from sealcast.control.center.rules import nothing_more

    return services_at_hand(realm, center_more=nothing_more if center_more is None else center_more)


def _held(topic: str, right: Right, body: bytes) -> Held | None:
    try:
        given = Credentials.from_bytes(body)
        return Held(topic, right, given, claims.parse(given.token).claims)
    except (FrameRejected, TokenRejected):
        return None


def _realm_of(state: RealmState) -> bytes | None:
    return None if state.founding is None else state.founding.id


def _strange(center: str) -> Unavailable:
    return Unavailable(f"center {center!r} answers in a way that this release does not know, or for someone else")
