"""Notifications and hop pieces: what is written is read again, and nothing else is read."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import Bug, FrameRejected, Misuse
from sealcast.model.event import Position
from sealcast.model.rejection import Reason, Rejection
from sealcast.wire import cbor, hops, limits, notifications, typed
from sealcast.wire.hops import FrameRef, HopPiece
from sealcast.wire.notifications import Core, LayeredEntry
from tests.effort import examples

CORE = Core(bytes(range(16)), 7, b"body")
WIDTH = 33


@st.composite
def entries(draw: st.DrawFn) -> tuple[LayeredEntry, ...]:
    width = draw(st.integers(1, 40))
    element = st.binary(min_size=width, max_size=width)
    entry = st.builds(LayeredEntry, st.lists(element, max_size=5).map(tuple), element, st.booleans())
    return tuple(draw(st.lists(entry, min_size=1, max_size=30)))


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=16, max_size=16), st.integers(0, limits.MAX_GENERATION), st.binary(max_size=200))
def test_a_core_is_read_as_it_was_written(event: bytes, generation: int, body: bytes) -> None:
    core = Core(event, generation, body)
    message = notifications.encode_core(core)
    assert message[:1] == b"\0" and notifications.parse_core(message) == core


@settings(max_examples=60, deadline=None)
@given(entries())
def test_entries_are_read_as_they_were_written(given_entries: tuple[LayeredEntry, ...]) -> None:
    data = notifications.encode_entries(given_entries)
    assert notifications.parse_entries(data) == given_entries
    # The general encoder would have written the same.
    assert data == b"\0" + cbor.encode([[b"".join(e.tokens), e.key, e.final] for e in given_entries])


@examples(37, soak=150)
@given(entries(), st.data())
def test_altered_entries_are_refused_or_other_entries(
    given_entries: tuple[LayeredEntry, ...], data: st.DataObject
) -> None:
    raw = bytearray(notifications.encode_entries(given_entries))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read = notifications.parse_entries(bytes(raw))
    except FrameRejected:
        return
    assert read != given_entries and notifications.encode_entries(read) == bytes(raw)


@examples(60, soak=300)
@given(entries(), st.data())
def test_entries_are_read_as_the_general_reader_reads_them(
    given_entries: tuple[LayeredEntry, ...], data: st.DataObject
) -> None:
    """Which is another program: whatever it takes for entries, and nothing else, is taken for the same entries."""
    raw = bytearray(notifications.encode_entries(given_entries))
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.sampled_from([*range(0, 256, 5), 0x58, 0x59, 0x83]))
    cut = bytes(raw[: data.draw(st.integers(0, len(raw)))]) if data.draw(st.booleans()) else bytes(raw)

    def general() -> tuple[LayeredEntry, ...] | None:
        try:
            listed = cbor.decode(cut[1:], max_depth=2) if cut[:1] == b"\0" else None
        except FrameRejected:
            return None
        found = []
        for each in listed if isinstance(listed, list) else ():
            match each:
                case [bytes(joined), bytes(key), bool(final)] if 0 < len(key) <= 512 and not len(joined) % len(key):
                    tokens = tuple(joined[at : at + len(key)] for at in range(0, len(joined), len(key)))
                    found.append(LayeredEntry(tokens, key, final))
                case _:
                    return None
        return tuple(found) or None

    try:
        read = notifications.parse_entries(cut)
    except FrameRejected:
        read = None
    assert read == general()


NO_CORE = {
    "empty": b"",
    "no zero byte": notifications.encode_core(CORE)[1:],
    "a short id": b"\0" + cbor.encode([bytes(15), 7, b"body"]),
    "a negative generation": b"\0" + cbor.encode([bytes(16), -1, b"body"]),
    "a generation beyond the limit": b"\0" + cbor.encode([bytes(16), limits.MAX_GENERATION + 1, b"body"]),
    "true for a generation": b"\0" + cbor.encode([bytes(16), True, b"body"]),
    "text for a body": b"\0" + cbor.encode([bytes(16), 7, "body"]),
    "a fourth item": b"\0" + cbor.encode([bytes(16), 7, b"body", 1]),
    "bytes behind the end": notifications.encode_core(CORE) + b"\0",
    "an inner node": b"\1" + bytes(64),
}
NO_ENTRIES = {
    "empty": b"",
    "no zero byte": notifications.encode_entries([((), b"k", True)])[1:],
    "none": b"\0" + cbor.encode([]),
    "no key": b"\0" + cbor.encode([[b"", b"", True]]),
    "a key beyond the limit": b"\0" + cbor.encode([[b"", bytes(limits.MAX_ELEMENT_BYTES + 1), True]]),
    "half a token": b"\0" + cbor.encode([[bytes(3), bytes(2), True]]),
    "too many tokens": b"\0" + cbor.encode([[bytes(limits.MAX_TOKENS + 1), b"k", True]]),
    "too many": b"\0" + cbor.encode([[b"", b"k", True]] * (limits.MAX_ENTRIES + 1)),
    "a number for final": b"\0" + cbor.encode([[b"", b"k", 1]]),
    "tokens one by one": b"\0" + cbor.encode([[[b"t"], b"k", True]]),
    "bytes behind the end": notifications.encode_entries([((), b"k", True)]) + b"\0",
    "a longer spelling of a length": b"\0\x81\x83\x58\x00\x41k\xf5",
}


@pytest.mark.parametrize("message", NO_CORE.values(), ids=NO_CORE.keys())
def test_what_is_no_core_is_refused(message: bytes) -> None:
    with pytest.raises(FrameRejected):
        notifications.parse_core(message)


@pytest.mark.parametrize("message", NO_ENTRIES.values(), ids=NO_ENTRIES.keys())
def test_what_are_no_entries_is_refused(message: bytes) -> None:
    with pytest.raises(FrameRejected):
        notifications.parse_entries(message)


def test_what_nobody_could_read_is_not_written() -> None:
    for core in (
        Core(bytes(15), 0, b""),
        Core(bytes(16), -1, b""),
        Core(bytes(16), 0, bytes(limits.MAX_MESSAGE_BYTES)),
    ):
        with pytest.raises(Misuse):
            notifications.encode_core(core)
    for bad in ([], [((b"ab",), b"k", True)], [((), b"", True)], [((b"k",) * (limits.MAX_TOKENS + 1), b"k", False)]):
        with pytest.raises(Misuse):
            notifications.encode_entries(bad)


# --- pieces ---------------------------------------------------------------------------------------


def a_piece() -> HopPiece:
    listed = [notifications.encode_entries([((b"t" * 4,), b"k" * 4, n % 2 == 0)]) for n in range(5)]
    return HopPiece(
        topic=bytes(16),
        node="b1",
        version=3,
        partition=0,
        first_offset=10,
        end_offset=12,
        frames=(FrameRef(0, 5, b"signed"), FrameRef(2, 1, b"other")),
        frame_index=np.array([0, 0, 1]),
        row=np.array([0, 4, 1]),
        generation=np.array([0, 1, 0]),
        ids=bytes(range(48)),
        body_start=np.array([0, 3, 3, 8]),
        bodies=b"onethree",
        path_start=np.array([0, 1, 3, 3]),
        paths=bytes(96),
        recipients=("ann", "b2", "bob"),
        recipient_start=np.array([0, 2, 3, 5]),
        row_event=np.array([0, 2, 1, 1, 2]),
        entry_start=typed.starts(map(len, listed)),
        entries=b"".join(listed),
        rejected=(Rejection(Position(1, 2, -1), Reason.EVENT, "no", 3),),
        counts={"deliveries": 4},
    )


def same(a: HopPiece, b: HopPiece) -> bool:
    def plain(value: Any) -> Any:
        return (
            value.tolist()
            if isinstance(value, np.ndarray)
            else bytes(value)
            if isinstance(value, memoryview)
            else value
        )

    return all(plain(getattr(a, f.name)) == plain(getattr(b, f.name)) for f in fields(HopPiece))


def test_a_piece_is_read_as_it_was_written() -> None:
    piece = a_piece()
    data = hops.encode(piece)
    read = hops.parse(data)
    assert same(piece, read) and hops.encode(read) == data and len(read) == 3
    assert [[read.event_of(row) for row in read.rows_for(name)] for name in ("ann", "b2", "bob")] == [
        [0, 2],
        [1],
        [1, 2],
    ]
    assert not read.rows_for("a") and not read.rows_for("carl")
    assert read.entries_of(2) == notifications.encode_entries([((b"t" * 4,), b"k" * 4, True)])
    assert [read.body(n) for n in range(3)] == [b"one", b"", b"three"]
    assert read.position(2) == Position(2, 1, 1) and read.event_id(1) == bytes(range(16, 32))
    assert [len(read.path(n)) for n in range(3)] == [32, 64, 0]


CONTRADICTIONS: dict[str, dict[str, Any]] = {
    "a short topic": {"topic": b"x"},
    "backwards": {"first_offset": 13},
    "an event of no frame": {"frame_index": np.array([0, 0, 2])},
    "a row beyond any frame's": {"row": np.array([0, 4, limits.MAX_EVENTS_PER_FRAME])},
    "a generation too few": {"generation": np.array([0, 1])},
    "an id too few": {"ids": bytes(32)},
    "bodies that end elsewhere": {"body_start": np.array([0, 3, 3, 9])},
    "bodies that go back": {"body_start": np.array([0, 3, 2, 8])},
    "bodies that start later": {"body_start": np.array([1, 3, 3, 8])},
    "half a hash": {"paths": bytes(95)},
    "a path beyond any tree's": {"path_start": np.array([0, 20, 20, 20]), "paths": bytes(640)},
    "recipients out of order": {"recipients": ("b2", "ann", "bob")},
    "a recipient twice": {"recipients": ("ann", "bob", "bob")},
    "a recipient of nothing": {"recipient_start": np.array([0, 0, 3, 5])},
    "a row of no event": {"row_event": np.array([0, 3, 1, 1, 2])},
    "an event twice for one": {"row_event": np.array([0, 0, 1, 1, 2])},
    "rows out of order": {"row_event": np.array([2, 0, 1, 1, 2])},
    "empty entries": {"entry_start": np.array([0, 0, 1, 2, 3, 65])},
    "a long detail": {"rejected": (Rejection(Position(0, 0, -1), Reason.EVENT, "x" * 1025, 1),)},
    "no signed header": {"frames": (FrameRef(0, 5, b""), FrameRef(2, 1, b"other"))},
}


@pytest.mark.parametrize("change", CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_a_piece_that_contradicts_itself_is_neither_written_nor_read(
    change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = replace(a_piece(), **change)
    with pytest.raises(Bug):
        hops.encode(piece)
    with monkeypatch.context() as patched:
        patched.setattr(hops, "_FORMAT", replace(hops._FORMAT, check=lambda given: None))
        data = hops.encode(piece)
    with pytest.raises(FrameRejected):
        hops.parse(data)


@examples(40, soak=200)
@given(st.data())
def test_no_altered_byte_is_ever_more_than_a_refusal(data: st.DataObject) -> None:
    raw = bytearray(hops.encode(a_piece()))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = hops.parse(bytes(raw))
    except FrameRejected:
        return
    assert hops.encode(read) == bytes(raw)
    for name in read.recipients:
        for row in read.rows_for(name):
            event = read.event_of(row)
            assert read.entries_of(row) and len(read.event_id(event)) == 16
            read.body(event), read.path(event), read.position(event)


def test_other_versions_and_other_things_are_told_apart() -> None:
    outer = cbor.decode(hops.encode(a_piece()), tags=typed.TAGS)
    with pytest.raises(FrameRejected) as told:
        hops.parse(cbor.encode([outer[0], 2, outer[2]]))
    assert told.value.reason == "version"
    for other in ([], ["sealcast-piece", 1, outer[2]], [outer[0], 1], [outer[0], 1, {**outer[2], 23: 0}]):
        with pytest.raises(FrameRejected):
            hops.parse(cbor.encode(other))
