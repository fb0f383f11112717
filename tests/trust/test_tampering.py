"""A census of tampering: all that the trust plane takes in is bent in every field, and refused for its own reason.

Each kind of thing has its table beside its own tests, which run the cases:

    token          tests/vectors/make_tokens.py          test_tokens.py
    certificate    tests/vectors/make_certificates.py    test_certificates.py
    list           tests/vectors/make_certificates.py    test_authority.py
    envelope       tests/trust/tampering.py              test_envelopes.py
    request        tests/trust/tampering.py              test_envelopes.py      what a proper envelope says
    advertisement  tests/trust/advertising.py            test_discovery.py

Here they are counted, and held against what every table must have: the attacks that each kind of thing is exposed to,
and every reason that its checks can give. A check without a case, or two checks with one word, would be found here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import pytest

from sealcast.control.discovery.advertisements import AdvertisementReason
from sealcast.control.envelopes import EnvelopeReason
from sealcast.trust.certificates.lists import RevocationReason
from sealcast.trust.certificates.profile import CertificateReason
from sealcast.trust.tokens.token import TokenReason
from tests.trust.advertising import bent_advertisements
from tests.trust.tampering import Cast, bent_envelopes
from tests.vectors import make_certificates, make_tokens

#: Cases asked for in all, and of each kind of thing at least.
ALL_CASES = 300
EACH = 30

Cases = list[tuple[str, str]]
#: What is wrong with a request in an envelope that is whole, sealed and signed.
REQUEST = {"payload", "recipient", "kind", "early", "late", "replay", "answer"}


@cache
def cast() -> Cast:
    return Cast.make()


def tokens() -> Cases:
    return [(case["why"], case["reason"]) for case in make_tokens.refused()]


def certificates() -> Cases:
    return [(case["name"], case["reason"]) for case in make_certificates.certificate_cases() if case.get("reason")]


def lists() -> Cases:
    return [(name, reason) for name, reason, *_ in make_certificates.revocations() if reason is not None]


def envelopes() -> Cases:
    return [(name, reason) for name, (reason, _) in bent_envelopes(cast()).items() if reason not in REQUEST]


def requests() -> Cases:
    return [(name, reason) for name, (reason, _) in bent_envelopes(cast()).items() if reason in REQUEST]


def advertisements() -> Cases:
    return [(name, bent.reason) for name, bent in bent_advertisements(cast()).items()]


@dataclass(frozen=True)
class Kind:
    """A kind of thing: its cases, the reasons there are, those that need more than bytes and are reached elsewhere."""

    cases: Callable[[], Cases]
    reasons: frozenset[str]
    elsewhere: frozenset[str] = frozenset()
    #: Words that must occur in the names of its cases: the attacks it must withstand.
    attacks: tuple[str, ...] = ()


def words(reasons: type[StrEnum]) -> frozenset[str]:
    return frozenset(str(reason) for reason in reasons)


KINDS = {
    "token": Kind(
        tokens,
        words(TokenReason),
        attacks=(
            "algorithm none",
            "ES384",
            "for another topic",
            "for another realm",
            "too late",
            "too early",
            "another center",
            "its center was revoked",
            "its owner was revoked",
            "a stolen token",
            "out of order",
            "indefinite",
            "nested too deep",
            "longer than any",
            "claim twice",
            "one claim more",
        ),
    ),
    "certificate": Kind(
        certificates,
        words(CertificateReason),
        # Of a root of another realm.
        frozenset({"realm"}),
        attacks=("SHA-384", "not yet valid", "expired", "revoked", "its issuer revoked", "signature", "another realm"),
    ),
    "list": Kind(
        lists,
        words(RevocationReason),
        attacks=("ES384", "an older one", "one left out", "stranger", "signed by an entity", "another realm"),
    ),
    "envelope": Kind(
        envelopes,
        words(EnvelopeReason) - REQUEST,
        attacks=("flipped", "algorithm none", "another realm", "expired", "early", "revoked", "stranger", "too large"),
    ),
    "request": Kind(
        requests,
        words(EnvelopeReason) & REQUEST,
        # A replay and an answer to another question take two messages.
        frozenset({"replay", "answer"}),
        attacks=("another name", "another key", "from the future", "too old", "out of order", "a field more"),
    ),
    "advertisement": Kind(
        advertisements,
        words(AdvertisementReason),
        # These compare with what a node has stored.
        frozenset({"owner", "sequence", "quota"}),
        attacks=("flipped", "algorithm none", "expired", "revoked", "stranger", "truncated"),
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_thing_is_bent_in_many_ways(name: str) -> None:
    kind = KINDS[name]
    cases = kind.cases()
    assert len(cases) >= EACH
    doubled = [case for case, count in Counter(case for case, _ in cases).items() if count > 1]
    assert not doubled, "every case has a name of its own"


@pytest.mark.parametrize("name", KINDS)
def test_every_check_has_its_own_word_and_a_case(name: str) -> None:
    kind = KINDS[name]
    reached = {reason for _, reason in kind.cases()}
    assert reached <= kind.reasons, "no reason is made up"
    assert kind.reasons - reached == kind.elsewhere


@pytest.mark.parametrize(
    "reasons", [TokenReason, CertificateReason, RevocationReason, EnvelopeReason, AdvertisementReason]
)
def test_no_two_checks_share_a_word(reasons: type[StrEnum]) -> None:
    assert len(reasons.__members__) == len({str(reason) for reason in reasons}), "an alias would be counted as one"


@pytest.mark.parametrize("name", KINDS)
def test_the_attacks_are_all_there(name: str) -> None:
    kind = KINDS[name]
    told = "\n".join(case for case, _ in kind.cases())
    assert [attack for attack in kind.attacks if attack not in told] == []


def test_there_are_enough() -> None:
    counted = {name: len(kind.cases()) for name, kind in KINDS.items()}
    flips = len(list(make_tokens.flips())) + len(list(make_certificates.flips()))
    assert sum(counted.values()) >= ALL_CASES, counted
    assert flips >= 400, "a bit of every byte of a token, and of every field of a certificate"
