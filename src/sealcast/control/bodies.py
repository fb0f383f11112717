"""Bodies of requests and answers: each is a list of CBOR with exactly the fields of its class, in their order.

A class says what its fields are, and how each is written and read, in its annotations:

    @dataclass(frozen=True, slots=True)
    class Rotate(Body):
        KIND = "center/rotate"
        topic: Name
        epoch: Epoch

The kinds of field that annotations name are constants of the module: lambdas in an annotation would not find them.

The same body is the same bytes, and bytes have one reading: what has another number of fields, or a field of another
type or beyond its bounds, is refused as a whole (FrameRejected).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Self

from sealcast.control.envelopes import MAX_BODY_BYTES
from sealcast.errors import FrameRejected
from sealcast.model.dataclass import dataclass
from sealcast.wire import cbor
from sealcast.wire.annotations import annotated

MAX_NAME: Final = 64
#: Names in one body.
MAX_NAMES: Final = 1_024


@dataclass(frozen=True, slots=True)
class Field:
    """How a field is read from what CBOR holds, or refused with ValueError; and how it is written."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = lambda value: value


class Body:
    """What its subclasses have in common."""

    __slots__ = ()

    #: The kind of message that has such a body.
    KIND: ClassVar[str]
    MAX_ITEMS: ClassVar[int] = 32
    MAX_DEPTH: ClassVar[int] = 2

    def to_bytes(self) -> bytes:
        return cbor.encode([field.write(getattr(self, name)) for name, field in annotated(type(self)).items()])

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The body that these bytes are; FrameRejected when they are none of this kind."""
        values = cbor.decode(data, max_bytes=MAX_BODY_BYTES, max_depth=cls.MAX_DEPTH, max_items=cls.MAX_ITEMS)
        try:
            if not isinstance(values, list):
                raise ValueError(values)
            body = cls(*(field.read(v) for field, v in zip(annotated(cls).values(), values, strict=True)))
            if not body.holds():
                raise ValueError(values)
            return body
        except ValueError:
            raise _refused(cls.KIND) from None

    def holds(self) -> bool:
        """Whether its fields go together."""
        return True


def _refused(kind: str) -> FrameRejected:
    return cbor.refused(f"the fields are not those of {kind}")


def number_in(data: bytes, kind: str) -> int:
    """The one number that most answers are."""
    match cbor.decode(data, max_bytes=64, max_depth=1, max_items=2):
        case [int(number)]:
            return number
    raise _refused(kind)


# --- kinds of field -----------------------------------------------------------------------------------


def that(holds: Callable[[Any], bool]) -> Field:
    """A value of CBOR as it is, for which something holds."""

    def read(value: Any) -> Any:
        if not holds(value):
            raise ValueError(value)
        return value

    return Field(read)


def text(most: int) -> Field:
    return that(lambda value: isinstance(value, str) and 0 < len(value.encode()) <= most)


def binary(least: int, most: int) -> Field:
    return that(lambda value: isinstance(value, bytes) and least <= len(value) <= most)


def natural(most: int) -> Field:
    return that(lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most)


def optional(field: Field) -> Field:
    return Field(
        lambda value: None if value is None else field.read(value),
        lambda value: None if value is None else field.write(value),
    )


def word(words: type[StrEnum]) -> Field:
    """One word of an enumeration."""
    return Field(words, str)


def set_of(words: type[StrEnum]) -> Field:
    """Words of an enumeration, each once and in one order, at least one: the same set is the same bytes."""

    def write(chosen: Iterable[StrEnum]) -> list[str]:
        return sorted(map(str, chosen))

    def read(value: Any) -> frozenset[StrEnum]:
        chosen = frozenset(map(words, value)) if isinstance(value, list) else frozenset()
        if not chosen or write(chosen) != value:
            raise ValueError(value)
        return chosen

    return Field(read, write)


def rows(most: int, *fields: Field) -> Field:
    """A list of rows, each with these fields."""

    def read(value: Any) -> tuple[tuple[Any, ...], ...]:
        if not isinstance(value, list) or len(value) > most or not all(isinstance(row, list) for row in value):
            raise ValueError(value)
        return tuple(tuple(f.read(v) for f, v in zip(fields, row, strict=True)) for row in value)

    return Field(read, lambda value: [list(row) for row in value])


def _names(value: Any) -> tuple[str, ...]:
    """A list of names, each once."""
    if not isinstance(value, list) or not 0 < len(value) <= MAX_NAMES:
        raise ValueError(value)
    names = tuple(map(text(MAX_NAME).read, value))
    if len(set(names)) != len(names):
        raise ValueError(value)
    return names


Name = Annotated[str, text(MAX_NAME)]
Names = Annotated[tuple[str, ...], Field(_names, list)]
