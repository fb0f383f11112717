"""Which events a client had already: MQTT delivers at least once, so a client drops what comes again.

Publishers number their events, and numbers begin anew with each of their boots. So a client keeps one window per
publisher and boot: the highest number that it saw, and which ones below that. What is older than the window counts as
seen: events of a publisher arrive in its order, and one that is this late is a repetition. The memory is bounded by the
number of boots that are remembered, not by events.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

#: How far behind the newest event of a publisher another one is still recognised as new.
WINDOW: Final = 4_096
#: Boots remembered. The one that was not heard of for longest is forgotten first.
MAX_BOOTS: Final = 16_384


class SeenEvents:
    """The events that one client had on one topic."""

    def __init__(self, window: int = WINDOW, boots: int = MAX_BOOTS) -> None:
        self._mask = (1 << window) - 1
        self._window, self._most = window, boots
        #: Of each publisher and boot: the highest number, and a bit for each that was seen; bit 0 is the highest.
        self._had: OrderedDict[tuple[str, bytes], tuple[int, int]] = OrderedDict()

    def add(self, publisher: str, boot: bytes, sequence: int) -> bool:
        """Whether this event is new; from now on it is not."""
        highest, bits = self._had.get((publisher, boot), (-1, 0))
        behind = highest - sequence
        if behind >= self._window or (behind >= 0 and bits >> behind & 1):
            return False
        if behind >= 0:
            bits |= 1 << behind
        else:
            highest, bits = sequence, (bits << min(-behind, self._window) | 1) & self._mask
        self._had[publisher, boot] = highest, bits
        self._had.move_to_end((publisher, boot))
        while len(self._had) > self._most:
            self._had.popitem(last=False)
        return True

    def __len__(self) -> int:
        """Boots that are remembered."""
        return len(self._had)
