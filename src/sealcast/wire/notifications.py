"""An event of the `layered` protection in its publisher's frame: two messages, so that one of them can be proved alone.

    message 2i      = 0x00 | CBOR [event id, generation, body]                    the core: what a subscriber verifies
    message 2i + 1  = 0x00 | CBOR [[tokens, key, final], ...]                     its entries, for one root broker

A hop takes entries off and puts others on; the core goes through all of them as it was signed, with the Merkle path of
its leaf. The path shows the hash of the entries beside it, which says nothing: a fresh payload key is among them, as
a random id is in the core. So neither needs a salt. The 0x00 keeps a message from passing for an inner node.

Elements of a group all have one size on the wire, that of the key: an entry's tokens stand in one piece, and reading
them costs one slice each. Which bytes are elements only whoever peels them can say (`primitives.groups`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sealcast.errors import Misuse
from sealcast.wire import cbor
from sealcast.wire.frame import byte_string_head
from sealcast.wire.limits import (
    MAX_ELEMENT_BYTES,
    MAX_ENTRIES,
    MAX_ENTRIES_BYTES,
    MAX_GENERATION,
    MAX_MESSAGE_BYTES,
    MAX_TOKENS,
)

EVENT_BYTES: Final = 16
#: Messages of a frame that an event takes.
MESSAGES_PER_EVENT: Final = 2
_ENTRY: Final = b"\x83"
_FINAL: Final = {False: b"\xf4", True: b"\xf5"}
_ARRAY: Final = 0x80
_BYTES: Final = 0x40


class _Booleans(dict[int, bool]):
    def __missing__(self, initial: int) -> bool:
        raise cbor.refused("whether an entry is final is true or false")


_IS_FINAL: Final = _Booleans({0xF4: False, 0xF5: True})


class Core(NamedTuple):
    """What is the same on every link of an event's way."""

    event: bytes
    #: Of the publisher's tree; with the header's publisher and epoch it names the tree.
    generation: int
    body: bytes


class LayeredEntry(NamedTuple):
    """An event's labels and its payload key under one set of layers."""

    tokens: tuple[bytes, ...]
    key: bytes
    #: For the receiver itself, who subscribed; it looks nothing up.
    final: bool = False


def encode_core(core: Core) -> bytes:
    """The message of an event's core."""
    if len(core.event) != EVENT_BYTES or not 0 <= core.generation <= MAX_GENERATION:
        raise Misuse(f"an event has an id of {EVENT_BYTES} bytes and a generation from 0 to {MAX_GENERATION}")
    message = b"\x00" + cbor.encode([core.event, core.generation, core.body])
    if len(message) > MAX_MESSAGE_BYTES:
        raise Misuse(f"an event's message has at most {MAX_MESSAGE_BYTES} bytes, not {len(message)}")
    return message


def parse_core(message: bytes) -> Core:
    """The other way; FrameRejected for anything else."""
    match cbor.decode(_content(message), max_bytes=MAX_MESSAGE_BYTES, max_depth=1, max_items=4):
        case [bytes(event), int(generation), bytes(body)] if len(event) == EVENT_BYTES and not isinstance(
            generation, bool
        ):
            if 0 <= generation <= MAX_GENERATION:
                return Core(event, generation, body)
    raise cbor.refused(f"a core is an id of {EVENT_BYTES} bytes, a generation and a body")


def encode_entries(entries: Sequence[tuple[Sequence[bytes], bytes, bool]]) -> bytes:
    """Entries as they stand in a message, and in a hop piece: (tokens, key, final) each."""
    if not 0 < len(entries) <= MAX_ENTRIES:
        raise Misuse(f"an event has 1 to {MAX_ENTRIES} entries on a link, not {len(entries)}")
    parts = [b"\x00", _array_head(len(entries))]
    for tokens, key, final in entries:
        joined = b"".join(tokens)
        if len(tokens) > MAX_TOKENS or not 0 < len(key) <= MAX_ELEMENT_BYTES or len(joined) != len(tokens) * len(key):
            raise Misuse(f"an entry has at most {MAX_TOKENS} tokens, all as long as its key")
        parts += (_ENTRY, byte_string_head(len(joined)), joined, byte_string_head(len(key)), key, _FINAL[final])
    data = b"".join(parts)
    if len(data) > MAX_ENTRIES_BYTES:
        raise Misuse(f"the entries of an event have at most {MAX_ENTRIES_BYTES} bytes on a link, not {len(data)}")
    return data


def parse_entries(data: bytes | memoryview) -> tuple[LayeredEntry, ...]:
    """The other way; FrameRejected for anything else. Every hop does it for every event: by hand, since there is one
    spelling of everything that stands here."""
    raw = bytes(data)
    if len(raw) > MAX_ENTRIES_BYTES:
        raise cbor.refused(f"{len(raw)} bytes, {MAX_ENTRIES_BYTES} are allowed")
    try:
        found, end = _entries(raw)
    except IndexError:
        raise cbor.refused("truncated") from None
    # A slice that ends early moves on as far as it should have: then this is beyond the end.
    if end != len(raw):
        raise cbor.refused("entries end before their message does, or after it")
    return found


def _entries(raw: bytes) -> tuple[tuple[LayeredEntry, ...], int]:
    """IndexError for some of what is truncated; the rest is noticed by where it ends."""
    if raw[0]:
        raise cbor.refused("a message starts with a zero byte")
    count, at = _length(raw, 1, _ARRAY)
    if not 0 < count <= MAX_ENTRIES:
        raise cbor.refused(f"an event has 1 to {MAX_ENTRIES} entries")
    found = []
    for _ in range(count):
        if raw[at] != _ENTRY[0]:
            raise cbor.refused("an entry has three parts")
        total, start = _length(raw, at + 1, _BYTES)
        size, key = _length(raw, start + total, _BYTES)
        at = key + size
        if not 0 < size <= MAX_ELEMENT_BYTES or total > MAX_TOKENS * size or total % size:
            raise cbor.refused(f"an entry is at most {MAX_TOKENS} tokens and a key as long as each of them")
        tokens = tuple([raw[first : first + size] for first in range(start, start + total, size)])
        found.append(LayeredEntry(tokens, raw[key:at], _IS_FINAL[raw[at]]))
        at += 1
    return tuple(found), at


def _length(raw: bytes, at: int, major: int) -> tuple[int, int]:
    """A length in its shortest form, and where it ends."""
    info = raw[at] - major
    if 0 <= info < 24:
        return info, at + 1
    if not 24 <= info <= 26:
        raise cbor.refused("a length or an item of another kind")
    size = 1 << (info - 24)
    length = int.from_bytes(raw[at + 1 : at + 1 + size], "big")
    if length < (24 if size == 1 else 1 << 4 * size):
        raise cbor.refused("a length is not in its shortest form")
    return length, at + 1 + size


def _content(message: bytes | memoryview) -> memoryview:
    if not message or message[0]:
        raise cbor.refused("a message starts with a zero byte")
    return memoryview(message)[1:]


def _array_head(length: int) -> bytes:
    return cbor.encode([None] * length)[:-length]
