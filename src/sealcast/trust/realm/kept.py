"""A table of a state that was kept on disk and is read when somebody first asks for a row of it.

A topic with a million subscriptions has tables that most commands never look into. How many rows there are is known
without reading them.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class KeptTable(Mapping[K, V], Generic[K, V]):
    """As a dictionary. Whoever reads it first waits for all of it."""

    __slots__ = ("_read", "_rows", "_size")

    def __init__(self, size: int, read: Callable[[], dict[K, V]]) -> None:
        self._size, self._read = size, read
        self._rows: dict[K, V] | None = None

    @property
    def is_read(self) -> bool:
        return self._rows is not None

    def rows(self) -> dict[K, V]:
        """The dictionary itself, which is nobody's to write to."""
        if self._rows is None:
            self._rows = self._read()
        return self._rows

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: K) -> V:
        return self.rows()[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self.rows())

    # Mapping has these, too, a call of `__getitem__` a row.

    def __contains__(self, key: object) -> bool:
        return key in self.rows()

    def __eq__(self, other: object) -> bool:
        return self.rows() == (other.rows() if isinstance(other, KeptTable) else other)

    __hash__ = None  # type: ignore[assignment]

    def get(self, key: K, default: Any = None) -> Any:
        return self.rows().get(key, default)

    def keys(self) -> KeysView[K]:
        return self.rows().keys()

    def values(self) -> ValuesView[V]:
        return self.rows().values()

    def items(self) -> ItemsView[K, V]:
        return self.rows().items()


def copied(table: Mapping[K, V]) -> dict[K, V]:
    """A dictionary of one's own with the same rows."""
    return dict(table.rows() if isinstance(table, KeptTable) else table)
