"""Tokens: the tamper table, the vectors, minting, and what is refused with which words."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import Misuse, TokenRejected
from sealcast.primitives.p256 import Hash
from sealcast.trust.certificates.certificate import Trust
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.templates import Template
from sealcast.trust.tokens import claims as wire
from sealcast.trust.tokens import token as tokens
from sealcast.trust.tokens.token import TokenGate, TokenReason
from sealcast.wire import cbor
from tests.effort import examples
from tests.trust import token_world as world
from tests.trust.token_judge import judged, topic_of, verify
from tests.trust.token_world import NOW, SECOND, frame_key, gate, mint, topic
from tests.vectors import make_tokens as table

VECTORS = json.loads(table.FILE.read_text())
REFUSED = table.refused()
ALICE = frame_key("alice")


# --- the tamper table -----------------------------------------------------------------------------


@pytest.mark.parametrize("case", list(table.good()), ids=lambda c: c["why"])
def test_taken(case: Mapping[str, Any]) -> None:
    token = verify(case)
    assert token.digest == hashlib.sha256(case["token"]).digest()
    assert tokens.parse(case["token"]) == token


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: c["why"])
def test_tampered(case: Mapping[str, Any]) -> None:
    assert judged(case) == case["reason"]


FLIPS = list(table.flips())


@pytest.mark.parametrize(("at", "mask"), FLIPS)
def test_one_bit_of_every_byte(at: int, mask: int) -> None:
    allowed = next(reasons for _, start, end, reasons in table.regions() if start <= at < end)
    assert judged({"token": table.flipped(at, mask)}) in allowed


def test_every_bit_of_every_byte() -> None:
    shared = gate()
    for at in range(len(table.GOOD)):
        for bit in range(8):
            with pytest.raises(TokenRejected):
                verify({"token": table.flipped(at, 1 << bit)}, shared)


def test_the_table_is_whole() -> None:
    """Every reason has a case, every byte of a token belongs to a region, and cases have names of their own."""
    assert {case["reason"] for case in REFUSED} == {str(reason) for reason in TokenReason}
    assert len({case["why"] for case in REFUSED}) == len(REFUSED) >= 120
    covered = [at for _, start, end, _ in table.regions() for at in range(start, end)]
    assert covered == list(range(len(table.GOOD)))


def test_every_reason_belongs_to_a_check_of_the_broker() -> None:
    steps = list(dict.fromkeys(reason.step for reason in TokenReason))
    assert steps == [
        "token",
        "center",
        "token-signature",
        "token-time",
        "template",
        "right",
        "publisher",
        "revoked",
        "epoch",
    ]


def test_the_checks_come_in_the_order_of_their_reasons() -> None:
    """Two things wrong at once: the earlier check speaks."""
    order = [str(reason) for reason in TokenReason]
    contextual = [c for c in REFUSED if c["token"] == table.GOOD]
    for first in contextual:
        for second in contextual:
            keys = [
                k for k in ("at_us", "need", "holder_key", "holder", "revoked", "topic") if k in first and k in second
            ]
            if keys:
                continue
            both = {**first, **{k: v for k, v in second.items() if k not in ("why", "reason")}}
            assert judged(both) == min(first["reason"], second["reason"], key=order.index), (
                first["why"],
                second["why"],
            )


# --- the vectors, read from their file as another team would --------------------------------------


def unhexed(case: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(case)
    for name in ("token", "holder_key"):
        if name in found:
            found[name] = bytes.fromhex(found[name])
    if "id" in found.get("topic", {}):
        found["topic"] = {**found["topic"], "id": bytes.fromhex(found["topic"]["id"])}
    return found


def test_the_file_is_what_the_code_makes() -> None:
    assert table.FILE.read_text() == table.text(), "run `python -m tests.vectors.make_tokens` and say why"


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda v: v["why"])
def test_vectors(vector: Mapping[str, Any]) -> None:
    trust = Trust(
        bytes.fromhex(VECTORS["root"]), map(bytes.fromhex, VECTORS["authorities"]), bytes.fromhex(VECTORS["realm"])
    )
    case = {**unhexed(VECTORS["context"]), **unhexed(vector)}
    usual = {k: v for k, v in unhexed(VECTORS["context"])["topic"].items() if k != "schema"}
    changed = {**usual, **case["topic"]}
    changed.pop("schema", None)
    changed["parameters"] = {**usual["parameters"], **changed["parameters"]}
    revoked = world.Revocations(1, {int(serial) for serial in case["revoked"]})
    centers = [bytes.fromhex(der) for der in VECTORS["centers"].values()]
    case["topic"] = changed
    try:
        verify(case, TokenGate(trust, centers, revoked))
    except TokenRejected as error:
        assert error.reason == vector.get("reason")
    else:
        assert "reason" not in vector


def test_flips_in_the_file_cover_every_byte() -> None:
    listed = [flip.split(":") for flips in VECTORS["flips"].values() for flip in flips.split()]
    assert sorted((int(at), int(mask)) for at, mask in listed) == FLIPS
    assert set(VECTORS["flips"]) <= {str(reason) for reason in TokenReason}


# --- minting --------------------------------------------------------------------------------------


def test_the_same_claims_give_the_same_bytes() -> None:
    assert mint() == mint()
    assert mint() != mint(id=bytes(16))


@pytest.mark.parametrize(
    "changed",
    [
        {"rights": frozenset()},
        {"not_before": NOW // SECOND, "expires": NOW // SECOND},
        {"subject": "a b"},
        {"issuer": ""},
        {"holder_key": b"short"},
        {"id": b""},
        {"epoch": -1},
        {"epoch": True},
        {"subject_serial": 0},
        {"subject_serial": 2**128},
        {"issued": 2**40},
        {"template": Template("a b")},
        {"topic": b"short"},
        {"issuer_certificate": b"short"},
    ],
    ids=lambda c: str(c)[:40],
)
def test_no_center_mints_what_no_broker_takes(changed: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        mint(**changed)


@examples(25, soak=100)
@given(
    subject=st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", fullmatch=True),
    rights=st.sets(st.sampled_from(Right), min_size=1).map(frozenset),
    epoch=st.integers(0, 2**32 - 1),
    times=st.tuples(st.integers(0, 2**33), st.integers(1, 2**20)),
    serial=st.integers(1, 2**127),
    topics=st.text("ab.*-_", min_size=1, max_size=20),
    value=st.text(max_size=20),
    hash=st.sampled_from(Hash),
)
def test_round_trip(
    subject: str,
    rights: frozenset[Right],
    epoch: int,
    times: tuple[int, int],
    serial: int,
    topics: str,
    value: str,
    hash: Hash,
) -> None:
    template = Template.parse(f"{topics}; Team='" + value.replace("'", "''") + "'")
    begins, life = times
    said = world.claims(
        subject=subject,
        rights=rights,
        epoch=epoch,
        not_before=begins,
        expires=begins + life,
        issued=begins,
        subject_serial=serial,
        template=template,
    )
    read = tokens.parse(tokens.mint(world.identity("center"), said, hash))
    assert (read.claims, read.hash) == (said, hash)


@examples(60, soak=300)
@given(st.one_of(st.binary(max_size=600), st.tuples(st.integers(0, 385), st.binary(max_size=8))))
def test_whatever_comes_is_taken_apart_or_refused(given_: bytes | tuple[int, bytes]) -> None:
    """Noise, and a good token with noise written over some of it: a refusal is the only failure."""
    data = (
        given_
        if isinstance(given_, bytes)
        else (table.GOOD[: given_[0]] + given_[1] + table.GOOD[given_[0] + len(given_[1]) :])
    )
    try:
        found = tokens.parse(data)
    except TokenRejected as error:
        assert error.reason in list(TokenReason)
    else:
        assert found.digest == hashlib.sha256(data).digest()
        assert data == table.GOOD or judged({"token": data}) is not None


# --- without the topic ----------------------------------------------------------------------------


def test_who_knows_nothing_of_a_topic_learns_that_it_is_secure() -> None:
    """From the first valid token. What only the topic could tell is not asked, and no right follows."""
    here, usual = gate(), topic().parameters
    assert here.learn(table.GOOD, NOW, usual).claims.issuer == "center"
    assert here.learn(mint(hash="sha-512"), NOW, usual).claims.topic == world.TOPIC
    asks_the_topic = {"audience", "hash", "center-other", "lifetime", "template", "template-schema", "right"}
    asks_the_topic |= {"holder", "subject", "revoked", "epoch-ended", "epoch-ahead"}
    for case in REFUSED:
        revoked = world.Revocations(1, {int(serial) for serial in case.get("revoked", ())})
        if case["reason"] not in asks_the_topic and "topic" not in case:
            with pytest.raises(TokenRejected) as refusal:
                gate(revoked).learn(case["token"], case.get("at_us", NOW), usual)
            assert refusal.value.reason == case["reason"]


# --- words ------------------------------------------------------------------------------------------


def test_refusals_say_what_is_wrong_and_what_to_do() -> None:
    with pytest.raises(TokenRejected) as refusal:
        verify({"token": table.GOOD, "need": "subscribe"})
    assert refusal.value.message == "the token is refused: it gives 'alice' no right to subscribe"
    assert refusal.value.hint == "let it: sealcast grant scores alice subscribe; then ask for another token"
    assert refusal.value.as_json()["reason"] == "right"
    with pytest.raises(TokenRejected) as refusal:
        verify({"token": b""})
    assert "sealcast token request" in str(refusal.value.hint)


def test_no_message_carries_a_key() -> None:
    for case in REFUSED:
        try:
            verify(case)
        except TokenRejected as error:
            assert ALICE.hex() not in f"{error.message} {error.hint}"


def test_a_token_is_a_value() -> None:
    token = verify({"token": table.GOOD})
    assert copy.deepcopy(token) == token and hash(token) == hash(copy.deepcopy(token))


def test_the_specification_lists_claims_and_reasons_as_the_code_has_them() -> None:
    section = (Path(cbor.__file__).parent / "SPEC.md").read_text().split("\n## 11. ")[1].split("\n## ")[0]
    reasons = re.findall(r"^\| (\d+) \| `([a-z-]+)` \|", section, re.MULTILINE)
    assert reasons == [(str(number), str(reason)) for number, reason in enumerate(TokenReason, start=1)]
    labels = re.findall(r"^    (-?\d+)(?: (\w+))? {2,}", section, re.MULTILINE)
    assert [int(label) for label, _ in labels] == list(wire.CLAIMS)
    assert [name for _, name in labels if name] == [wire.CLAIMS[label] for label in range(1, 9)]


def test_a_topic_of_the_registry_is_one_that_the_gate_knows() -> None:
    assert topic_of({}) == topic()
