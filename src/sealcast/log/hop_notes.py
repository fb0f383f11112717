"""What a broker of an overlay notes for itself on a carrier, authenticated by its journal key (`annals`).

    upstreams    whose ledgers it takes records from, in the order of the partitions of its offsets
    posts        which number the first filter post on the carrier has, where the topic was moved there
    taken        how many of its records a broker below has taken, by its own signed word, with the tag of the last one

In a directory these are files and the numbers of a log. On a carrier anybody who runs it could exchange them, and a
broker that takes the ledgers above it for one another would lose events or hand them on twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from sealcast.errors import Corrupt
from sealcast.log import files, noted
from sealcast.log.annals import Annals
from sealcast.log.closing import Closing
from sealcast.log.journal import LogPlace
from sealcast.primitives.secrets import Secret, Unpicklable

_CONTEXT: Final = b"sealcast hop notes 1"
#: The file in a directory, and what it says.
_UPSTREAMS: Final = "upstreams"
_TAKEN: Final = "taken"


class TakenRecords(NamedTuple):
    """How far somebody has taken a ledger: this many records, the last of which has this tag."""

    records: int
    tag: bytes


def read_upstreams(root: Path) -> tuple[str, ...]:
    """As the directory of a broker's hops has it."""
    path = root / _UPSTREAMS
    try:
        raw = path.read_bytes()
        # A list is what releases wrote that kept no check.
        names = json.loads(raw) if raw.startswith(b"[") else noted.decode(raw)[_UPSTREAMS]
        return tuple(str(name) for name in names)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, KeyError):
        raise Corrupt(f"{path} is not as it was written", hint="restore it from a copy") from None


def write_upstreams(root: Path, names: Sequence[str]) -> None:
    """In a directory, durable on return."""
    files.make_directory(root)
    noted.write(root / _UPSTREAMS, {_UPSTREAMS: tuple(names)})


def read_taken(root: Path) -> dict[str, TakenRecords]:
    """As the directory of a broker's hops has it. It is a hint: what is lost of it is said again."""
    try:
        found = noted.decode((root / _TAKEN).read_bytes())[_TAKEN]
        return {str(name): TakenRecords(int(records), bytes.fromhex(tag)) for name, (records, tag) in found.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def write_taken(root: Path, taken: Mapping[str, TakenRecords]) -> None:
    """In a directory, durable on return."""
    files.make_directory(root)
    noted.write(root / _TAKEN, {_TAKEN: {name: [each.records, each.tag.hex()] for name, each in taken.items()}})


def remove_notes(root: Path) -> None:
    """A carrier has them from now on."""
    for name in (_UPSTREAMS, _TAKEN):
        (root / name).unlink(missing_ok=True)


class HopNotes(Closing, Unpicklable):
    """The notes of one broker on one topic. The newest of each kind counts."""

    def __init__(self, place: LogPlace, key: Secret) -> None:
        self._annals = Annals(place, _CONTEXT, key)
        self._read = 0
        self._upstreams: tuple[str, ...] = ()
        self._first_post = 0
        self._taken: dict[str, TakenRecords] = {}

    def upstreams(self) -> tuple[str, ...]:
        self._look()
        return self._upstreams

    def first_post(self) -> int:
        self._look()
        return self._first_post

    def taken(self) -> dict[str, TakenRecords]:
        """By broker below."""
        self._look()
        return dict(self._taken)

    def note_taken(self, broker: str, taken: TakenRecords) -> None:
        """Durable on return."""
        self._annals.append([{"taken": taken.records, "by": broker, "tag": taken.tag}])

    def note_upstreams(self, names: Sequence[str]) -> None:
        """Durable on return."""
        self._annals.append([{"upstreams": list(names)}])

    def note_first_post(self, number: int) -> None:
        """Durable on return."""
        self._annals.append([{"posts": number}])

    def _look(self) -> None:
        for note in self._annals.read(self._read):
            match note.body:
                case {"upstreams": list(names)} if all(isinstance(name, str) for name in names):
                    self._upstreams = tuple(names)
                case {"posts": int(number)}:
                    self._first_post = number
                case {"taken": int(records), "by": str(broker), "tag": bytes(tag)}:
                    self._taken[broker] = TakenRecords(records, tag)
                case _:
                    raise Corrupt(f"{self._annals.shown}: record {note.index} is no note of a broker on its hops")
            self._read = note.index + 1

    def close(self) -> None:
        self._annals.close()
