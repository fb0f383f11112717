"""Items of the CBOR documents of the attribute protection: read if they are what they should be, refused otherwise.

Everything here raises AttributeRejected through `parsed` and `guarded`; what it raises inside of them is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from sealcast.errors import FrameRejected
from sealcast.primitives.pairing.port import G1_BYTES, G2_BYTES
from sealcast.primitives.secrets import KEY_BYTES
from sealcast.wire import cbor
from sealcast.wire.attribute import AttributeReason, AttributeRejected
from sealcast.wire.limits import (
    MAX_ATTRIBUTE_KEY_LABELS,
    MAX_ATTRIBUTE_LABEL_BYTES,
    MAX_ATTRIBUTE_POSITIONS,
    MAX_EPOCH,
    MAX_TREE_NAME_BYTES,
)

VERIFY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
#: A key has the most items: eight at most for each of its labels.
MAX_ITEMS: Final = 8 * MAX_ATTRIBUTE_KEY_LABELS

_T = TypeVar("_T")


def parsed(what: str, data: bytes, most: int, name: str, read: Callable[[list[Any]], _T]) -> _T:
    """What `read` makes of the items after the document's name."""
    if len(data) > most:
        raise AttributeRejected(AttributeReason.OVERSIZE, f"{what}: {len(data)} bytes, {most} are allowed")

    def inside() -> _T:
        items = cbor.decode(data, max_bytes=most, max_items=MAX_ITEMS)
        if not isinstance(items, list) or not items or items[0] != name:
            raise AttributeRejected(AttributeReason.MAGIC, f"these bytes are not {what}")
        return read(items[1:])

    return guarded(what, inside)


def guarded(what: str, read: Callable[[], _T]) -> _T:
    """TypeError and ValueError are what unpacking items of another number or kind raises."""
    try:
        return read()
    except FrameRejected as error:
        raise AttributeRejected(AttributeReason.MALFORMED, f"{what}: {error.message}") from None
    except (TypeError, ValueError):
        raise AttributeRejected(AttributeReason.MALFORMED, f"{what}: items of another number or kind") from None


def sized(value: object, size: int, what: str) -> bytes:
    if not isinstance(value, bytes) or len(value) != size:
        raise cbor.refused(f"{what} has {size} bytes")
    return value


def a_point(value: object) -> bytes:
    if not isinstance(value, bytes) or len(value) not in (G1_BYTES, G2_BYTES):
        raise cbor.refused(f"a point has {G1_BYTES} or {G2_BYTES} bytes")
    return value


def a_token(value: object) -> bytes:
    if not isinstance(value, bytes) or len(value) not in (KEY_BYTES, G1_BYTES, G2_BYTES):
        raise cbor.refused(f"a token has {KEY_BYTES}, {G1_BYTES} or {G2_BYTES} bytes")
    return value


def many(value: object, most: int) -> Sequence[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise cbor.refused(f"an array of at most {most}")
    return value


def an_epoch(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_EPOCH:
        raise cbor.refused(f"an epoch is a whole number to {MAX_EPOCH}")
    return value


def a_position(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_ATTRIBUTE_POSITIONS:
        raise cbor.refused(f"a position is a whole number below {MAX_ATTRIBUTE_POSITIONS}")
    return value


def a_name(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value.encode()) <= MAX_TREE_NAME_BYTES:
        raise cbor.refused(f"an attribute's name has 1 to {MAX_TREE_NAME_BYTES} bytes")
    return value


def a_label(value: object) -> bytes:
    if not isinstance(value, bytes) or not 1 <= len(value) <= MAX_ATTRIBUTE_LABEL_BYTES:
        raise cbor.refused(f"a label has 1 to {MAX_ATTRIBUTE_LABEL_BYTES} bytes")
    return value
