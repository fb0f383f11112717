"""A statement of a broker: how many records it has taken from the ledger of the broker above it.

    statement = ["sealcast-taken", 1, signed (bytes: COSE_Sign1)]

It goes the way of filter posts, and has no number of its own: a ledger is only ever taken further. It names the tag of
the last record that was taken. So it is about one ledger, and about no other that has as many records.
"""

from __future__ import annotations

from typing import Annotated, Final

from sealcast.model.dataclass import dataclass
from sealcast.wire import cbor, cose, headers, limits
from sealcast.wire.frame import TOPIC_BYTES
from sealcast.wire.headers import HeaderFormat, SignedHeader

MAGIC: Final = "sealcast-taken"
VERSION: Final = 1
SIGNATURE_CONTEXT: Final = b"sealcast/1 taken"
#: Of a record of a ledger.
TAG_BYTES: Final = 32
#: How the encoding of every statement begins: an array of three, and the magic.
_BEGINS: Final = b"\x83" + cbor.encode(MAGIC)


@dataclass(frozen=True, slots=True)
class TakenHeader:
    """What the broker below signs."""

    topic: Annotated[bytes, headers.byte_string(TOPIC_BYTES)]
    receiver: Annotated[str, headers.name]
    sender: Annotated[str, headers.name]
    #: Of what the receiver hands on: this many, from the first one on.
    records: Annotated[int, headers.whole(1, limits.MAX_POST_NUMBER)]
    #: Of the last of them.
    tag: Annotated[bytes, headers.byte_string(TAG_BYTES)]


_HEADERS: Final = HeaderFormat(TakenHeader, "the header of a statement", SIGNATURE_CONTEXT)


def to_be_signed(header: TakenHeader) -> bytes:
    """The bytes that the sender signs."""
    return _HEADERS.to_be_signed(header)


def encode(header: TakenHeader, signature: bytes) -> bytes:
    """The statement, with the signature made over `to_be_signed(header)`."""
    return cbor.encode([MAGIC, VERSION, cose.encode_sign1(_HEADERS.encode(header), signature)])


def is_statement(data: bytes) -> bool:
    """Whether this claims to be one, and not a filter post."""
    return data.startswith(_BEGINS)


def parse(data: bytes) -> SignedHeader[TakenHeader]:
    """Takes a statement apart; FrameRejected (`frame` or `version`) when it is none. The signature is not verified
    yet."""
    outer = cbor.decode(data, max_bytes=limits.MAX_STATEMENT_BYTES, max_depth=1, max_items=4)
    match cbor.versioned(outer, MAGIC, VERSION, "a statement"):
        case [bytes(signed)]:
            return _HEADERS.parse(signed)
        case _:
            raise cbor.refused("not a statement of what was taken")
