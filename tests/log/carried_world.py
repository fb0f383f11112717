"""The world of the conformance suite with its topic on a carrier."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex
from typing import Any, Self

from sealcast.log.carriers import Placement
from sealcast.model.protection import PROTECTIONS
from sealcast.trust.realm.changes import CarryJournal, CarryTopic
from tests.protections.world import TOPIC, World

#: Those whose whole topic can be on a carrier.
CARRIED = [name for name, kind in PROTECTIONS.items() if not kind.peers]
#: What a broker has there; those of an overlay have the rest, too.
LOGS = ("ledger", "reseals", "replays", "pieces", "places")
OVERLAY = (*(f"hops.{log}" for log in LOGS), "posts", "taken", "table", "notes")


class CarriedWorld(World):
    """One topic under one protection, on a carrier."""

    def __init__(self, directory: Path, protection: str, carrier: str, **settings: Any) -> None:
        super().__init__(directory, protection, **settings)
        self.realm.add_carrier("away", carrier)
        self.realm.move_topic(TOPIC, "away", name=token_hex(6))

    def copy(self, directory: Path) -> Self:
        """The directory, and what is on the carrier under other names."""
        other = super().copy(directory)
        state = other.realm.state()
        there = other.realm.carriers.carrier(state, "away")
        for (_, broker), at in state.carried.items():
            name, more = token_hex(6), OVERLAY if state.topic(TOPIC).protection.overlay else ()
            for suffix in ("", *(f".{log}" for log in (*LOGS, *more))):
                there.create(f"{name}{suffix}", Placement(1))
                source, target = (there.partition(f"{each}{suffix}", 0) for each in (at.name, name))
                stored = [(each.head, each.data) for each in source.fetch(*source.bounds())]
                for begin in range(0, len(stored), 64):
                    target.append(stored[begin : begin + 64])
            other.realm.registry.apply(CarryTopic(TOPIC, broker, "away", name, (0,), (0,)))
            other.realm.registry.apply(CarryJournal(TOPIC, broker, "away", name))
        return other
