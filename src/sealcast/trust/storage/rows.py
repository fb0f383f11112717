"""What a registry asks of its tables, inside somebody's transaction.

The statements stand here once. Two kinds of connections carry them out: SQLAlchemy's, on either database (`store`), and
Python's own to a file that is only read (`reading`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

#: Rows that are fetched at once: memory is bounded, and no reader keeps a transaction open while it works.
AT_ONCE: Final = 20_000

_CHANGE: Final = "version, at_us, kind, body, chain, signed"
_NEWEST: Final = "SELECT coalesce(max(version), 0) FROM changes"
_BETWEEN: Final = (
    f"SELECT {_CHANGE} FROM changes WHERE version > :known AND version <= :last ORDER BY version LIMIT {AT_ONCE}"
)
_SIGNED_FROM: Final = "SELECT version FROM changes WHERE version >= :first AND signed != '' ORDER BY version LIMIT 1"
_CHAIN_AT: Final = "SELECT chain FROM changes WHERE version = :version"
_ADD: Final = f"INSERT INTO changes ({_CHANGE}) VALUES (:version, :at_us, :kind, :body, :chain, :signed)"
_OWNER: Final = "SELECT one, id, chain FROM realm"
_CLAIM: Final = "INSERT INTO realm (one, id, chain) VALUES (:one, :id, :chain)"


class ChangeRow(NamedTuple):
    """A row of `changes`."""

    version: int
    at_us: int
    kind: str
    body: str
    chain: bytes
    #: The signatures on the transaction that ends here; empty inside of one.
    signed: str = ""


class Owner(NamedTuple):
    """The row of `realm`."""

    one: int
    #: A damaged row has anything here: SQLite gives what it finds.
    id: bytes | None
    chain: bytes


class Rows(ABC):
    """The rows, as one transaction sees them."""

    @abstractmethod
    def _found(self, statement: str, values: Mapping[str, object]) -> Sequence[Any]:
        """What a statement finds, a sequence of columns each."""

    @abstractmethod
    def _done(self, statement: str, values: Sequence[Mapping[str, object]]) -> None:
        """Carries a statement out with each of these values."""

    def newest(self) -> int:
        """The version of the last change, 0 if there is none."""
        ((newest,),) = self._found(_NEWEST, {})
        return int(newest)

    def between(self, known: int, last: int) -> Sequence[ChangeRow]:
        """Changes after version `known` up to `last`, in order; no more than AT_ONCE of them."""
        return list(map(ChangeRow._make, self._found(_BETWEEN, {"known": known, "last": last})))

    def signed_from(self, version: int) -> int | None:
        """The end of the transaction that a version is in; None if it is signed by nobody."""
        return next((int(end) for (end,) in self._found(_SIGNED_FROM, {"first": version})), None)

    def chain_at(self, version: int) -> bytes | None:
        """The chain at a version; None if there is no such change."""
        return next((chain for (chain,) in self._found(_CHAIN_AT, {"version": version})), None)

    def add(self, rows: Sequence[ChangeRow]) -> None:
        if rows:
            self._done(_ADD, [row._asdict() for row in rows])

    def owner(self) -> Owner | None:
        return next(map(Owner._make, self._found(_OWNER, {})), None)

    def claim(self, id: bytes, chain: bytes) -> None:
        self._done(_CLAIM, [Owner(1, id, chain)._asdict()])
