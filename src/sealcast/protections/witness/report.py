"""What an audit found: counts, problems by kind, and what could not be judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

#: So many problems of each kind are described; all are counted.
MAX_DESCRIBED: Final = 20


class Kind(StrEnum):
    #: Should have been delivered, and was not, or does not open for its receiver.
    LOST = "lost"
    #: Was delivered to the same subscriber before.
    DUPLICATED = "duplicated"
    #: Comes after a later event of the same publisher or partition.
    OUT_OF_ORDER = "out-of-order"
    #: Was delivered, and should not have been.
    UNEXPECTED = "unexpected"
    LEDGER = "ledger"
    PIECE = "piece"
    COUNTS = "counts"
    REFUSED = "refused"
    KEYS = "keys"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class Problem:
    kind: Kind
    message: str


@dataclass(slots=True)
class CheckReport:
    """One topic, over all of its brokers that could be checked."""

    topic: str
    batches: int = 0
    #: Events that were admitted, and deliveries that were made of them.
    events: int = 0
    deliveries: int = 0
    #: Frames that no batch has taken yet, and frames that retention has removed: nothing can be said of those.
    waiting: int = 0
    unchecked: int = 0
    #: Deliveries that were removed since, by retention or to be forgotten.
    removed: int = 0
    found: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    problems: list[Problem] = field(default_factory=list)
    #: What could not be judged, and why.
    gaps: list[str] = field(default_factory=list)
    #: A protection's own numbers, and None for those of the common ones that it cannot know.
    also: dict[str, int | None] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not any(self.found.values())

    def add(self, kind: Kind, message: str) -> None:
        if self.found[kind] < MAX_DESCRIBED:
            self.problems.append(Problem(kind, message))
        self.found[kind] += 1

    def gap(self, text: str) -> None:
        """Says once that something could not be judged."""
        if text not in self.gaps:
            self.gaps.append(text)

    def count(self, name: str, more: int = 1) -> None:
        """Adds to one of the protection's own numbers."""
        self.also[name] = (self.also.get(name) or 0) + more

    def as_json(self) -> dict[str, object]:
        return {
            "ok": self.ok,
            "batches": self.batches,
            "events": self.events,
            "deliveries": self.deliveries,
            "lost": self.found[Kind.LOST],
            "duplicated": self.found[Kind.DUPLICATED],
            "out_of_order": self.found[Kind.OUT_OF_ORDER],
            "unexpected": self.found[Kind.UNEXPECTED],
            "waiting_frames": self.waiting,
            "unchecked_frames": self.unchecked,
            "removed_deliveries": self.removed,
            "problems": [{"kind": str(p.kind), "message": p.message} for p in self.problems],
            "not_judged": self.gaps,
            **self.also,
        }
