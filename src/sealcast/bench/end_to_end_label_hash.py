"""`label-hash` of suite `end-to-end`: hashing distinct labels onto the curve in a batch, beside one by one.

Both give the same points, by RFC 9380, with nothing remembered. What limits a batch is the library that it calls: two
square roots and an addition a label, which together are half of what is left; `sswu_many` says what it saves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sealcast.bench.report import BenchRow, side_by_side
from sealcast.errors import Bug
from sealcast.primitives.curve import CURVE

LABELS: Final = 1_000
ROUNDS: Final = 15


def rows() -> Iterator[BenchRow]:
    """CPU microseconds per label, and how many times faster than one by one."""
    labels = [b"a label of the bench, number %d" % number for number in range(LABELS)]
    if CURVE.hash_many(labels) != [CURVE.hash(label) for label in labels]:
        raise Bug("a batch of labels is hashed to other points than each of them")
    batch, single = side_by_side(
        lambda: CURVE.hash_many(labels), lambda: [CURVE.hash(label) for label in labels], ROUNDS, of=min
    )
    batch, single = batch / LABELS * 1e6, single / LABELS * 1e6
    yield BenchRow("label-hash", batch, single, "the same labels, one by one", single / batch, "CPU us per label")
