"""What is remembered of tokens: signatures and nothing else. A revocation counts at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sealcast.errors import TokenRejected
from sealcast.trust.realm.changes import Right
from sealcast.trust.tokens.token import Token, TokenGate, VerifiedTokens
from tests.trust import token_world as world
from tests.trust.token_judge import judged, verify
from tests.trust.token_world import NOW, SECOND, frame_key, gate, mint, topic
from tests.vectors import make_tokens as table

REFUSED = table.refused()
ALICE = frame_key("alice")


def shown(here: TokenGate, token: bytes, **shown: Any) -> Token | TokenRejected:
    """What a gate says of a token that alice shows, unless somebody else does, at another time."""
    holder_key, holder, at_us = shown.get("holder_key", ALICE), shown.get("holder", "alice"), shown.get("at_us", NOW)
    try:
        return here.verify(token, topic(), at_us, Right.PUBLISH, holder_key, holder=holder)
    except TokenRejected as error:
        return error


def test_a_batch_verifies_every_distinct_token_once() -> None:
    here = gate()
    batch = [mint(id=bytes([i % 5]) * 16) for i in range(1000)]
    found = [shown(here, token) for token in batch]
    assert here.tokens.verifications == 5
    assert [t.claims.id for t in found if isinstance(t, Token)] == [bytes([i % 5]) * 16 for i in range(1000)]
    forged = table.flipped(len(table.GOOD) - 1, 1)
    refused = [shown(here, forged) for _ in range(100)]
    assert [e.reason for e in refused if isinstance(e, TokenRejected)] == ["signature"] * 100
    assert here.tokens.verifications == 6, "a bad one is verified once, too"


def test_a_batch_is_judged_one_by_one_and_in_order() -> None:
    cases = [c for c in REFUSED if not {"topic", "revoked", "need"} & set(c)]
    here = gate()
    found = [shown(here, **c) for c in [*cases, {"token": table.GOOD}]]
    assert [e.reason for e in found[:-1] if isinstance(e, TokenRejected)] == [c["reason"] for c in cases]
    assert isinstance(found[-1], Token)


@pytest.mark.parametrize(
    ("who", "reason"),
    [
        (world.PARSED["center"], "center-revoked"),
        (world.TRUST.intermediates[0], "center-revoked"),
        (world.ALICE, "revoked"),
    ],
    ids=["center", "authority", "owner"],
)
def test_a_revocation_reaches_a_cached_token_at_once(who: Any, reason: str) -> None:
    revoked = world.Revocations()
    here = gate(revoked)
    for _ in range(3):
        verify({"token": table.GOOD}, here)
    assert here.tokens.verifications == 1
    revoked.revoke(who)
    with pytest.raises(TokenRejected) as refusal:
        verify({"token": table.GOOD}, here)
    assert refusal.value.reason == reason
    # The same cache under another gate, as the next batch has it, and under the list of before, as a batch run again.
    with pytest.raises(TokenRejected):
        verify({"token": table.GOOD}, gate(revoked, here.tokens))
    verify({"token": table.GOOD}, gate(world.Revocations(), here.tokens))
    assert here.tokens.verifications == 1


def test_a_cache_without_the_number_would_let_a_revoked_center_in() -> None:
    """The attack that the number stops: a gate that is told of no new number keeps what it found of its centers."""
    revoked = world.Revocations()
    here = gate(revoked)
    verify({"token": table.GOOD}, here)
    revoked.serials.add(world.PARSED["center"].serial)
    verify({"token": table.GOOD}, here)
    revoked.number += 1
    with pytest.raises(TokenRejected):
        verify({"token": table.GOOD}, here)


def test_time_and_right_are_asked_anew_of_a_cached_token() -> None:
    here = gate()
    verify({"token": table.GOOD}, here)
    for case in REFUSED:
        if case["token"] == table.GOOD and "revoked" not in case:
            with pytest.raises(TokenRejected) as refusal:
                verify(case, here)
            assert refusal.value.reason == case["reason"]
    assert here.tokens.verifications == 1


def test_what_a_gate_says_does_not_depend_on_what_it_was_asked_before() -> None:
    """A batch that is run again with a cold cache decides the same."""
    cases = [c for c in [*table.good(), *REFUSED] if "revoked" not in c]
    warm = VerifiedTokens()
    here = gate(None, warm)

    def told(case: Mapping[str, Any], by: TokenGate) -> str | None:
        try:
            verify(case, by)
        except TokenRejected as error:
            return str(error.reason)
        return None

    first = [told(c, here) for c in cases]
    again = [told(c, here) for c in reversed(cases)][::-1]
    cold = [told(c, gate()) for c in cases]
    assert first == again == cold == [c.get("reason") for c in cases]


def test_what_is_remembered_is_bounded_and_bad_ones_push_no_good_ones_out() -> None:
    memory = VerifiedTokens(remembered=4, remembered_bad=3)
    here = gate(None, memory)
    good = [mint(id=bytes([i]) * 16) for i in range(4)]
    for token in good:
        verify({"token": token}, here)
    for i in range(40):
        with pytest.raises(TokenRejected):
            verify({"token": table.flipped(330 + i, 1)}, here)
    assert len(memory) == 7
    before = memory.verifications
    for token in good:
        verify({"token": token}, here)
    assert memory.verifications == before
    verify({"token": mint(id=b"5" * 16)}, here)
    assert len(memory) == 7
    verify({"token": good[0]}, here)
    assert memory.verifications == before + 2, "the one least recently asked had gone"


def test_a_center_that_renews_its_certificate_is_another_key_id() -> None:
    """Its tokens are taken as long as the certificate that signed them is known, and no longer."""
    renewed = world.issue("center", world.FIRST, world.CENTER, begins=NOW - 2 * SECOND)
    here = TokenGate(world.TRUST, [renewed], world.Revocations())
    assert judged({"token": table.GOOD}) is None
    with pytest.raises(TokenRejected) as refusal:
        verify({"token": table.GOOD}, here)
    assert refusal.value.reason == "center-unknown"
