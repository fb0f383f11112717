"""The table that the plug-in for mosquitto matches with: halves of publishers, and sealed filters re-encrypted.

A broker's halves and its registered filters go in, one file comes out, which the plug-in reads whenever it is replaced.
`mqtt-plugin/table.h` has the format; numbers are big-endian, and what the plug-in bisects is sorted here.

Who is not in the table gets nothing and publishes nothing: a revoked user is out with the next table. The file holds
halves of keys, so only its owner can read it, and the plug-in refuses it otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from sealcast.errors import Misuse
from sealcast.log.files import replace_file
from sealcast.model.names import NAME
from sealcast.primitives.groups import Element, Exponent
from sealcast.protections.searchable.scheme import check_of, re_encrypt
from sealcast.trust.realm.machine import TOPIC_ID_BYTES
from sealcast.wire.searching import TAG_BYTES, SealedFilter

MAGIC: Final = b"SCQT2"
#: What the plug-in reads at most.
MAX_TABLE_BYTES: Final = 1 << 30
#: C of sealed labels, by the half that they were re-encrypted with; None is infinity.
_Known = dict[bytes, dict[bytes, Element | None]]


class TableFilter(NamedTuple):
    """One subscription of an epoch: whose it is, the broker's half of its user's key, and the filter."""

    user: str
    half: Exponent
    filter: SealedFilter


@dataclass(frozen=True, slots=True)
class TableEpoch:
    """What a broker knows of one epoch of a topic."""

    number: int
    #: The broker's halves of those who may publish. A reader's half does its work here and stays out of the table.
    publishers: Mapping[str, Exponent]
    subscriptions: Sequence[TableFilter]


@dataclass(frozen=True, slots=True)
class TableTopic:
    """A topic, with all epochs that events may still come from, or wait in for clients that are away."""

    name: str
    #: With the epoch and a reader's name it is what that reader's labels are bound to.
    id: bytes
    #: Of an event, as its schema has it: a message with more is refused before anything is computed.
    most_trapdoors: int
    epochs: Sequence[TableEpoch]


@dataclass(frozen=True, slots=True)
class CompiledTable:
    """A table, and what is in it."""

    data: bytes
    version: int
    topics: int
    subscriptions: int
    labels: int


class Compiler:
    """Makes tables of one broker, one after the other: a label is re-encrypted when it comes in, not in every table."""

    def __init__(self) -> None:
        self._known: _Known = {}

    def compile(self, version: int, topics: Iterable[TableTopic]) -> CompiledTable:
        """The table of these topics. `version` tells people which one is in use."""
        kept: _Known = {}
        ordered = sorted(topics, key=lambda topic: topic.name)
        body = b"".join(self._topic(topic, kept) for topic in ordered)
        self._known = kept
        data = MAGIC + _u64(version) + _u32(len(ordered)) + body
        data += hashlib.sha256(data).digest()
        if len(data) > MAX_TABLE_BYTES:
            raise Misuse(
                f"the table would have {len(data)} bytes; the plug-in reads at most {MAX_TABLE_BYTES}",
                hint="give some of the topics to another MQTT broker",
            )
        subscriptions = sum(len(epoch.subscriptions) for topic in ordered for epoch in topic.epochs)
        return CompiledTable(data, version, len(ordered), subscriptions, sum(map(len, kept.values())))

    def _topic(self, topic: TableTopic, kept: _Known) -> bytes:
        names = {name for epoch in topic.epochs for name in epoch.publishers}
        names |= {row.user for epoch in topic.epochs for row in epoch.subscriptions}
        numbers = {name: number for number, name in enumerate(sorted(names))}
        epochs = sorted(topic.epochs, key=lambda epoch: epoch.number)
        return b"".join(
            [
                _name(topic.name),
                _id(topic.id),
                topic.most_trapdoors.to_bytes(2, "big"),
                _u32(len(numbers)),
                *map(_name, numbers),
                _u32(len(epochs)),
                *(self._epoch(epoch, numbers, kept) for epoch in epochs),
            ]
        )

    def _epoch(self, epoch: TableEpoch, numbers: dict[str, int], kept: _Known) -> bytes:
        halves = sorted((numbers[name], half.packed) for name, half in epoch.publishers.items())
        conjunctions: list[bytes] = []
        entries: list[tuple[bytes, int, Element, bytes]] = []
        slot_count = 0
        for user, half, sealed in epoch.subscriptions:
            if sealed.epoch != epoch.number:
                raise Misuse(f"a filter of epoch {sealed.epoch} does not belong to epoch {epoch.number}")
            points = self._points(sealed, half, kept)
            for slots in sealed.conjunctions:
                conjunctions.append(_u32(numbers[user]) + len(slots).to_bytes(1, "big"))
                for slot, labels in enumerate(slots, start=slot_count):
                    for label in labels:
                        point = points[label]
                        if point is not None:  # infinity matches nothing
                            entries.append((label[:TAG_BYTES], slot, point, check_of(label)))
                slot_count += len(slots)
        entries.sort()
        return b"".join(
            [
                _u64(epoch.number),
                _u32(len(halves)),
                *(_u32(number) + packed for number, packed in halves),
                _u32(len(conjunctions)),
                *conjunctions,
                _u32(len(entries)),
                *(tag + _u32(at) + point + check for tag, at, point, check in entries),
            ]
        )

    def _points(self, sealed: SealedFilter, half: Exponent, kept: _Known) -> dict[bytes, Element | None]:
        """C of every label of a filter. What the last table had is not computed again."""
        known = self._known.get(half.packed, {})
        found = kept.setdefault(half.packed, {})
        fresh = [label for label in sealed.labels if label not in known]
        found |= {label: known[label] for label in sealed.labels if label in known}
        found |= dict(zip(fresh, re_encrypt(fresh, half), strict=True))
        return found


def write_table(path: Path, table: CompiledTable, owner: int | None = None) -> None:
    """Puts a table where the plug-in finds it, whole or not at all. `owner` is the user number that mosquitto runs
    under, where that is another one than ours."""
    replace_file(path, table.data, owner)


def _name(name: str) -> bytes:
    if not NAME.fullmatch(name):
        raise Misuse(f"{name!r} is not a name")
    return len(name).to_bytes(1, "big") + name.encode("ascii")


def _id(topic: bytes) -> bytes:
    if len(topic) != TOPIC_ID_BYTES:
        raise Misuse(f"a topic's id has {TOPIC_ID_BYTES} bytes, not {len(topic)}")
    return topic


def _u32(number: int) -> bytes:
    return number.to_bytes(4, "big")


def _u64(number: int) -> bytes:
    return number.to_bytes(8, "big")
