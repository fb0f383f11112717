"""Versions of a schema: what a later one may change, so that every event of an earlier one is an event of it.

    may be added     attributes, after those that there are; events from before have NULL there
    may widen        bounds, the length of strings, a step that divides the one before
    may not          remove, rename, reorder, another type, a narrower domain, another number of digits after the point

An attribute is never required: an absent one is NULL. So every attribute that is added is one that old events lack, and
filters that ask for it are unknown for them, as SQL has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from sealcast.errors import SchemaRejected
from sealcast.model.moments import micros
from sealcast.model.schema import Attribute, Schema

#: Versions that one topic may have.
MAX_VERSIONS: Final = 256


def check_evolution(before: Schema, after: Schema) -> None:
    """SchemaRejected, with the attribute and why, unless every event of the earlier schema is one of the later."""
    if len(after.attributes) < len(before.attributes) or after.names[: len(before.names)] != before.names:
        _refuse_names(before.names, after.names)
    for old, new in zip(before.attributes, after.attributes, strict=False):
        for why in _narrower(old, new):
            raise SchemaRejected(f"attribute {old.name!r}: {why}", hint="make a new topic for events of another shape")


def check_domains_stay(before: Schema, after: Schema, why: str) -> None:
    """SchemaRejected, with the attribute and `why`, where an attribute that there is would get another domain: for
    topics on which values are compared by labels that are made from it. New attributes are welcome."""
    for old, new in zip(before.attributes, after.attributes, strict=False):
        if old != new:
            raise SchemaRejected(
                f"attribute {old.name!r}: its domain cannot widen on this topic: {why}",
                hint="leave it as it is, and add an attribute with the wider domain beside it",
            )


def _refuse_names(before: Sequence[str], after: Sequence[str]) -> None:
    gone = [name for name in before if name not in after]
    if gone:
        raise SchemaRejected(
            f"attribute {gone[0]!r} is not in the new schema, and events and filters have it",
            hint="keep it: publishers may leave it out, and then it is NULL",
        )
    raise SchemaRejected(
        "the attributes that there are come in another order", hint="keep their order, and add new ones after them"
    )


def _narrower(old: Attribute, new: Attribute) -> list[str]:
    """Why some value of the old attribute is none of the new; nothing, if there is no such value."""
    if old.type is not new.type:
        return [f"it was {old.type}, and would be {new.type}"]
    if old.scale != new.scale:
        return [f"values have {old.scale} digits after the point, and would have {new.scale}"]
    found = list[str]()
    if new.min is not None and (old.min is None or new.min > old.min):  # type: ignore[operator]
        found.append(f"its minimum would rise from {_shown(old.min)} to {new.min}")
    if new.max is not None and (old.max is None or new.max < old.max):  # type: ignore[operator]
        found.append(f"its maximum would fall from {_shown(old.max)} to {new.max}")
    if new.max_length is not None and (old.max_length is None or new.max_length < old.max_length):
        found.append(f"its max_length would fall from {_shown(old.max_length)} to {new.max_length}")
    if new.step is not None and (old.step is None or old.step % new.step):
        found.append(f"its step would change from {_shown(old.step)} to {new.step}, which does not divide it")
    elif new.step is not None and (_start(old) - _start(new)) % _ticks(new):
        found.append(f"its grid of step {new.step} would begin elsewhere")
    return found


def _shown(value: object) -> str:
    return "none" if value is None else str(value)


def _start(attribute: Attribute) -> Decimal:
    """Where an attribute's grid begins, in the unit of `_ticks`."""
    given: Any = attribute.min
    if isinstance(given, datetime):
        return Decimal(micros(given))
    return Decimal(0) if given is None else Decimal(str(given))


def _ticks(attribute: Attribute) -> Decimal:
    """An attribute's step. Steps of timestamps are milliseconds, their values microseconds."""
    step = attribute.step or Decimal(1)
    return step * 1000 if isinstance(attribute.min, datetime) else step
