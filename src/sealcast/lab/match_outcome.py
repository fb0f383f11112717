"""What `sealcast match` found: pairs of events and subscriptions, and events that were refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from sealcast.lab.match_input import Id, Inputs

PAIRS_FILE: Final = "pairs.parquet"
_INT64: Final = range(-(2**63), 2**63)

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Refused:
    """An event that its schema does not admit."""

    id: Id
    attribute: str | None
    message: str


@dataclass(frozen=True, slots=True)
class MatchOutcome:
    """Which event reached which subscription, both by their place in the input, ordered by event and subscription."""

    inputs: Inputs
    event: Ints
    subscription: Ints
    refused: tuple[Refused, ...]
    protection: str
    seconds: dict[str, float] = field(default_factory=dict)
    #: What the protection has to say about filters.
    warnings: tuple[str, ...] = ()

    def summary(self) -> dict[str, object]:
        fanout = np.bincount(self.event, minlength=1)
        return {
            "events": len(self.inputs.events),
            "subscriptions": len(self.inputs.subscriptions),
            "pairs": int(self.event.size),
            "matched_events": int(np.count_nonzero(fanout)),
            "max_fanout": int(fanout.max()),
            "rejected": len(self.refused),
            "protection": self.protection,
            "seconds": {stage: round(taken, 3) for stage, taken in self.seconds.items()},
        }

    def pairs(self) -> pa.Table:
        """Pairs of ids."""
        events = _column([given.id for given in self.inputs.events])
        subscriptions = _column([asked.id for asked in self.inputs.subscriptions])
        columns = [events.take(pa.array(self.event)), subscriptions.take(pa.array(self.subscription))]
        return pa.table(columns, names=["event", "subscription"])

    def write(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / PAIRS_FILE
        pyarrow.parquet.write_table(self.pairs(), path)
        return path


def _column(ids: Sequence[Id]) -> pa.Array:
    """Ids keep their type: whole numbers if all are, else texts."""
    if ids and all(isinstance(id, int) and id in _INT64 for id in ids):
        return pa.array(ids, pa.int64())
    return pa.array([str(id) for id in ids], pa.string())
