"""How a topic stands at one of its brokers, from what its ledger says; and what was refused there.

Public things only: nothing here needs a key.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Final

from sealcast.log.ledger import LedgerReader
from sealcast.log.piece_reader import PieceReader
from sealcast.log.suspended import notes as notes_on_suspended
from sealcast.model.dataclass import dataclass
from sealcast.trust.handles import BrokerRealm

#: Rates are means over this long before now.
RATE_SECONDS: Final = 60
_REJECTED: Final = "rejected_"


@dataclass(frozen=True, slots=True)
class Facts:
    """One topic at one broker: a document for programs, and the same in rows for people."""

    document: dict[str, Any]
    rows: list[tuple[str, object]]


@dataclass(slots=True)
class LedgerTally:
    """The sums over a ledger."""

    batches: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    recent: Counter[str] = field(default_factory=Counter)
    #: Of the last batch: how far it went, its version, and when it was committed.
    done: tuple[int, ...] = ()
    version: int = 0
    last_us: int | None = None

    @classmethod
    def of(cls, ledger: LedgerReader) -> LedgerTally:
        found, since = cls(), time.time_ns() // 1000 - RATE_SECONDS * 1_000_000
        for committed in ledger.entries():
            entry = committed.entry
            found.batches += 1
            found.counts.update(entry.counts)
            if committed.time_us >= since:
                found.recent.update(entry.counts)
            found.done, found.version, found.last_us = entry.end.partitions, entry.version, committed.time_us
        return found

    @property
    def rejected(self) -> dict[str, int]:
        """Events refused, by reason."""
        return {k.removeprefix(_REJECTED): n for k, n in sorted(self.counts.items()) if k.startswith(_REJECTED)}

    def waiting(self, ends: Sequence[int]) -> int:
        """What of an input that goes so far was not taken yet."""
        return sum(max(0, end - (self.done[p] if p < len(self.done) else 0)) for p, end in enumerate(ends))

    def per_second(self, name: str) -> float:
        return round(self.recent[name] / RATE_SECONDS, 2)


def admission(realm: BrokerRealm, topic: str, broker: str, ledger: LedgerReader) -> dict[str, Any]:
    """What a broker's ledger says of the frames that it takes in, and what waits for it."""
    ends, removed = list[int](), 0
    if realm.paths.topic(topic, broker).frames_root.is_dir():
        with realm.frames(topic, broker, read_only=True) as log:
            ends = [log.partition(p).end() for p in range(log.partitions)]
            removed = sum(log.partition(p).start() for p in range(log.partitions))
    tally = LedgerTally.of(ledger)
    return {
        "frames": sum(ends),
        "frames_removed": removed,
        "backlog": tally.waiting(ends),
        "batches": tally.batches,
        "version_in_force": tally.version,
        "last_batch_at": moment(tally.last_us),
        "events": {k: tally.counts[k] for k in ("admitted", "matched", "deliveries", "encryptions")},
        "rejected": tally.rejected,
        "suspended": suspended(realm, topic, broker),
        "per_second": {k: tally.per_second(k) for k in ("admitted", "deliveries")},
    }


def admission_rows(found: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Says the same for people."""
    events = found["events"]
    each = f" ({events['encryptions'] / events['matched']:.2f} per matched event)" if events["matched"] else ""
    return [
        ("frames", "{frames:,} published, {backlog:,} waiting for the pipeline".format(**found) + _removed(found)),
        ("batches", batches(found)),
        ("events", "{admitted:,} admitted, {matched:,} matched, {deliveries:,} deliveries".format(**events)),
        ("encryptions", f"{events['encryptions']:,}{each}"),
        ("rejected", reasons(found["rejected"])),
        *suspended_rows(found["suspended"]),
        ("last minute", "{admitted:,} events/s, {deliveries:,} deliveries/s".format(**found["per_second"])),
    ]


def _removed(found: Mapping[str, Any]) -> str:
    """Frames that are not kept any more, if there are some."""
    return f", {found['frames_removed']:,} removed after they were committed" if found["frames_removed"] else ""


def failing_rows(found: Sequence[Mapping[str, Any]]) -> list[tuple[str, object]]:
    """Steps that the pipeline could not run when it last tried, for people."""
    told = "since {since}, {attempts:,} attempts, the last at {last}: {message}"
    return [
        ("FAILING", told.format(**note, since=moment(note["since_us"]), last=moment(note["last_us"]))) for note in found
    ]


def suspended(realm: BrokerRealm, topic: str, broker: str) -> list[dict[str, Any]]:
    """Subscriptions that got nothing of some pieces: their filters ask for too much work, or cannot be read."""
    living = realm.state().topic_state(topic).subscriptions
    return [
        {"subscription": id, "subscriber": living[id].subscriber, **note._asdict()}
        for id, note in notes_on_suspended(realm.paths.topic(topic, broker).root).items()
        if id in living
    ]


def suspended_rows(found: Sequence[Mapping[str, Any]]) -> list[tuple[str, object]]:
    """Says the same for people."""
    told = "{subscription} of {subscriber}: nothing of {pieces:,} pieces since {since}, the last at {last}"
    return [
        ("SUSPENDED", told.format(**each, since=moment(each["since_us"]), last=moment(each["last_us"])))
        for each in found
    ]


def refusals(reader: PieceReader[Any], topic: str, broker: str) -> Iterator[dict[str, Any]]:
    """What a ledger's pieces say was refused, newest first. Pieces are read only where the ledger counted refusals."""
    for index in range(reader.ledger.end() - 1, -1, -1):
        committed = reader.record(index)
        if not any(name.startswith(_REJECTED) and count for name, count in committed.entry.counts.items()):
            continue
        for number in reversed(range(len(committed.entry.pieces))):
            for rejection in reversed(reader.piece_of(index, number).rejected):
                position = rejection.position
                yield {
                    "at": moment(committed.time_us),
                    "topic": topic,
                    "broker": broker,
                    "partition": position.partition,
                    "offset": position.offset,
                    "row": position.row if position.row >= 0 else None,
                    "reason": str(rejection.reason),
                    "events": rejection.events,
                    "detail": rejection.detail,
                }


def reasons(counts: Mapping[str, int] | None) -> str:
    """Refusals by reason, in words."""
    return ", ".join(f"{reason} {count:,}" for reason, count in (counts or {}).items() if count) or "nothing"


def batches(found: Mapping[str, Any]) -> str:
    """How many batches there were, and when the last was committed, in words."""
    return f"{found['batches']:,}" + (f", the last at {found['last_batch_at']}" * bool(found["batches"]))


def moment(time_us: int | None) -> str | None:
    """A time as programs and people read it."""
    if time_us is None:
        return None
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
