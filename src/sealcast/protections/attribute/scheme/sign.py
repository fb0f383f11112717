"""Signatures in the name of credentials, and their verification.

    Prp1 = alpha_s g2 + t W(Pu)    Prp2 = t G                            a publisher's key for one label
    Mh = M("sig", epoch, message, the credentials)                       r_i, t_i fresh
    S1_i = Prp1_i + t_i W_i + r_i Mh    S2_i = Prp2_i + t_i G    S3_i = r_i G
    e(S1_i, G) = e(g2, alpha_s G) e(W_i, S2_i) e(Mh, S3_i)

Many are verified at once: each equation raised to a random exponent of 128 bits, all multiplied. The paper multiplies
them as they are, which lets the owner of one key sign for any attribute. Its signature takes r_i = b_i and leaves out
t_i: then S2 is a pseudonym of the publisher, and everybody can test guesses of the message.

alpha_s is the key server's for signatures alone, so that profile A takes them unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from sealcast.errors import Misuse
from sealcast.primitives.encoding import joined
from sealcast.primitives.pairing import G1, G2, random_scalar
from sealcast.protections.attribute.scheme.equations import read_point
from sealcast.protections.attribute.scheme.naming import TAG_M
from sealcast.protections.attribute.scheme.parameters import PublicParameters
from sealcast.wire.attribute import AttributeRejected
from sealcast.wire.attribute_contents import Signed, SignedCredential
from sealcast.wire.attribute_keys import PublisherCredential

#: Of the random exponents in a batch: a forger passes with a chance of one in 2^128.
BATCH_BITS: Final = 128


class SignatureClaim(NamedTuple):
    """A signature to verify."""

    epoch: int
    message: bytes
    signed: Signed


def sign(
    parameters: PublicParameters,
    epoch: int,
    message: bytes,
    credentials: Iterable[PublisherCredential],
    pseudonym: bool = False,
) -> Signed:
    """Signs in the name of these credentials, one for each attribute.

    With `pseudonym`, S2 stays the same: what one publisher signs in the name of a credential can be told from what
    others sign, by whoever opens it. In return, a batch of its signatures takes few pairings.
    """
    pairing = parameters.pairing
    ordered = sorted(credentials, key=lambda one: one.attribute.encode())
    names = [one.attribute for one in ordered]
    if not ordered or len(set(names)) != len(names):
        raise Misuse("one credential signs for each attribute, and for at least one")
    hashed = _message_point(parameters, epoch, message, [(one.attribute, one.label) for one in ordered])
    made = []
    for one in ordered:
        r = random_scalar()
        s1 = pairing.plus1(parameters.equations.own1(one.first), pairing.times1(hashed, r))
        s2 = parameters.equations.own2(one.second)
        if not pseudonym:
            t = random_scalar()
            s1 = pairing.plus1(s1, pairing.times1(parameters.publisher_point(epoch, one.attribute, one.label), t))
            s2 = pairing.plus2(s2, pairing.times2(pairing.g2, t))
        s3 = pairing.times2(pairing.g2, r)
        made.append(
            SignedCredential(one.attribute, one.label, pairing.encode1(s1), pairing.encode2(s2), pairing.encode2(s3))
        )
    return tuple(made)


def verify(parameters: PublicParameters, claims: Sequence[SignatureClaim]) -> bool:
    """Whether all of these signatures are good. AttributeRejected for a point that is none, before anything is paired.

    Equal S2 are paired once, or equal labels are, whichever are fewer: signatures of one publisher under a pseudonym,
    or of any publishers in the name of the same credentials, cost one pairing each.
    """
    pairing = parameters.pairing
    firsts: list[G1] = []
    total = 0
    terms: list[_Term] = []
    messages: list[tuple[G1, G2]] = []
    for claim in claims:
        credentials = [(one.attribute, one.label) for one in claim.signed]
        thirds = []
        for one in claim.signed:
            delta = random_scalar(BATCH_BITS) if total else 1
            total += delta
            firsts.append(_times1(parameters, read_point(pairing.decode1, "S1", one.s1), delta))
            terms.append(_Term((claim.epoch, one.attribute, one.label), one.s2, delta))
            thirds.append(_times2(parameters, read_point(pairing.decode2, "S3", one.s3), delta))
        messages.append((_message_point(parameters, claim.epoch, claim.message, credentials), pairing.sum2(thirds)))
    if not firsts:
        raise Misuse("no signature is no proof")
    return pairing.balanced(
        [
            (pairing.minus1(pairing.sum1(firsts)), pairing.g2),
            (pairing.times1(parameters.g2, total), parameters.sign_point),
            *_paired(parameters, terms),
            *messages,
        ]
    )


class _Term(NamedTuple):
    """One e(W, S2) of a batch: the credential that W is of, S2 as it came, and the random exponent."""

    credential: tuple[int, str, bytes]
    second: bytes
    delta: int


def _paired(parameters: PublicParameters, terms: Sequence[_Term]) -> list[tuple[G1, G2]]:
    """The terms as few pairings: e is linear on both sides, so that terms which share one side are one."""
    pairing = parameters.pairing
    labels = {one.credential: parameters.publisher_point(*one.credential) for one in terms}
    seconds = {one.second: read_point(pairing.decode2, "S2", one.second) for one in terms}
    if len(seconds) <= len(labels):
        of_second: dict[bytes, list[G1]] = {}
        for one in terms:
            of_second.setdefault(one.second, []).append(_times1(parameters, labels[one.credential], one.delta))
        return [(pairing.sum1(points), seconds[second]) for second, points in of_second.items()]
    of_label: dict[tuple[int, str, bytes], list[G2]] = {}
    for one in terms:
        of_label.setdefault(one.credential, []).append(_times2(parameters, seconds[one.second], one.delta))
    return [(labels[credential], pairing.sum2(points)) for credential, points in of_label.items()]


def forged(parameters: PublicParameters, claims: Sequence[SignatureClaim]) -> set[int]:
    """The numbers of the claims that are not good: the whole batch at once, and halves of it while a half is not."""
    found: set[int] = set()
    waiting = [range(len(claims))]
    while waiting:
        part = waiting.pop()
        if not part or _all_good(parameters, [claims[number] for number in part]):
            continue
        if len(part) == 1:
            found.add(part[0])
        else:
            middle = len(part) // 2
            waiting += [part[:middle], part[middle:]]
    return found


def _all_good(parameters: PublicParameters, claims: Sequence[SignatureClaim]) -> bool:
    try:
        return verify(parameters, claims)
    except AttributeRejected:
        return False


def _times1(parameters: PublicParameters, point: G1, delta: int) -> G1:
    return point if delta == 1 else parameters.pairing.times1(point, delta)


def _times2(parameters: PublicParameters, point: G2, delta: int) -> G2:
    return point if delta == 1 else parameters.pairing.times2(point, delta)


def _message_point(
    parameters: PublicParameters, epoch: int, message: bytes, credentials: Sequence[tuple[str, bytes]]
) -> G1:
    parts = [part for attribute, label in credentials for part in (attribute.encode(), label)]
    return parameters.pairing.hash1(joined((b"sig", epoch.to_bytes(8, "big"), message, *parts)), TAG_M)
