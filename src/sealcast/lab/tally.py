"""Counting encryptions: groups, from a file or from anywhere, through an algorithm, by the paper's counting rule.

A group file has a hexadecimal group a line, bit i = subscriber i. It is read in portions: an algorithm keeps its memory
between them, and where a portion ends makes no difference to what it decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from sealcast.errors import Misuse, Rejected
from sealcast.filters import bits
from sealcast.filters.bits import Words
from sealcast.groupkeys import Algorithm
from sealcast.groupkeys.catalog import Setting, make
from sealcast.groupkeys.clusters import around, beyond, by_full_tables, by_rule, by_trial, fit

EVENTS_AT_ONCE: Final = 8_192
_WARM_UP: Final = "--warmup 1000: they are looked at and not counted"
_GROUP: Final = re.compile(r"(?:0[xX])?0*([0-9a-fA-F]+)")


@dataclass(frozen=True, slots=True)
class Tally:
    """What a run of events cost, those of the warm-up left out."""

    events: int
    encryptions: int
    max: int
    clusters: int | None
    #: Standard error of the mean, from means of blocks: neighbours share a cache and are not independent.
    error: float

    @property
    def mean(self) -> float:
        return self.encryptions / self.events if self.events else 0.0

    def as_json(self) -> dict[str, object]:
        return {
            "events": self.events,
            "encryptions": self.encryptions,
            "mean": self.mean,
            "max": self.max,
            "clusters": self.clusters,
        }


def tally(algorithm: Algorithm, portions: Iterable[Words], warmup: int) -> Tally:
    """Counts every event after the first `warmup`."""
    costs, skipped = [], 0
    for words in portions:
        cost = algorithm.count(*bits.unique_rows(words))
        skip = min(warmup - skipped, cost.size)
        skipped += skip
        costs.append(cost[skip:])
    counted = np.concatenate(costs) if costs else np.empty(0, np.int64)
    return Tally(
        events=counted.size,
        encryptions=int(counted.sum()),
        max=int(counted.max(initial=0)),
        clusters=algorithm.clusters,
        error=standard_error(counted),
    )


def clusters_by(how: str, algorithm: str, setting: Setting, past: Words | None) -> int:
    """Finds the number of clusters: `how` is that number, or a way to find it."""
    n, cache = setting.subscribers, setting.cache
    if algorithm == "clustered-popular":
        cache -= cache // 2
    if how == "full-tables":
        return by_full_tables(n, cache)
    if how == "tuned":
        if past is None or len(past) < 2:
            raise Misuse("the number of clusters is tried on events of the warm-up, and there are none", hint=_WARM_UP)
        tried = partial(_trial, algorithm=algorithm, setting=setting, past=past)
        return by_trial({*around(by_rule(n, cache), n), by_full_tables(n, cache)}, tried)
    if not how.isascii() or not how.isdigit() or not int(how):
        raise Misuse(f"{how!r} is no number of clusters", hint="a number from 1 up, full-tables or tuned")
    return int(how)


def _trial(clusters: int, algorithm: str, setting: Setting, past: Words) -> float:
    made = make(algorithm, replace(setting, clusters=clusters), past)
    return tally(made, portions_of(past), len(past) // 2).mean


def standard_error(cost: bits.Indices, blocks: int = 40) -> float:
    """The standard error of the mean; 0 where there are too few events to say."""
    if cost.size < 2 * blocks:
        return 0.0
    means = cost[: cost.size // blocks * blocks].reshape(blocks, -1).mean(axis=1)
    return float(means.std(ddof=1) / np.sqrt(blocks))


def portions_of(words: Words, at_once: int = EVENTS_AT_ONCE) -> Iterator[Words]:
    return (words[first : first + at_once] for first in range(0, words.shape[0], at_once))


def read_groups(path: Path, subscribers: int) -> Iterator[Words]:
    """Reads a group file, portion by portion."""
    with path.open("r", encoding="ascii", errors="replace") as lines:
        first = 1
        while portion := list(islice(lines, EVENTS_AT_ONCE)):
            yield _parsed(portion, subscribers, path, first)
            first += len(portion)


def first_groups(path: Path, subscribers: int, events: int) -> Words:
    """Reads the first events of a group file, at most a portion of them."""
    portion = next(iter(read_groups(path, subscribers)), np.empty((0, bits.words_for(subscribers)), np.uint64))
    return portion[:events]


def _parsed(lines: list[str], subscribers: int, path: Path, first: int) -> Words:
    digits = 2 * (subscribers // 8 + 1)
    texts = []
    for number, line in enumerate(lines, first):
        found = _GROUP.fullmatch(line.strip())
        if found is None:
            raise Rejected(f"{path}:{number}: not a hexadecimal group", hint="a group a line, 0 for an empty one")
        text = found[1].zfill(digits)
        if len(text) > digits:
            raise Rejected(_too_wide(path, number, subscribers))
        texts.append(text)
    raw = np.frombuffer(bytes.fromhex("".join(texts)), np.uint8).reshape(len(texts), -1)
    words = bits.from_bytes(raw[:, ::-1])
    outside = np.flatnonzero(beyond(words, subscribers))
    if outside.size:
        raise Rejected(_too_wide(path, first + int(outside[0]), subscribers))
    return fit(words, subscribers)


def _too_wide(path: Path, number: int, subscribers: int) -> str:
    return (
        f"{path}:{number}: a member that is none of the {subscribers:,} subscribers (numbers 0 to {subscribers - 1:,})"
    )
