"""Keys that a subscriber does not hold: it looks back, or asks, and gets what it may have and nothing else."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sealcast.clients.subscriber import Subscriber
from sealcast.errors import CannotOpen, FrameRejected, KeyMissing, NotFound, Rejected, SealcastError, Unavailable
from sealcast.groupkeys.interface import Planner
from sealcast.groupkeys.mosaic.planner import Mosaic
from sealcast.model import Position
from sealcast.protections.endpoint import memory
from sealcast.protections.endpoint.key_answers import ALLOWANCE, MAX_SKEW_US, KeyAnswers, answer
from sealcast.protections.endpoint.key_requests import GivenPart, KeyReply, KeyRequest, parse_reply, parse_request
from sealcast.protections.endpoint.keyring import KEY_BYTES
from sealcast.wire.sealed import GROWN, TABLE, SealedPiece
from tests.pipeline.crowd import TOPIC, Crowd

SUBSCRIBERS = 30
BATCHES = 5
NOW = 1_800_000_000_000_000


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    """Batches that rely on what earlier ones handed out: popular groups, and others."""

    def planner(algorithm: str, subscribers: int) -> Planner:
        return Mosaic(subscribers, 40_000, tile=5)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "planner_for", planner)
        made = Crowd(tmp_path_factory.mktemp("asking"), SUBSCRIBERS)
        names, rng = list(made.wishes), made.rng
        # The first few lie in one tile each: their keys are single ones of its table.
        made.want({g: rng.sample(names[5 * g : 5 * g + 5], 3) for g in range(1, 5)})
        made.want({g: rng.sample(names, rng.randint(2, SUBSCRIBERS)) for g in range(5, 60)})
        for batch in range(BATCHES):
            made.publish([*rng.choices(range(1, 12), k=20), *range(12 + 9 * batch, 21 + 9 * batch)])
            made.pump()
    yield made


@pytest.fixture(scope="module")
def desk(crowd: Crowd) -> KeyAnswers:
    return KeyAnswers(crowd.realm, TOPIC, crowd.realm.broker())


def through(desk: KeyAnswers) -> Callable[[bytes], bytes]:
    return lambda data: desk.reply(data, time.time_ns() // 1000)


def wanted(crowd: Crowd, name: str) -> list[Position]:
    return sorted(position for position, members in crowd.groups.items() if name in members)


def late(crowd: Crowd, name: str, kind: int) -> tuple[SealedPiece, int, int]:
    """A delivery of the last batch through a key of that kind, which a newcomer to the topic's pieces does not have."""
    piece = crowd.pieces()[-1]
    opener = crowd.opener(name)
    for event, use in zip(*(a.tolist() for a in piece.rows_for(crowd.slot(name))), strict=True):
        if piece.key_kind[piece.uses[use]] == kind and piece.position(event) in opener.missing(piece):
            return piece, event, use
    raise AssertionError(f"nothing of kind {kind} for {name}")


def someone(crowd: Crowd, kind: int) -> tuple[str, SealedPiece, int, int]:
    for name in crowd.wishes:
        try:
            return name, *late(crowd, name, kind)
        except AssertionError:
            continue
    raise AssertionError(f"nobody misses a key of kind {kind}")


def request(crowd: Crowd, name: str, *positions: Position, tables: bool = False, **changes: object) -> KeyRequest:
    about = crowd.realm.state().topic(TOPIC)
    events = tuple((p.offset, p.row) for p in positions)
    plain = KeyRequest(name, about.id, about.epoch, 0, events, tables, NOW)
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


# --- whoever may have a key gets it -----------------------------------------------------------------------


def test_whoever_starts_in_the_middle_looks_back(crowd: Crowd) -> None:
    for name in list(crowd.wishes)[:10]:
        expected = wanted(crowd, name)
        with Subscriber(crowd.realm, TOPIC, as_=name, from_=len(expected) - 5) as subscriber:
            assert [event.position for event in subscriber] == expected[-5:]
            assert subscriber.keys.asked == 0


@pytest.mark.parametrize("keys", [3, 12, 100])
def test_a_subscriber_with_little_memory_asks_and_reads_on(crowd: Crowd, desk: KeyAnswers, keys: int) -> None:
    asked, room = 0, keys * KEY_BYTES
    for name in list(crowd.wishes)[:6]:
        with Subscriber(crowd.realm, TOPIC, as_=name, from_=0, key_memory=room, ask=through(desk)) as subscriber:
            for event, position in zip(subscriber, wanted(crowd, name), strict=True):
                assert event.position == position
                assert subscriber.keys.nbytes <= room and subscriber.keys.held <= keys
            asked += subscriber.keys.asked
    assert asked > 0 or keys == 100


@pytest.mark.parametrize("kind", [TABLE, GROWN])
@pytest.mark.parametrize("tables", [False, True])
def test_what_is_asked_for_opens_for_the_asker_alone(crowd: Crowd, desk: KeyAnswers, kind: int, tables: bool) -> None:
    name, piece, event, use = someone(crowd, kind)
    data = request(crowd, name, piece.position(event), tables=tables, time=time.time_ns() // 1000)
    reply = parse_reply(through(desk)(data.signed(crowd.realm.identity(name).signer)))
    assert bool(reply.tables) == (tables and kind == TABLE) and bool(reply.keys) != bool(reply.tables)
    opener = crowd.opener(name)
    with pytest.raises(KeyMissing):
        opener.open(piece, event, use)
    opener.keyring.give(reply)
    assert opener.open(piece, event, use).position == piece.position(event)
    for other in crowd.wishes:
        if other != name:
            with pytest.raises(CannotOpen):
                crowd.opener(other).keyring.give(reply)


def test_a_reply_is_the_handout_that_was_missed(crowd: Crowd, desk: KeyAnswers) -> None:
    """Byte for byte: asking gives the broker nothing to encrypt that it has not encrypted before."""
    found = 0
    for piece in crowd.pieces():
        for row, slot in enumerate(piece.handout_slot.tolist()):
            key, event = int(piece.handout_key[row]), int(piece.handout_event[row])
            uses = {int(u) for e, u in zip(*piece.rows_for(slot), strict=True) if e == event}
            if not any(piece.uses[u] == key for u in uses):
                continue
            name = next(n for n in crowd.wishes if crowd.slot(n) == slot)
            asked = request(crowd, name, piece.position(event))
            reply = answer(asked, TOPIC, crowd.realm.state(), desk._sealer(1, b""), piece, NOW)
            assert dict(reply.keys)[piece.key_id(key)] == bytes(piece.handouts[48 * row :][:48])
            found += 1
    assert found > 5


# --- and nobody else -----------------------------------------------------------------------------------------


def refused(crowd: Crowd, desk: KeyAnswers, asked: KeyRequest, piece: SealedPiece, why: str) -> None:
    with pytest.raises(SealcastError, match=why):
        answer(asked, TOPIC, crowd.realm.state(), desk._sealer(1, b""), piece, NOW)


def test_nobody_gets_keys_of_events_that_were_not_delivered_to_it(crowd: Crowd, desk: KeyAnswers) -> None:
    piece, tried = crowd.pieces()[-1], 0
    for event in range(len(piece)):
        position = piece.position(event)
        for name in set(crowd.wishes) - crowd.groups[position]:
            refused(crowd, desk, request(crowd, name, position), piece, "was not delivered to")
            tried += 1
    assert tried > 100


def test_requests_that_are_about_something_else_are_refused(crowd: Crowd, desk: KeyAnswers) -> None:
    name, piece, event, _ = someone(crowd, GROWN)
    position = piece.position(event)
    for changes in ({"topic": bytes(16)}, {"epoch": 2}, {"partition": 1}):
        refused(crowd, desk, request(crowd, name, position, **changes), piece, "about other events")
    absent = Position(0, position.offset + 1_000, 0)
    refused(crowd, desk, request(crowd, name, absent), piece, "was not delivered")
    refused(crowd, desk, request(crowd, "nobody", position), piece, "no entity")
    refused(crowd, desk, request(crowd, "publisher", position), piece, "never subscribed")


def test_a_piece_that_lies_about_its_keys_gets_nobody_a_key(crowd: Crowd, desk: KeyAnswers) -> None:
    """Whoever could write pieces would name, in its own mailbox, a key that it wants."""
    name, piece, event, use = someone(crowd, GROWN)
    key = int(piece.uses[use])
    coveted = next(k for k in range(len(piece.key_kind)) if piece.key_kind[k] == GROWN and k != key)
    ids = bytearray(piece.key_ids)
    ids[16 * key : 16 * key + 16] = piece.key_id(coveted)
    forged = dataclasses.replace(piece, key_ids=bytes(ids))
    refused(crowd, desk, request(crowd, name, piece.position(event)), forged, "not its readers'")


def test_the_desk_turns_away_the_unsigned_the_late_the_frequent_and_the_revoked(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path, 20)
    crowd.want({1: list(crowd.wishes)[:18]})
    crowd.publish([1, 1])
    crowd.pump()
    crowd.publish([1])
    crowd.pump()
    desk, position = KeyAnswers(crowd.realm, TOPIC, crowd.realm.broker()), max(crowd.groups)
    signers = {name: crowd.realm.identity(name).signer for name in ("s0", "s1")}
    good = request(crowd, "s0", position).signed(signers["s0"])
    assert parse_reply(desk.reply(good, NOW)).keys
    with pytest.raises(Rejected, match="not signed by 's0'"):
        desk.reply(request(crowd, "s0", position).signed(signers["s1"]), NOW)
    for now in (NOW + MAX_SKEW_US + 1, NOW - MAX_SKEW_US - 1):
        with pytest.raises(Rejected, match="not of now"):
            desk.reply(good, now)
    with pytest.raises(NotFound, match="not delivered yet"):
        desk.reply(request(crowd, "s0", Position(0, 99, 0)).signed(signers["s0"]), NOW)
    with pytest.raises(Unavailable, match="too often"):
        for _ in range(ALLOWANCE.burst + 1):
            desk.reply(good, NOW)
    assert desk.reply(request(crowd, "s1", position).signed(signers["s1"]), NOW), "others are not made to wait"
    crowd.leave("s1")
    with pytest.raises(Rejected, match="may not subscribe"):
        desk.reply(request(crowd, "s1", position).signed(signers["s1"]), NOW)


# --- on the wire ---------------------------------------------------------------------------------------------


def test_requests_and_replies_come_back_as_they_went_and_not_otherwise(crowd: Crowd) -> None:
    signer = crowd.realm.identity("s0").signer
    asked = request(crowd, "s0", Position(0, 7, 3), Position(0, 2**40 - 1, 16_383), tables=True)
    data = asked.signed(signer)
    assert parse_request(data, lambda name: signer.verify_key) == asked
    reply = KeyReply(((bytes(16), bytes(48)),))
    assert parse_reply(reply.encode()) == reply
    for at in range(len(data)):
        with pytest.raises(Rejected):
            parse_request(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :], lambda name: signer.verify_key)
        with pytest.raises(FrameRejected):
            parse_request(data[:at], lambda name: signer.verify_key)
    for cut in range(len(reply.encode())):
        with pytest.raises(FrameRejected):
            parse_reply(reply.encode()[:cut])
    part = GivenPart(bytes(12), 3, 5, bytes(48))
    assert parse_reply(KeyReply((), (part,)).encode()).tables == (part,)
    for wrong in ({"name": b""}, {"place": 5}, {"places": 17}, {"place": -1}, {"sealed": bytes(2**18 + 1)}):
        with pytest.raises(FrameRejected):
            parse_reply(KeyReply((), (dataclasses.replace(part, **wrong),)).encode())  # type: ignore[arg-type]
    with pytest.raises(FrameRejected):
        parse_reply(KeyReply(((bytes(15), bytes(48)),)).encode())
    for events in ((), tuple((i, 0) for i in range(513)), ((-1, 0),), ((0, 16_384),), ((2**40, 0),)):
        with pytest.raises((FrameRejected, Rejected)):
            parse_request(dataclasses.replace(asked, events=events).signed(signer), lambda name: signer.verify_key)
