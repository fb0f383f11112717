"""How other peers behave: broken rules are counted and end in a cut, and nobody may ask without end."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from sealcast.overlay.peers.port import PeerId, PeerSettings

#: Peers that are remembered; who was quiet for longest is forgotten first, but not while it is cut off.
MAX_PEERS: Final = 16_384


@dataclass(slots=True)
class _Record:
    strikes: int = 0
    until: float = 0.0
    window: float = float("-inf")
    asked: int = 0
    started: int = 0


class Conduct:
    """What is remembered of each peer that did something worth remembering."""

    def __init__(self, settings: PeerSettings) -> None:
        self._settings = settings
        self._records: OrderedDict[PeerId, _Record] = OrderedDict()

    def banned(self, peer: PeerId, now: float) -> bool:
        record = self._records.get(peer)
        return record is not None and now < record.until

    def out(self, now: float) -> frozenset[PeerId]:
        """Those who are cut off now."""
        return frozenset(peer for peer, record in self._records.items() if now < record.until)

    def strike(self, peer: PeerId, now: float) -> float | None:
        """Counts a broken rule. The time until which the peer is cut off, if this was one too many."""
        record = self._of(peer, now)
        record.strikes += 1
        if record.strikes < self._settings.strikes:
            return None
        record.strikes = 0
        record.until = now + self._settings.ban_seconds
        return record.until

    def may_search(self, sender: PeerId, origin: PeerId, now: float) -> bool:
        """Whether `sender` may bring a search that `origin` started, in this window; counts both."""
        brings, starts = self._windowed(sender, now), self._windowed(origin, now)
        brings.asked += 1
        starts.started += 1
        limit = self._settings
        return brings.asked <= limit.searches_per_window and starts.started <= limit.own_searches_per_window

    def _windowed(self, peer: PeerId, now: float) -> _Record:
        record = self._of(peer, now)
        if now >= record.window + self._settings.window_seconds:
            record.window, record.asked, record.started = now, 0, 0
        return record

    def _of(self, peer: PeerId, now: float) -> _Record:
        record = self._records.get(peer)
        if record is None:
            if len(self._records) >= MAX_PEERS:
                # Bans are given to enrolled names only, and end: one of the first is free in all but absurd cases.
                idle = next((name for name, each in self._records.items() if each.until <= now), None)
                self._records.pop(idle if idle is not None else next(iter(self._records)))
            record = self._records[peer] = _Record()
        self._records.move_to_end(peer)
        return record
