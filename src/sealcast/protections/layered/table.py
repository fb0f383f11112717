"""A broker's routing table: conjunctions of tokens it cannot read, and where they came from.

    row = conjunction of slots of tokens -> {path: how often}

Counts are of multisets: two subscriptions of one filter through one path are two, and one unsubscription leaves one
(a set would stop deliveries that somebody still wants). A row is found by the tokens of one of its slots, the one
that fewest rows share, and then checked: what an event costs grows with the rows that share its rarest tokens, not
with the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import Final

from sealcast.errors import Rejected
from sealcast.primitives.groups import Element
from sealcast.protections.layered.tree import Path

#: Rows of one table; beyond, filters are refused.
MAX_ROWS: Final = 10_000_000

Conjunction = tuple[tuple[Element, ...], ...]


@dataclass(slots=True, eq=False)
class Row:
    """One conjunction."""

    slots: Conjunction
    #: Which slot it is found by.
    found_by: int
    paths: dict[Path, int] = field(default_factory=dict)

    def hit(self, tokens: Set[Element]) -> bool:
        return all(not tokens.isdisjoint(slot) for i, slot in enumerate(self.slots) if i != self.found_by)


class RoutingTable:
    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self._rows: dict[Conjunction, Row] = {}
        self._by_token: dict[Element, dict[int, Row]] = {}
        self._max = max_rows

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> Iterator[Row]:
        yield from self._rows.values()

    def add(self, slots: Conjunction, path: Path) -> bool:
        """SECURE TABLE BUILDING, one more: whether the conjunction is new here, and has to go on upwards."""
        row = self._rows.get(slots)
        is_new = row is None
        if row is None:
            if len(self._rows) >= self._max:
                raise Rejected(f"the routing table has its {self._max} rows")
            row = self._rows[slots] = Row(slots, self._rarest(slots))
            for token in slots[row.found_by]:
                self._by_token.setdefault(token, {})[id(row)] = row
        self._count(row, path, 1)
        return is_new

    def restore(self, slots: Conjunction, found_by: int, paths: dict[Path, int]) -> Row:
        """A row as it was: for who kept the table in a file, and had it verified."""
        row = self._rows[slots] = Row(slots, found_by, paths)
        for token in slots[found_by]:
            self._by_token.setdefault(token, {})[id(row)] = row
        return row

    def remove(self, slots: Conjunction, path: Path, count: int = 1) -> bool:
        """SECURE TABLE BUILDING, one less: whether nobody wants the conjunction any more."""
        row = self._rows.get(slots)
        if row is None or row.paths.get(path, 0) < count:
            raise Rejected("there is no such subscription to end", hint="it ended before, or it never passed here")
        self._count(row, path, -count)
        if row.paths:
            return False
        del self._rows[slots]
        for token in slots[row.found_by]:
            del self._by_token[token][id(row)]
            if not self._by_token[token]:
                del self._by_token[token]
        return True

    def look_up(self, tokens: Set[Element]) -> list[Row]:
        """SECURE LOOK-UP: the rows that an event hits. Only equality is asked."""
        by_token = self._by_token
        # A row may be there for several tokens of its slot; an event has one of them, unless somebody lies.
        near = {at: row for token in tokens if token in by_token for at, row in by_token[token].items()}
        return [row for row in near.values() if row.hit(tokens)]

    def _count(self, row: Row, path: Path, by: int) -> None:
        count = row.paths.get(path, 0) + by
        if count:
            row.paths[path] = count
        else:
            del row.paths[path]

    def _rarest(self, slots: Conjunction) -> int:
        by_token = self._by_token
        return min(range(len(slots)), key=lambda i: sum(len(by_token.get(token, ())) for token in slots[i]))
