"""Table 1 of paper 002: a Bloom filter beside three shapes of a cuckoo filter, all for 400,000 keys.

It measures what the paper measures: memory, and inserting and searching 50,000 keys. The paper's filters take one key
at a time and keep Python objects; ours take batches and keep arrays. So times are not compared with the printed ones,
but the relation between the two filters is, and how memory depends on the shape. The figure shows from which batch size
on a batch is worth its name.

The printed Bloom filter has a false-positive rate of 0.1, and the memory of one with 0.01: both are run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from sealcast.errors import Bug
from sealcast.lab.report import Curve, Look, Panel, Report, Row, Told, columns
from sealcast.prefilters import Keys, Prefilter, keys_of, sized
from sealcast.prefilters.cuckoo import CuckooFilter

NAME: Final = "nguyen/table1"
MAX_ELEMENTS: Final = 400_000
ITEMS: Final = 50_000
FINGERPRINT_BITS: Final = 16
BATCHES: Final = (1, 10, 100, 1_000, 10_000, ITEMS)
ROUNDS: Final = 15
QUICK_ROUNDS: Final = 3
#: Small batches are measured on so many of them.
CALLS: Final = 200
STRANGERS: Final = 1_000_000
#: How far a printed memory may be from the computed one, and still be it.
NEAR: Final = 0.05
_MIB: Final = 1 << 20
_SEED: Final = 1
_cells: Final = columns("filter", "cell", "printed", "computed", "measured", "unit", "agrees")


@dataclass(frozen=True, slots=True)
class Printed:
    """A column as the paper prints it: MiB, and seconds for 50,000 keys."""

    memory: float
    insertion: float
    searching: float


BLOOM: Final = "Bloom 0.1"
PRINTED: Final = {
    BLOOM: Printed(0.47, 0.504, 0.492),
    "cuckoo 100,000 x 4": Printed(26.43, 0.292, 0.263),
    "cuckoo 50,000 x 8": Printed(13.15, 0.288, 0.259),
    "cuckoo 25,000 x 16": Printed(6.68, 0.290, 0.268),
}
#: False-positive rates, and numbers of buckets with their sizes.
RATES: Final = {BLOOM: 0.1, "Bloom 0.01": 0.01}
SHAPES: Final = {
    "cuckoo 100,000 x 4": (100_000, 4),
    "cuckoo 50,000 x 8": (50_000, 8),
    "cuckoo 25,000 x 16": (25_000, 16),
}
FILTERS: Final = (*RATES, *SHAPES)


def make(name: str) -> Prefilter:
    if name in RATES:
        return sized("bloom", MAX_ELEMENTS, RATES[name], _SEED)
    return CuckooFilter(*SHAPES[name], FINGERPRINT_BITS, _SEED)


@dataclass(frozen=True, slots=True)
class MeasuredFilter:
    """CPU seconds for one key by batch size, bytes, and the shares of yeses for strangers: theory's, and counted."""

    insertion: Mapping[int, float]
    searching: Mapping[int, float]
    memory: int
    rate: float
    hits: float


# --- measuring ------------------------------------------------------------------------------------------


def run(quick: bool, told: Told) -> Report:
    rounds = QUICK_ROUNDS if quick else ROUNDS
    tags = [f"topic-{number}".encode() for number in range(ITEMS)]
    began = time.process_time()
    keys = keys_of(tags)
    hashing = time.process_time() - began
    found: dict[str, MeasuredFilter] = {}
    for done, name in enumerate(FILTERS):
        told(done, len(FILTERS))
        found[name] = measure(partial(make, name), keys, rounds)
    told(len(FILTERS), len(FILTERS))
    return report(found, hashing)


def measure(empty: Callable[[], Prefilter], keys: Keys, rounds: int) -> MeasuredFilter:
    insertion, searching = {}, {}
    whole = empty()
    whole.insert(keys)
    if not whole.may_contain(keys).all():
        raise Bug("a filter denies a member")
    for batch in BATCHES:
        some = keys[: min(len(keys), CALLS * batch)]
        batches = [some[start : start + batch] for start in range(0, len(some), batch)]
        # Each round inserts into a filter of its own: a key that is there already is not inserted again.
        insertion[batch] = min(_seconds(empty().insert, batches) for _ in range(rounds)) / len(some)
        searching[batch] = min(_seconds(whole.may_contain, batches) for _ in range(rounds)) / len(some)
    strangers = np.random.default_rng(_SEED).integers(0, 2**64, STRANGERS, dtype=np.uint64)
    hits = float(whole.may_contain(strangers).mean())
    return MeasuredFilter(insertion, searching, whole.memory, whole.false_positive_rate, hits)


def _seconds(call: Callable[[Keys], object], batches: Sequence[Keys]) -> float:
    began = time.process_time()
    for batch in batches:
        call(batch)
    return time.process_time() - began


# --- the report -----------------------------------------------------------------------------------------


def report(found: Mapping[str, MeasuredFilter], hashing: float) -> Report:
    rows = [row for name in FILTERS for row in _rows(name, found[name])]
    rows += [_relation(name, cell, found) for name in SHAPES for cell in ("insertion", "searching")]
    rows.append(_space(found))
    a_bucket = [PRINTED[name].memory * _MIB / buckets for name, (buckets, _) in SHAPES.items()]
    notes = [
        f"CPU seconds for {ITEMS:,} keys in one batch, the quickest round; hashing as many tags to keys took "
        f"{hashing:.3f} s more. The printed seconds are of one key at a time in Python, and are not compared",
        f"memory agrees if the printed one is within {NEAR:.0%} of what the structure needs: by the formula of section "
        f"2.1 for Bloom, {FINGERPRINT_BITS} bits for each entry for cuckoo. A relation agrees if the same one is ahead",
        "the printed memory of the Bloom filter is not that of the printed rate of 0.1 "
        f"({_bloom_mib(0.1):.2f} MiB), but of 0.01 ({_bloom_mib(0.01):.2f} MiB), the rate that section 5.1 uses",
        f"the printed memory of the cuckoo filters is {min(a_bucket):.0f} to {max(a_bucket):.0f} bytes for each "
        "bucket, whatever its size: that of Python's objects, which falls with the number of buckets. "
        "Arrays have no such cost",
        "larger buckets cost false positives, which the table does not show, and searching time, which it hardly does",
    ]
    agrees = all(row["agrees"] for row in rows if row["agrees"] is not None)
    return Report(NAME, rows, agrees, notes, _panels(found))


def _rows(name: str, found: MeasuredFilter) -> list[Row]:
    printed = PRINTED.get(name)
    needed = _bloom_mib(RATES[name]) if name in RATES else MAX_ELEMENTS * FINGERPRINT_BITS / 8 / _MIB
    memory = _cells(
        filter=name,
        cell="memory",
        printed=printed and printed.memory,
        computed=round(needed, 3),
        measured=round(found.memory / _MIB, 3),
        unit="MiB",
        agrees=printed and abs(printed.memory - needed) <= NEAR * needed,
    )
    insertion, searching = (
        _cells(
            filter=name,
            cell=cell,
            printed=printed and getattr(printed, cell),
            measured=round(getattr(found, cell)[ITEMS] * ITEMS, 5),
            unit="s",
        )
        for cell in ("insertion", "searching")
    )
    rates = _cells(
        filter=name,
        cell="false positives",
        computed=float(f"{found.rate:.3g}"),
        measured=float(f"{found.hits:.3g}"),
        unit="share",
    )
    return [memory, insertion, searching, rates]


def _relation(name: str, cell: str, found: Mapping[str, MeasuredFilter]) -> Row:
    """How many times faster than the Bloom filter: the paper's conclusion is "nearly 2x"."""
    ratio = getattr(found[BLOOM], cell)[ITEMS] / getattr(found[name], cell)[ITEMS]
    return _cells(
        filter=name,
        cell=f"{cell}, Bloom / cuckoo",
        printed=round(getattr(PRINTED[BLOOM], cell) / getattr(PRINTED[name], cell), 2),
        measured=round(ratio, 2),
        unit="times",
        agrees=ratio > 1,
    )


def _space(found: Mapping[str, MeasuredFilter]) -> Row:
    """The paper: "the larger bucket size, the smaller space it costs"."""
    small, *_, large = SHAPES
    ratio = found[small].memory / found[large].memory
    return _cells(
        filter="cuckoo",
        cell="memory, buckets of 4 / of 16",
        printed=round(PRINTED[small].memory / PRINTED[large].memory, 2),
        measured=round(ratio, 2),
        unit="times",
        agrees=ratio > 1,
    )


def _bloom_mib(rate: float) -> float:
    """Section 2.1: m = -n ln p / (ln 2)^2 bits."""
    return -MAX_ELEMENTS * math.log(rate) / math.log(2) ** 2 / 8 / _MIB


def _panels(found: Mapping[str, MeasuredFilter]) -> list[Panel]:
    def times(title: str, of: Callable[[MeasuredFilter], Mapping[int, float]]) -> Panel:
        lines = [Curve(name, list(BATCHES), [1e9 * of(each)[b] for b in BATCHES]) for name, each in found.items()]
        return Panel(title, "keys in a batch", "CPU nanoseconds per key", lines, log_x=True, log_y=True)

    printed = [at for at, name in enumerate(FILTERS) if name in PRINTED]
    memory = Panel(
        "memory",
        "",
        "MiB",
        [
            *(Curve(name, [at], [found[name].memory / _MIB]) for at, name in enumerate(FILTERS)),
            Curve("printed", printed, [PRINTED[FILTERS[at]].memory for at in printed], Look.PRINTED),
        ],
        log_y=True,
        ticks=FILTERS,
        looks={Look.PRINTED: "printed"},
    )
    return [times("insertion", lambda each: each.insertion), times("searching", lambda each: each.searching), memory]
