"""The searchable protection: what brokers cannot read, what they could together with a user, and who is cut off."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from sealcast import Event, Publisher, Realm, Right, Schema, Subscriber
from sealcast.broker.admit import admit
from sealcast.broker.match import match
from sealcast.broker.rulings import gathered
from sealcast.broker.served import served_intervals
from sealcast.errors import CannotOpen, FilterRejected, Misuse, ParameterRejected, Rejected, SealcastError
from sealcast.filters import bits
from sealcast.filters.check import fit
from sealcast.filters.evaluate import evaluate
from sealcast.filters.labels import Labeller, label_filter
from sealcast.filters.parse import parse
from sealcast.lab import drill
from sealcast.log.offsets import AS_STAMPED
from sealcast.log.piece_reader import sealed_reader
from sealcast.model.protection import PAD_BYTES, Searchable
from sealcast.model.stages import Ruled
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import Exponent
from sealcast.primitives.halves import UserPart
from sealcast.protections.frame_steps import MatchingStep
from sealcast.protections.port import Party, client_side, witness_side
from sealcast.protections.searchable import scheme
from sealcast.protections.searchable.client import opener_for
from sealcast.protections.searchable.interests import SealedInterests, own_id
from sealcast.protections.searchable.scheme import BOUND_BYTES, Holder, UserKeys
from sealcast.protections.searchable.table import SealedIndex, SealedIndexes
from sealcast.protections.steps import StepName
from sealcast.trust.realm.changes import AddSubscription
from sealcast.wire.sealed import SealedPiece
from sealcast.wire.searching import (
    TAG_BYTES,
    SealedFilter,
    SealedRejected,
    block_size,
    packed_block,
    parse_block,
)
from tests.cli.shell import sealcast
from tests.clients.pump import pump
from tests.protections.searchable.world import rekeyed

SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "ward", "type": "string", "max_length": 8},
            {"name": "pulse", "type": "int", "min": 0, "max": 255},
        ]
    }
)
TOPIC = "vitals"
SECRET = b"the patient's own words"


def a_realm(directory: Path, *, access: str = "members", **settings: object) -> Realm:
    realm = Realm.create(directory)
    realm.create_topic(TOPIC, SCHEMA, protection=Searchable(**settings), access=access)  # type: ignore[arg-type]
    realm.enrol_many(["monitor", "nurse", "doctor", "mallory"])
    if access == "granted":
        realm.grant(TOPIC, "monitor", [Right.PUBLISH])
        realm.grant(TOPIC, "nurse")
        realm.grant(TOPIC, "doctor")
    realm.subscribe(TOPIC, "nurse", "pulse > 100")
    realm.subscribe(TOPIC, "doctor", "ward = 'Hearts'")
    return realm


def publish(realm: Realm, *pulses: int, payload: bytes = SECRET) -> None:
    with Publisher(realm, TOPIC, as_="monitor") as publisher:
        publisher.publish([Event({"ward": "Hearts", "pulse": p}, payload) for p in pulses])


def pieces(realm: Realm) -> list[SealedPiece]:
    reader = sealed_reader(realm.paths.topic(TOPIC).root)
    return [reader.piece(ref) for i in range(reader.ledger.end()) for ref in reader.record(i).entry.pieces]


def read(realm: Realm, name: str) -> list[object]:
    with Subscriber(realm, TOPIC, as_=name, from_=0) as reader:
        return [event.attributes["pulse"] for event in reader]


def registered(realm: Realm, name: str) -> list[str]:
    return [s.id for s in realm.state().subscriptions_of(TOPIC) if s.subscriber == name]


def user_part(realm: Realm, name: str) -> UserPart:
    found = realm.identity(name).topic_keys(realm.state(), TOPIC).search
    assert found is not None
    return found


def held(realm: Realm, name: str, epoch: int = 1) -> Holder:
    return Holder(realm.state().topic(TOPIC).id, epoch, name)


def keys_of(realm: Realm, name: str, tag_bits: int = 16) -> UserKeys:
    return UserKeys(user_part(realm, name), held(realm, name), tag_bits)


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    return a_realm(tmp_path / "realm")


def test_filters_of_the_last_epoch_leave_room_for_those_of_this_one(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sealcast.control.desk.MAX_SUBSCRIPTIONS_EACH", 3)
    monkeypatch.setattr("sealcast.protections.kept_interests.MAX_SUBSCRIPTIONS_EACH", 4)
    with client_side(Searchable()).interests(realm, TOPIC, "nurse") as interests:
        interests.add("pulse > 101")
        interests.add("pulse > 102")
        realm.rotate(TOPIC)
        interests.refresh()
        assert len(registered(realm, "nurse")) == 6
        with pytest.raises(Rejected, match="which is all it may"):
            interests.add("pulse > 103")
        assert len(interests.filters()) == 3


# --- content ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag_bits", [0, 3, 16, 32])
def test_every_filter_that_labels_express_matches_what_it_says(tmp_path: Path, tag_bits: int) -> None:
    realm, random = a_realm(tmp_path / "realm", tag_bits=tag_bits), Random(tag_bits)
    filters = {
        "f1": "pulse BETWEEN 17 AND 203",
        "f2": "ward LIKE 'He%' AND pulse < 90",
        "f3": "ward LIKE '%ts' OR pulse = 255",
        "f4": "NOT ward = 'Hearts' AND pulse IN (1, 2, 3, 77)",
        "f5": "pulse IS NOT NULL",
        "f6": "pulse < 0",
    }
    realm.enrol_many(list(filters))
    realm.subscribe_many(TOPIC, [(name, text, None) for name, text in filters.items()])
    wards = ["Hearts", "Heads", "Guts", None]
    drawn = [(random.choice(wards), random.choice([None, random.randrange(256)])) for _ in range(150)]
    events = [
        Event({k: v for k, v in {"ward": ward, "pulse": pulse}.items() if v is not None}, str(n).encode())
        for n, (ward, pulse) in enumerate(drawn)
    ]
    with Publisher(realm, TOPIC, as_="monitor") as publisher:
        publisher.publish(events)
    pump(realm, TOPIC)
    for name, text in filters.items():
        condition = fit(parse(text), SCHEMA)
        due = [e.payload for e in events if evaluate(condition, SCHEMA.parse(e.attributes)) is True]
        with Subscriber(realm, TOPIC, as_=name) as reader:
            assert [event.payload for event in reader] == due, text


def test_what_labels_cannot_express_is_refused_with_what_they_can(realm: Realm) -> None:
    with pytest.raises(FilterRejected) as refusal:
        realm.subscribe(TOPIC, "nurse", "pulse IS NULL")
    assert "labels express" in (refusal.value.hint or "")
    assert len(registered(realm, "nurse")) == 1, "nothing of it was kept"
    assert [i.filter for i in client_side(Searchable()).listed(realm, TOPIC, "nurse")] == ["pulse > 100"]


@pytest.mark.parametrize("bad", [-1, 33, True, "8", 1.5])
def test_a_number_of_tag_bits_is_one(bad: object) -> None:
    with pytest.raises(ParameterRejected, match="bits"):
        Searchable(tag_bits=bad)  # type: ignore[arg-type]


def test_padding_hides_lengths_within_a_step(tmp_path: Path) -> None:
    realm = a_realm(tmp_path / "realm", padded=True)
    for size in (1, 20, 60, 100):
        publish(realm, 120, payload=b"x" * size)
    pump(realm, TOPIC)
    bodies = [piece.body(event) for piece in pieces(realm) for event in range(len(piece))]
    assert len({len(body) - block_size(body) for body in bodies}) == 1 and len(bodies) == 4
    assert realm.state().topic(TOPIC).protection.step == PAD_BYTES


# --- what brokers get ---------------------------------------------------------------------------------------


def test_nothing_of_an_event_or_a_filter_is_in_any_file(realm: Realm) -> None:
    publish(realm, 120)
    pump(realm, TOPIC)
    for path in realm.paths.root.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert SECRET not in data and b"Hearts" not in data and b"pulse > 100" not in data, path


def test_a_broker_sees_no_attribute_and_the_same_trapdoor_of_a_label_again(realm: Realm) -> None:
    publish(realm, 120, 121)
    pump(realm, TOPIC)
    (piece,) = pieces(realm)
    first, second = (set(parse_block(body[: block_size(body)])) for body in (piece.body(0), piece.body(1)))
    assert first & second, "a label that both events have has one trapdoor"
    labels = set(Labeller(SCHEMA).labels({"ward": "Hearts", "pulse": 120}))
    assert len(first) == len(labels) - len(SCHEMA.attributes) + 1, "of the roots, the first alone"


def test_a_filter_that_is_always_true_gets_every_event(realm: Realm) -> None:
    """Also one without any attribute: each has the root that such a filter asks for."""
    realm.enrol("auditor")
    realm.subscribe(TOPIC, "auditor", "TRUE")
    publish(realm, 120)
    with Publisher(realm, TOPIC, "monitor") as publisher:
        publisher.publish([Event({}, b"{}")])
    pump(realm, TOPIC)
    with Subscriber(realm, TOPIC, "auditor") as reader:
        assert len(list(reader)) == 2


def test_fresh_trapdoors_differ_and_match_the_same(tmp_path: Path) -> None:
    realm = a_realm(tmp_path / "realm", fresh=True)
    publish(realm, 120, 120)
    pump(realm, TOPIC)
    (piece,) = pieces(realm)
    first, second = (set(parse_block(body[: block_size(body)])) for body in (piece.body(0), piece.body(1)))
    assert not first & second
    assert {t[:TAG_BYTES] for t in first} == {t[:TAG_BYTES] for t in second}, "but tags are the label's"
    assert read(realm, "nurse") == [120, 120]


LOOK = """
import gc, json, sys
from sealcast.protections.frame_steps import MatchingStep
from sealcast.protections.steps import StepName

def secrets():
    kinds = {"ContentKey", "UserPart", "UserKeys", "MasterKey", "CenterSecrets"}
    return sorted(kinds & {type(thing).__name__ for thing in gc.get_objects()})

step = MatchingStep.of(StepName(sys.argv[1], sys.argv[2]))
table = step.at(step.version(), 2**52).table
ends = (".client", ".open", ".publish", ".interests", ".enveloped.keys", ".searchable.keys")
found = {"subscriptions": len(table.ids), "secrets": secrets(),
         "modules": [m for m in sys.modules if m.startswith("sealcast.protections.") and m.endswith(ends)]}
from sealcast.primitives.groups import Exponent
from sealcast.primitives.halves import MasterKey
from sealcast.primitives.secrets import Secret
kept = MasterKey.derive(Secret(bytes(32)), b"")
print(json.dumps(found | {"control": secrets()}))
"""


def test_a_process_that_runs_a_broker_has_neither_content_keys_nor_users_halves(realm: Realm) -> None:
    """Not in its modules, and not in its memory when it is ready to match."""
    publish(realm, 120)
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(realm.paths.root), TOPIC],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found == {"subscriptions": 2, "secrets": [], "modules": [], "control": ["MasterKey"]}


# --- guessing -----------------------------------------------------------------------------------------------


def guessed(realm: Realm, keys: UserKeys | None, half: Exponent) -> list[object]:
    """Which pulses of the registered filter a guesser finds who has a broker's half of the nurse, and these keys: it
    makes trapdoors of all labels that there are, and tries them as the broker would."""
    (subscription,) = (s for s in realm.state().subscriptions_of(TOPIC) if s.subscriber == "nurse")
    labels = SealedFilter.from_text(subscription.filter).labels
    encrypted = [c for c in scheme.re_encrypt(labels, half) if c is not None]
    checks = [scheme.check_of(label) for label in labels]
    bounds = [held(realm, "nurse").bound] * len(labels)
    found, other = set[object](), other_half(realm)
    for pulse in range(256):
        for label in Labeller(SCHEMA).labels({"ward": None, "pulse": pulse}):
            if keys is None:
                continue
            made = scheme.token(keys.trapdoor(label), other)
            if made is not None and scheme.matching(encrypted, checks, bounds, made):
                found.add(pulse)
    return sorted(found, key=str)


def other_half(realm: Realm) -> Exponent:
    return realm.broker().topic_keys(realm.state(), realm.state().topic(TOPIC)).search_half("mallory")


def test_a_broker_and_any_one_user_open_every_filter(realm: Realm) -> None:
    """The collusion that the scheme cannot resist, as `explain` says first: mallory's part and the broker's halves are
    the master exponent, and every label can be tried."""
    state, ours = realm.state(), realm.broker().topic_keys(realm.state(), realm.state().topic(TOPIC))
    part = user_part(realm, "mallory")
    x = (part.half.reveal() + ours.search_half("mallory").reveal()) % CURVE.order
    for name in ("nurse", "doctor", "monitor"):
        theirs = (x - ours.search_half(name).reveal()) % CURVE.order
        assert theirs == user_part(realm, name).half.reveal(), "the coalition has everybody's half"
    found = guessed(realm, keys_of(realm, "mallory"), ours.search_half("nurse"))
    assert found == sorted(range(101, 256), key=str), "exactly what the nurse asked for"
    first = witness_side(Searchable()).explain(state, TOPIC).parties[0]
    assert first.who.startswith("a broker together with any one") and "mallory" in first.here


def test_a_broker_alone_cannot_try_labels_and_an_unkeyed_variant_could(realm: Realm) -> None:
    """The plain-hash dictionary attack: with a search secret that the broker knows, it finds every label. With ours,
    which it does not have, a secret of its own finds nothing, and neither do tags."""
    ours = realm.broker().topic_keys(realm.state(), realm.state().topic(TOPIC))
    right = user_part(realm, "mallory")
    label = next(iter(label_filter(fit(parse("pulse = 7"), SCHEMA), SCHEMA).conjunctions[0].slots[0]))
    # The broker's own guess at the secret: it knows the topic's key and every half of its own.
    for secret in (ours._key, ours.content_root(), ours.pair_key("mallory")):
        part = UserPart(ours.search_half("mallory"), secret, right.public)
        guess = UserKeys(part, held(realm, "mallory"), 16)
        assert guess.tag(label) != keys_of(realm, "mallory").tag(label)
        assert guessed(realm, guess, ours.search_half("nurse")) == []
    # The weakened variant: whoever hashes labels under a public secret can be tried by anyone who knows the scheme.
    assert guessed(realm, keys_of(realm, "mallory"), ours.search_half("nurse"))


def test_a_filter_of_another_user_is_of_no_use_to_who_copies_it(realm: Realm) -> None:
    """Registered under its own name, the broker re-encrypts it with the wrong half."""
    (theirs,) = [s for s in realm.state().subscriptions_of(TOPIC) if s.subscriber == "nurse"]
    credential = realm.issuer().credential(realm.state(), TOPIC, "mallory", realm.clock())
    realm.registry.apply_many([AddSubscription("copied", TOPIC, "mallory", theirs.filter, credential)])
    publish(realm, 120)
    pump(realm, TOPIC)
    assert read(realm, "nurse") == [120] and read(realm, "mallory") == []


@pytest.mark.parametrize("weakened", [True, False])
def test_who_makes_anothers_filter_its_own_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weakened: bool
) -> None:
    """c1 does not depend on who sealed a label, so that a user replaces c2 and need not know what was sealed. With a
    check that does not say whose the label is, it would see which events another's filter matches."""
    if weakened:
        monkeypatch.setattr(Holder, "bound", property(lambda _: bytes(BOUND_BYTES)))
    realm = a_realm(tmp_path / "realm")
    (theirs,) = [s for s in realm.state().subscriptions_of(TOPIC) if s.subscriber == "nurse"]
    copied = rekeyed(SealedFilter.from_text(theirs.filter), user_part(realm, "mallory").half)
    credential = realm.issuer().credential(realm.state(), TOPIC, "mallory", realm.clock())
    realm.registry.apply_many([AddSubscription("copied", TOPIC, "mallory", copied.to_text(), credential)])
    publish(realm, 90, 120)
    pump(realm, TOPIC)
    assert read(realm, "nurse") == [120] and read(realm, "mallory") == ([120] if weakened else [])
    assert sealcast("check", TOPIC, "--realm", str(realm.paths.root)).code == 0, "the witness compares as brokers do"
    assert any("register another's filter" in fact for fact in reader_of(realm).cannot)


@pytest.mark.parametrize("tag_bits", [0, 16])
def test_whoever_has_the_search_secret_reads_others_tags_and_explain_says_so(tmp_path: Path, tag_bits: int) -> None:
    """A user with the registry, and no broker: it computes the tag of every label there is, and compares."""
    realm = a_realm(tmp_path / "realm", tag_bits=tag_bits)
    realm.subscribe(TOPIC, "nurse", "pulse = 77")
    theirs = next(s for s in realm.state().subscriptions_of(TOPIC) if s.id == "nurse-2.e1")
    (tag,) = {label[:TAG_BYTES] for label in SealedFilter.from_text(theirs.filter).labels}
    keys, labels = keys_of(realm, "mallory", tag_bits), Labeller(SCHEMA).labels
    found = [p for p in range(256) if keys.tag(labels({"ward": None, "pulse": p})[-1]) == tag]
    assert 77 in found and (len(found) < 5 if tag_bits else len(found) == 256)
    facts = reader_of(realm)
    assert any("by its tag" in fact for fact in facts.learns) == bool(tag_bits)
    assert any("open others' filters" in fact for fact in facts.cannot) == (not tag_bits)


def reader_of(realm: Realm) -> Party:
    parties = witness_side(Searchable()).explain(realm.state(), TOPIC).parties
    return next(party for party in parties if party.who.startswith("a reader"))


@pytest.mark.parametrize(("lie", "found"), [("drops", "lost"), ("adds", "unexpected")])
def test_check_finds_a_broker_that_lies_about_a_match(
    realm: Realm, monkeypatch: pytest.MonkeyPatch, lie: str, found: str
) -> None:
    """By asking the sealed filters themselves, with the broker's halves. No plaintext is needed, and none is there."""
    search = SealedIndex.search

    def lying(self: SealedIndex, *asked: Any) -> bits.Words:
        words = search(self, *asked)
        rows, columns = bits.pairs(words)
        wrong = np.array([0, 1]) if lie == "adds" else np.array([], np.int64)
        rows = np.concatenate([rows[1:] if lie == "drops" else rows, np.zeros_like(wrong)])
        columns = np.concatenate([columns[1:] if lie == "drops" else columns, wrong])
        return bits.pack(rows, columns, len(asked[2]), 2)

    publish(realm, 90)  # the doctor's, and not the nurse's
    monkeypatch.setattr(SealedIndex, "search", lying)
    pump(realm, TOPIC)
    monkeypatch.undo()
    result = sealcast("check", TOPIC, "--realm", str(realm.paths.root), "--json")
    assert result.code == 1 and result.document[found] == 1, result.document


# --- what is refused ------------------------------------------------------------------------------------------


def bad_texts(realm: Realm) -> Iterator[tuple[str, str]]:
    good = keys_of(realm, "nurse").seal_filter([[[b"label"]]])
    yield "pulse > 100", "not sealed"
    yield "sealed:", "does not begin"
    yield "sealed:!!", "base64url"
    yield good.to_text()[:-4], "ends before"
    later = UserKeys(user_part(realm, "nurse"), held(realm, "nurse", 2), 16)
    yield later.seal_filter([[[b"label"]]]).to_text(), "epoch 2"
    yield keys_of(realm, "nurse", 32).seal_filter([[[b"label"]]]).to_text(), "more than the 16 bits"
    yield "sealed:" + "A" * (1 << 19), "characters"


def test_the_registry_takes_sealed_filters_of_this_epoch_and_nothing_else(realm: Realm) -> None:
    credential = realm.issuer().credential(realm.state(), TOPIC, "nurse", realm.clock())
    before = realm.registry.version()
    for text, why in bad_texts(realm):
        with pytest.raises(Rejected, match=why):
            realm.registry.apply_many([AddSubscription("bad", TOPIC, "nurse", text, credential)])
    assert realm.registry.version() == before


def test_a_text_sent_to_the_desk_by_mistake_is_refused(realm: Realm) -> None:
    from sealcast.control import requests
    from sealcast.control.wallet import Wallet

    with Wallet(realm, "nurse") as wallet, pytest.raises(SealcastError, match="not sealed"):
        requests.subscribe(wallet, TOPIC, "pulse > 100")


def test_a_registered_filter_with_bad_points_is_counted_and_matches_nothing(realm: Realm) -> None:
    good = keys_of(realm, "nurse").seal_filter([[[b"label"]]])
    (label,) = good.labels
    off = next(
        bytes(body)
        for last in range(256)
        if not _on_curve(body := bytearray(label[TAG_BYTES : TAG_BYTES + 32]) + bytes([last]))
    )
    bad = SealedFilter.of(1, [[[label[:TAG_BYTES] + off + label[TAG_BYTES + 33 :]]]])
    credential = realm.issuer().credential(realm.state(), TOPIC, "nurse", realm.clock())
    realm.registry.apply_many([AddSubscription("bad.e1", TOPIC, "nurse", bad.to_text(), credential)])
    publish(realm, 120)
    assert pump(realm, TOPIC)["deliveries"] == 2, "the nurse's good filter and the doctor's"
    (facts,) = witness_side(Searchable()).status(realm, TOPIC)
    assert facts.document["filters_refused"] == 1 and any("match nothing" in str(row[1]) for row in facts.rows)


def _on_curve(point: bytearray) -> bool:
    try:
        CURVE.decode(bytes(point))
    except Rejected:
        return False
    return True


def broken_blocks(trapdoors: list[bytes]) -> Iterator[bytes]:
    good = packed_block(trapdoors)
    first = trapdoors[0]
    yield b"XX1" + good[3:]
    yield good[:3] + (len(trapdoors) + 9_000).to_bytes(2, "big") + good[5:]
    yield good[:5] + first + first
    yield packed_block([*trapdoors[1:], first[:TAG_BYTES] + b"\x02" + b"\xff" * 32 + first[37:]])
    yield packed_block([*trapdoors[1:], first[:TAG_BYTES] + bytes(33) + first[37:]])
    yield packed_block([*trapdoors[1:], b"\xff" * TAG_BYTES + first[TAG_BYTES:]])


def test_an_event_without_a_good_block_is_refused_counted_and_harms_nothing_else(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = keys_of(realm, "monitor")
    made = sorted(keys.trapdoor(bytes([n])) for n in range(3))
    blocks = list(broken_blocks(made))
    from sealcast.protections.searchable import publish as module

    for block in blocks:
        monkeypatch.setattr(module, "packed_block", lambda trapdoors, block=block: block)
        publish(realm, 110)
    monkeypatch.undo()
    publish(realm, 130)
    counts = pump(realm, TOPIC)
    assert (counts["admitted"], counts["rejected_event"]) == (1, len(blocks))
    assert read(realm, "nurse") == [130]
    refused = [r for each in witness_side(Searchable()).refusals(realm, TOPIC) for r in each]
    assert len({r["detail"] for r in refused}) >= 4 and {r["reason"] for r in refused} == {"event"}


def test_more_trapdoors_than_the_schema_has_labels_are_refused(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would cost brokers a multiplication and a look through a bucket, whatever the event is about."""
    from sealcast.protections.searchable import publish as module

    keys, most = keys_of(realm, "monitor"), Labeller(SCHEMA).most()
    many = [keys.trapdoor(n.to_bytes(4, "big")) for n in range(most + 1)]
    for block in (packed_block(many), packed_block(many[1:])):
        monkeypatch.setattr(module, "packed_block", lambda trapdoors, block=block: block)
        publish(realm, 110)
    counts = pump(realm, TOPIC)
    assert (counts["admitted"], counts["rejected_event"]) == (1, 1)
    ((refused,),) = witness_side(Searchable()).refusals(realm, TOPIC)
    assert refused["detail"].endswith(f"at most {most} trapdoors")


def test_a_reader_refuses_another_block_than_was_signed(realm: Realm) -> None:
    publish(realm, 120, 130)
    pump(realm, TOPIC)
    (piece,) = pieces(realm)
    opener = opener_for(realm, TOPIC, realm.identity("nurse"))
    assert opener.open(piece, 0, 0).payload == SECRET
    bodies = [piece.body(event) for event in (0, 1)]
    at = [block_size(body) for body in bodies]
    from sealcast.protections.enveloped.envelope import Envelope

    envelope = Envelope.in_piece(bodies[0][at[0] :], piece.commitment(0))
    assert opener.open_envelope(piece.position(0), piece.frame(0), envelope, bodies[0][: at[0]]).payload == SECRET
    for before in (b"", bodies[1][: at[1]], packed_block([])):
        with pytest.raises(CannotOpen, match="not among the events"):
            opener.open_envelope(piece.position(0), piece.frame(0), envelope, before)


# --- epochs, leavers ------------------------------------------------------------------------------------------


def test_filters_follow_into_a_new_epoch_and_leave_the_old_one_when_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    realm = a_realm(tmp_path / "realm")
    publish(realm, 120)
    realm.rotate(TOPIC)
    publish(realm, 130)
    assert registered(realm, "nurse") == ["nurse-1.e1", "nurse-1.e2"], "what was published before is still to match"
    pump(realm, TOPIC)
    assert read(realm, "nurse") == [120, 130]
    ended = realm.state().topic(TOPIC).parameters.grace_s + 600
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + ended * 1_000_000_000)
    later = Realm(realm.paths.root, clock=lambda: now() // 1000 + ended * 1_000_000)
    assert read(later, "nurse") == [120, 130] and registered(later, "nurse") == ["nurse-1.e1", "nurse-1.e2"]
    publish(later, 140)
    pump(later, TOPIC)  # the broker has taken in everything of the old epoch now
    assert read(later, "nurse") == [120, 130, 140]
    assert registered(later, "nurse") == ["nurse-1.e2"]
    assert [i.id for i in client_side(Searchable()).listed(later, TOPIC, "nurse")] == ["nurse-1"]


@pytest.mark.parametrize("how", ["revoke", "revoke-entity"])
def test_a_leavers_filters_and_trapdoors_match_nothing_from_the_next_batch_on(tmp_path: Path, how: str) -> None:
    realm = a_realm(tmp_path / "realm", access="granted")
    realm.grant(TOPIC, "nurse", [Right.PUBLISH, Right.SUBSCRIBE])
    publish(realm, 120)
    leaver, before = realm.identity("nurse"), realm.state()
    with Publisher(realm, TOPIC, as_="nurse") as publisher:
        publisher.publish([Event({"ward": "Hearts", "pulse": 150}, b"hers")])  # in the log, and not yet in a batch
        if how == "revoke":
            realm.revoke(TOPIC, "nurse", [Right.SUBSCRIBE, Right.PUBLISH])
        else:
            realm.revoke_entity("nurse")
    assert realm.state().topic(TOPIC).epoch == before.topic(TOPIC).epoch + 1
    publish(realm, 130)
    counts = pump(realm, TOPIC)
    assert counts["deliveries"] == 2, "the doctor's, and nothing of or for the leaver"
    assert read(realm, "doctor") == [120, 130]
    opener, opened = opener_for(realm, TOPIC, leaver), []
    for piece in pieces(realm):
        for event in range(len(piece)):
            try:
                opened.append(opener.open(piece, event, event).attributes["pulse"])
            except SealcastError:
                continue
    assert opened == [120], "what was published before, and nothing after, even from the broker's own disk"
    assert leaver.topic_keys(before, TOPIC).search is not None
    with pytest.raises(SealcastError):
        leaver.topic_keys(realm.state(), TOPIC)


def test_who_may_only_publish_cannot_read(tmp_path: Path) -> None:
    realm = a_realm(tmp_path / "realm", access="granted")
    publish(realm, 120)
    pump(realm, TOPIC)
    (piece,) = pieces(realm)
    with pytest.raises(CannotOpen, match="and not read"):
        opener_for(realm, TOPIC, realm.identity("monitor")).open(piece, 0, 0)
    assert opener_for(realm, TOPIC, realm.identity("doctor")).open(piece, 0, 0).payload == SECRET


def test_after_a_compromise_the_thief_opens_nothing_and_the_others_everything(tmp_path: Path) -> None:
    realm = a_realm(tmp_path / "realm")
    publish(realm, 120, 130)
    pump(realm, TOPIC)
    thief = realm.identity("nurse")
    drill.drill(realm, "nurse")
    publish(realm, 140)
    pump(realm, TOPIC)
    found = [(piece, event) for piece in pieces(realm) for event in range(len(piece))]
    assert len(found) == 3
    for piece, event in found:
        with pytest.raises(SealcastError):
            opener_for(realm, TOPIC, thief).open(piece, event, int(piece.use_start[event]))
    assert read(realm, "doctor") == [120, 130, 140]


# --- a subscriber's own filters -------------------------------------------------------------------------------


def test_ids_are_never_given_twice_and_people_see_their_own(realm: Realm) -> None:
    side = client_side(Searchable())
    with side.interests(realm, TOPIC, "nurse") as interests:
        made = interests.add("pulse = 1", "mine")
        assert (made.id, made.filter) == ("mine", "pulse = 1")
        interests.remove(["mine"])
        assert [i.id for i in interests.filters()] == ["nurse-1"]
        for bad in ("mine", "nurse-1", "x" * 53, "a b"):
            with pytest.raises(Misuse):
                interests.add("pulse = 1", bad)
        assert interests.add("pulse = 2").id == "nurse-2"
    assert registered(realm, "nurse") == ["nurse-1.e1", "nurse-2.e1"]
    assert [own_id(id) for id in ("nurse-2.e1", "odd", "odd.e", "a.e2.e3")] == [
        ("nurse-2", 1),
        ("odd", 0),
        ("odd.e", 0),
        ("a.e2", 3),
    ]


def test_a_removal_that_was_cut_short_is_finished_later(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    from sealcast.control import requests
    from sealcast.errors import Unavailable

    def away(*_: object) -> int:
        raise Unavailable("the desk is away")

    with SealedInterests(realm, TOPIC, "nurse") as interests:
        with monkeypatch.context() as patched:
            patched.setattr(requests, "unsubscribe", away)
            interests.remove(["nurse-1"])
        assert interests.trouble is not None and interests.filters() == []
        assert registered(realm, "nurse") == ["nurse-1.e1"]
        assert interests.refresh() == 1 and registered(realm, "nurse") == []
        assert interests.refresh() == 0


def test_subscribing_many_is_all_or_none(realm: Realm) -> None:
    side = client_side(Searchable())
    with pytest.raises(FilterRejected):
        side.subscribe_many(realm, TOPIC, [("mallory", "pulse = 1", None), ("doctor", "pulse IS NULL", None)])
    with pytest.raises(SealcastError):
        side.subscribe_many(realm, TOPIC, [("mallory", "pulse = 1", None), ("nobody", "pulse = 1", None)])
    assert side.listed(realm, TOPIC, "mallory") == [] and registered(realm, "mallory") == []
    made = side.subscribe_many(realm, TOPIC, [("mallory", "pulse = 1", None), ("mallory", "pulse = 2", "two")])
    assert [each.id for each in made] == ["mallory-1", "two"]


def test_a_sealed_text_is_a_form_of_its_own(realm: Realm) -> None:
    (nurse,) = [s for s in realm.state().subscriptions_of(TOPIC) if s.subscriber == "nurse"]
    again = SealedFilter.from_text(nurse.filter, 16)
    assert again.to_text() == nurse.filter and again.epoch == 1
    with pytest.raises(SealedRejected):
        SealedFilter.from_text(nurse.filter, 0)


# --- tables and versions --------------------------------------------------------------------------------------


def test_a_table_keeps_its_filters_while_it_is_in_use_and_the_index_drops_the_rest(realm: Realm) -> None:
    """Batches may be pinned to neighbouring versions: each looks through its own table, whatever came since."""
    publish(realm, 120)
    step = MatchingStep.of(StepName(str(realm.paths.root), TOPIC))
    (received,) = gathered(0, step.frames.partition(0).read(0, 1), AS_STAMPED)
    ruled = Ruled(received, np.zeros(1, np.uint8))

    def matched(version: int) -> set[str]:
        at = step.at(version, realm.clock())
        found = match(admit(ruled, at.gate), at.table)
        return {at.table.ids[column] for column in bits.pairs(found.subscriptions)[1].tolist()}

    first = realm.registry.version()
    assert matched(first) == {"nurse-1.e1", "doctor-1.e1"}
    realm.subscribe(TOPIC, "mallory", "pulse = 120")
    with SealedInterests(realm, TOPIC, "doctor") as interests:
        interests.remove(["doctor-1"])
    second = realm.registry.version()
    assert matched(second) == {"nurse-1.e1", "mallory-1.e1"}
    assert matched(first) == {"nurse-1.e1", "doctor-1.e1"}, "an earlier table has what it had"
    indexes = SealedIndexes(realm.broker(), realm.state().topic(TOPIC))
    for version in (first, second, second):
        state = realm.state(version)
        about = state.topic(TOPIC)
        intervals = dict(served_intervals(state, about, state.subscriptions_at(TOPIC, "broker")))
        made = indexes.at(state, about, intervals)
        assert len(made.numbers) == 2
    assert set(indexes._numbers) == {"nurse-1.e1", "mallory-1.e1"}, "the first table is gone, and what only it had"


def test_a_table_does_not_grow_with_the_filters_there_ever_were(realm: Realm) -> None:
    """Every epoch registers every filter anew, under a number that was never given before."""
    indexes = SealedIndexes(realm.broker(), realm.state().topic(TOPIC))
    indexes._next = 1 << 40
    state = realm.state()
    about = state.topic(TOPIC)
    made = indexes.at(state, about, dict(served_intervals(state, about, state.subscriptions_at(TOPIC, "broker"))))
    assert made.numbers == {1 << 40, (1 << 40) + 1}
    keys, labels = keys_of(realm, "monitor"), Labeller(SCHEMA).labels({"ward": "Hearts", "pulse": 9})
    assert bits.pairs(made.search(["monitor"], [1], [keys.block(labels)]))[1].size == 1


def test_a_broker_that_gets_an_epochs_key_later_searches_with_it_then(realm: Realm) -> None:
    realm.add_broker("second")
    state = realm.state()
    about = state.topic(TOPIC)
    indexes = SealedIndexes(realm.broker("second"), about)
    intervals = dict(served_intervals(state, about, state.subscriptions_at(TOPIC, "broker")))
    assert not indexes.at(state, about, intervals).numbers, "it has no half of anybody"
    realm.serve(TOPIC, "second")
    state = realm.state()
    assert len(indexes.at(state, state.topic(TOPIC), intervals).numbers) == 2


def test_inspect_says_what_a_sealed_filter_reveals(realm: Realm, tmp_path: Path) -> None:
    realm.subscribe(TOPIC, "mallory", "pulse BETWEEN 3 AND 12 AND ward = 'Hearts' OR ward LIKE 'Gu%'")
    (mallory,) = [s for s in realm.state().subscriptions_of(TOPIC) if s.subscriber == "mallory"]
    file = tmp_path / "filter"
    file.write_text(mallory.filter + "\n")
    found = sealcast("inspect", file, "--json").document
    assert (found["epoch"], found["conjunctions"], sorted(found["slots"])) == (1, 2, [1, 2])
    assert "tags" in found["reveals"] and "asks for" in found["hides"]
    file.write_text(mallory.filter[:-8])
    assert sealcast("inspect", file, "--json").code == 1


@pytest.mark.parametrize("retained", [True, False])
def test_who_is_away_when_an_epoch_begins_gets_what_is_retained_on_its_return(tmp_path: Path, retained: bool) -> None:
    """As `explain` says. Its keys and filters are elsewhere: nobody registers for it."""
    realm = a_realm(tmp_path / "realm", **({} if retained else {"retain_events": 0}))
    away = tmp_path / "away"
    away.mkdir()
    moved = [realm.paths.entity_key("nurse"), realm.paths.root / "wallets" / "nurse"]
    for path in moved:
        path.rename(away / path.name)
    realm.rotate(TOPIC)
    publish(realm, 120)
    assert registered(realm, "nurse") == ["nurse-1.e1"]
    pump(realm, TOPIC)
    for path in moved:
        (away / path.name).rename(path)
    assert read(realm, "nurse") == [] and registered(realm, "nurse") == ["nurse-1.e1", "nurse-1.e2"]
    publish(realm, 130)
    pump(realm, TOPIC)
    assert read(realm, "nurse") == ([120, 130] if retained else [130]) and read(realm, "doctor") == [120, 130]
    left = witness_side(Searchable()).explain(realm.state(), TOPIC).left
    assert any("is away when an epoch begins" in each for each in left)
