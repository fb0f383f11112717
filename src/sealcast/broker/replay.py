"""Has this frame been here before? Sliding windows of sequence numbers, packed, decided for a whole batch at once.

A publisher numbers its events, anew with each boot; a frame is the interval [sequence, sequence + count). It is

    fresh        none of its numbers was seen under its boot
    duplicate    one of them was, if only one: a frame stands or falls as a whole
    too old      it begins below the window: so far behind what arrived that nobody remembers

Order does not matter within the window, so several brokers may append one publisher's frames as they come. What arrives
in one batch arrives at the same time; of equal frames the first in the log counts. A publisher has one partition in
each broker's log (`log.forwarded.partition_of`), and what stands elsewhere is a copy:

    elsewhere    it is in a partition in which its publisher's frames do not come

What is remembered is a set of runs, maximal intervals without a gap, because honest publishers leave one run a boot,
however long they publish. Nothing needs to be remembered for ever: a frame that is too old by its own clock is refused
before it comes here (`ReplayBounds`), so two copies of a frame are never more than a *period* apart in the log. Runs
are kept by generation, the period in which their frames came (`log.offsets.Arrival`). A generation is dropped when
nothing that is still to come can repeat one of its frames. So the state is a function of the frames that were accepted
in the generations that are kept, and of nothing else: whoever reads those frames again has it again (a new checkpoint,
the ledger checker), and it stays bounded without a timer.

No clock, no file, no key: times are the batch's.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.broker import quota
from sealcast.broker.quota import Quota
from sealcast.errors import Corrupt
from sealcast.log.forwarded import publisher_number

#: Numbers below the newest of a boot, minus this, are too old.
WINDOW_EVENTS: Final = 1 << 20
#: Runs of one boot: with more gaps than this between them, the lowest are closed.
MAX_RUNS: Final = 256
#: Starts of one publisher in a period. Each of them is remembered, so somebody has to stop counting.
MAX_BOOTS: Final = 4_096
#: A frame is stamped a little before everybody can read it.
SETTLING_US: Final = 60_000_000

#: What is asked of a frame that its publisher has signed.
CLAIM: Final = np.dtype(
    [
        ("partition", "<i4"),
        ("offset", "<i8"),
        ("time", "<i8"),  # when it came, microseconds since 1970
        ("hi", "<u8"),  # publisher and boot, hashed
        ("lo", "<u8"),
        ("publisher", "<u8"),
        ("sequence", "<i8"),
        ("count", "<i8"),
        ("size", "<i8"),  # bytes
        ("elsewhere", "u1"),  # 1: its publisher's frames come in another partition
    ]
)
_RUN: Final = np.dtype(
    [("hi", "<u8"), ("lo", "<u8"), ("publisher", "<u8"), ("floor", "<i8"), ("start", "<i8"), ("end", "<i8")]
)
_MAGIC: Final = b"SCW1"
_HEAD: Final = struct.Struct("<4sqI")
_GENERATION: Final = struct.Struct("<qII")

Claims = NDArray[np.void]
Runs = NDArray[np.void]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Verdicts = NDArray[np.uint8]


class ReplayVerdict(IntEnum):
    FRESH = 0
    DUPLICATE = 1
    TOO_OLD = 2
    BOOTS = 3
    EVENTS = 4
    BYTES = 5
    ELSEWHERE = 6


@dataclass(frozen=True, slots=True)
class ReplayBounds:
    """What a topic holds its publishers' clocks and rates to."""

    #: How far a publisher's clock may be ahead of the log's, and how old a frame may be when it is appended.
    max_skew_us: int
    stale_after_us: int
    quota: Quota

    @property
    def period_us(self) -> int:
        """Two copies of one frame are at most this far apart in the log: the first no earlier than the frame's own time
        minus the skew, the second no later than that time plus the staleness."""
        return self.max_skew_us + self.stale_after_us


def identify(publisher: str, boot: bytes) -> tuple[int, int, int]:
    """`hi`, `lo` and `publisher` of a claim. The boot has a fixed size, so the parts cannot run into each other."""
    name = publisher.encode()
    both = hashlib.sha256(b"sealcast boot" + boot + name).digest()
    return int.from_bytes(both[:8], "little"), int.from_bytes(both[8:16], "little"), publisher_number(publisher)


class Windows:
    """The windows of a topic's publishers at one broker."""

    def __init__(self, bounds: ReplayBounds) -> None:
        self._bounds = bounds
        self._runs: dict[int, Runs] = {}
        self._accounts: dict[int, quota.Accounts] = {}

    def __len__(self) -> int:
        """Runs that are remembered."""
        return sum(runs.size for runs in self._runs.values())

    @property
    def bounds(self) -> ReplayBounds:
        return self._bounds

    def decide(self, claims: Claims) -> Verdicts:
        """A verdict for each claim; what is fresh, or refused only for its publisher's rate, is remembered."""
        verdicts = np.where(claims["elsewhere"], ReplayVerdict.ELSEWHERE, ReplayVerdict.FRESH).astype(np.uint8)
        for generation, rows in self._by_generation(claims):
            asked = claims[rows]
            found = self._seen(asked)
            found = _repeats(asked, found)
            found = self._boots(asked, found, generation)
            fresh = found == ReplayVerdict.FRESH
            taken = asked[fresh]
            self._remember(taken, generation)
            found[fresh] = self._charge(taken, generation)
            verdicts[rows] = found
        return verdicts

    def take(self, claims: Claims, charged: Bools) -> None:
        """Remembers what was decided before, batch by batch: the claims that were fresh, and which of them were charged
        to their publishers' accounts (those refused for the rate were not)."""
        for generation, rows in self._by_generation(claims):
            self._remember(claims[rows], generation)
            paid = claims[rows[charged[rows]]]
            accounts = self._accounts.get(generation, quota.NONE)
            self._accounts[generation] = quota.pay(accounts, *_costs(paid), self._bounds.quota)

    def forget(self, settled_us: int) -> None:
        """Drops generations that no frame appended at `settled_us` or later can repeat."""
        oldest = self.first_generation(settled_us)
        for table in (self._runs, self._accounts):
            for generation in [g for g in table if g < oldest]:
                del table[generation]

    def first_generation(self, settled_us: int) -> int:
        return settled_us // self._bounds.period_us - 1

    def copy(self) -> Windows:
        """Others with the same in them. What is remembered is never changed in place, so it is shared."""
        made = Windows(self._bounds)
        made._runs, made._accounts = dict(self._runs), dict(self._accounts)
        return made

    def of_lanes(self, lanes: Collection[int], partitions: int) -> Windows:
        """Those of publishers whose frames come in these partitions, of so many."""
        if len(lanes) >= partitions:
            return self.copy()
        made, wanted = Windows(self._bounds), np.array(sorted(lanes), np.uint64)
        for mine, theirs in ((self._runs, made._runs), (self._accounts, made._accounts)):
            for generation, rows in mine.items():
                theirs[generation] = rows[np.isin(rows["publisher"] % np.uint64(partitions), wanted)]
        return made

    # --- packed -------------------------------------------------------------------------------------

    def pack(self) -> bytes:
        parts = [_HEAD.pack(_MAGIC, self._bounds.period_us, len(self._runs))]
        for generation in sorted(self._runs):
            runs, accounts = self._runs[generation], self._accounts.get(generation, quota.NONE)
            parts += [_GENERATION.pack(generation, runs.size, accounts.size), runs.tobytes(), accounts.tobytes()]
        return b"".join(parts)

    @classmethod
    def unpack(cls, packed: bytes, bounds: ReplayBounds) -> Windows:
        """Corrupt when these bytes are no windows of such bounds."""
        windows = cls(bounds)
        try:
            magic, period, count = _HEAD.unpack_from(packed)
            at = _HEAD.size
            if magic != _MAGIC or period != bounds.period_us:
                raise ValueError
            for _ in range(count):
                generation, runs, accounts = _GENERATION.unpack_from(packed, at)
                at += _GENERATION.size
                windows._runs[generation] = np.frombuffer(packed, _RUN, runs, at)
                at += runs * _RUN.itemsize
                windows._accounts[generation] = np.frombuffer(packed, quota.ACCOUNT, accounts, at)
                at += accounts * quota.ACCOUNT.itemsize
            if at != len(packed):
                raise ValueError
        except (struct.error, ValueError):
            raise Corrupt(
                "the replay windows of a topic cannot be read", hint="remove them: they are worked out again"
            ) from None
        return windows

    # --- inside -------------------------------------------------------------------------------------

    def _by_generation(self, claims: Claims) -> list[tuple[int, Ints]]:
        """Rows of each generation in the order in which the log took them in; the earliest generation first. What is
        elsewhere is of none."""
        order = np.lexsort((claims["offset"], claims["partition"], claims["time"]))
        order = order[claims["elsewhere"][order] == 0]
        generation = claims["time"][order] // self._bounds.period_us
        starts = np.flatnonzero(np.diff(generation, prepend=-1))
        return [
            (int(generation[rows[0]]), order[rows]) for rows in np.split(np.arange(order.size), starts[1:]) if rows.size
        ]

    def _seen(self, asked: Claims) -> Verdicts:
        """Each claim against what is remembered, alone: claims of the same batch do not come into it."""
        verdicts = np.zeros(asked.size, np.uint8)
        for runs in self._runs.values():
            _against(asked, runs, verdicts)
        return verdicts

    def _boots(self, asked: Claims, found: Verdicts, generation: int) -> Verdicts:
        """Refuses boots beyond what one publisher may begin in a period; the first to come are taken."""
        fresh = np.flatnonzero(found == ReplayVerdict.FRESH)
        known = self._runs.get(generation, _NO_RUNS)
        owners, boots = np.unique(_boots_of(known), return_counts=True)
        if fresh.size and boots.max(initial=0) + fresh.size <= MAX_BOOTS:
            return found
        held = dict(zip(owners.tolist(), boots.tolist(), strict=True))
        begun = set(_boots_in(known))
        for row, boot, owner in zip(
            fresh.tolist(), _boots_in(asked[fresh]), asked["publisher"][fresh].tolist(), strict=True
        ):
            if boot in begun:
                continue
            if held.get(owner, 0) >= MAX_BOOTS:
                found[row] = ReplayVerdict.BOOTS
            else:
                begun.add(boot)
                held[owner] = held.get(owner, 0) + 1
        return found

    def _remember(self, taken: Claims, generation: int) -> None:
        if taken.size:
            self._runs[generation] = _merged(self._runs.get(generation, _NO_RUNS), taken)

    def _charge(self, taken: Claims, generation: int) -> Verdicts:
        accounts = self._accounts.get(generation, quota.NONE)
        accounts, over = quota.charge(accounts, *_costs(taken), self._bounds.quota)
        if accounts.size:
            self._accounts[generation] = accounts
        return np.choose(over, (ReplayVerdict.FRESH, ReplayVerdict.EVENTS, ReplayVerdict.BYTES)).astype(np.uint8)


_NO_RUNS: Final = np.empty(0, _RUN)


def _costs(claims: Claims) -> tuple[NDArray[np.uint64], Ints, Ints, Ints]:
    return claims["publisher"], claims["time"], claims["count"], claims["size"]


def _boots_of(runs: Runs) -> NDArray[np.uint64]:
    """The owner of each distinct boot."""
    first = (np.diff(runs["hi"], prepend=np.uint64(0)) != 0) | (np.diff(runs["lo"], prepend=np.uint64(0)) != 0)
    if first.size:
        first[0] = True
    owners: NDArray[np.uint64] = runs["publisher"][first]
    return owners


def _against(asked: Claims, runs: Runs, verdicts: Verdicts) -> None:
    """Claims and runs in one line, by boot and number: only the run before and the run behind a claim can touch it."""
    if not runs.size or not asked.size:
        return
    hi, lo = (np.concatenate((runs[f], asked[f])) for f in ("hi", "lo"))
    start = np.concatenate((runs["start"], asked["sequence"]))
    is_run = np.arange(hi.size) < runs.size
    line = np.lexsort((~is_run, start, lo, hi))  # a run before a claim that begins with it
    marks = np.where(is_run[line], line, -1)
    before, behind = _last_run(marks), _last_run(marks[::-1])[::-1]
    place = np.flatnonzero(~is_run[line])
    rows = line[place] - runs.size
    for near in (before[place], behind[place]):
        run = runs[near]
        same = (near >= 0) & (run["hi"] == asked["hi"][rows]) & (run["lo"] == asked["lo"][rows])
        old = same & (asked["sequence"][rows] < run["floor"])
        sequence = asked["sequence"][rows]
        overlaps = same & (run["start"] < sequence + asked["count"][rows]) & (sequence < run["end"])
        verdicts[rows[overlaps & (verdicts[rows] == ReplayVerdict.FRESH)]] = ReplayVerdict.DUPLICATE
        verdicts[rows[old]] = ReplayVerdict.TOO_OLD


def _last_run(marks: Ints) -> Ints:
    """At each place, the run seen last up to there; -1 before the first."""
    at = np.maximum.accumulate(np.where(marks >= 0, np.arange(marks.size), -1))
    return np.where(at >= 0, marks[at], -1)


def _repeats(asked: Claims, found: Verdicts) -> Verdicts:
    """Claims of one batch against each other. Whatever overlaps in part is decided one by one: no honest publisher's
    frames do, and a dishonest one pays a signature for each."""
    rows = np.flatnonzero(found == ReplayVerdict.FRESH)
    columns = [asked[name][rows] for name in ("hi", "lo", "sequence", "count")]
    kept = np.lexsort(columns[::-1])  # equal ones stay in the order of arrival
    hi, lo, sequence, count = (column[kept] for column in columns)
    same_boot = (hi[1:] == hi[:-1]) & (lo[1:] == lo[:-1])
    equal = same_boot & (sequence[1:] == sequence[:-1]) & (count[1:] == count[:-1])
    if equal.any():
        # Should the first of equals be refused, so are the others, by the same frame.
        found[rows[kept[1:][equal]]] = ReplayVerdict.DUPLICATE
        kept = kept[np.concatenate((np.ones(1, np.bool_), ~equal))]
        hi, lo, sequence, count = (column[kept] for column in columns)
        same_boot = (hi[1:] == hi[:-1]) & (lo[1:] == lo[:-1])
    touching = same_boot & (sequence[1:] < sequence[:-1] + count[:-1])
    if touching.any():
        suspects = set(zip(hi[1:][touching].tolist(), lo[1:][touching].tolist(), strict=True))
        arrived = np.sort(kept)
        one_by_one = [
            r for r, b in zip(rows[arrived].tolist(), _boots_in(asked[rows[arrived]]), strict=True) if b in suspects
        ]
        _one_by_one(asked, one_by_one, found)
    return found


def _boots_in(claims: Claims) -> list[tuple[int, int]]:
    return list(zip(claims["hi"].tolist(), claims["lo"].tolist(), strict=True))


def _one_by_one(asked: Claims, rows: list[int], found: Verdicts) -> None:
    taken: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row, boot in zip(rows, _boots_in(asked[rows]), strict=True):  # in the order of arrival
        runs = taken.setdefault(boot, [])
        start, end = int(asked["sequence"][row]), int(asked["sequence"][row] + asked["count"][row])
        at = bisect_right(runs, (start, end))
        if (at and runs[at - 1][1] > start) or (at < len(runs) and runs[at][0] < end):
            found[row] = ReplayVerdict.DUPLICATE
        else:
            runs.insert(at, (start, end))


def _merged(runs: Runs, taken: Claims) -> Runs:
    """Runs and frames that touch none of them, joined where they meet, cut to the window."""
    more = np.zeros(taken.size, _RUN)
    for name in ("hi", "lo", "publisher"):
        more[name] = taken[name]
    more["start"], more["end"] = taken["sequence"], taken["sequence"] + taken["count"]
    both = np.concatenate((runs, more))
    both = both[np.lexsort((both["start"], both["lo"], both["hi"]))]
    new_boot = np.ones(both.size, np.bool_)
    new_boot[1:] = (both["hi"][1:] != both["hi"][:-1]) | (both["lo"][1:] != both["lo"][:-1])
    begins = new_boot.copy()
    begins[1:] |= both["start"][1:] > both["end"][:-1]
    first = np.flatnonzero(begins)
    joined = both[first]
    joined["end"] = both["end"][np.append(first[1:], both.size) - 1]
    return _cut(joined, np.flatnonzero(new_boot[first]), np.maximum.reduceat(both["floor"], np.flatnonzero(new_boot)))


def _cut(runs: Runs, boots: Ints, floors: Ints) -> Runs:
    """To the window of each boot: `boots` says where the runs of each begin."""
    ends = np.append(boots[1:], runs.size)
    newest = runs["end"][ends - 1]
    lowest_kept = np.maximum(boots, ends - MAX_RUNS)
    floors = np.maximum(floors, newest - WINDOW_EVENTS)
    floors = np.where(ends - boots > MAX_RUNS, np.maximum(floors, runs["start"][lowest_kept]), floors)
    runs["floor"] = np.repeat(floors, ends - boots)
    runs["start"] = np.minimum(np.maximum(runs["start"], runs["floor"]), runs["end"])
    return runs[runs["end"] > runs["floor"]]
