"""Row `membership` of `sealcast bench groupkeys`: what it costs the others when a subscriber leaves, or one comes.

No message is sent because somebody leaves or joins: a key belongs to a set of members, and a group with other members
has another key. What it costs is that groups with the leaver are new ones from then on, and so are those with the
newcomer: encryptions beyond what the same events cost where nobody left or came.

    membership    N = 1,000, the popular set, warm: encryptions that one leave causes over the next 20,000 events;
                  ratio = ours over the paper's best there, the simple cache by frequency; joining is told beside it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from sealcast.bench.report import BenchRow
from sealcast.filters.bits import Words, words_for
from sealcast.groupkeys.catalog import entry_bytes
from sealcast.groupkeys.interface import Algorithm
from sealcast.groupkeys.mosaic.planner import Mosaic
from sealcast.groupkeys.simple import Simple
from sealcast.lab import groups as workloads

SUBSCRIBERS: Final = 1_000
CACHE: Final = 10_000
WARM: Final = 40_000
COUNTED: Final = 20_000
SEED: Final = 1
#: Who leaves; a newcomer gets what this one gets.
WHO: Final = 500
_ONE: Final = np.uint64(1)


def rows() -> Iterator[BenchRow]:
    # One slot more than subscribers so far: the newcomer's.
    events = np.zeros((WARM + COUNTED, words_for(SUBSCRIBERS + 1)), np.uint64)
    made = workloads.popular_groups(WARM + COUNTED, SUBSCRIBERS, SEED)
    events[:, : made.shape[1]] = made
    ours = _costs(lambda: Mosaic(SUBSCRIBERS, CACHE * entry_bytes(SUBSCRIBERS), seed=SEED), events)
    theirs = _costs(lambda: Simple(SUBSCRIBERS, CACHE, "frequency"), events)
    told = f"simple, frequency (a new one like it: ours {ours[1]:,.0f}, theirs {theirs[1]:,.0f})"
    yield BenchRow("membership", ours[0], theirs[0], told, ours[0] / theirs[0], "encryptions per leave")


def _costs(make: Callable[[], Algorithm], events: Words) -> tuple[float, float]:
    """Counts the encryptions that one leave causes, and one join."""
    before = _counted(make(), events, lambda later: later)
    return _counted(make(), events, _left) - before, _counted(make(), events, _joined) - before


def _counted(algorithm: Algorithm, events: Words, change: Callable[[Words], Words]) -> float:
    algorithm.count(events[:WARM])
    return float(algorithm.count(change(events[WARM:])).sum())


def _left(events: Words) -> Words:
    later = events.copy()
    later[:, WHO // 64] &= ~(_ONE << np.uint64(WHO % 64))
    return later


def _joined(events: Words) -> Words:
    later = events.copy()
    alike = events[:, WHO // 64] >> np.uint64(WHO % 64) & _ONE
    later[:, SUBSCRIBERS // 64] |= alike << np.uint64(SUBSCRIBERS % 64)
    return later
