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


class Core(NamedTuple):
    """What is the same on every link of an event's way."""

    event: bytes
    #: Of the publisher's tree; with the header's publisher and epoch it names the tree.
    generation: int
    body: bytes


class WireEntry(NamedTuple):
    """An event's labels and its payload key under one set of layers."""

    tokens: tuple[bytes, ...]
    key: bytes
    final: bool


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


def parse_entries(data: bytes | memoryview) -> tuple[WireEntry, ...]:
    """The other way; FrameRejected for anything else."""
    listed = cbor.decode(
        _content(data), max_bytes=MAX_ENTRIES_BYTES, max_depth=2, max_items=4 * MAX_ENTRIES + 1, views=True
    )
    if not isinstance(listed, list) or not 0 < len(listed) <= MAX_ENTRIES:
        raise cbor.refused(f"an event has 1 to {MAX_ENTRIES} entries")
    return tuple(map(_entry, listed))


def _entry(value: object) -> WireEntry:
    match value:
        case [memoryview() as joined, memoryview() as raw, bool(final)]:
            key, size = bytes(raw), len(raw)
            if 0 < size <= MAX_ELEMENT_BYTES and len(joined) <= MAX_TOKENS * size and not len(joined) % size:
                tokens = bytes(joined)
                return WireEntry(tuple(tokens[at : at + size] for at in range(0, len(tokens), size)), key, final)
    raise cbor.refused(f"an entry is at most {MAX_TOKENS} tokens, a key as long as each, and whether it is final")


def _content(message: bytes | memoryview) -> memoryview:
    if not message or message[0]:
        raise cbor.refused("a message starts with a zero byte")
    return memoryview(message)[1:]


def _array_head(length: int) -> bytes:
    return cbor.encode([None] * length)[:-length]
