"""Pieces that a ledger names, verified and taken apart; the last ones are kept.

Whatever is in a piece, three things are the same: it must be there, it must be the bytes that were committed, and it
must cover what the ledger says it covers. Each piece is read and verified once for all who share a cache.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from sealcast.errors import Corrupt, FrameRejected, NotFound
from sealcast.log.entry import PieceRef
from sealcast.log.pieces import Pieces


class Covering(Protocol):
    """What every kind of piece says of itself."""

    @property
    def partition(self) -> int: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


P = TypeVar("P", bound=Covering)


class ParsedPieces(Generic[P]):
    """For any number of threads."""

    def __init__(self, pieces: Pieces, parse: Callable[[bytes], P], cache_bytes: int) -> None:
        """`parse` raises FrameRejected for what is no such piece."""
        self._pieces, self._parse, self._cache_bytes = pieces, parse, cache_bytes
        self._guard = threading.Lock()
        self._kept: OrderedDict[str, tuple[P, int]] = OrderedDict()

    def get(self, ref: PieceRef) -> P:
        with self._guard:
            found = self._kept.get(ref.name)
            if found is None:
                found = self._kept[ref.name] = self._load(ref), ref.size
                while len(self._kept) > 1 and sum(size for _, size in self._kept.values()) > self._cache_bytes:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(ref.name)
            return found[0]

    def _load(self, ref: PieceRef) -> P:
        path = self._pieces.path(ref.name)
        try:
            piece = self._parse(self._pieces.read(ref.name, ref.digest))
        except NotFound:
            raise Corrupt(f"{path} is gone; the ledger names it", hint="restore it from a copy") from None
        except FrameRejected as problem:
            raise Corrupt(f"{path} is the piece that was committed, and no piece: {problem.message}") from None
        if (piece.partition, piece.first_offset, piece.end_offset) != (ref.partition, ref.first, ref.end):
            raise Corrupt(f"{path} covers something else than the ledger says")
        return piece
