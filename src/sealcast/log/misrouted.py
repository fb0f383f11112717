"""Reports of readers that got events which they did not ask for. Beside the ledger, and as durable.

    TOPIC/misrouted     notes, one for each report: signed by its reader, kept by the broker that it was handed to

An event that none of a reader's filters is true of came there because some broker above sent it on against the rules. A
reader that says so proves nothing to others: its filters are its own secret. But several readers below one broker that
say so point at it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sealcast.errors import Corrupt
from sealcast.log.annals import Annals
from sealcast.primitives.secrets import Secret

FORMAT: Final = 1
_CONTEXT: Final = b"sealcast misrouted 1"
#: Reports that are kept of one reader, and in all: the first ones tell enough, and nobody fills a disk with them.
MAX_KEPT_EACH: Final = 16
MAX_KEPT: Final = 1_000


@dataclass(frozen=True, slots=True)
class MisroutedNote:
    """One report, as it was taken in."""

    reader: str
    #: How many events it is about, and the first of them: publisher, boot, sequence.
    count: int
    events: tuple[tuple[str, bytes, int], ...]
    at_us: int
    #: What the reader signed, and its signature.
    said: bytes
    signature: bytes

    def to_note(self) -> dict[str, Any]:
        return {
            "v": FORMAT,
            "reader": self.reader,
            "count": self.count,
            "events": [list(each) for each in self.events],
            "at": self.at_us,
            "said": self.said,
            "signature": self.signature,
        }

    @classmethod
    def from_note(cls, body: dict[str, Any]) -> MisroutedNote:
        match body:
            case {
                "v": int(version),
                "reader": str(reader),
                "count": int(count),
                "events": list(events),
                "at": int(at_us),
                "said": bytes(said),
                "signature": bytes(signature),
            } if version == FORMAT:
                return cls(
                    reader, count, tuple((str(p), bytes(b), int(n)) for p, b, n in events), at_us, said, signature
                )
            case _:
                raise Corrupt("a note on misrouted events is not one this release wrote")


class MisroutedNotes:
    """Those of one topic at one broker."""

    def __init__(self, topic: Path, key: Secret | None = None) -> None:
        self._annals = Annals(topic / "misrouted", _CONTEXT, key)

    def all(self) -> Iterator[MisroutedNote]:
        return (MisroutedNote.from_note(note.body) for note in self._annals.read())

    def add(self, note: MisroutedNote) -> bool:
        """Keeps a report, durably, if there is room for it and it is not kept already; whether it is kept."""
        known = list(self.all())
        if any(each.said == note.said for each in known):
            return True
        if len(known) >= MAX_KEPT or Counter(each.reader for each in known)[note.reader] >= MAX_KEPT_EACH:
            return False
        self._annals.append([note.to_note()])
        return True

    def close(self) -> None:
        self._annals.close()
