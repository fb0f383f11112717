"""Mailboxes of a piece from deliveries one by one: how tests write down who gets what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from sealcast.wire.mailboxes import of_groups
from sealcast.wire.typed import Array


def of_deliveries(rows: Iterable[tuple[int, int, int]], use_start: Array) -> Mapping[str, Any]:
    """The arrays, from deliveries one by one: slot, event and use of each, in any order."""
    starts = np.asarray(use_start, np.int64).tolist()
    boxes: list[dict[int, int]] = [{} for _ in starts[1:]]
    for slot, event, use in rows:
        boxes[event][slot] = use - starts[event]
    kinds: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
    group_of = [
        kinds.setdefault((end - start, tuple(sorted(box.items()))), len(kinds))
        for box, start, end in zip(boxes, starts, starts[1:], strict=False)
    ]
    sizes = [len(members) for _, members in kinds]
    width = max((slot for _, members in kinds for slot, _ in members), default=-1) + 1
    flags = np.zeros((len(kinds), -(-max(1, width) // 64) * 64), np.uint8)
    for row, (_, members) in enumerate(kinds):
        flags[row, [slot for slot, _ in members]] = 1
    return of_groups(
        np.packbits(flags, axis=1, bitorder="little").view("<u8"),
        np.array(group_of, np.int64),
        np.cumsum([0, *sizes]),
        np.array([slot for _, members in kinds for slot, _ in members], np.int64),
        np.array([via for _, members in kinds for _, via in members], np.int64),
        np.array([uses for uses, _ in kinds], np.int64),
    )
