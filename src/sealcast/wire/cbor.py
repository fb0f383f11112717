"""Deterministic CBOR (RFC 8949, section 4.2.1), encoded one way and read only if it was encoded that way.

A general decoder accepts many spellings of one value: longer integers, unsorted or doubled keys, indefinite lengths.
Each is a way for two readers to see different things in the same signed bytes. This one knows the subset Sealcast
uses (integers of 64 bits, byte and text strings, arrays, maps, true, false, null and the tags a caller allows; no
floats) and refuses the rest, before allocating anything that the input merely claims. Byte strings can be taken as
views, so that a memory-mapped piece is read without touching what is not asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sealcast.errors import FrameRejected, Misuse
from sealcast.model.dataclass import dataclass
from sealcast.wire.limits import MAX_CBOR_DEPTH, MAX_CBOR_ITEMS, MAX_FRAME_BYTES

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = range(8)
_SIMPLE_VALUES: Final = {20: False, 21: True, 22: None}
#: The greatest version of a format that is quoted in a refusal.
MAX_VERSION: Final = 65_535


@dataclass(frozen=True, slots=True)
class TaggedValue:
    """A tagged value."""

    number: int
    value: Any


# --- encoding -----------------------------------------------------------------------------------


def encode(value: object) -> bytes:
    """The deterministic encoding of `value`."""
    out: list[bytes] = []
    _encode(value, out, 0)
    return b"".join(out)


def _encode(value: object, out: list[bytes], depth: int) -> None:
    if depth > MAX_CBOR_DEPTH:
        raise Misuse(f"CBOR is nested at most {MAX_CBOR_DEPTH} deep")
    match value:
        case None:
            out.append(b"\xf6")
        case bool():
            out.append(b"\xf5" if value else b"\xf4")
        case int():
            out.append(_head(_UNSIGNED, value) if value >= 0 else _head(_NEGATIVE, -1 - value))
        case bytes():
            out.append(_head(_BYTES, len(value)))
            out.append(value)
        case str():
            out.append(_encode_text(value))
        case list() | tuple():
            out.append(_head(_ARRAY, len(value)))
            for item in value:
                _encode(item, out, depth + 1)
        case Mapping():
            # Sorted by the bytes of the encoded keys: RFC 8949's order, not RFC 7049's shortest first.
            entries = sorted(((_encode_key(key), item) for key, item in value.items()), key=lambda entry: entry[0])
            out.append(_head(_MAP, len(entries)))
            for key, item in entries:
                out.append(key)
                _encode(item, out, depth + 1)
        case TaggedValue():
            out.append(_head(_TAG, value.number))
            _encode(value.value, out, depth + 1)
        case _:
            raise Misuse(f"{type(value).__name__} has no place in Sealcast's CBOR")


def _encode_key(key: object) -> bytes:
    if isinstance(key, str):
        return _encode_text(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return encode(key)
    raise Misuse(f"keys are integers or text, not {type(key).__name__}")


def _encode_text(value: str) -> bytes:
    try:
        text = value.encode()
    except UnicodeEncodeError:
        raise Misuse("text with a lone surrogate has no encoding") from None
    return _head(_TEXT, len(text)) + text


def _head(major: int, argument: int) -> bytes:
    if argument < 24:
        return bytes((major << 5 | argument,))
    for info, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if argument < 1 << 8 * size:
            return bytes((major << 5 | info,)) + argument.to_bytes(size, "big")
    raise Misuse("CBOR integers have 64 bits")


# --- decoding -----------------------------------------------------------------------------------


def decode(
    data: bytes | memoryview,
    *,
    max_bytes: int = MAX_FRAME_BYTES,
    max_depth: int = MAX_CBOR_DEPTH,
    max_items: int = MAX_CBOR_ITEMS,
    tags: frozenset[int] = frozenset(),
    views: bool = False,
) -> Any:
    """The value that `data` is the deterministic encoding of, all of it; FrameRejected for anything else.

    Only the tag numbers in `tags` may occur. With `views`, byte strings come as views into `data`.
    """
    if len(data) > max_bytes:
        raise refused(f"{len(data)} bytes, {max_bytes} are allowed")
    reader = _Reader(memoryview(data), max_items, tags, views)
    value = reader.item(max_depth)
    if reader.at != len(data):
        raise refused(f"{len(data) - reader.at} bytes follow the end")
    return value


def refused(why: str) -> FrameRejected:
    """What every failure to read bytes from the wire becomes."""
    return FrameRejected("frame", f"malformed: {why}")


def is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def require(holds: bool, otherwise: str) -> None:
    """Refuses the bytes that are being read unless something holds of them."""
    if not holds:
        raise refused(otherwise)


def versioned(outer: object, magic: str, version: int, what: str) -> list[Any]:
    """What follows `[magic, version, ...`; FrameRejected (`version`) for another release's."""
    if not isinstance(outer, list) or len(outer) < 2 or outer[0] != magic:
        raise refused(f"not {what}")
    found = outer[1]
    # It is quoted only if it can be one: whoever wrote the bytes has no say in how long the refusal is.
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= MAX_VERSION:
        raise refused(f"not {what}: its version is no number up to {MAX_VERSION}")
    if found != version:
        raise FrameRejected("version", f"{what} of version {found}; this release reads version {version}")
    return outer[2:]


class _Reader:
    """A position in the input. Recursion is bounded by the depth, work by the input's length."""

    __slots__ = ("at", "data", "left", "size", "tags", "views")

    def __init__(self, data: memoryview, max_items: int, tags: frozenset[int], views: bool) -> None:
        self.data = data
        self.size = len(data)
        self.at = 0
        self.left = max_items
        self.tags = tags
        self.views = views

    def item(self, depth: int) -> Any:
        self.left -= 1
        if self.left < 0:
            raise refused("too many items")
        major, argument = self.head()
        match major:
            case 0:  # unsigned
                return argument
            case 1:  # negative
                return -1 - argument
            case 2:  # bytes
                view = self.take(argument)
                return view if self.views else bytes(view)
            case 3:  # text
                return self.text(argument)
            case 7:  # simple; `head` let only these three pass
                return _SIMPLE_VALUES[argument]
        if depth == 0:
            raise refused("nested too deep")
        match major:
            case 4:  # array
                self.plausible(argument)
                return [self.item(depth - 1) for _ in range(argument)]
            case 5:  # map
                self.plausible(2 * argument)
                return self.map(argument, depth - 1)
            case _:  # tag
                if argument not in self.tags:
                    raise refused(f"tag {argument} has no place here")
                return TaggedValue(argument, self.item(depth - 1))

    def head(self) -> tuple[int, int]:
        """Major type and argument, which must be in its shortest form and definite."""
        if self.at >= self.size:
            raise refused("truncated")
        initial = self.data[self.at]
        self.at += 1
        major, info = initial >> 5, initial & 31
        if major == _SIMPLE:
            if info not in _SIMPLE_VALUES:
                raise refused("floats and simple values other than true, false and null have no place here")
            return major, info
        if info < 24:
            return major, info
        if info > 27:
            raise refused("indefinite lengths and reserved codes have no place here")
        size = 1 << (info - 24)
        argument = int.from_bytes(self.take(size), "big")
        if argument < (24 if size == 1 else 1 << 4 * size):
            raise refused("an integer or length is not in its shortest form")
        return major, argument

    def take(self, size: int) -> memoryview:
        start, self.at = self.at, self.at + size
        if self.at > self.size:
            raise refused("truncated")
        return self.data[start : self.at]

    def plausible(self, items: int) -> None:
        # Every item takes a byte at least: a length beyond what is left is a lie, refused before anything is allocated.
        if items > self.size - self.at or items > self.left:
            raise refused("a length beyond the end")

    def text(self, size: int) -> str:
        try:
            return str(self.take(size), "utf-8")
        except UnicodeDecodeError:
            raise refused("text that is not UTF-8") from None

    def map(self, entries: int, depth: int) -> dict[int | str, Any]:
        result: dict[int | str, Any] = {}
        last = b""
        for _ in range(entries):
            start = self.at
            key = self.item(0)
            if not isinstance(key, int | str) or isinstance(key, bool):
                raise refused("keys are integers or text")
            encoded = bytes(self.data[start : self.at])
            if encoded <= last:
                raise refused("keys out of order or twice")
            last = encoded
            result[key] = self.item(depth)
        return result
