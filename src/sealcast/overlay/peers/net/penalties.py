"""Who is kept out for a while, for what it sent."""

from __future__ import annotations

import time
from collections import OrderedDict

from sealcast.overlay.peers.net.limits import LinkLimits


class Penalties:
    """Who is kept out for a while: twice as long each time, and forgiven after being good for as long again."""

    def __init__(self, limits: LinkLimits) -> None:
        self._limits = limits
        #: How often, and until when, the least recent first.
        self._known: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def add(self, peer: str) -> None:
        times, until = self._known.get(peer, (0, 0.0))
        if time.monotonic() > until + self._limits.penalty_most_s:
            times = 0
        length = min(self._limits.penalty_s * 2 ** min(times, 30), self._limits.penalty_most_s)
        self._known[peer] = times + 1, time.monotonic() + length
        self._known.move_to_end(peer)
        while len(self._known) > self._limits.penalties:
            self._known.popitem(last=False)

    def out(self, peer: str) -> bool:
        return time.monotonic() < self._known.get(peer, (0, 0.0))[1]
