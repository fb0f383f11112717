"""Why an event did or did not reach a subscriber: the verdict, and every decision that led to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from sealcast.broker.gate import CHECK
from sealcast.errors import NotFound
from sealcast.filters.explain import ExplainedPart
from sealcast.model.event import Position
from sealcast.model.rejection import Rejection
from sealcast.model.schema import Value, value_to_json


def origin_of(event: Position, topic: str, brokers: Sequence[str], each: int) -> str:
    """The broker that took an event in. Each has so many partitions of the topic, one broker's after another's."""
    if event.partition >= each * len(brokers):
        raise NotFound(
            f"there is no event {event}: topic {topic!r} has partitions 0 to {each * len(brokers) - 1}",
            hint="an event is partition/offset/row, as `sealcast pub` and `sealcast sub` print it",
        )
    return brokers[event.partition // each]


class Verdict(StrEnum):
    DELIVERED = "delivered"
    WAITING = "waiting"
    REFUSED = "refused"
    NOT_SUBSCRIBED = "not-subscribed"
    NOT_MATCHED = "not-matched"
    NOT_AUTHORISED = "not-authorised"
    #: Its filters ask for more work than they may.
    SUSPENDED = "suspended"
    #: A broker that cannot read did not send it on; why, it cannot know.
    NOT_HANDED_ON = "not-handed-on"
    #: The ledger does not say what it should: something is broken, or was altered.
    WRONG = "wrong"
    #: The frame is no longer kept: what happened is known, and why is not.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TracedInterest:
    """One subscription of the subscriber, and what its filter says of the event."""

    id: str
    filter: str
    part: ExplainedPart


@dataclass(frozen=True, slots=True)
class DecidingBatch:
    """The batch that decided: whose ledger has it, and what it was pinned to."""

    broker: str
    record: int
    query: str
    batch: int
    version: int
    committed_at: datetime
    piece: str


@dataclass(frozen=True, slots=True)
class Hop:
    """A broker that handed the event on: to the next one, or to the subscriber."""

    broker: str
    record: int
    #: Of the table by which it was matched.
    table_version: int
    handed_on_to: str


@dataclass(frozen=True, slots=True)
class SealingTrace:
    """How the event was sealed, whoever got it."""

    #: `direct`: under the one key used; `content key`: under a key of its own, wrapped under each key used.
    mode: str
    encryptions: int
    readers: int


@dataclass(frozen=True, slots=True)
class WhyAnswer:
    """Everything that led to the verdict, as far as the event got."""

    topic: str
    event: Position
    subscriber: str
    verdict: Verdict = Verdict.WAITING
    because: str = "it is in the log, and no batch has taken it yet"
    publisher: str | None = None
    published_at: datetime | None = None
    sequence: int | None = None
    epoch: int | None = None
    #: The broker that took it in.
    admitted_at: str | None = None
    batch: DecidingBatch | None = None
    hops: tuple[Hop, ...] = ()
    refused: Rejection | None = None
    attributes: Mapping[str, Value] | None = None
    authorised: bool | None = None
    interests: tuple[TracedInterest, ...] = ()
    #: Subscriptions that the subscriber has made or ended outside the batch's version.
    other_times: tuple[str, ...] = ()
    #: What else the question may have meant.
    notes: tuple[str, ...] = ()
    sealing: SealingTrace | None = None

    def that(self, verdict: Verdict, because: str) -> WhyAnswer:
        return replace(self, verdict=verdict, because=because)

    def to_json(self) -> dict[str, Any]:
        batch, refused, sealing = self.batch, self.refused, self.sealing
        return {
            "topic": self.topic,
            "event": str(self.event),
            "subscriber": self.subscriber,
            "verdict": str(self.verdict),
            "because": self.because,
            "publisher": self.publisher,
            "published_at": moment(self.published_at) if self.published_at else None,
            "sequence": self.sequence,
            "epoch": self.epoch,
            "admitted_at": self.admitted_at,
            "batch": batch and asdict(batch) | {"committed_at": moment(batch.committed_at)},
            "hops": [asdict(hop) for hop in self.hops],
            "refused": refused
            and {"check": CHECK[refused.reason], "reason": str(refused.reason), "detail": refused.detail},
            "attributes": self.attributes and {n: value_to_json(v) for n, v in self.attributes.items()},
            "authorised": self.authorised,
            "subscriptions": [
                {"id": i.id, "filter": i.filter, "result": i.part.result, "decided_by": _decided(i.part)}
                for i in self.interests
            ],
            "other_times": list(self.other_times),
            "notes": list(self.notes),
            "sealed": sealing and asdict(sealing),
        }


def _decided(part: ExplainedPart) -> list[dict[str, Any]]:
    return [{"text": p.text, "at": p.at, "end": p.end, "result": p.result} for p in part.decisions()]


def moment(when: datetime) -> str:
    return when.isoformat().replace("+00:00", "Z")
