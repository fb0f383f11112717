"""Changes that were written elsewhere: read strictly, before any rule sees them.

What stands in the registry was written by `stored.to_json`, and reading it back may rely on that. A change that comes
over a network was written by anybody. So it is held to the types that its kind declares, and to the one spelling that
`to_json` gives it: rules never meet a value of a type that they were not written for, and what is stored is what every
other reader would have written.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from sealcast.errors import Corrupt, Misuse
from sealcast.trust.realm import changes, stored
from sealcast.trust.realm.changes import Change

#: Of a whole change, as JSON.
MAX_CHANGE_CHARACTERS: Final = 8 << 20
_MOST: Final = 2**127


def written(change: Change) -> str:
    """How a change is stored."""
    return json.dumps(stored.to_json(change), separators=(",", ":"), ensure_ascii=False)


def read(kind: str, body: str) -> Change:
    """The change that this is; Misuse when it is none, or not as `written` writes it."""
    try:
        if len(body) > MAX_CHANGE_CHARACTERS:
            raise ValueError(len(body))
        change = stored.from_json(kind, json.loads(body))
        if not _typed(change, type(change)) or written(change) != body:
            raise ValueError(kind)
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError, Corrupt):
        raise Misuse("this is no change, or it is not written as changes are written") from None
    return change


def _typed(value: object, hint: Any) -> bool:
    """Whether a value is of the type that is declared, all the way down to what is a class of its own."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        return isinstance(value, tuple) and all(_typed(each, arguments[0]) for each in value)
    if origin is UnionType or isinstance(hint, UnionType):
        return any(_typed(value, each) for each in arguments)
    if hint is NoneType:
        return value is None
    if hint is int:
        # Serial numbers have 128 bits, all else less.
        return type(value) is int and 0 <= value < _MOST
    if hint in (str, bytes, bool):
        return type(value) is hint
    if not isinstance(value, hint):
        return False
    if isinstance(value, Enum) or hint.__module__ != changes.__name__ or not is_dataclass(value):
        return True  # it read itself, and refuses what it is not
    declared = _declared(hint)
    return all(_typed(getattr(value, each.name), declared[each.name]) for each in fields(value))


@cache
def _declared(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
