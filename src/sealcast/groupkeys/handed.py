"""Who has been handed what: known for sure once it was delivered, and before that within one plan only.

A plan is made by a task, and tasks fail, are run again elsewhere, and finish in any order. What a plan hands out may be
relied on by that very plan, whose events travel in the same delivery; by any other, only when its delivery is
committed. So each plan has a tag, and `settle` says what became of it. What is never settled is handed out again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

#: The tag of a plan whose delivery is certain: in the lab, where there is none.
DELIVERED: Final = 0
#: Tags are small: so many plans may wait for their deliveries at once.
MAX_TAG: Final = 254


class Handed:
    """Names of keys that their members hold, each with the tag of the plan that handed it out."""

    def __init__(self) -> None:
        self._tags: dict[Hashable, int] = {}
        self._open: dict[int, set[Hashable]] = {}

    def holds(self, name: Hashable, tag: int) -> bool:
        """May a plan of this tag rely on the members' having it?"""
        since = self._tags.get(name)
        return since is not None and since in (DELIVERED, tag)

    def add(self, names: Iterable[Hashable], tag: int) -> None:
        for name in names:
            if self._tags.get(name) != DELIVERED:
                self._tags[name] = tag
                if tag != DELIVERED:
                    self._open.setdefault(tag, set()).add(name)

    def forget(self, names: Iterable[Hashable]) -> None:
        for name in names:
            self._tags.pop(name, None)

    def settle(self, tag: int, delivered: bool) -> None:
        """What became of a plan. Names that a later plan handed out as well are that plan's."""
        for name in self._open.pop(tag, ()):
            if self._tags.get(name) == tag:
                if delivered:
                    self._tags[name] = DELIVERED
                else:
                    del self._tags[name]
