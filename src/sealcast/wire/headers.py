"""Signed headers: what a publisher signs of a frame, and a sender of a post. Annotations check the fields.

A header on the wire is a CBOR map from the labels 1, 2, ... to the fields of its class in their order, as the payload
of a COSE_Sign1. `HeaderFormat` writes and reads the headers of one kind; `frame` and `posts` have one each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from sealcast.errors import FrameRejected, Misuse
from sealcast.model.dataclass import dataclass
from sealcast.wire import cbor, cose
from sealcast.wire.annotations import annotated
from sealcast.wire.limits import MAX_PUBLISHER_BYTES

Header = TypeVar("Header")
#: What is wrong with a value, as the end of a sentence that begins with the field's name; None if nothing is.
Check = Callable[[object], str | None]


def byte_string(size: int) -> Check:
    return lambda value: None if isinstance(value, bytes) and len(value) == size else f"has {size} bytes"


def whole(least: int, most: int) -> Check:
    def check(value: object) -> str | None:
        fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        return None if fits else f"is a whole number from {least} to {most}"

    return check


def name(value: object) -> str | None:
    return None if is_name(value) else f"is text of 1 to {MAX_PUBLISHER_BYTES} bytes"


def truth(value: object) -> str | None:
    return None if isinstance(value, bool) else "is true or false"


def is_name(value: object) -> bool:
    """Whether this is an entity's name as it stands on the wire."""
    return isinstance(value, str) and 0 < len(value.encode()) <= MAX_PUBLISHER_BYTES


@dataclass(frozen=True, slots=True)
class SignedHeader(Generic[Header]):
    """A signed header, taken apart; the signature is not verified yet."""

    header: Header
    signature: bytes
    to_be_signed: bytes


@dataclass(frozen=True, slots=True)
class HeaderFormat(Generic[Header]):
    """The headers of one kind. `context` separates their signatures from whatever else an entity's key signs."""

    make: type[Header]
    what: str
    context: bytes

    @property
    def fields(self) -> dict[str, Check]:
        """What checks each field."""
        return annotated(self.make)

    def encode(self, header: Header) -> bytes:
        fields = {name: getattr(header, name) for name in self.fields}
        try:
            self._made(fields)
        except FrameRejected as error:
            raise Misuse(f"this header is none: {error.message}") from None
        return cbor.encode(dict(enumerate(fields.values(), 1)))

    def to_be_signed(self, header: Header) -> bytes:
        """The bytes that are signed."""
        return cose.sig_structure(cose.SIGN1_PROTECTED, self.context, self.encode(header))

    def parse(self, signed: bytes) -> SignedHeader[Header]:
        """Takes a COSE_Sign1 of a header apart; FrameRejected when it is none."""
        message = cose.parse_sign1(signed)
        fields = cbor.decode(message.payload, max_depth=1, max_items=_MAX_ITEMS)
        if not isinstance(fields, dict) or set(fields) != set(range(1, len(self.fields) + 1)):
            raise cbor.refused(f"{self.what} has the labels 1 to {len(self.fields)}, each once")
        header = self._made({name: fields[label] for label, name in enumerate(self.fields, 1)})
        # Decoding was strict, so these are the only bytes this payload can have: nothing is re-encoded.
        to_sign = cose.sig_structure(cose.SIGN1_PROTECTED, self.context, message.payload)
        return SignedHeader(header, message.signature, to_sign)

    def _made(self, fields: dict[str, Any]) -> Header:
        for field, check in self.fields.items():
            wrong = check(fields[field])
            if wrong is not None:
                raise cbor.refused(f"{field} {wrong}")
        return self.make(**fields)


_MAX_ITEMS: Final = 32
