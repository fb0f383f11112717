"""When a broker looked at its log, by its own clock, and how far the log went then.

What a look does not find came after it, whatever its appender says. So a broker that runs knows of every frame, to
within one look, when it came; one that was down knows that it came while nobody looked. What a batch makes of it is
pinned in its offset (`log.offsets.Arrival`), so that it is decided the same when it is run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

#: Looks at a log that goes on faster than batches take it. With more, the later ones are not remembered: frames that
#: they did not find are known to have come after the last one that is.
MAX_LOOKS: Final = 1_024


class Looks:
    """Looks at one log, since this process runs. Time never goes back."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, Sequence[int]]] = []

    def saw(self, ends: Sequence[int], now_us: int) -> None:
        """The log's partitions ended there; `now_us` was read before that was looked at."""
        if self._kept:
            last_us, last = self._kept[-1]
            now_us = max(now_us, last_us)
            if last == ends:
                self._kept.pop()
        if len(self._kept) < MAX_LOOKS:
            self._kept.append((now_us, ends))

    def last_before(self, ends: Sequence[int]) -> int:
        """The time of the last look that found nothing beyond `ends`; 0 if there was none."""
        found = (now_us for now_us, seen in reversed(self._kept) if _within(seen, ends))
        return next(found, 0)

    def forget(self, ends: Sequence[int]) -> None:
        """Batches begin at `ends` or later from now on."""
        since = self.last_before(ends)
        self._kept = [look for look in self._kept if look[0] >= since]


def _within(seen: Sequence[int], ends: Sequence[int]) -> bool:
    return all(end <= taken for end, taken in zip_longest(seen, ends, fillvalue=0))
