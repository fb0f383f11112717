"""Equivocations: pairs of headers that one publisher signed for the same numbers. Beside the ledger, and as durable.

    TOPIC/equivocations     notes: both signed headers and where they stood, and how far the ledger was looked through

A number of a boot is given once. Two headers that share one are a proof that their signer lied to somebody: each
verifies alone, under the publisher's key, long after the frames themselves were removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from sealcast.errors import Corrupt
from sealcast.log.annals import Annals
from sealcast.primitives.secrets import Secret

FORMAT: Final = 1
_CONTEXT: Final = b"sealcast equivocation 1"
#: Pairs that are kept of one boot, and in all: one proves it, and nobody fills a disk with proofs.
MAX_KEPT_EACH: Final = 4
MAX_KEPT: Final = 1_000


class SignedPlace(NamedTuple):
    """A signed header, and the frame that it came with."""

    partition: int
    offset: int
    #: The COSE_Sign1, byte for byte.
    signed: bytes


@dataclass(frozen=True, slots=True)
class Equivocation:
    """Two headers of one publisher and boot that have sequence numbers in common."""

    publisher: str
    boot: bytes
    #: The first number that both have.
    sequence: int
    #: The one that was there first, and the one that was refused.
    first: SignedPlace
    second: SignedPlace

    def to_note(self) -> dict[str, Any]:
        pair = [list(self.first), list(self.second)]
        return {"publisher": self.publisher, "boot": self.boot, "sequence": self.sequence, "pair": pair}

    @classmethod
    def from_note(cls, body: dict[str, Any]) -> Equivocation:
        match body:
            case {
                "publisher": str(publisher),
                "boot": bytes(boot),
                "sequence": int(sequence),
                "pair": [[int(p1), int(o1), bytes(s1)], [int(p2), int(o2), bytes(s2)]],
            }:
                return cls(publisher, boot, sequence, SignedPlace(p1, o1, s1), SignedPlace(p2, o2, s2))
            case _:
                raise Corrupt("a note on an equivocation is not one this release wrote")


class Equivocations:
    """Those of one topic at one broker."""

    def __init__(self, topic: Path, key: Secret | None = None) -> None:
        self._annals = Annals(topic / "equivocations", _CONTEXT, key)

    def all(self) -> Iterator[Equivocation]:
        for body in self._notes():
            yield from map(Equivocation.from_note, body["pairs"])

    def through(self) -> int:
        """How many records of the ledger were looked through."""
        return max((int(body["through"]) for body in self._notes()), default=0)

    def add(self, found: Sequence[Equivocation], through: int) -> None:
        """Keeps what was found in the ledger's records before `through`, as far as there is room for it."""
        kept = list(self.all())
        each, room, new = Counter(known.boot for known in kept), MAX_KEPT - len(kept), list[Equivocation]()
        for pair in found:
            each[pair.boot] += 1
            if each[pair.boot] <= MAX_KEPT_EACH and len(new) < room and pair not in kept:
                new.append(pair)
        self._annals.append([{"v": FORMAT, "through": through, "pairs": [pair.to_note() for pair in new]}])

    def close(self) -> None:
        self._annals.close()

    def _notes(self) -> Iterator[dict[str, Any]]:
        for note in self._annals.read():
            match note.body:
                case {"v": int(version), "through": int(), "pairs": list()} if version == FORMAT:
                    yield note.body
                case _:
                    raise Corrupt("a note on equivocations is not one this release wrote")
