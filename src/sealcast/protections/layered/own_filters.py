"""A subscriber's own filters on a `layered` topic. They are nobody else's business, and nobody else has them.

    REALM/wallets/NAME/interests/<topic's id>/N.key      filter number N, sealed as private keys are
    REALM/wallets/NAME/interests/<topic's id>/told       which trees were told of which numbers, and what is under way

What leaves this directory is encrypted labels (`interests`). So the files are all there is of a filter's text: lost, it
can be written again; read by somebody else, it would have been for nothing that brokers are blind.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, FilterRejected, Misuse, NotFound
from sealcast.log import files
from sealcast.protections.layered import told
from sealcast.protections.layered.told import Told
from sealcast.trust.vault import keyfile

KIND: Final = "sealcast interest"
#: Of one entity on one topic.
MAX_FILTERS: Final = 10_000
#: Of a filter with its id, as JSON: sealed, it is still far below what a key file may have.
MAX_BODY_BYTES: Final = 24_576
_TOLD: Final = "told"
_MAX_TOLD_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class OwnFilter:
    """One filter, as its owner wrote it."""

    number: int
    id: str
    text: str


class OwnFilters:
    """The files of one entity and topic. Whoever changes something holds `locked`."""

    def __init__(self, wallets: Path, entity: str, topic_id: bytes) -> None:
        self._directory = wallets / entity / "interests" / topic_id.hex()
        self._entity = entity
        self._topic_id = topic_id
        #: Files are written once: what was opened need not be opened again.
        self._known: dict[int, OwnFilter] = {}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Two processes of one subscriber take turns."""
        files.make_directory(self._directory)
        with files.locked(self._directory / ".lock"):
            yield

    # --- filters --------------------------------------------------------------------------------------

    def all(self) -> dict[int, OwnFilter]:
        """By number, the oldest first; those too that are ending."""
        self._known = {number: self._known.get(number) or self._read(number) for number in self.numbers()}
        return dict(self._known)

    def check(self, id: str, text: str) -> None:
        """FilterRejected for what is too long to be kept."""
        if len(json.dumps(self._body(id, text))) > MAX_BODY_BYTES:
            raise FilterRejected("limit", f"a filter to be kept has at most {MAX_BODY_BYTES} bytes, its id included")

    def keep(self, number: int, id: str, text: str) -> OwnFilter:
        self.check(id, text)
        keyfile.write(self._path(number), KIND, self._body(id, text))
        return OwnFilter(number, id, text)

    def _body(self, id: str, text: str) -> dict[str, str]:
        return {"entity": self._entity, "topic": self._topic_id.hex(), "id": id, "filter": text}

    def forget(self, number: int) -> None:
        self._path(number).unlink(missing_ok=True)
        files.sync_directory(self._directory)

    def _path(self, number: int) -> Path:
        return self._directory / f"{number}.key"

    def _read(self, number: int) -> OwnFilter:
        path = self._path(number)
        body = keyfile.read(path, KIND, NotFound(f"{path} is gone"))
        match body:
            case {"entity": str(entity), "topic": str(topic), "id": str(id), "filter": str(text)}:
                if (entity, topic) != (self._entity, self._topic_id.hex()):
                    raise Misuse(f"{path} holds a filter of {entity!r}, or of another topic")
                return OwnFilter(number, id, text)
        raise Corrupt(f"{path} does not hold a filter", hint="restore it from a copy, or remove it")

    # --- what was told --------------------------------------------------------------------------------

    def told(self) -> Told:
        path = self._directory / _TOLD
        try:
            raw = path.read_bytes()[: _MAX_TOLD_BYTES + 1]
        except FileNotFoundError:
            # Numbers of filters that are there are not given again, whatever became of the other file.
            return Told(filters=max(self.numbers(), default=0))
        try:
            body = json.loads(raw)
            if body.pop("check") != _check(body):
                raise ValueError(path)
            return told.from_json(body)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise Corrupt(
                f"{path} is not as it was written",
                hint="restore it from a copy; or remove it, and every filter is sent again",
            ) from None

    def save(self, now: Told) -> None:
        body = told.to_json(now)
        files.replace_file(self._directory / _TOLD, json.dumps({**body, "check": _check(body)}).encode())

    def numbers(self) -> list[int]:
        """Of all filters, without opening one."""
        return sorted(int(path.stem) for path in self._directory.glob("*.key") if path.stem.isdigit())


def _check(body: object) -> str:
    """Finds accidents, not attacks: the file is its owner's."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
