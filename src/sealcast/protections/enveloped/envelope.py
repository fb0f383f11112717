"""What a publisher seals for readers, and what it shows to brokers instead.

    message  = the event's record as brokers see it: without payload and sealed attributes; in the payload's place
    envelope = boot (16 bytes) | number (8) | commitment (32) | ciphertext
    inside   = the event's whole record, with the very salt of the message | 0x80 | 0x00 ... up to a multiple of `pad`

Brokers admit and match the message, and hand on the envelope alone. A reader opens the envelope, makes the message out
of what is inside, and verifies that its publisher signed just that message: so what brokers matched is what it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import CannotOpen
from sealcast.model.schema import Value
from sealcast.primitives.aead import COMMITMENT_BYTES, TAG_BYTES
from sealcast.wire.frame import BOOT_BYTES
from sealcast.wire.layout import RECORD_AT
from sealcast.wire.records import RecordCodec

NUMBER_BYTES: Final = 8
#: Boot and number, which say under which key and nonce an event is sealed.
HEAD_BYTES: Final = BOOT_BYTES + NUMBER_BYTES
#: What an envelope takes beside the record, its padding not counted.
OVERHEAD: Final = HEAD_BYTES + COMMITMENT_BYTES + TAG_BYTES + 1
_END: Final = b"\x80"
#: Brokers see no content type: it stands inside.
CONTENT_TYPE: Final = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Envelope:
    """One event, sealed for readers."""

    boot: bytes
    number: int
    commitment: bytes
    ciphertext: bytes

    def to_bytes(self) -> bytes:
        return b"".join((self.boot, self.number.to_bytes(NUMBER_BYTES, "big"), self.commitment, self.ciphertext))

    @classmethod
    def parse(cls, data: bytes) -> Envelope:
        """Reads an envelope from a message."""
        head, commitment = data[:HEAD_BYTES], data[HEAD_BYTES : HEAD_BYTES + COMMITMENT_BYTES]
        return cls.in_piece(head + data[HEAD_BYTES + COMMITMENT_BYTES :], commitment)

    @classmethod
    def in_piece(cls, body: bytes, commitment: bytes) -> Envelope:
        """Reads an envelope from a piece, where the commitment stands apart. CannotOpen if it is too short."""
        if len(body) <= HEAD_BYTES + TAG_BYTES:
            raise CannotOpen(f"a sealed event has more than {HEAD_BYTES + TAG_BYTES} bytes, not {len(body)}")
        number = int.from_bytes(body[BOOT_BYTES:HEAD_BYTES], "big")
        return cls(body[:BOOT_BYTES], number, commitment, body[HEAD_BYTES:])


def joined_envelopes(
    boot: bytes, numbers: NDArray[np.int64], commitment: bytes, before: Sequence[bytes], sealed: Sequence[bytes]
) -> list[bytes]:
    """The envelopes of a batch, `Envelope.to_bytes` of each, behind what stands before it."""
    packed: list[bytes] = np.frombuffer(numbers.astype(">u8").tobytes(), f"V{NUMBER_BYTES}").tolist()
    return [
        b"".join((block, boot, number, commitment, ciphertext))
        for block, number, ciphertext in zip(before, packed, sealed, strict=True)
    ]


def padded(record: bytes, step: int) -> bytes:
    """A record with its end marked, and zeros behind that up to a multiple of `step`."""
    marked = record + _END
    return marked + bytes(-len(marked) % max(1, step))


def unpadded(inside: bytes) -> bytes:
    """The record again; CannotOpen when nothing marks its end."""
    record, marked, rest = inside.rpartition(_END)
    if not marked or rest.strip(b"\0"):
        raise CannotOpen("the end of the record inside is not marked")
    return record


def shown(
    codec: RecordCodec, values: Mapping[str, Value], hidden: frozenset[str], record: bytes, sealed: bytes
) -> bytes:
    """The message that brokers see of an event whose whole record is `record`, with its envelope."""
    visible = {name: None if name in hidden else value for name, value in values.items()}
    (message,) = codec.encode([visible], [sealed], CONTENT_TYPE, record[1:RECORD_AT])
    return message


def lengths(pad: int) -> str:
    """What lengths show, for `explain`."""
    if pad == 1:
        return "Lengths show: what is sealed is as long as the event. A step of padding hides that (--pad)."
    return f"Lengths show in steps of {pad} bytes: two events that need the same number of steps look alike."
