"""Section 4.1 of paper 003: how many credentials a subscription takes, with attributes apart and together.

The paper bounds both the credentials of a subscription and the subspaces that an event lies in by the sum of log2(Z)
over the attributes. Random ranges show what it takes: a range may take nearly twice as many, and an event lies in one
subspace more of each attribute, the whole. And they show why the paper takes attributes apart: together, credentials
grow with the surface of the box.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Final

from sealcast.errors import FilterRejected
from sealcast.filters.check import check
from sealcast.filters.parse import parse
from sealcast.lab.report import Curve, Look, Panel, Report, Row, Told, columns
from sealcast.model.schema import Attribute, Schema, Type
from sealcast.protections.attribute.credentials import EventSpace

NAME: Final = "tariq/credentials"
DIMENSIONS: Final = (1, 2, 3, 4)
#: log2(Z): 15 values, so that the place of the absent takes no bit more.
BITS: Final = 4
BOXES: Final = 200
QUICK_BOXES: Final = 40
_SEED: Final = 3
_cells: Final = columns("attributes", "cell", "printed", "measured", "largest", "agrees")


@dataclass(frozen=True, slots=True)
class CountedBoxes:
    """Of random boxes in so many attributes: labels for each, and positions of an event, apart and together. A box that
    takes more labels than any filter may have counts as None."""

    attributes: int
    apart: Sequence[int]
    together: Sequence[int | None]
    event_apart: int
    event_together: int


def run(quick: bool, told: Told) -> Report:
    found = []
    for done, attributes in enumerate(DIMENSIONS):
        told(done, len(DIMENSIONS))
        found.append(count(attributes, QUICK_BOXES if quick else BOXES))
    told(len(DIMENSIONS), len(DIMENSIONS))
    return report(found)


def count(attributes: int, boxes: int) -> CountedBoxes:
    random = Random(_SEED)
    last = (1 << BITS) - 2
    schema = Schema(tuple(Attribute(f"x{i}", Type.INT, min=0, max=last) for i in range(attributes)))
    apart, together = EventSpace(schema), EventSpace(schema, joint=True)
    counted: list[tuple[int, int | None]] = []
    for _ in range(boxes):
        bounds = [sorted((random.randint(0, last), random.randint(0, last))) for _ in range(attributes)]
        text = " AND ".join(f"x{i} BETWEEN {low} AND {high}" for i, (low, high) in enumerate(bounds))
        asked = check(parse(text), schema).condition
        try:
            joint = together.counts(asked).labels
        except FilterRejected:
            joint = None
        counted.append((apart.counts(asked).labels, joint))
    each, all_in_one = zip(*counted, strict=True)
    return CountedBoxes(attributes, each, all_in_one, apart.positions, together.positions)


def report(found: Sequence[CountedBoxes]) -> Report:
    rows = [row for each in found for row in _rows(each)]
    refused = sum(joint is None for each in found for joint in each.together)
    notes = [
        f"Printed: the paper's bound, the sum of log2(Z) with Z = {1 << BITS}. A range can take up to 2 log2(Z) - 2 "
        f"credentials, so that the bound does not hold.",
        "Together, an event lies in fewer subspaces and a subscription needs one key instead of one for each "
        "attribute, and many times as many credentials.",
    ]
    if refused:
        notes.append(f"{refused} boxes take more labels together than a filter may have, and are left out of the mean.")
    return Report(NAME, rows, all(row["agrees"] is not False for row in rows), notes, [_panel(found)])


def _rows(each: CountedBoxes) -> list[Row]:
    bound = each.attributes * BITS
    joint = [labels for labels in each.together if labels is not None]
    return [
        _cells(
            attributes=each.attributes,
            cell="credentials, attributes apart",
            printed=bound,
            measured=round(fmean(each.apart), 2),
            largest=max(each.apart),
            agrees=max(each.apart) <= bound,
        ),
        _cells(
            attributes=each.attributes,
            cell="credentials, attributes together",
            measured=round(fmean(joint), 2) if joint else None,
            largest=max(joint, default=None),
            # What the paper says of it has no number: many attributes take very many.
            agrees=not joint or each.attributes == 1 or fmean(joint) > fmean(each.apart),
        ),
        _cells(
            attributes=each.attributes,
            cell="subspaces of an event, attributes apart",
            printed=bound,
            measured=each.event_apart,
            agrees=each.event_apart <= bound,
        ),
        _cells(
            attributes=each.attributes,
            cell="subspaces of an event, attributes together",
            measured=each.event_together,
        ),
    ]


def _panel(found: Sequence[CountedBoxes]) -> Panel:
    x = [each.attributes for each in found]
    joint = [[labels for labels in each.together if labels is not None] for each in found]
    curves = [
        Curve("apart", x, [fmean(each.apart) for each in found]),
        Curve("together", x, [fmean(each) if each else math.nan for each in joint]),
        Curve("the paper's bound", x, [each.attributes * BITS for each in found], Look.BOUND),
    ]
    return Panel("Credentials of a random range subscription", "attributes", "credentials", curves, log_y=True)
