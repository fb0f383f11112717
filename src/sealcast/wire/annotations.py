"""Formats by annotation: the fields of a dataclass say themselves how they are written, read or checked."""

from __future__ import annotations

from functools import cache
from typing import Any, get_type_hints


def annotated(made: type) -> dict[str, Any]:
    """What stands in `Annotated` beside the type of each field, by the field's name and in the order of the fields."""
    return _annotated(made)


@cache
def _annotated(made: type) -> dict[str, Any]:
    hints = get_type_hints(made, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}
