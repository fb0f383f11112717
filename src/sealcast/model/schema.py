"""A topic's schema: typed attributes with domains, and the one place that decides whether a value is admissible.

Every attribute has two faces:

    value      what people and filters see: bool, int, float, Decimal, str, an aware datetime in UTC, or None for NULL
    physical   what travels in records and columns: bool, int64, float64 or str

Decimals travel as whole numbers of 10**-scale and timestamps as microseconds since 1970, so that equality and order
in a column are exact. A value that cannot be represented exactly is refused by name, never rounded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation, localcontext
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from sealcast.errors import EventRejected, SchemaRejected
from sealcast.model import moments
from sealcast.model.dataclass import dataclass
from sealcast.model.moments import EPOCH, micros

#: What an attribute's value can be; `None` is NULL.
Value = bool | int | float | Decimal | str | datetime | None
#: What travels.
Physical = bool | int | float | str

MAX_ATTRIBUTES: Final = 128
MAX_NAME_LENGTH: Final = 128
MAX_STRING_LENGTH: Final = 65_535
MAX_DECIMAL_SCALE: Final = 18
#: Steps lie between these: with any float, they leave fewer digits than numbers are computed with.
_TINY: Final = Decimal("1e-60")
_HUGE: Final = Decimal("1e60")
#: Digits kept of a decimal whose schema names neither step nor domain: 10**-6, up to +-9.2 * 10**12.
DEFAULT_DECIMAL_SCALE: Final = 6
#: More digits than any admissible value has: bounds what parsing a hostile number can cost.
MAX_NUMBER_DIGITS: Final = 400

_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_NAME: Final = re.compile(r"[^\W\d][\w.$-]*|[^\[\]\x00-\x1f]+", re.UNICODE)


class Type(StrEnum):
    INT = "int"
    FLOAT = "float"
    DECIMAL = "decimal"
    STRING = "string"
    BOOL = "bool"
    TIMESTAMP = "timestamp"


#: Types whose values are ordered on a grid and may have a step.
NUMERIC: Final = frozenset({Type.INT, Type.FLOAT, Type.DECIMAL, Type.TIMESTAMP})


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute: its name, type and domain. Bounds are inclusive; the grid starts at `min`, else at zero."""

    name: str
    type: Type
    min: Value = None
    max: Value = None
    #: Distance between neighbouring values: a number; milliseconds for timestamps.
    step: Decimal | None = None
    #: In code points, for strings.
    max_length: int | None = None
    #: Decimals travel as multiples of 10**-scale.
    scale: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if not self.name or len(self.name) > MAX_NAME_LENGTH or not _NAME.fullmatch(self.name):
            raise SchemaRejected(
                f"an attribute's name has 1 to {MAX_NAME_LENGTH} characters "
                f"and no brackets or control characters, not {_shown(self.name)}"
            )
        if self.step is not None and (self.type not in NUMERIC or not self.step.is_finite() or self.step <= 0):
            raise SchemaRejected(
                f"attribute {self.name!r}: step must be a positive number, and only numbers and timestamps have one"
            )
        if self.max_length is not None and (
            self.type is not Type.STRING or not 0 < self.max_length <= MAX_STRING_LENGTH
        ):
            raise SchemaRejected(
                f"attribute {self.name!r}: max_length is 1 to {MAX_STRING_LENGTH}, and only strings have one"
            )
        if self.type is Type.INT and self.step is not None and self.step != self.step.to_integral_value():
            raise SchemaRejected(f"attribute {self.name!r}: the step of an int is a whole number, not {self.step}")
        if self.step is not None and not _TINY <= self.step <= _HUGE:
            raise SchemaRejected(f"attribute {self.name!r}: a step is between {_TINY} and {_HUGE}, not {self.step}")
        if self.type is Type.BOOL and (self.min is not None or self.max is not None):
            raise SchemaRejected(f"attribute {self.name!r}: a bool has no bounds")
        object.__setattr__(self, "scale", self._choose_scale())
        for bound in ("min", "max"):
            given = getattr(self, bound)
            if given is not None:
                try:
                    object.__setattr__(self, bound, self._parse(given))
                except EventRejected as error:
                    raise SchemaRejected(f"{bound} of {error.message}") from None
        if self.min is not None and self.max is not None and self.min > self.max:  # type: ignore[operator]
            raise SchemaRejected(f"attribute {self.name!r}: min {self.min} is above max {self.max}")

    def _choose_scale(self) -> int:
        if self.type is not Type.DECIMAL:
            return 0
        try:
            bounds = [_decimal(b, self.name) for b in (self.min, self.max) if b is not None]
        except EventRejected as error:
            raise SchemaRejected(f"a bound of {error.message}") from None
        least = max(map(_digits_after_point, [*bounds, Decimal(0) if self.step is None else self.step]))
        scale = max(least, DEFAULT_DECIMAL_SCALE) if self.step is None else least
        largest = max(map(abs, bounds), default=Decimal(0))
        # A wide domain leaves fewer digits after the point: keep as many as 64 bits hold beside the bounds.
        while scale > least and largest.scaleb(scale) > _INT64_MAX:
            scale -= 1
        if scale > MAX_DECIMAL_SCALE or largest.scaleb(scale) > _INT64_MAX:
            raise SchemaRejected(
                f"attribute {self.name!r}: its domain at {scale} digits after the point does not fit 64 bits"
            )
        return scale

    # --- values ----------------------------------------------------------------------------------

    def parse(self, given: object) -> Value:
        """The value of `given` (from JSON or Python), or EventRejected naming this attribute."""
        if given is None:
            return None
        value = self._parse(given)
        if self.min is not None and value < self.min:  # type: ignore[operator]
            raise self._refuse(f"{value} is below the minimum {self.min}")
        if self.max is not None and value > self.max:  # type: ignore[operator]
            raise self._refuse(f"{value} is above the maximum {self.max}")
        if self.step is not None and not self._on_grid(value):
            start = self.min if self.min is not None else 0
            raise self._refuse(f"{value} is off the grid of step {self.step} from {start}")
        return value

    def to_physical(self, value: Value) -> Physical | None:
        """How a parsed value travels."""
        match value:
            case None | bool() | int() | float() | str():
                return value
            case Decimal():
                return int(value.scaleb(self.scale))
            case datetime():
                return micros(value)

    def from_physical(self, physical: Physical | None) -> Value:
        """The value that travelled."""
        if physical is None:
            return None
        match self.type:
            case Type.DECIMAL:
                return Decimal(int(physical)).scaleb(-self.scale)
            case Type.TIMESTAMP:
                return moments.moment(int(physical))
            case _:
                return physical

    def _refuse(self, why: str) -> EventRejected:
        return EventRejected(f"attribute {self.name!r}: {why}", attribute=self.name)

    def _parse(self, given: object) -> bool | int | float | Decimal | str | datetime:
        match self.type:
            case Type.BOOL:
                if isinstance(given, bool):
                    return given
            case Type.STRING:
                if isinstance(given, str):
                    return self._parse_string(given)
            case Type.INT:
                if isinstance(given, int) and not isinstance(given, bool):
                    return self._int64(given)
                if isinstance(given, Decimal) and not given.is_finite():
                    raise self._refuse("is not a finite number")
                if isinstance(given, Decimal | float) and -_INT64_MAX <= given <= _INT64_MAX and given == int(given):
                    return self._int64(int(given))
            case Type.FLOAT:
                if isinstance(given, int | float | Decimal) and not isinstance(given, bool):
                    return self._parse_float(given)
            case Type.DECIMAL:
                if isinstance(given, int | float | Decimal | str) and not isinstance(given, bool):
                    return self._parse_decimal(given)
            case Type.TIMESTAMP:
                if isinstance(given, datetime | str | int | float | Decimal) and not isinstance(given, bool):
                    return self._parse_timestamp(given)
        raise self._refuse(f"{_shown(given)} is not of type {self.type}")

    def _parse_string(self, given: str) -> str:
        limit = self.max_length if self.max_length is not None else MAX_STRING_LENGTH
        if len(given) > limit:
            raise self._refuse(f"has {len(given)} characters, {limit} are allowed")
        try:
            size = len(given.encode())
        except UnicodeEncodeError:
            raise self._refuse("is not valid Unicode (a lone surrogate)") from None
        if size > MAX_STRING_LENGTH:
            raise self._refuse(f"takes {size} bytes, {MAX_STRING_LENGTH} are allowed")
        return given

    def _int64(self, given: int) -> int:
        if not _INT64_MIN <= given <= _INT64_MAX:
            raise self._refuse("does not fit 64 bits")
        return given

    def _parse_float(self, given: int | float | Decimal) -> float:
        try:
            value = float(given)
        except (OverflowError, ValueError):  # too large, or a NaN that signals
            value = float("inf")
        if value != value or value in (float("inf"), float("-inf")):
            raise self._refuse("is not a finite number")
        return value + 0.0  # -0.0 becomes 0.0: equal values have equal bytes

    def _parse_decimal(self, given: int | float | Decimal | str) -> Decimal:
        value = _decimal(given, self.name)
        if _digits_after_point(value) > self.scale:
            if self.step is not None:
                raise self._refuse(f"{value} is off the grid of step {self.step}")
            raise self._refuse(
                f"{value} has more than {self.scale} digits after the point",
            )
        with localcontext(prec=MAX_NUMBER_DIGITS):
            if abs(value.scaleb(self.scale)) > _INT64_MAX:
                raise self._refuse(f"does not fit 64 bits at {self.scale} digits after the point")
            return value.quantize(Decimal(1).scaleb(-self.scale))

    def _parse_timestamp(self, given: datetime | str | int | float | Decimal) -> datetime:
        try:
            match given:
                case datetime():
                    moment = given
                case str():
                    moment = datetime.fromisoformat(given)
                case _:
                    with localcontext(prec=MAX_NUMBER_DIGITS):
                        us = _decimal(given, self.name) * 1000
                    if us != us.to_integral_value():
                        raise self._refuse(f"{given} ms is finer than a microsecond")
                    moment = moments.moment(int(us))
            if getattr(moment, "nanosecond", 0):  # pandas' timestamps are datetimes, and finer
                raise self._refuse("is finer than a microsecond")
            # At the ends of the calendar, a moment in another zone may have none here.
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except (ValueError, OverflowError):
            raise self._refuse(
                f"{_shown(given)} is not a timestamp; RFC 3339 text or milliseconds since 1970 are",
            ) from None

    def _on_grid(self, value: Value) -> bool:
        assert self.step is not None
        with localcontext(prec=MAX_NUMBER_DIGITS):
            match value:
                case datetime():
                    first = self.min if isinstance(self.min, datetime) else EPOCH
                    return (Decimal(micros(value)) - Decimal(micros(first))) % (self.step * 1000) == 0
                case float():
                    # A float stands for the shortest decimal that rounds to it: 0.3 is on the grid of 0.1.
                    start = self.min if isinstance(self.min, float) else 0.0
                    return (Decimal(repr(value)) - Decimal(repr(start))) % self.step == 0
                case int() | Decimal():
                    origin = self.min if isinstance(self.min, int | Decimal) else 0
                    return (Decimal(value) - Decimal(origin)) % self.step == 0
                case _:
                    return True

    # --- JSON ------------------------------------------------------------------------------------

    @classmethod
    def from_json(cls, body: object) -> Attribute:
        if not isinstance(body, Mapping):
            raise SchemaRejected(f"an attribute is an object with name and type, not {_shown(body)}")
        unknown = set(body) - {"name", "type", "min", "max", "step", "max_length"}
        if unknown:
            raise SchemaRejected(f"attribute {body.get('name')!r}: unknown field {sorted(map(str, unknown))[0]!r}")
        name, kind = body.get("name"), body.get("type")
        if not isinstance(name, str):
            raise SchemaRejected("an attribute needs a name, a string")
        if not isinstance(kind, str) or kind not in Type._value2member_map_:
            raise SchemaRejected(f"attribute {name!r}: type is one of {', '.join(Type)}, not {_shown(kind)}")
        step, max_length = body.get("step"), body.get("max_length")
        if max_length is not None and (not isinstance(max_length, int) or isinstance(max_length, bool)):
            raise SchemaRejected(f"attribute {name!r}: max_length is a whole number")
        try:
            parsed_step = None if step is None else _decimal(step, name)
        except EventRejected as error:
            raise SchemaRejected(f"step of {error.message}") from None
        return cls(name, Type(kind), min=body.get("min"), max=body.get("max"), step=parsed_step, max_length=max_length)

    def to_json(self) -> dict[str, object]:
        body: dict[str, object] = {"name": self.name, "type": str(self.type)}
        for bound in ("min", "max"):
            value = getattr(self, bound)
            if value is not None:
                body[bound] = value_to_json(value)
        if self.step is not None:
            body["step"] = str(self.step)
        if self.max_length is not None:
            body["max_length"] = self.max_length
        return body


@dataclass(frozen=True)
class Schema:
    """The attributes of a topic's events, in the order in which they travel."""

    attributes: tuple[Attribute, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.attributes) <= MAX_ATTRIBUTES:
            raise SchemaRejected(f"a schema has 1 to {MAX_ATTRIBUTES} attributes, not {len(self.attributes)}")
        if len(self.by_name) != len(self.attributes):
            names = [a.name for a in self.attributes]
            twice = next(n for n in names if names.count(n) > 1)
            raise SchemaRejected(f"attribute {twice!r} is declared twice")

    @cached_property
    def by_name(self) -> Mapping[str, Attribute]:
        return {a.name: a for a in self.attributes}

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.attributes)

    @cached_property
    def digest(self) -> bytes:
        """Names this schema on the wire: equal schemas have equal digests."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).digest()

    def parse(self, attributes: Mapping[str, object]) -> dict[str, Value]:
        """All values of an event, absent ones as NULL, or EventRejected naming the first wrong attribute."""
        for name in attributes:
            if name not in self.by_name:
                raise EventRejected(
                    f"attribute {_shown(name)} is not in the schema; it has {', '.join(self.names[:12])}",
                    attribute=name,
                )
        return {a.name: a.parse(attributes.get(a.name)) for a in self.attributes}

    @classmethod
    def from_json(cls, body: object) -> Schema:
        """From `{"attributes": [...]}`: read it with `parse_float=Decimal`, so that bounds and steps stay exact."""
        attributes = body.get("attributes") if isinstance(body, Mapping) else None
        if not isinstance(attributes, Iterable) or isinstance(attributes, str | bytes | Mapping):
            raise SchemaRejected('a schema is {"attributes": [{"name": ..., "type": ...}, ...]}')
        return cls(tuple(Attribute.from_json(a) for a in attributes))

    def to_json(self) -> dict[str, Any]:
        return {"attributes": [a.to_json() for a in self.attributes]}


def value_to_json(value: Value) -> object:
    """A value as JSON has it: decimals as strings (exact), timestamps as RFC 3339."""
    match value:
        case Decimal():
            return format(value, "f")
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case _:
            return value


def _decimal(given: object, name: str) -> Decimal:
    try:
        text = repr(given) if isinstance(given, float) else str(given)
        if len(text) > MAX_NUMBER_DIGITS:
            raise InvalidOperation
        value = Decimal(text)
        # An exponent can say in five characters what takes a gigabyte to write out.
        if not value.is_finite() or abs(value.adjusted()) > MAX_NUMBER_DIGITS:
            raise InvalidOperation
    except (InvalidOperation, ValueError):  # Python writes out no integer of more than 4,300 digits
        raise EventRejected(f"attribute {name!r}: {_shown(given)} is not a number", attribute=name) from None
    return value


def _digits_after_point(value: Decimal) -> int:
    # The default context keeps 28 digits: it would round the 30th away, and the value with it.
    with localcontext(prec=MAX_NUMBER_DIGITS):
        exponent = value.normalize().as_tuple().exponent
    assert isinstance(exponent, int)
    return max(0, -exponent)


def _shown(given: object) -> str:
    try:
        text = repr(given) if not isinstance(given, Decimal) else str(given)
    except ValueError:
        return "an integer of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."
