"""Sealed pieces: written and read alike, and not one index, length or count of theirs can lead a reader astray."""

from __future__ import annotations

import dataclasses
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import Bug, FrameRejected
from sealcast.model.event import Position
from sealcast.model.rejection import Reason, Rejection
from sealcast.wire import cbor, limits, sealed, typed
from sealcast.wire.sealed import SealedPiece
from tests.wire.mailboxes import of_deliveries
from tests.wire.pieces import piece

PIECE = piece()
DATA = sealed.encode(PIECE)


def same(one: SealedPiece, other: SealedPiece) -> bool:
    for field in dataclasses.fields(SealedPiece):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray):
            if a.tolist() != b.tolist():
                return False
        elif isinstance(a, bytes | memoryview):
            if bytes(a) != bytes(b):
                return False
        elif a != b:
            return False
    return True


@given(st.integers(0, 10**6), st.integers(0, 6), st.integers(1, 9))
@settings(max_examples=40)
def test_comes_back_as_it_went(seed: int, frames: int, subscribers: int) -> None:
    made = piece(seed, max(frames, 1), subscribers)
    data = sealed.encode(made)
    read = sealed.parse(data)
    assert same(made, read)
    assert sealed.encode(read) == data


def test_is_read_from_a_memory_map_without_copying(tmp_path: Path) -> None:
    path = tmp_path / "piece"
    path.write_bytes(DATA)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        read = sealed.parse(memoryview(mapped))
        assert isinstance(read.bodies, memoryview)
        assert read.bodies.obj is mapped
        assert not read.uses.flags.owndata
        assert read.body(0) == PIECE.body(0)
        del read


def test_a_piece_without_events_accounts_for_its_frames() -> None:
    none = np.zeros(0, np.int64)
    start = np.zeros(1, np.int64)
    empty = dataclasses.replace(
        PIECE,
        frames=(),
        **dict.fromkeys(("frame_index", "row", "wrapped", "uses", "group_of", "members", "via"), none),
        **dict.fromkeys(("handout_slot", "handout_key", "handout_event", "key_kind"), none),
        **dict.fromkeys(("link_key", "link_under", "link_event", "link_grows"), none),
        **dict.fromkeys(("table_slot", "table_tile", "table_event", "tile_size", "tile_run", "tile_join"), none),
        **dict.fromkeys(("body_start", "use_start", "member_start", "via_start", "table_start"), start),
        **dict.fromkeys(("bodies", "commitments", "key_ids", "wraps", "handouts"), b""),
        **dict.fromkeys(("links", "table_names", "table_parts", "member_bits"), b""),
    )
    read = sealed.parse(sealed.encode(empty))
    assert len(read) == 0
    assert [len(a) for a in read.rows_for(3)] == [0, 0]
    assert list(read.handouts_for(3)) == list(read.tables_for(3)) == list(read.links_to(0)) == []
    assert (read.first_offset, read.end_offset) == (99, 106)


@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_a_mailbox_has_its_events_in_order_through_uses_of_their_own(seed: int) -> None:
    made = piece(seed, 4, 6)
    read = sealed.parse(sealed.encode(made))
    wraps = [made.wraps[48 * i : 48 * i + 48] for i in range(len(made.wraps) // 48)]
    delivered = set()
    for slot in range(20):
        events, uses = read.rows_for(slot)
        assert sorted(events.tolist()) == events.tolist()
        for event, use in zip(events.tolist(), uses.tolist(), strict=True):
            assert made.use_start[event] <= use < made.use_start[event + 1]
            assert read.key_id(int(read.uses[use])) == b"pair" + slot.to_bytes(12, "big")
            delivered.add((event, use))
            if read.wrapped[event]:
                earlier = sum(
                    int(made.wrapped[e]) * int(made.use_start[e + 1] - made.use_start[e]) for e in range(event)
                )
                assert read.wrap(use) == wraps[earlier + use - made.use_start[event]]
            else:
                with pytest.raises(Bug):
                    read.wrap(use)
    assert len(delivered) == len(made.uses)
    for event in range(len(read)):
        proof = made.frames[int(made.frame_index[event])]
        assert read.position(event) == Position(2, proof.offset, int(made.row[event]))
        assert read.body(event) == made.bodies[made.body_start[event] : made.body_start[event + 1]]
        assert read.commitment(event) == made.commitments[32 * event : 32 * event + 32]
    given = made.slots.tolist()[:2]
    for number, slot in enumerate(given):
        assert dict(read.handouts_for(slot)) == {6: bytes(made.handouts[48 * number :][:48])}
        ((name, tile, part),) = read.tables_for(slot)
        assert (name, tile, len(part)) == (bytes(made.table_names[12 * number :][:12]), 0, 16 + 32 * (number + 1))
        assert bytes(made.table_parts).count(part) == 1
    assert list(read.links_to(8)) == [(0, bytes(made.links)), (7, None)] and list(read.links_to(7)) == []
    assert [read.tile(tile) for tile in range(3)] == [[0, 1, 2, 3], [4, 5], [6, 100, 101]]


@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_the_readers_of_a_use_are_those_who_open_through_it(seed: int) -> None:
    made = piece(seed, 4, 6)
    read = sealed.parse(sealed.encode(made))
    through: dict[int, list[int]] = {}
    for slot in made.slots.tolist():
        for use in made.rows_for(slot)[1].tolist():
            through.setdefault(use, []).append(slot)
    for use in range(len(made.uses)):
        assert read.readers(use) == sorted(through.get(use, []))


@given(st.integers(0, 1000), st.integers(1, 9))
@settings(max_examples=30)
def test_members_as_bits_or_one_by_one_and_ways_to_open_said_or_not_are_the_same(seed: int, subscribers: int) -> None:
    made = piece(seed, 3, subscribers)
    truth = sorted(
        zip(made.slots.repeat(np.diff(made.mailbox_start)), made.mailbox_event, made.mailbox_use, strict=True)
    )
    boxes = made.mailboxes
    for members in ({}, {"member_bits": b"", "members": boxes._all_members}):
        for via in ({}, {"via": boxes._via_by_member, "via_start": made.member_start}):
            read = sealed.parse(sealed.encode(dataclasses.replace(made, **members, **via)))
            assert read.deliveries == len(truth) and read.slots.tolist() == made.slots.tolist()
            slots = read.slots.repeat(np.diff(read.mailbox_start))
            assert sorted(zip(slots, read.mailbox_event, read.mailbox_use, strict=True)) == truth
            by_box = [(s, e, u) for s in range(40) for e, u in zip(*read.rows_for(s), strict=True)]
            assert sorted(by_box) == truth
            again = dataclasses.replace(read, **of_deliveries(truth, read.use_start))
            assert sorted((s, e, u) for s in range(40) for e, u in zip(*again.rows_for(s), strict=True)) == truth
            slot, event = np.meshgrid(np.arange(40), np.arange(len(read)))
            has = read.mailboxes.has(slot.reshape(-1), event.reshape(-1)).reshape(slot.shape)
            assert {(s, e) for e, s in np.argwhere(has)} == {(s, e) for s, e, _ in truth}


# --- must fail ----------------------------------------------------------------------------------


def bent(array: np.ndarray, at: int, value: int) -> np.ndarray:  # type: ignore[type-arg]
    out = array.copy()
    out[at] = value
    return out


def proof(**changes: Any) -> dict[str, Any]:
    return {"frames": (dataclasses.replace(PIECE.frames[0], **changes), *PIECE.frames[1:])}


def rejection(position: Position, detail: str = "x") -> dict[str, Any]:
    return {"rejected": (Rejection(position, Reason.EVENT, detail, 1),)}


GROUPS = len(PIECE.member_start) - 1
WIDTH = len(PIECE.member_bits) // GROUPS
#: The same with members one by one, and with every way to open said.
LISTED: dict[str, Any] = {"member_bits": b"", "members": PIECE.mailboxes._all_members}
WITH_VIA = dataclasses.replace(PIECE, via=PIECE.mailboxes._via_by_member, via_start=PIECE.member_start)
#: An event with another number of uses than the first one has.
OTHER = next(e for e in range(len(PIECE)) if np.diff(PIECE.use_start)[e] != np.diff(PIECE.use_start)[0])

CONTRADICTIONS: dict[str, dict[str, Any]] = {
    "topic too short": {"topic": b"t"},
    "covers less than nothing": {"first_offset": 200},
    "a frame before the first": {"first_offset": 101},
    "a frame after the last": {"end_offset": 104},
    "frames out of order": {"frames": PIECE.frames[::-1]},
    "a frame twice": {"frames": (PIECE.frames[0], *PIECE.frames[:2])},
    "a frame of no events": proof(count=0),
    "a frame of too many events": proof(count=limits.MAX_EVENTS_PER_FRAME + 1),
    "nodes of another tree": proof(nodes=PIECE.frames[0].nodes[32:]),
    "no signed header": proof(signed=b""),
    "an oversized signed header": proof(signed=bytes(limits.MAX_SIGNED_BYTES + 1)),
    "an event of no frame": {"frame_index": bent(PIECE.frame_index, -1, 3)},
    "a row beyond its frame": {"row": bent(PIECE.row, -1, 9)},
    "an event twice": {"row": bent(PIECE.row, 1, int(PIECE.row[0])), "frame_index": bent(PIECE.frame_index, 1, 0)},
    "a row missing": {"row": PIECE.row[:-1]},
    "a mode that is none": {"wrapped": bent(PIECE.wrapped, 0, 2)},
    "bodies that start late": {"body_start": bent(PIECE.body_start, 0, 1)},
    "bodies that end early": {"body_start": bent(PIECE.body_start, -1, len(PIECE.bodies) - 1)},
    "bodies that run backwards": {"body_start": bent(PIECE.body_start, 1, len(PIECE.bodies))},
    "a body that is only a tag": {"body_start": bent(PIECE.body_start, 1, 16)},
    "one body start too few": {"body_start": PIECE.body_start[:-1]},
    "a commitment short": {"commitments": PIECE.commitments[:-1]},
    "a key id short": {"key_ids": PIECE.key_ids[:-1]},
    "a use of no key": {"uses": bent(PIECE.uses, 0, 7)},
    "a key of no kind": {"key_kind": bent(PIECE.key_kind, 0, 5)},
    "a key without a kind": {"key_kind": PIECE.key_kind[:-1]},
    "a use too few": {"uses": PIECE.uses[:-1]},
    "an event without a key": {"use_start": bent(PIECE.use_start, 1, 0)},
    "sealed directly under several": {"wrapped": np.zeros_like(PIECE.wrapped)},
    "a wrap too few": {"wraps": PIECE.wraps[:-48]},
    "a wrap cut": {"wraps": PIECE.wraps[:-1]},
    "a wrap too many": {"wraps": PIECE.wraps + bytes(48)},
    "an event without a group": {"group_of": PIECE.group_of[:-1]},
    "an event of no group": {"group_of": bent(PIECE.group_of, 0, 99)},
    "a group without an event": {"member_start": np.append(PIECE.member_start, PIECE.member_start[-1])},
    "no groups at all": {"member_start": np.empty(0, np.int64)},
    "members that are not counted": {"member_start": bent(PIECE.member_start, -1, 99)},
    "members counted backwards": {"member_start": bent(PIECE.member_start, 1, 99)},
    "members too many": {"member_bits": b"\xff" * len(PIECE.member_bits)},
    "bits of members cut": {"member_bits": PIECE.member_bits[:-1]},
    "members as bits and one by one": {"members": np.arange(PIECE.member_start[-1])},
    "bytes of members that nobody needs": {
        "member_bits": b"".join(
            bytes(PIECE.member_bits)[i : i + WIDTH] + b"\0" for i in range(0, GROUPS * WIDTH, WIDTH)
        )
    },
    "no members": {"member_bits": b""},
    "members out of order": {**LISTED, "members": LISTED["members"][::-1]},
    "a member twice": {**LISTED, "members": bent(LISTED["members"], 1, int(LISTED["members"][0]))},
    "a member too few": {**LISTED, "members": LISTED["members"][:-1]},
    "a way to open that is none": {"via": bent(WITH_VIA.via, -1, 9), "via_start": WITH_VIA.via_start},
    "a way to open too few": {"via": WITH_VIA.via[:-1], "via_start": WITH_VIA.via_start},
    "a way to open for some members": {"via": np.zeros(1, np.int64), "via_start": bent(WITH_VIA.via_start * 0, -1, 1)},
    "events of a group with different uses": {"group_of": bent(PIECE.group_of, OTHER, int(PIECE.group_of[0]))},
    "a handout of no key": {"handout_key": bent(PIECE.handout_key, 0, 7)},
    "a handout of a pair key": {"handout_key": bent(PIECE.handout_key, 0, 1)},
    "a handout to nobody": {"handout_slot": bent(PIECE.handout_slot, 0, 77)},
    "a link short": {"links": PIECE.links[:-1]},
    "a link too many": {"link_grows": bent(PIECE.link_grows, 0, 1)},
    "a link that neither grows nor is hidden": {"link_grows": bent(PIECE.link_grows, 1, 2)},
    "a link of no key": {"link_key": bent(PIECE.link_key, 0, 7)},
    "a link of a key that never grows": {"link_key": bent(PIECE.link_key, 0, 4)},
    "a link under no key": {"link_under": bent(PIECE.link_under, 0, 7)},
    "a link under a group's key": {"link_under": bent(PIECE.link_under, 0, 4)},
    "a link for no event": {"link_event": bent(PIECE.link_event, 0, 999)},
    "a link without its other half": {"link_under": PIECE.link_under[:-1]},
    "a part of no table": {"table_tile": bent(PIECE.table_tile, 0, 3)},
    "a part for no event": {"table_event": bent(PIECE.table_event, 0, 999)},
    "a part for nobody": {"table_slot": bent(PIECE.table_slot, 0, 77)},
    "a part without a name": {"table_names": PIECE.table_names[:-1]},
    "a part that is cut": {"table_parts": PIECE.table_parts[:-1]},
    "a part within a label": {"table_start": bent(PIECE.table_start, 1, 40)},
    "a part of nothing": {"table_start": bent(PIECE.table_start, 1, 0)},
    "a part without a slot": {"table_slot": PIECE.table_slot[:-1]},
    "a tile of nobody": {"tile_size": np.array([4, 0, 5], np.uint8)},
    "a tile of too many": {"tile_size": np.array([17, 2, 3], np.uint8), "tile_run": np.array([0, 22])},
    "tiles of other slots": {"tile_run": np.array([0, 8])},
    "a run without a length": {"tile_run": np.array([0, 7, 100])},
    "a run of nothing": {"tile_run": np.array([0, 7, 100, 2, 200, 0])},
    "a run beyond all slots": {"tile_run": np.array([0, 7, 2**32 - 1, 2])},
    "a slot in two places": {"tile_run": np.array([0, 7, 6, 2])},
    "a node too few": {"tile_join": PIECE.tile_join[:-1]},
    "a node of no tiles": {"tile_join": np.array([2, 2])},
    "a node past the end": {"tile_join": np.array([3, 1])},
    "a handout for no event": {"handout_event": bent(PIECE.handout_event, 0, 999)},
    "a handout cut": {"handouts": PIECE.handouts[:-1]},
    "a handout without a slot": {"handout_slot": PIECE.handout_slot[:-1]},
    "a rejection of another piece's frame": rejection(Position(2, 98, 0)),
    "a rejection that never ends": rejection(Position(2, 99, 0), "x" * 1025),
}
LABEL = {name: field.label for name, field in sealed._FORMAT.fields.items()}


def fields() -> dict[int, Any]:
    """What is inside the encoded piece, to be bent without the writer's checks."""
    value = cbor.decode(DATA, tags=frozenset(typed.DTYPE), max_bytes=limits.MAX_PIECE_BYTES)[2]
    assert isinstance(value, dict)
    return value


def written(name: str, value: Any) -> Any:
    """As `encode` would write the field."""
    if name == "frames":
        return [[f.offset, f.count, f.signed, f.nodes] for f in value]
    if name == "rejected":
        return [[r.position.offset, r.position.row, str(r.reason), r.detail, r.events] for r in value]
    if isinstance(value, np.ndarray):
        return sealed._FORMAT.fields[name].write(value)
    return value


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions_are_never_written_and_never_read(name: str) -> None:
    changes = CONTRADICTIONS[name]
    with pytest.raises(Bug, match="of our own making"):
        sealed.encode(dataclasses.replace(PIECE, **changes))
    raw = fields()
    raw |= {LABEL[field]: written(field, value) for field, value in changes.items()}
    with pytest.raises(FrameRejected) as caught:
        sealed.parse(cbor.encode([sealed.MAGIC, sealed.VERSION, raw]))
    assert caught.value.reason == "frame"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epoch", -1),
        ("epoch", 2**32),
        ("epoch", True),
        ("partition", 2**32),
        ("end_offset", 2**40 + 1),
        ("version", "7"),
        ("topic", "t" * 16),
        ("bodies", None),
        ("uses", b"\0\0\0\0"),
        ("uses", cbor.TaggedValue(71, bytes(8))),
        ("uses", cbor.TaggedValue(70, bytes(7))),
        ("uses", cbor.TaggedValue(70, [])),
        ("frames", {}),
        ("frames", [[1, 1, b""]]),
        ("frames", [[1, 1, "signed", b""]]),
        ("rejected", [[99, 0, "because", "x", 1]]),
        ("rejected", [[99, -2, "event", "x", 1]]),
        ("rejected", [[99, 0, "event", b"x", 1]]),
        ("rejected", [[99, 0, ["event"], "x", 1]]),
        ("rejected", [[99, 0, "event", "x", -1]]),
        ("rejected", [99]),
        ("counts", []),
        ("counts", {1: 1}),
        ("counts", {"n": -1}),
        ("counts", {"n": "1"}),
        ("counts", {f"n{i}": i for i in range(65)}),
    ],
    ids=str,
)
def test_other_types_and_bounds_are_refused(field: str, value: object) -> None:
    with pytest.raises(FrameRejected):
        sealed.parse(cbor.encode([sealed.MAGIC, sealed.VERSION, {**fields(), LABEL[field]: value}]))


def test_labels_are_exactly_ours() -> None:
    raw = fields()
    for other in ({**raw, 45: 0}, {k: v for k, v in raw.items() if k != 16}, {}):
        with pytest.raises(FrameRejected, match="labels"):
            sealed.parse(cbor.encode([sealed.MAGIC, sealed.VERSION, other]))


def test_versions_and_other_things() -> None:
    with pytest.raises(FrameRejected) as caught:
        sealed.parse(cbor.encode([sealed.MAGIC, sealed.VERSION + 1, "whatever"]))
    assert caught.value.reason == "version"
    for other in (["sealcast-frame", 1, b"", b""], [sealed.MAGIC], {}, 1, [sealed.MAGIC, 1], [sealed.MAGIC, 1, {}, 0]):
        with pytest.raises(FrameRejected):
            sealed.parse(cbor.encode(other))
    with pytest.raises(FrameRejected):
        sealed.parse(b"")


def test_every_cut_is_noticed() -> None:
    for at in range(0, len(DATA), 7):
        with pytest.raises(FrameRejected):
            sealed.parse(DATA[:at])


def test_an_altered_byte_never_leads_a_reader_out_of_the_piece() -> None:
    """Ciphertext may be altered (its tag says so later); an index may not, and nothing else may happen."""
    for at in range(len(DATA)):
        altered = bytearray(DATA)
        altered[at] ^= 0x01 if at % 2 else 0x80
        try:
            read = sealed.parse(bytes(altered))
        except FrameRejected:
            continue
        for slot in read.slots.tolist():
            for event, use in zip(*(a.tolist() for a in read.rows_for(slot)), strict=True):
                read.position(event)
                assert len(read.body(event)) > 16
                assert len(read.commitment(event)) == 32
                assert len(read.key_id(int(read.uses[use]))) == 16
                if read.wrapped[event]:
                    assert len(read.wrap(use)) == 48
            for _, handed in read.handouts_for(slot):
                assert len(handed) == 48
            for name, tile, part in read.tables_for(slot):
                assert len(name) == 12 and len(part) > 16 and read.tile(tile)
            for key in range(len(read.key_kind)):
                assert all(len(read.key_id(u)) == 16 and (m is None or len(m) == 48) for u, m in read.links_to(key))


@given(st.binary(max_size=200))
def test_noise_is_no_piece(noise: bytes) -> None:
    for data in (noise, DATA[:17] + noise):
        with pytest.raises(FrameRejected):
            sealed.parse(data)
