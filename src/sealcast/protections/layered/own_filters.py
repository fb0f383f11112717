"""A subscriber's own filters on a `layered` topic, and what its brokers were told of them.

REALM/wallets/NAME/interests/<topic's id>/told       which trees were told of which numbers, and what is under way
REALM/wallets/NAME/interests/<topic's id>/past/      filters that are over
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt
from sealcast.log import noted
from sealcast.protections.layered import told
from sealcast.protections.layered.told import Told
from sealcast.protections.own_filters import OwnFilters

_TOLD: Final = "told"
_PAST: Final = "past"
#: Filters that are over, and kept.
MAX_PAST: Final = 1_024
_MAX_TOLD_BYTES: Final = 64 << 20


class ToldFilters(OwnFilters):
    """The files of one entity and topic. Whoever changes something holds `locked`."""

    def __init__(self, wallets: Path, entity: str, topic_id: bytes) -> None:
        super().__init__(wallets, entity, topic_id)
        #: Filters that are over. What was delivered for them may not be read yet, and only they tell what it is.
        self.past = OwnFilters(wallets, entity, topic_id, part=_PAST)

    def end(self, number: int) -> None:
        """A filter is over: it is among the past ones from now on, as many of which are kept as there is room for."""
        self.move(number, self.past)
        for oldest in self.past.numbers()[:-MAX_PAST]:
            self.past.forget(oldest)

    def told(self) -> Told:
        path = self.directory / _TOLD
        try:
            raw = path.read_bytes()[: _MAX_TOLD_BYTES + 1]
        except FileNotFoundError:
            # Numbers of filters that are there are not given again, whatever became of the other file.
            return Told(filters=max((*self.numbers(), *self.past.numbers()), default=0))
        try:
            return told.from_json(noted.decode(raw))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise Corrupt(
                f"{path} is not as it was written",
                hint="restore it from a copy; or remove it, and every filter is sent again",
            ) from None

    def save(self, now: Told) -> None:
        noted.write(self.directory / _TOLD, told.to_json(now))
