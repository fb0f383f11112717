"""How `Index.build` divides boxes: which words are dense, whom each box speaks for, and which structure finds it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.bits import runs, starts, words_for
from sealcast.filters.index import plan
from sealcast.filters.index.blocks import Blocks
from sealcast.filters.index.boxes import Ids
from sealcast.filters.index.compile import NO_RESIDUAL, Compiled
from sealcast.filters.index.fan import Fan, IndexPart
from sealcast.filters.index.postings import Postings


def direct_boxes(boxes: Compiled, held: NDArray[np.float64]) -> Ids:
    """For each bit of the answer, the box that a dense word would take: its filter's widest without residual, or -1."""
    sure = np.flatnonzero(boxes.residual_of == NO_RESIDUAL)
    ascending = sure[np.argsort(held[sure], kind="stable")]
    best = np.full(int(boxes.filters.max(initial=-1)) + 1, -1, np.int64)
    best[boxes.owners[ascending]] = ascending  # the last assignment stays: the widest
    direct = np.full(words_for(boxes.filters.size) * 64, -1, np.int64)
    direct[: boxes.filters.size] = best[boxes.filters]
    return direct


def fan_of(boxes: Compiled, direct: Ids, served: NDArray[np.bool_]) -> tuple[Fan, NDArray[np.bool_]]:
    """Whom each box has still to speak for, and whether it is plain."""
    count = boxes.owners.size
    subscribers = np.argsort(boxes.filters, kind="stable")
    sizes = np.bincount(boxes.filters, minlength=int(boxes.owners.max(initial=-1)) + 1)
    begins = np.cumsum(sizes) - sizes
    per_box = sizes[boxes.owners]
    subscription = subscribers[runs(begins[boxes.owners], per_box)]
    box = np.repeat(np.arange(count), per_box)
    done = served[subscription] & (direct[subscription] == box)
    single = np.bincount(boxes.owners, minlength=1)[boxes.owners] == 1
    plain = single & (boxes.residual_of == NO_RESIDUAL)
    return Fan(starts(box[~done], count), subscription[~done]), plain


def parts_of(
    left: Ids, plain: NDArray[np.bool_], boxes: Compiled, estimate: plan.Estimate, fan: Fan
) -> list[IndexPart]:
    parts: list[IndexPart] = []
    structures, rest = plan.posted(left, boxes.sides, boxes.axes, estimate)
    for axis, keys, chosen in structures:
        for kind in (True, False):
            some = chosen[plain[chosen] == kind]
            if some.size:
                parts.append(IndexPart.of(Postings.build(some, axis, keys, boxes.sides, boxes.axes), kind, fan))
    for some, width in plan.blocked(rest, plain, boxes.sides, boxes.axes, estimate):
        parts.append(IndexPart.of(Blocks.build(some, boxes.sides, boxes.axes, width), bool(plain[some].all()), fan))
    return parts
