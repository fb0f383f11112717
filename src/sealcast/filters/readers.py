"""A publisher's predicate over entities: who of those that an event matches may open it (paper 000, section 2).

It is a filter over what the realm knows of an entity: its `name`. `name IN ('ann', 'bob') OR name LIKE 'ward-%'`.
"""

from __future__ import annotations

from typing import Final

from sealcast.filters.check import fit
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.filters.remembered import CONDITION_BYTES, Remembered
from sealcast.filters.tree import Condition
from sealcast.filters.visible import refuse_unseen
from sealcast.model.schema import Schema

ENTITIES: Final = Schema.from_json({"attributes": [{"name": "name", "type": "string"}]})
#: Of all predicates that are remembered.
_MOST_BYTES: Final = 16 << 20


def _predicate(text: str) -> Condition:
    condition = fit(parse(text), ENTITIES)
    refuse_unseen(condition, frozenset(), payloads_seen=False)
    return condition


#: The condition of a text; FilterRejected, with the position, unless it is a filter over entities.
predicate: Final = Remembered(_predicate, lambda text, _: CONDITION_BYTES * (len(text) + 1), _MOST_BYTES)


def may_open(text: str, name: str) -> bool:
    return evaluate(predicate(text), {"name": name}) is True
