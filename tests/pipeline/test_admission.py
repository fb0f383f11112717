"""The numbered checks: each is attacked, each attack works on a gate without that check, and the table in the docs is
the one in the code."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sealcast.broker import admit as second_half
from sealcast.broker import authenticate as first_half
from sealcast.broker import opening
from sealcast.broker.admit import admit
from sealcast.broker.authenticate import authenticate, check_one
from sealcast.broker.gate import CHECK, EARLIER, REASON, Gate
from sealcast.broker.quota import Quota
from sealcast.broker.replay import Windows
from sealcast.errors import FrameRejected, NotFound
from sealcast.lab.attacks import RATES, Cast, Insider, attacks, outdated
from sealcast.model import Reason, Schema
from sealcast.model.stages import Admitted, Received, Ruled
from sealcast.primitives.aead import SealingKey
from sealcast.protections.endpoint.broker import EndpointStep
from sealcast.protections.steps import StepName
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.minting import claims_for
from sealcast.trust.realm.changes import Change, Right
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.templates import Template
from sealcast.trust.tokens.token import mint
from sealcast.wire import frame
from sealcast.wire.frame import DIGEST_BYTES, BareBody, FrameBody
from sealcast.wire.frames import parse_many
from sealcast.wire.lifting import lifts
from sealcast.wire.records import RecordCodec

TOPIC = "quotes"
SCHEMA = Schema.from_json(
    {"attributes": [{"name": "symbol", "type": "string", "max_length": 8}, {"name": "price", "type": "int", "min": 0}]}
)
#: The log's time: after everything that is made here, however long the tests before this one take.
NOW = time.time_ns() // 1000 + 3600 * 1_000_000


class World:
    def __init__(self, root: Path) -> None:
        self.realm = Realm.create(root / "realm")
        self.realm.create_topic(TOPIC, SCHEMA, parameters=RATES, access="members")
        self.realm.enrol_many(["ann", "reader", "narrow", "gone", "mallory"])
        self.realm.revoke(TOPIC, "reader", [Right.PUBLISH])
        self.realm.grant(TOPIC, "narrow", [Right.PUBLISH], template="symbol=ACME")
        self.realm.revoke(TOPIC, "mallory")
        gone = Insider.of(self.realm, TOPIC, "gone")
        self.realm.revoke_entity("gone")
        self.cast = Cast(
            publisher=Insider.of(self.realm, TOPIC, "ann"),
            reader=Insider.of(self.realm, TOPIC, "reader", Right.SUBSCRIBE),
            narrow=Insider.of(self.realm, TOPIC, "narrow"),
            revoked=gone,
            stranger=Insider.without(self.realm, "mallory"),
            outdated=outdated(self.realm, TOPIC, "ann"),
        )
        self.topic = self.realm.state().topic(TOPIC)
        self.attacks = list(attacks(self.topic, self.cast, NOW))

    def gate(self) -> Gate:
        """A new one: what one test takes out is there for the next."""
        return EndpointStep(StepName(str(self.realm.paths.root), TOPIC)).gate(self.realm.registry.version())

    def frame(self, by: Insider, count: int = 1, **attributes: object) -> bytes:
        values = [self.topic.schema.parse(attributes)] * count
        return by.sealer(self.topic).seal_messages(RecordCodec(SCHEMA).encode(values, [b"x"] * count), NOW)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield World(tmp_path_factory.mktemp("admission"))


def received(frames: list[bytes], now: int = NOW) -> Received:
    return Received(0, list(range(len(frames))), [now] * len(frames), frames)


def admitted(frames: list[bytes], gate: Gate, windows: Windows | None = None, now: int = NOW) -> Admitted:
    """Both halves and replay, as the pipeline puts them together."""
    given = received(frames, now)
    claims, refused = authenticate(given, gate)
    codes = np.zeros(len(frames), np.uint8)
    codes[refused["offset"]] = refused["code"]
    codes[claims["offset"]] = (windows or Windows(gate.bounds)).decide(claims)
    return admit(Ruled(given, codes), gate)


# --- each check, attacked -------------------------------------------------------------------------------


def test_every_reason_is_attacked_and_refused_for_that_reason(world: World) -> None:
    assert {attack.reason for attack in world.attacks} == set(Reason)
    result = admitted([attack.data for attack in world.attacks], world.gate())
    found: dict[int, set[Reason]] = {}
    for rejection in result.rejections:
        found.setdefault(rejection.position.offset, set()).add(rejection.reason)
    assert found == {offset: {attack.reason} for offset, attack in enumerate(world.attacks)}
    assert not result.messages


class Open:
    """A gate that lacks one check: what it should refuse, it lets pass."""

    def __init__(self, patch: pytest.MonkeyPatch, gate: Gate) -> None:
        self.patch = patch
        self.gate = gate

    def token_checks(self, wanted: Reason) -> Gate:
        """Without one of those that the token gate makes, and the realm's word on the publisher."""
        really = Gate._verify

        def verify(gate: Gate, *about: Any) -> Any:
            refusal = really(gate, *about)
            return None if refusal is not None and refusal.reason is wanted else refusal

        self.patch.setattr(Gate, "_verify", verify)
        named = Gate.refuses_by_name

        def by_name(gate: Gate, *about: Any) -> Any:
            refusal = named(gate, *about)
            return None if refusal is not None and refusal.reason is wanted else refusal

        self.patch.setattr(Gate, "refuses_by_name", by_name)
        return self.gate

    def without(self, reason: Reason) -> Gate:
        gate = self.gate
        match reason:
            case Reason.SIGNATURE:
                self.patch.setattr(first_half, "signed_each", lambda keys, pieces: [True] * len(pieces))
            case Reason.TIME:
                return replace(gate, bounds=replace(gate.bounds, max_skew_us=2**60, stale_after_us=2**60))
            case Reason.BUDGET:
                return replace(gate, bounds=replace(gate.bounds, quota=Quota(10**9, 10**9, 86_400)))
            case Reason.ROOT:
                kind = SimpleNamespace(digest=_Any, build=lambda hashes: _Any(), hash_messages=list)
                self.patch.setattr(opening, "merkle", kind)
                self.patch.setattr(opening, "sha256", lambda message: kind)
            case Reason.TEMPLATE:
                self.patch.setattr(second_half, "_off_template", lambda *about: [])
            case Reason.EVENT:
                self.patch.setattr(type(gate.codec), "decode_joined", _decode_kindly(gate.codec))
            case Reason.EPOCH:
                self.patch.setattr(type(gate.topic), "epoch_admissible", lambda *about: True)
                return replace(gate, holds_key=lambda epoch: True)
            case _:
                return self.token_checks(reason)
        return gate


class _Any(bytes):
    """Equal to whatever it is compared with."""

    def __getitem__(self, at: Any) -> Any:
        return self

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = bytes.__hash__


def _decode_kindly(codec: RecordCodec) -> Callable[..., Any]:
    def decode(self: RecordCodec, joined: bytes, lengths: Any) -> Any:
        return codec.decode(codec.encode([dict.fromkeys(SCHEMA.names)] * len(lengths), [b""] * len(lengths)))

    return decode


#: Attacks that are honest frames but for one thing. Without the check they are delivered; the others are stopped by a
#: later one, and it is enough that they get past the one that is taken out.
_ADMITTED = {
    Reason.CENTER,
    Reason.TOKEN_SIGNATURE,
    Reason.TOKEN_TIME,
    Reason.TEMPLATE,
    Reason.TIME,
    Reason.BUDGET,
    Reason.SCHEMA,
    Reason.ROOT,
    Reason.EVENT,
}


@pytest.mark.parametrize("reason", [r for r in Reason if r not in (Reason.FRAME, Reason.VERSION, Reason.TOPIC)])
def test_without_the_check_the_attack_gets_past_it(
    world: World, reason: Reason, monkeypatch: pytest.MonkeyPatch
) -> None:
    for attack in (a for a in world.attacks if a.reason is reason and a.story != "no token"):
        with monkeypatch.context() as patch:
            gate = world.gate()
            if reason is Reason.REPLAY:
                # One that forgets takes it for new.
                assert {r.reason for r in admitted([attack.data] * 2, gate).rejections} == {Reason.SEAL, reason}
            elif reason in (Reason.SCHEMA, Reason.SEAL):
                gate = _other_keys(gate, patch, reason)
            else:
                gate = Open(patch, gate).without(reason)
            _, rulings = authenticate(received([attack.data]), gate)
            assert CHECK[reason] < min([99, *(int(r["code"]) & ~EARLIER for r in rulings)]), attack.story
            if reason in _ADMITTED:
                assert admitted([attack.data], gate, Windows(gate.bounds)).messages, attack.story


def _other_keys(gate: Gate, patch: pytest.MonkeyPatch, reason: Reason) -> Gate:
    if reason is Reason.SCHEMA:
        foreign = Schema.from_json({"attributes": [{"name": "symbol", "type": "string"}]})
        topic = replace(gate.topic, schema=foreign)
        return replace(gate, topic=topic, codec=RecordCodec(foreign), lifts=lifts(foreign, ()))
    patch.setattr(SealingKey, "open", lambda self, nonce, commitment, body, aad=None: body[:-16])
    patch.setattr(frame, "sole_message", lambda body: b"\0" * 40)
    patch.setattr(frame, "bare_body", BareBody)
    patch.setattr(frame, "split_body", lambda body, count: FrameBody(bytes(40 * count), 0, np.full(count, 40)))
    return gate


# --- order ----------------------------------------------------------------------------------------------


def test_the_first_check_that_fails_is_the_reason(world: World) -> None:
    """Two things wrong with a frame, and the one with the lower number is named: wrong token and wrong everything."""
    cast, gate = world.cast, world.gate()
    impostor = replace(cast.publisher, signer=cast.stranger.signer)
    cases = {
        Reason.TOPIC: (replace(cast.publisher, token=b""), replace(world.topic, id=bytes(16))),
        Reason.TOKEN: (replace(cast.revoked, token=b""), world.topic),
        Reason.TOKEN_TIME: (replace(impostor, token=cast.outdated), world.topic),
        Reason.RIGHT: (replace(cast.reader, signer=cast.stranger.signer), world.topic),
        Reason.REVOKED: (replace(cast.revoked, signer=cast.stranger.signer), replace(world.topic, epoch=7)),
        Reason.EPOCH: (impostor, replace(world.topic, epoch=7)),
    }
    for reason, (by, topic) in cases.items():
        data = by.sealer(topic).seal_messages([b"\0" * 20], 1)  # and published long ago
        with pytest.raises(FrameRejected) as refused:
            check_one(data, NOW, gate)
        assert refused.value.reason == reason
        _, rulings = authenticate(received([data]), gate)
        assert [int(r["code"]) for r in rulings] == [EARLIER | CHECK[reason]]


def test_a_batch_is_decided_as_its_frames_are_one_by_one(world: World) -> None:
    dice, gate = random.Random(7), world.gate()
    honest = [world.frame(world.cast.publisher, n, symbol="ACME", price=n) for n in (1, 2, 3)]
    pool = [attack.data for attack in world.attacks] + honest
    for data in list(pool):
        at = dice.randrange(min(len(data), 1200)) if data else 0
        pool.append(data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :] if data else b"")
    dice.shuffle(pool)
    claims, rulings = authenticate(received(pool), gate)
    found = {int(r["offset"]): REASON[int(r["code"]) & ~EARLIER] for r in rulings}
    for offset, data in enumerate(pool):
        try:
            header = check_one(data, NOW, gate).header
        except FrameRejected as refused:
            assert found[offset] == refused.reason
            continue
        assert offset not in found
        (claim,) = claims[claims["offset"] == offset]
        assert (int(claim["sequence"]), int(claim["count"])) == (header.sequence, header.count)
        assert tuple(int(claim[n]) for n in ("hi", "lo", "publisher")) == gate.identify(header.publisher, header.boot)


def test_a_batch_is_opened_as_its_frames_are_one_by_one(world: World) -> None:
    """The second half, with what the first would have stopped: some flips from the schema on that leave a frame."""
    dice, gate = random.Random(8), world.gate()
    counts = (1, 3, 1, 1, 20)
    honest = [world.frame(world.cast.publisher, count, symbol="ACME", price=count) for count in counts]
    late = (Reason.SCHEMA, Reason.SEAL, Reason.ROOT, Reason.TEMPLATE, Reason.EVENT)
    pool = [attack.data for attack in world.attacks if attack.reason in late] + honest
    fields = parse_many(honest).fields
    for data, schema, root in zip(honest, fields.schema.tolist(), fields.root.tolist(), strict=True):
        places = [*range(schema, schema + DIGEST_BYTES), *range(root, len(data))]
        bent = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in dice.sample(places, 60)]
        pool += [data for data, good in zip(bent, parse_many(bent).good.tolist(), strict=True) if good]
    dice.shuffle(pool)
    together = admit(Ruled(received(pool), np.zeros(len(pool), np.uint8)), gate)
    alone = [admit(Ruled(received([data]), np.zeros(1, np.uint8)), gate) for data in pool]
    assert list(together.messages) == [message for each in alone for message in each.messages]
    assert sum(counts) <= len(together.messages) and len(together.rejections) > len(pool) / 2
    assert [(r.position.row, r.reason, r.detail, r.events) for r in together.rejections] == [
        (r.position.row, r.reason, r.detail, r.events) for each in alone for r in each.rejections
    ]
    offsets = [offset for offset, each in enumerate(alone) for _ in each.frames]
    proofs = [replace(proof, offset=offset) for offset, proof in zip(offsets, together.frames, strict=True)]
    assert proofs == list(together.frames)
    assert [(p.signed, p.nodes) for p in proofs] == [(p.signed, p.nodes) for each in alone for p in each.frames]
    assert together.columns.equals(
        pa.Table.from_batches([each.columns for each in alone]).combine_chunks().to_batches()[0]
    )


# --- tokens and templates -------------------------------------------------------------------------------


def test_a_token_is_verified_once_for_all_frames_that_carry_it(world: World) -> None:
    gate = world.gate()
    batch = [world.frame(world.cast.publisher) for _ in range(50)]
    assert len(admitted(batch, gate).frames) == 50
    assert gate.tokens.tokens.verifications == 1
    admitted([attack.data for attack in world.attacks], gate)
    seen = gate.tokens.tokens.verifications
    admitted([attack.data for attack in world.attacks], gate)
    assert gate.tokens.tokens.verifications == seen, "bad ones are remembered, too"


def test_a_revocation_counts_at_once_whatever_is_remembered(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.enrol_many(["ann", "ben"])
    worker = EndpointStep(StepName(str(realm.paths.root), TOPIC))
    ann = Insider.of(realm, TOPIC, "ann")
    topic = realm.state().topic(TOPIC)
    data = ann.sealer(topic).seal_messages(RecordCodec(SCHEMA).encode([dict.fromkeys(SCHEMA.names)], [b""]), NOW)
    assert len(admitted([data], worker.gate(realm.registry.version())).messages) == 1
    realm.revoke(TOPIC, "ann", [Right.PUBLISH])
    (taken,) = admitted([data], worker.gate(realm.registry.version())).rejections
    assert taken.reason is Reason.RIGHT
    realm.grant(TOPIC, "ann", [Right.PUBLISH])
    assert len(admitted([data], worker.gate(realm.registry.version())).messages) == 1
    realm.revoke_entity("ann")
    (gone,) = admitted([data], worker.gate(realm.registry.version())).rejections
    assert gone.reason is Reason.REVOKED


def test_a_token_counts_by_the_logs_clock(world: World) -> None:
    gate, data = world.gate(), world.frame(world.cast.publisher)
    claims = gate.token(world.cast.publisher.token).claims
    skew = world.topic.parameters.max_skew_us
    late = replace(gate, bounds=replace(gate.bounds, stale_after_us=2**60, max_skew_us=2**60))
    for at, good in ((claims.expires_us + skew - 1, True), (claims.expires_us + skew, False)):
        result = admitted([data], late, now=at)
        assert bool(result.messages) is good
        assert good or {r.reason for r in result.rejections} == {Reason.TOKEN_TIME}


def late_broker(realm: Realm, *epochs: int) -> Callable[[int], Gate]:
    """A broker that joined after the topic's key was replaced, and was handed the keys of these epochs alone."""
    realm.add_broker("late")
    issuer = realm.issuer()

    def handed(state: RealmState) -> list[Change]:
        about, who = state.topic(TOPIC), state.entity("late")
        return [issuer.keys(about, epoch).for_broker(about, who) for epoch in epochs]

    realm.registry.transact(handed)
    return EndpointStep(StepName(str(realm.paths.root), TOPIC, "late")).gate


def test_a_grace_epoch_whose_key_this_broker_lacks_is_refused_and_stops_nothing(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.enrol_many(["ann"])
    codec, now = RecordCodec(SCHEMA), time.time_ns() // 1000

    def frame() -> bytes:
        return Insider.of(realm, TOPIC, "ann").sealer(realm.state().topic(TOPIC)).seal_messages(messages, now)

    messages = codec.encode([dict.fromkeys(SCHEMA.names)], [b"x"])
    poison = frame()
    realm.rotate(TOPIC)
    honest = frame()
    gate = late_broker(realm, 2)(realm.registry.version())
    result = admitted([honest, poison, frame()], gate, now=now)
    assert [(r.position.offset, r.reason) for r in result.rejections] == [(1, Reason.EPOCH)]
    assert "whose key this broker was not handed" in result.rejections[0].detail
    assert len(result.messages) == 2
    with pytest.raises(FrameRejected, match="was not handed") as refused:
        check_one(poison, now, gate)
    assert refused.value.reason == Reason.EPOCH
    # On a gate that does not ask, one frame ends the batch, and every batch after it.
    with pytest.raises(NotFound, match="was not handed the key"):
        admitted([honest, poison], replace(gate, holds_key=lambda epoch: True), now=now)


def test_without_the_key_of_the_present_epoch_nothing_is_refused_for_good(tmp_path: Path) -> None:
    """A broker that cannot work must not turn honest frames away: they are there when it can."""
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.enrol_many(["ann"])
    now = time.time_ns() // 1000
    ann, about = Insider.of(realm, TOPIC, "ann"), realm.state().topic(TOPIC)
    data = ann.sealer(about).seal_messages(RecordCodec(SCHEMA).encode([dict.fromkeys(SCHEMA.names)], [b"x"]), now)
    gate = late_broker(realm)
    with pytest.raises(NotFound, match="was not handed the key"):
        admitted([data], gate(realm.registry.version()), now=now)
    realm.serve(TOPIC, "late")
    assert len(admitted([data], gate(realm.registry.version()), now=now).messages) == 1


def test_tags_are_asked_of_every_event(world: World) -> None:
    by, gate = world.cast.narrow, world.gate()
    mixed: list[dict[str, object]] = [
        {"symbol": "ACME"},
        {"symbol": "ZEN"},
        {"price": 3},
        {"symbol": "ACME", "price": 1},
    ]
    messages = RecordCodec(SCHEMA).encode([SCHEMA.parse(one) for one in mixed], [b"x"] * 4)
    data = by.sealer(world.topic).seal_messages(messages, NOW)
    result = admitted([data, world.frame(world.cast.publisher, symbol="ZEN")], gate)
    assert [(r.position.offset, r.position.row, r.reason) for r in result.rejections] == [
        (0, 1, Reason.TEMPLATE),
        (0, 2, Reason.TEMPLATE),
    ]
    assert list(zip(result.offset.tolist(), result.row.tolist(), strict=True)) == [(0, 0), (0, 3), (1, 0)]


def test_a_frame_for_other_topics_than_its_template_names(world: World) -> None:
    state, center = world.realm.state(), world.realm.center()
    claims = claims_for(state, TOPIC, "ann", Right.PUBLISH, NOW)
    wrong = mint(center.identity.key, replace(claims, template=Template.parse("news.*")), "sha-256")
    (refused,) = admitted([world.frame(replace(world.cast.publisher, token=wrong))], world.gate()).rejections
    assert (refused.reason, refused.position.row) == (Reason.TEMPLATE, -1)


# --- the state ------------------------------------------------------------------------------------------


def test_what_nobody_signed_for_does_not_reach_the_replay_state(world: World) -> None:
    """Replayed under another name, with a bad signature or a bad token: no claim, so no window is touched."""
    early = [a.data for a in world.attacks if CHECK[a.reason] <= CHECK[Reason.TIME] and a.reason is not Reason.TEMPLATE]
    claims, rulings = authenticate(received(early), world.gate())
    assert claims.size == 0 and rulings.size == len(early)


def test_a_flood_leaves_honest_publishers_alone_and_the_state_small(world: World) -> None:
    """Ten frames for each honest one: forged, replayed, oversized, and noise. Bounded in count, not in time."""
    gate, dice = world.gate(), random.Random(3)
    windows = Windows(gate.bounds)
    honest_sealer = world.cast.publisher.sealer(world.topic)
    codec, values = RecordCodec(SCHEMA), [SCHEMA.parse({"symbol": "ACME"})]
    forged = [a.data for a in world.attacks if a.reason not in (Reason.BUDGET, Reason.TEMPLATE)]
    sent, delivered, sizes = 0, 0, list[int]()
    for _ in range(5):
        mine = [honest_sealer.seal_messages(codec.encode(values, [b"x"]), NOW) for _ in range(20)]
        sent += len(mine)
        bad = [dice.choice(forged) for _ in range(120)] + [dice.choice(mine) for _ in range(80)]
        batch = mine + bad
        order = [*range(len(mine)), *dice.sample(range(len(mine), len(batch)), len(bad))]
        result = admitted([batch[i] for i in order], gate, windows)
        delivered += sum(m.endswith(b"x") for m in result.messages)
        sizes.append(len(windows.pack()))
    assert delivered == sent
    assert max(sizes) < 10_000 and sizes[-1] == sizes[1], "what was refused leaves nothing behind"


# --- the docs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["docs/admission.md", "docs/path.md", "src/sealcast/wire/SPEC.md"])
def test_the_tables_in_the_documents_are_the_checks(name: str) -> None:
    text = (Path(__file__).parents[2] / name).read_text()
    rows = re.findall(r"^\| (\d+) \| `([a-z-]+)` \|", text, re.MULTILINE)
    wanted = [(str(number), str(reason)) for reason, number in CHECK.items()]
    assert [row for row in rows if row in wanted] == wanted, f"{name} lists all checks, in their order"
