"""The realm that a campaign plays in: a topic for every protection, and events of which everything follows from their
number. So whoever knows how many were published knows who must have got which, without keys, index, log or Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast import Event, Realm, Schema
from sealcast.model.protection import PROTECTIONS

SCHEMA: Final = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 15}]})
PUBLISHERS: Final = ("ann", "ben")
#: Each event is for exactly one of these two, and for the third of it if it is in the middle.
FILTERS: Final = {"low": "price < 8", "high": "price >= 8", "middle": "price BETWEEN 4 AND 11"}
_BOUNDS: Final = {"low": (0, 8), "high": (8, 16), "middle": (4, 12)}
#: What every payload begins with, and what no file may hold.
CANARY: Final = b"CANARY-soak-5b1e"

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Share:
    """How a protection's topic takes part: events in a frame, for a million events in sum how many are its own, and who
    subscribes. Pairings take milliseconds each, so there two subscribers have to do."""

    frame: int
    events: int
    subscribers: tuple[str, ...] = tuple(FILTERS)


SHARES: Final = {
    "endpoint": Share(500, 510_000),
    "payload": Share(500, 450_000),
    "layered": Share(50, 14_000),
    "searchable": Share(50, 14_000),
    "attribute": Share(10, 12_000, ("low", "high")),
}


def prices(numbers: Numbers) -> Numbers:
    """The price of each event, by its number: any mixture would do."""
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(60)).astype(np.int64)


def events(publisher: str, first: int, count: int) -> list[Event]:
    numbers = np.arange(first, first + count)
    return [
        Event({"price": price}, b"%s %s %d" % (CANARY, publisher.encode(), number))
        for number, price in zip(numbers.tolist(), prices(numbers).tolist(), strict=True)
    ]


def named(payload: bytes) -> tuple[str, int]:
    """Whose event it was, and which."""
    canary, publisher, number = payload.split(b" ")
    assert canary == CANARY
    return publisher.decode(), int(number)


def wanted(subscriber: str, numbers: Numbers) -> Numbers:
    """Which of these events a subscriber must get."""
    low, end = _BOUNDS[subscriber]
    found = prices(numbers)
    return numbers[(found >= low) & (found < end)]


def create(
    directory: Path, topics: tuple[str, ...], registry: str | None, hidden: Mapping[str, str] = FILTERS
) -> Realm:
    """The realm, with a topic by the name of each protection. `hidden` are the filters, as those say it whose brokers
    do not read them."""
    assert set(topics) <= set(PROTECTIONS) == set(SHARES)
    realm = Realm.create(directory, registry=registry)
    realm.enrol_many([*PUBLISHERS, *FILTERS])
    for topic in topics:
        partitions = {} if PROTECTIONS[topic]().peers else {"partitions": 2}
        realm.create_topic(topic, SCHEMA, protection=topic, **partitions, access="members")
        for name in SHARES[topic].subscribers:
            realm.subscribe(topic, name, (hidden if PROTECTIONS[topic]().filters_sealed else FILTERS)[name])
    return realm
