"""Rows `prefilter` of suite `searchable`: what a batch of look-ups costs in a pre-filter.

    prefilter               the cuckoo filter beside the faster one of pybloom-live and pyprobables
    prefilter-pyprobables   the cuckoo filter beside the slower one of them, which is pyprobables
    prefilter-bloom         the Bloom filter beside the faster one

All filters hold the same 100,000 keys at 1 %. They are asked for the same keys, of which half are members: ours for a
batch in one call, theirs for one after the other, since they have no batches. Each gets keys in the form that it takes
at once: 64-bit numbers, or their bytes for pyprobables, which hashes nothing else. A filter that denies a member is not
measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import probables
import pybloom_live

from sealcast.bench.report import BenchRow, side_by_side
from sealcast.errors import Bug
from sealcast.prefilters import Keys, sized

ITEMS: Final = 100_000
RATE: Final = 0.01
#: Theirs are asked for the first of these only: a look-up takes them microseconds.
ASKED: Final = 500_000
ASKED_OF_THEM: Final = 20_000
_ROUNDS: Final = 9

Look = Callable[[], object]


def rows(items: int = ITEMS, asked: int = ASKED) -> Iterator[BenchRow]:
    """Nanoseconds of CPU per look-up, and how many times faster than the reference."""
    random = np.random.default_rng(1)
    members = random.integers(0, 2**64, items, dtype=np.uint64)
    strangers = random.integers(0, 2**64, asked, dtype=np.uint64)
    keys = np.where(random.random(asked) < 0.5, random.choice(members, asked), strangers)
    theirs = keys[:ASKED_OF_THEM]
    references = {"pybloom-live": _pybloom(members, theirs), "pyprobables": _pyprobables(members, theirs)}
    cuckoo, bloom = (_ours(kind, members, keys) for kind in ("cuckoo", "bloom"))

    def row(name: str, ours: Look, reference: str) -> BenchRow:
        mine, other = side_by_side(ours, references[reference], _ROUNDS, min)
        mine, other = mine / asked * 1e9, other / len(theirs) * 1e9
        told = f"a Bloom filter of {reference}, one key at a time"
        return BenchRow(name, mine, other, told, other / mine, "CPU ns per look-up")

    beside = {name: row("prefilter", cuckoo, name) for name in references}
    faster, slower = sorted(beside, key=lambda name: beside[name].reference)
    yield beside[faster]
    yield row(f"prefilter-{slower}", cuckoo, slower)
    yield row("prefilter-bloom", bloom, faster)


def _ours(kind: str, members: Keys, asked: Keys) -> Look:
    made = sized(kind, len(members), RATE, seed=1)
    made.insert(members)
    if not made.may_contain(members).all():
        raise Bug(f"the {kind} filter denies a member")
    return lambda: made.may_contain(asked)


def _pybloom(members: Keys, asked: Keys) -> Look:
    made, numbers = pybloom_live.BloomFilter(len(members), RATE), asked.tolist()
    for key in members.tolist():
        made.add(key)
    if not all(key in made for key in members.tolist()):
        raise Bug("pybloom-live denies a member")
    return lambda: [key in made for key in numbers]


def _pyprobables(members: Keys, asked: Keys) -> Look:
    made, texts = probables.BloomFilter(len(members), RATE), [key.tobytes() for key in asked]
    for key in members:
        made.add(key.tobytes())
    if not all(made.check(key.tobytes()) for key in members[:ASKED_OF_THEM]):
        raise Bug("pyprobables denies a member")
    return lambda: [made.check(text) for text in texts]
