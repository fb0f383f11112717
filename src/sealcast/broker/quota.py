"""How much one publisher may publish: token buckets in events and bytes, by when frames came, for a batch at once.

A bucket is one number, the time at which it will be full again: `full`. A frame that costs c takes the bucket to
max(full, now) + c, and is refused when that is more than a burst ahead of now; what is refused costs nothing. Costs are
whole nanoseconds, so every machine decides the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Misuse

ACCOUNT: Final = np.dtype([("publisher", "<u8"), ("events", "<i8"), ("bytes", "<i8")])
NONE: Final = np.empty(0, ACCOUNT)
_SECOND_NS: Final = 1_000_000_000
#: Events or bytes a second: costs are whole nanoseconds.
MAX_RATE: Final = _SECOND_NS

Accounts = NDArray[np.void]
Ints = NDArray[np.int64]
Names = NDArray[np.uint64]
#: 0 passes, 1 too many events, 2 too many bytes.
Over = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Quota:
    """What each publisher of a topic may use (`KeyParameters`)."""

    events_per_second: int
    bytes_per_second: int
    #: As much at once as in so many seconds.
    burst_seconds: int

    def __post_init__(self) -> None:
        for name in ("events_per_second", "bytes_per_second"):
            if not 0 < getattr(self, name) <= MAX_RATE:
                raise Misuse(f"{name} is 1 to {MAX_RATE}, not {getattr(self, name)}")
        if not 0 < self.burst_seconds <= 86_400:
            raise Misuse(f"burst_seconds is 1 to 86400, not {self.burst_seconds}")

    @property
    def event_ns(self) -> int:
        return _SECOND_NS // self.events_per_second

    @property
    def byte_ns(self) -> int:
        return _SECOND_NS // self.bytes_per_second

    @property
    def burst_ns(self) -> int:
        return self.burst_seconds * _SECOND_NS


def charge(
    accounts: Accounts, publisher: Names, time_us: Ints, count: Ints, size: Ints, quota: Quota
) -> tuple[Accounts, Over]:
    """Frames in the order of arrival: the accounts afterwards, and which frames were too much."""
    over = np.zeros(publisher.size, np.int64)
    if not publisher.size:
        return accounts, over
    spent = _Spent(accounts, publisher, time_us, count * quota.event_ns, size * quota.byte_ns)
    late = ~(spent.most("events") <= quota.burst_ns) | ~(spent.most("bytes") <= quota.burst_ns)
    for group in np.flatnonzero(late).tolist():
        rows = spent.rows(group)
        state = spent.before[group]
        full = [int(state["events"]), int(state["bytes"])]
        for row in rows.tolist():
            over[row] = _one(full, int(time_us[row]) * 1000, _cost(row, count, size, quota), quota.burst_ns)
        spent.after[group] = (state["publisher"], *full)
    return spent.accounts(), over


def pay(accounts: Accounts, publisher: Names, time_us: Ints, count: Ints, size: Ints, quota: Quota) -> Accounts:
    """The accounts after frames that are known to have passed."""
    if not publisher.size:
        return accounts
    return _Spent(accounts, publisher, time_us, count * quota.event_ns, size * quota.byte_ns).accounts()


def _cost(row: int, count: Ints, size: Ints, quota: Quota) -> tuple[int, int]:
    return int(count[row]) * quota.event_ns, int(size[row]) * quota.byte_ns


def _one(full: list[int], now: int, cost: tuple[int, int], burst: int) -> int:
    after = [max(level, now) + more for level, more in zip(full, cost, strict=True)]
    for kind, level in enumerate(after, 1):
        if level - now > burst:
            return kind
    full[:] = after
    return 0


class _Spent:
    """All frames of a batch charged at once, as if none were too much."""

    def __init__(self, accounts: Accounts, publisher: Names, time_us: Ints, events: Ints, size: Ints) -> None:
        self._order = np.argsort(publisher, kind="stable")
        names = publisher[self._order]
        self._starts = np.flatnonzero(np.concatenate((np.ones(1, np.bool_), names[1:] != names[:-1])))
        self._others = accounts[~np.isin(accounts["publisher"], names[self._starts])]
        self._now = time_us[self._order] * 1000
        self.before = self._known(accounts, names[self._starts])
        self.after = self.before.copy()
        self._most: dict[str, Ints] = {}
        for name, cost in (("events", events[self._order]), ("bytes", size[self._order])):
            self._spend(name, cost)

    def _known(self, accounts: Accounts, names: Names) -> Accounts:
        known = np.zeros(names.size, ACCOUNT)
        known["publisher"] = names
        at = np.searchsorted(accounts["publisher"], names)
        at = np.minimum(at, max(0, accounts.size - 1))
        if accounts.size:
            found = accounts["publisher"][at] == names
            known[found] = accounts[at[found]]
        return known

    def _spend(self, name: str, cost: Ints) -> None:
        total = np.add.reduceat(cost, self._starts)
        sizes = np.diff(np.append(self._starts, cost.size))
        spent = np.cumsum(cost) - np.repeat((np.cumsum(cost) - cost)[self._starts], sizes)
        # Full again when everything from some frame on has drained since that frame came, or since the last batch.
        drained = np.maximum.reduceat(self._now + np.repeat(total, sizes) - spent + cost, self._starts)
        full = self.before[name]
        self.after[name] = np.maximum(drained, full + total)
        self._most[name] = np.maximum(full - self._now[self._starts], 0) + total

    def most(self, name: str) -> Ints:
        """No frame of the publisher took its bucket further than this ahead of now."""
        return self._most[name]

    def rows(self, group: int) -> Ints:
        bounds = np.append(self._starts, self._order.size)
        return self._order[bounds[group] : bounds[group + 1]]

    def accounts(self) -> Accounts:
        both = np.concatenate((self._others, self.after))
        return both[np.argsort(both["publisher"], kind="stable")]
