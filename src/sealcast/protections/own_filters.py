"""A subscriber's own filters, on topics whose brokers cannot read. They are nobody else's business, and nobody else has
them.

    REALM/wallets/NAME/interests/<topic's id>/N.key      filter number N, sealed as private keys are

What leaves this directory is encrypted labels. So the files are all there is of a filter's text: lost, it can be
written again; read by somebody else, it would have been for nothing that brokers are blind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, FilterRejected, Misuse, NotFound
from sealcast.log import files
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import FIRST_EPOCH
from sealcast.trust.vault import keyfile

KIND: Final = "sealcast interest"
#: Of one entity on one topic.
MAX_FILTERS: Final = 10_000
#: Of a filter with its id, as JSON: sealed, it is still far below what a key file may have.
MAX_BODY_BYTES: Final = 24_576


@dataclass(frozen=True, slots=True)
class OwnFilter:
    """One filter, as its owner wrote it."""

    number: int
    id: str
    text: str


class OwnFilters:
    """The files of one entity and topic. Whoever changes something holds `locked`."""

    def __init__(self, wallets: Path, entity: str, topic_id: bytes, part: str = "") -> None:
        self.directory = wallets / entity / "interests" / topic_id.hex() / part
        self._entity = entity
        self._topic_id = topic_id
        #: Files are written once: what was opened need not be opened again.
        self._known: dict[int, OwnFilter] = {}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Two processes of one subscriber take turns."""
        files.make_directory(self.directory)
        with files.locked(self.directory / ".lock"):
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
        made = OwnFilter(number, id, text)
        keep_together({self: [made]})
        return made

    def _body(self, id: str, text: str) -> dict[str, str]:
        return {"entity": self._entity, "topic": self._topic_id.hex(), "id": id, "filter": text}

    def forget(self, number: int) -> None:
        self._path(number).unlink(missing_ok=True)
        files.sync_directory(self.directory)

    def move(self, number: int, to: OwnFilters) -> None:
        """Keeps a filter among others from now on."""
        files.make_directory(to.directory)
        with files.named(self._path(number), "moving"):
            self._path(number).replace(to._path(number))
        files.sync_directory(to.directory)
        files.sync_directory(self.directory)

    def _path(self, number: int) -> Path:
        return self.directory / f"{number}.key"

    def _read(self, number: int) -> OwnFilter:
        path = self._path(number)
        body = keyfile.read(path, KIND, NotFound(f"{path} is gone"))
        match body:
            case {"entity": str(entity), "topic": str(topic), "id": str(id), "filter": str(text)}:
                if (entity, topic) != (self._entity, self._topic_id.hex()):
                    raise Misuse(f"{path} holds a filter of {entity!r}, or of another topic")
                return OwnFilter(number, id, text)
        raise Corrupt(f"{path} does not hold a filter", hint="restore it from a copy, or remove it")

    def numbers(self) -> list[int]:
        """Returns the numbers of all filters without opening one."""
        return sorted(int(path.stem) for path in self.directory.glob("*.key") if path.stem.isdigit())


def keep_together(filters: Mapping[OwnFilters, Iterable[OwnFilter]]) -> None:
    """Writes new filters of many down, for much less than one by one. Whoever does holds the lock of each."""
    keyfile.write_many(
        KIND, {own._path(each.number): own._body(each.id, each.text) for own, new in filters.items() for each in new}
    )


def registered_id(own: str, epoch: int) -> str:
    """How a filter that stays with its subscriber is called in the registry, where that has a sealed one for each
    epoch."""
    return f"{own}.e{epoch}"


def given_before(state: RealmState, id: str) -> bool:
    """Whether an id was ever given in the registry, also in an epoch of a topic."""
    epochs = range(FIRST_EPOCH, max((each.topic.epoch for each in state.topics.values()), default=0) + 1)
    every = (id, *(registered_id(id, epoch) for epoch in epochs))
    return any(each in state.subscription_topics for each in every)


def unregistered_ids(wallets: Path, state: RealmState, entity: str) -> set[str]:
    """The ids of an entity's own filters that the registry does not know of: those on topics with an overlay."""
    topics = (found.topic for found in state.topics.values() if found.topic.protection.overlay)
    return {each.id for about in topics for each in OwnFilters(wallets, entity, about.id).all().values()}


def keepers(wallets: Path, topic_id: bytes) -> list[str]:
    """The entities that keep filters on a topic here."""
    names = [path.name for path in sorted(wallets.iterdir())] if wallets.is_dir() else []
    return [name for name in names if (wallets / name / "interests" / topic_id.hex()).is_dir()]
