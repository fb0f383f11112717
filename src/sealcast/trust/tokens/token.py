"""Tokens: a key center's word on what an entity may do on a topic, and the gate that takes it or does not.

    mint(signer, claims, hash) -> bytes        the key center
    parse(bytes) -> Token                      anyone; nothing is verified            (claims.py: the bytes)
    TokenGate.verify(bytes, ...) -> Token      a broker: the numbered checks below, or TokenRejected with the reason
    gates.gate_of(state) -> TokenGate          with the authorities, centers and revocations of a realm's state

A token is no bearer's: it names an Ed25519 key (`cnf`), and the caller says which key signed what came with it. It is
for one topic of one realm, for a time, for an epoch. Which algorithm it was signed with is the topic's parameter and
not the token's choice; which key, by the fingerprint of a certificate that is verified like any other.

**What is cached.** Only what can never change: that these bytes were signed by the key of that certificate, under the
token's SHA-256 (`VerifiedTokens`). Time, right, epoch and holder are compared anew each time; whether the center or
the entity was revoked is looked up each time, in the view at hand. So a revocation takes effect with the first look
at the new view: there is nothing to invalidate. A gate keeps what it found of its centers' certificates for as long as
the revocation number stays the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from sealcast.errors import CertificateRejected, FilterRejected, TokenRejected
from sealcast.model.dataclass import dataclass
from sealcast.primitives.p256 import Hash, P256SigningKey, P256VerifyKey
from sealcast.trust.certificates import certificate as certificates
from sealcast.trust.certificates.certificate import Certificate, CertificateReason, Role, Trust
from sealcast.trust.certificates.revocation import RevocationView
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.parameters import KeyParameters
from sealcast.trust.realm.topics import Topic
from sealcast.trust.tokens.claims import (
    CONTEXT,
    Claims,
    Token,
    assemble,
    audience,
    encode_claims,
    parse,
    protected_header,
)
from sealcast.trust.tokens.memory import VerifiedTokens
from sealcast.trust.tokens.reasons import TokenReason, refused
from sealcast.wire import cose

__all__ = [
    "Claims",
    "Token",
    "TokenGate",
    "TokenReason",
    "VerifiedTokens",
    "audience",
    "mint",
    "parse",
]


def mint(signer: P256SigningKey, claims: Claims, hash: Hash | str) -> bytes:
    """A signed token. The same claims give the same bytes."""
    chosen = Hash(hash)
    payload = encode_claims(claims)
    protected = protected_header(chosen, claims.issuer_certificate)
    signature = signer.sign(cose.sig_structure(protected, CONTEXT, payload), chosen)
    return assemble(protected, payload, signature)


@dataclass(frozen=True, slots=True)
class _Center:
    """A key center's certificate that leads to the realm's root, and when all of that chain is valid."""

    certificate: Certificate
    not_before_us: int
    not_after_us: int


class TokenGate:
    """Takes tokens or refuses them, for one realm, under one list of revocations. Public bytes only."""

    __slots__ = ("_centers", "_found", "_number", "_revoked", "_trust", "tokens")

    def __init__(
        self, trust: Trust, centers: Iterable[bytes], revoked: RevocationView, tokens: VerifiedTokens | None = None
    ) -> None:
        """`centers` are the certificates of the realm's key centers; `tokens` outlives the gate where one is given."""
        self._trust = trust
        self._centers = {hashlib.sha256(der).digest(): bytes(der) for der in centers}
        self._revoked = revoked
        self.tokens = VerifiedTokens() if tokens is None else tokens
        self._found: dict[bytes, _Center | TokenRejected] = {}
        self._number = revoked.number

    def verify(
        self,
        data: bytes,
        topic: Topic,
        at_us: int,
        need: Right,
        holder_key: bytes,
        *,
        holder: str | None = None,
    ) -> Token:
        """The token, if it gives `need` on `topic` at that time to whoever holds `holder_key`.

        `holder` is the name that came with it, where one did. TokenRejected otherwise: the first check that fails is
        the reason.
        """
        token = self.tokens.token(data)  # (1) to (10): claims.parse
        claims = token.claims
        self._check_realm(claims)  # (11)
        _check_topic(token, topic)  # (12), (13)
        center = self._center(claims, at_us)  # (14) to (20)
        # (21) and that is the one center of the topic
        if claims.issuer != topic.center:
            raise refused(
                TokenReason.CENTER_OTHER,
                f"{claims.issuer!r} is not the key center of {topic.name!r}",
                f"ask {topic.center!r}" if topic.center else "the topic has no key center: register it with one",
            )
        self._check_signature(token, center)  # (22)
        _check_time(claims, topic.parameters, at_us)  # (23) to (25)
        _check_template(claims, topic)  # (26), (27)
        # (28) the right that is needed
        if need not in claims.rights:
            raise refused(
                TokenReason.RIGHT,
                f"it gives {claims.subject!r} no right to {need}",
                f"let it: sealcast grant {topic.name} {claims.subject} {need}; then ask for another token",
            )
        self._check_holder(claims, holder_key, holder)  # (29) to (31)
        _check_epoch(claims, topic, at_us)  # (32), (33)
        return token

    def refusal(self, data: bytes, topic: str) -> TokenRejected:
        """What `verify` says of a token for a topic that is not here: what it says of one for any other topic. The
        same checks come before, so that nobody can tell the two apart."""
        token = self.tokens.token(data)  # (1) to (10)
        self._check_realm(token.claims)  # (11)
        return _of_another(topic)  # (12)

    def learn(self, data: bytes, at_us: int, parameters: KeyParameters) -> Token:
        """What a broker that knows nothing of a topic may believe of a token: the topic is secure, and who manages it.

        A key center of this realm signed it, and its time is now; `parameters` say what clocks may differ by. No right
        follows from it: that takes the topic, and `verify`.
        """
        token = self.tokens.token(data)
        self._check_realm(token.claims)
        self._check_signature(token, self._center(token.claims, at_us))
        _check_time(token.claims, parameters, at_us)
        return token

    # --- the checks, in their order -----------------------------------------------------------------

    def _check_realm(self, claims: Claims) -> None:
        # (11) this realm
        if claims.realm != self._trust.realm_id:
            raise refused(TokenReason.REALM, "it is for another realm", "show it where it was made for")

    def _center(self, claims: Claims, at_us: int) -> _Center:
        center = self._known(claims.issuer_certificate)  # (14) to (17)
        name = center.certificate.name
        # (18), (19) in the center's time, and in that of all above it
        if at_us < center.not_before_us:
            raise refused(TokenReason.CENTER_NOT_YET_VALID, f"{name!r}: its certificate's time has not come", _CLOCKS)
        if at_us > center.not_after_us:
            raise refused(TokenReason.CENTER_EXPIRED, f"{name!r}: its certificate's time is over", _OVER[1])
        # (20) who signs is who it says made it
        if claims.issuer != name:
            raise refused(TokenReason.ISSUER, f"it says {claims.issuer!r} made it, and its key is {name!r}'s")
        return center

    def _known(self, kid: bytes) -> _Center:
        if self._revoked.number != self._number:
            self._found.clear()
            self._number = self._revoked.number
        found = self._found.get(kid)
        if found is None:
            # (14) one of this realm's
            if kid not in self._centers:
                raise refused(
                    TokenReason.CENTER_UNKNOWN,
                    f"no key center with certificate {kid.hex()[:16]}… is known here",
                    "was the center's certificate renewed? ask it for another token",
                )
            found = self._found[kid] = self._verdict(self._centers[kid])
        if isinstance(found, TokenRejected):
            raise refused(TokenReason(found.reason), found.message, found.hint)
        return found

    def _verdict(self, der: bytes) -> _Center | TokenRejected:
        """Checks 15 to 17, all that does not depend on the time: asked at a moment when the whole chain is valid."""
        try:
            claimed = certificates.parse(der)
            begins, ends = self._window(claimed)
            return _Center(self._trust.verify(der, begins, self._revoked, role=Role.KEY_CENTER), begins, ends)
        except CertificateRejected as error:
            reason, hint = _CENTER_REASONS.get(CertificateReason(error.reason), _UNTRUSTED)
            return TokenRejected(reason, error.message, hint=hint)

    def _window(self, certificate: Certificate) -> tuple[int, int]:
        """When the certificate and all above it are valid."""
        above = {P256VerifyKey(a.identity_key).key_id: a for a in (self._trust.root, *self._trust.intermediates)}
        begins, ends, issuer = certificate.not_before_us, certificate.not_after_us, certificate.issuer
        for _ in above:
            authority = above.get(issuer)
            if authority is None:
                break
            begins, ends = max(begins, authority.not_before_us), min(ends, authority.not_after_us)
            issuer = authority.issuer
        return begins, ends

    def _check_signature(self, token: Token, center: _Center) -> None:
        # (22) signed by that center
        if not self.tokens.signed(token, center.certificate.identity_key):
            raise refused(TokenReason.SIGNATURE, f"{token.claims.issuer!r} did not sign this")

    def _check_holder(self, claims: Claims, holder_key: bytes, holder: str | None) -> None:
        # (29) proof of possession: what came with it was signed by the key that the token names
        if claims.holder_key != holder_key:
            raise refused(
                TokenReason.HOLDER,
                f"it belongs to another key than the one that was used, of {claims.subject!r}",
                "a token works for its owner's key only; after a change of keys, ask for another",
            )
        # (30) and, where a name came with it, by the one of that name
        if holder is not None and claims.subject != holder:
            raise refused(TokenReason.SUBJECT, f"it is {claims.subject!r}'s and not {holder!r}'s", "show your own")
        # (31) whose certificate still counts
        if self._revoked.is_revoked(claims.subject_serial):
            raise refused(
                TokenReason.REVOKED,
                f"the certificate of {claims.subject!r} was revoked",
                "a revoked name stays revoked: enrol a new one",
            )


_UNTRUSTED: Final = (TokenReason.CENTER_UNTRUSTED, "only centers that this realm's authority certified sign tokens")
_OVER: Final = (TokenReason.CENTER_EXPIRED, "the center renews its certificate; then ask it for another token")
_REVOKED_CENTER: Final = (TokenReason.CENTER_REVOKED, "move the topic to another key center and ask that for a token")
#: What a refused certificate means for a token. What is not here is a chain that does not lead to the root.
_CENTER_REASONS: Final = {
    CertificateReason.REVOKED: _REVOKED_CENTER,
    CertificateReason.ISSUER_REVOKED: _REVOKED_CENTER,
    CertificateReason.ROLE: (TokenReason.CENTER_ROLE, "the authority gives the role key-center, or does not"),
    # The windows of the chain do not overlap: there is no moment at which it is valid.
    CertificateReason.EXPIRED: _OVER,
    CertificateReason.ISSUER_EXPIRED: _OVER,
}


def _of_another(topic: str) -> TokenRejected:
    return refused(
        TokenReason.AUDIENCE, f"it is for another topic than {topic!r}", "a token is for one topic: ask again"
    )


def _check_topic(token: Token, topic: Topic) -> None:
    # (12) this topic
    if token.claims.topic != topic.id:
        raise _of_another(topic.name)
    # (13) the algorithm is the topic's, whatever the token says
    if token.hash != topic.parameters.token_hash:
        raise refused(
            TokenReason.HASH,
            f"it is signed with {token.hash}, and tokens of {topic.name!r} with {topic.parameters.token_hash}",
        )


_CLOCKS: Final = "compare the clocks, or wait"


def _check_time(claims: Claims, parameters: KeyParameters, at_us: int) -> None:
    # (23), (24) in its time, give or take what clocks may differ by
    if at_us < claims.not_before_us - parameters.max_skew_us:
        raise refused(TokenReason.NOT_YET_VALID, "its time has not come yet", _CLOCKS)
    if at_us >= claims.expires_us + parameters.max_skew_us:
        raise refused(TokenReason.EXPIRED, "its time is over", "ask the key center for another: sealcast token request")
    # (25) which is no longer than the topic's owner allows
    life = claims.expires - claims.not_before
    if life > parameters.token_lifetime_s:
        raise refused(TokenReason.LIFETIME, f"it is valid for {life} s, {parameters.token_lifetime_s} s are allowed")


def _check_template(claims: Claims, topic: Topic) -> None:
    # (26) a topic of its template
    if not claims.template.admits_topic(topic.name):
        raise refused(
            TokenReason.TEMPLATE,
            f"it is for topics {claims.template.topics!r}, and this is {topic.name!r}",
            "ask for a token whose template names this topic",
        )
    # (27) whose events can be asked for its tags
    try:
        if not claims.template.every_event:
            claims.template.condition(topic.schema)
    except FilterRejected as error:
        raise refused(
            TokenReason.TEMPLATE_SCHEMA,
            f"its template does not fit the schema of {topic.name!r}: {error.message}",
            "ask for a token whose template fits",
        ) from None


def _check_epoch(claims: Claims, topic: Topic, at_us: int) -> None:
    # (32), (33) the epoch that is, or for its grace the one that was
    if claims.epoch > topic.epoch:
        raise refused(
            TokenReason.EPOCH_AHEAD,
            f"it is for epoch {claims.epoch}, and {topic.name!r} is in {topic.epoch}",
            "this broker has not heard of the rotation yet: show it again shortly",
        )
    if not topic.epoch_admissible(claims.epoch, at_us):
        raise refused(
            TokenReason.EPOCH_ENDED,
            f"its epoch {claims.epoch} is over; {topic.name!r} is in {topic.epoch}",
            "the topic's key was replaced: ask the key center for key and token",
        )
