"""Random schemas and events that fit them, or do not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from sealcast.errors import SchemaRejected
from sealcast.model.schema import Attribute, Schema, Type, Value

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INT64 = st.integers(-(2**63), 2**63 - 1)
small = st.integers(-50, 50)
grid = st.sampled_from(
    [Decimal(s) for s in ("1", "2", "5", "0.1", "0.25", "0.01", "0.3", "1E-7", "1000", "1E+3", "7.5")]
)
finite = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def attributes(draw: st.DrawFn, name: str) -> Attribute:
    kind = draw(st.sampled_from(list(Type)))
    options: dict[str, Any] = {}
    if kind is Type.STRING:
        options["max_length"] = draw(st.none() | st.integers(1, 6))
    elif kind is not Type.BOOL:
        low, high = sorted((draw(bounds(kind)), draw(bounds(kind))))
        options["min"] = draw(st.sampled_from([None, low]))
        options["max"] = draw(st.sampled_from([None, high]))
        step = draw(st.none() | grid)
        options["step"] = step if kind is not Type.INT or step is None or step == int(step) else None
    try:
        return Attribute(name, kind, **options)
    except SchemaRejected:
        return Attribute(name, kind)


def bounds(kind: Type) -> st.SearchStrategy[Any]:
    match kind:
        case Type.INT:
            return small
        case Type.FLOAT:
            return small.map(lambda n: n / 10) | finite.filter(lambda x: abs(x) < 1e6)
        case Type.DECIMAL:
            return small.map(lambda n: Decimal(n) / 4)
        case _:
            return small.map(lambda n: EPOCH + timedelta(milliseconds=n))


schemas = st.integers(1, 10).flatmap(lambda n: st.tuples(*(attributes(f"a{i}") for i in range(n)))).map(Schema)


def physical(attribute: Attribute) -> st.SearchStrategy[Any]:
    """Anything a column of this attribute can hold, near its domain more often than not."""
    near = small | st.integers(-(10**6), 10**6)
    match attribute.type:
        case Type.STRING:
            return st.none() | st.text(max_size=8)
        case Type.BOOL:
            return st.none() | st.booleans()
        case Type.FLOAT:
            # Grid points, their neighbours among the doubles, and anything else.
            step = float(attribute.step or 1)
            origin = attribute.min if isinstance(attribute.min, float) else 0.0
            on = near.map(lambda n: float(repr(origin + n * step)))
            tenth = near.map(lambda n: n / 10)
            return st.none() | on | tenth | finite | st.sampled_from([0.1 + 0.2, 1e22, 5e-324, 1e308, 0.3, 2.5e-7])
        case _:
            scale = 10**attribute.scale if attribute.type is Type.DECIMAL else 1
            return st.none() | near | near.map(lambda n: n * scale) | near.map(lambda n: n * 1000) | INT64


def parsed(attribute: Attribute) -> st.SearchStrategy[Value]:
    """Values of the attribute's type that travel, in its domain or not."""

    def value(given: Any) -> Value:
        if attribute.type is Type.TIMESTAMP and given is not None:
            given = max(min(given, 253_402_300_799_999_999), -62_135_596_800_000_000)
        if attribute.type is Type.DECIMAL and given is not None:
            given = max(given, 1 - 2**63)
        if isinstance(given, float):
            given += 0.0
        return attribute.from_physical(given)

    return physical(attribute).map(value)


@st.composite
def events(draw: st.DrawFn, schema: Schema) -> tuple[dict[str, Value], bytes, str]:
    values = {a.name: draw(parsed(a)) for a in schema.attributes}
    kind = draw(st.sampled_from(["application/octet-stream", "text/plain; charset=utf-8", "x"]))
    return values, draw(st.binary(max_size=20)), kind
