"""What a new change must pass beyond the rules: checks too dear to repeat whenever the registry is read.

A filter is parsed and typed against its topic's schema, and a public key is looked at as a point of its curve, once:
before the change is stored. Whoever reads the registry afterwards may rely on both.
"""

from __future__ import annotations

from sealcast.filters.check import check, fit
from sealcast.filters.parse import parse
from sealcast.model.schema import Schema
from sealcast.primitives.sign import VerifyKey
from sealcast.trust.changes import AddSubscription, Change, EnrolEntity
from sealcast.trust.realm import Fold


def vet(fold: Fold, change: Change) -> None:
    """Refuses with FilterRejected or Rejected. The rules were asked first: the names in the change exist."""
    match change:
        case AddSubscription():
            vet_filter(fold.schema(change.topic), change.filter)
        case EnrolEntity():
            VerifyKey(change.verify_key)


def vet_filter(schema: Schema, text: str) -> None:
    """FilterRejected, with position and suggestion, unless `text` is a filter over `schema`."""
    fit(parse(text), schema)


def remarks(schema: Schema, text: str) -> list[str]:
    """What the author of a filter should know: that it can never be true, say. FilterRejected when it is none."""
    return [warned.message for warned in check(parse(text), schema).warnings]
