"""Are two tokens the same filter? Classifiers that look at their bytes, and how good they are, exactly.

    pairs     (first, second) of N tokens each, as bytes, and whether the filters behind them are equal
    scores    a number a pair, the higher the likelier equal: some fixed, some learnt on other pairs
    auc       the chance that an equal pair gets a higher score than a different one: one half is guessing

Nothing here knows the group: what there is to see in a number's bits, its distance, its weight or its beginning, is
the same for all. What a group's own arithmetic gives away (Legendre's symbol) is one more column (`marks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Misuse

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Pairs of each kind that the nearest-neighbour classifier keeps.
NEIGHBOURS: Final = 400
#: Added to the diagonal of what is inverted: columns that are constant would make it singular.
_RIDGE: Final = 1.0
_CHUNK: Final = 20_000


@dataclass(frozen=True)
class Pairs:
    first: Bytes
    second: Bytes
    equal: Bools
    #: Whatever else is known of a pair, by name.
    marks: Mapping[str, Floats] = field(default_factory=dict)

    @classmethod
    def of(
        cls, first: list[bytes], second: list[bytes], equal: Bools, marks: Mapping[str, Floats] | None = None
    ) -> Pairs:
        if not len(first) == len(second) == len(equal):
            raise Misuse("a pair has two tokens and is equal or not")
        return cls(_table(first), _table(second), equal, marks or {})

    def part(self, start: int, end: int) -> Pairs:
        marks = {name: mark[start:end] for name, mark in self.marks.items()}
        return Pairs(self.first[start:end], self.second[start:end], self.equal[start:end], marks)

    def parts(self) -> Iterator[Pairs]:
        """A million pairs as bits are gigabytes."""
        for start in range(0, len(self.equal), _CHUNK):
            yield self.part(start, start + _CHUNK)


#: A number a pair: the higher, the likelier equal.
Score = Callable[[Pairs], Floats]


def _table(tokens: list[bytes]) -> Bytes:
    return np.frombuffer(b"".join(tokens), dtype=np.uint8).reshape(len(tokens), -1)


def auc(scores: Floats, equal: Bools) -> float:
    """Exactly: by ranks, ties counting half."""
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    ends = np.r_[starts[1:], len(ordered)]
    ranks = np.empty(len(ordered))
    ranks[order] = np.repeat((starts + ends + 1) / 2, ends - starts)
    positives = int(equal.sum())
    negatives = len(equal) - positives
    if not positives or not negatives:
        raise Misuse("the area under a curve needs pairs of both kinds")
    return float((ranks[equal].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def standard_error(pairs: int) -> float:
    """Of the AUC of a score that says nothing, with as many equal pairs as different ones."""
    half = pairs // 2
    return float(np.sqrt((pairs + 1) / (12 * half * half)))


def classified(train: Pairs, held_out: Pairs) -> dict[str, float]:
    """The AUC of every classifier on pairs that none of them was made from."""
    learnt: dict[str, Score] = {
        "linear, bits that differ": _linear(_differing, train),
        "linear, all bits": _linear(_all_bits, train),
        "bytes that differ, by table": _by_table(train),
        "nearest neighbour": _nearest(train),
    }
    found: dict[str, list[Floats]] = {}
    for part in held_out.parts():
        for name, score in (_fixed(part) | {name: of(part) for name, of in learnt.items()} | dict(part.marks)).items():
            found.setdefault(name, []).append(score)
    return {name: auc(np.concatenate(scores), held_out.equal) for name, scores in found.items()}


# --- fixed scores -------------------------------------------------------------------------------------------------


def _fixed(pairs: Pairs) -> dict[str, Floats]:
    different = pairs.first ^ pairs.second
    bits = np.unpackbits(different, axis=1)
    weights = [np.unpackbits(side, axis=1).sum(axis=1, dtype=np.int64) for side in (pairs.first, pairs.second)]
    heads = [_head(side) for side in (pairs.first, pairs.second)]
    return {
        "distance of bits": -bits.sum(axis=1).astype(np.float64),
        "equal bytes": (different == 0).sum(axis=1).astype(np.float64),
        "common beginning": np.where(bits.any(axis=1), bits.argmax(axis=1), bits.shape[1]).astype(np.float64),
        "weight": -np.abs(weights[0] - weights[1]).astype(np.float64),
        "difference of numbers": -np.abs(heads[0] - heads[1]),
        "sum of numbers": -np.abs(heads[0] + heads[1] - 1),
        "order": (heads[0] < heads[1]).astype(np.float64),
        "parity": ((pairs.first[:, -1] ^ pairs.second[:, -1]) & 1 == 0).astype(np.float64),
    }


def _head(tokens: Bytes) -> Floats:
    """A token as a number between 0 and 1: by its eight bytes after the first, which may be a mark of the encoding."""
    powers = 256.0 ** -np.arange(1, 9)
    return np.asarray(tokens[:, 1:9] @ powers[: tokens.shape[1] - 1], dtype=np.float64)


# --- learnt scores ------------------------------------------------------------------------------------------------


def _differing(pairs: Pairs) -> Bytes:
    return np.unpackbits(pairs.first ^ pairs.second, axis=1)


def _all_bits(pairs: Pairs) -> Bytes:
    return np.unpackbits(np.hstack([pairs.first, pairs.second, pairs.first ^ pairs.second]), axis=1)


def _linear(bits: Callable[[Pairs], Bytes], train: Pairs) -> Score:
    """Least squares."""
    size = bits(train.part(0, 1)).shape[1]
    square, target = np.zeros((size, size)), np.zeros(size)
    for part in train.parts():
        signs = bits(part) - 0.5
        square += signs.T @ signs
        target += signs.T @ (part.equal - 0.5)
    weights = np.linalg.solve(square + _RIDGE * np.eye(size), target)
    return lambda pairs: (bits(pairs) - 0.5) @ weights


def _by_table(train: Pairs) -> Score:
    """Naive Bayes: at every place, how often bytes differ by just so much where filters are equal, and where not."""
    by = train.first ^ train.second
    odds = []
    for place in range(by.shape[1]):
        same, other = (np.bincount(by[kind, place], minlength=256) + 1.0 for kind in (train.equal, ~train.equal))
        odds.append(np.log(same / same.sum()) - np.log(other / other.sum()))
    table = np.array(odds)
    return lambda pairs: np.asarray(table[np.arange(len(table)), pairs.first ^ pairs.second].sum(axis=1))


def _nearest(train: Pairs) -> Score:
    """How much nearer, by bits that differ, the nearest known equal pair is than the nearest different one."""
    known = [_signs(train.first[kind] ^ train.second[kind])[:NEIGHBOURS] for kind in (train.equal, ~train.equal)]

    def score(pairs: Pairs) -> Floats:
        signs = _signs(pairs.first ^ pairs.second)
        equal, different = ((signs @ side.T).max(axis=1) for side in known)
        return np.asarray(equal - different, dtype=np.float64)

    return score


def _signs(different: Bytes) -> NDArray[np.float32]:
    return np.unpackbits(different, axis=1).astype(np.float32) * 2 - 1
