"""`sealcast match --protection layered`: a tree of brokers that cannot read, a hop a Spark stage.

    keys       everyone makes a key; pairs up to R hops apart agree on exponents (network.py, nodes.py)
    filters    filters -> labels -> encrypted -> up the tree, a level a stage, each broker building its own table
    publish    events -> labels -> encrypted for every place R hops below the publisher
    deliver    R hops, a stage each: peel, look up, relayer
    open       every subscriber opens what reached it with its own keys

A pair counts when it was opened. What each participant has is in a private directory, gone afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Bug, FilterRejected
from sealcast.filters.check import check
from sealcast.filters.labels import LabelFilter, Labeller, label_filter
from sealcast.filters.parse import parse
from sealcast.lab import scratch
from sealcast.lab.layered.network import Network
from sealcast.lab.layered.nodes import Nodes
from sealcast.lab.match_input import Asked
from sealcast.model.schema import Schema
from sealcast.protections.port import Checked
from sealcast.wire.records import RecordCodec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sealcast.lab.layered.stages import Stages

STAGES: Final = ("keys", "spark", "filters", "publish", "deliver", "open")
#: Of one piece, unless there are too few events to keep all cores busy with that.
EVENTS_PER_PIECE: Final = 2_048
LEAST_PER_PIECE: Final = 64
BYTES_PER_PIECE: Final = 16 << 20
_PIECES: Final = 32
#: What an event takes between two hops, and a subscriber in files.
_BYTES_PER_EVENT: Final = 4_096
_BYTES_PER_SUBSCRIBER: Final = 16_384

Ints = NDArray[np.int64]
Clock = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The subscriptions in labels."""

    filters: tuple[LabelFilter, ...]
    warnings: tuple[str, ...]


def in_labels(subscriptions: Sequence[Asked], schema: Schema) -> Wanted:
    """FilterRejected names the first subscription that labels cannot express, and what they can."""
    filters, warnings = [], []
    for asked in subscriptions:
        named = f"{asked.where}: " if asked.where else ""
        checked = check(parse(asked.filter), schema)
        try:
            found = label_filter(checked.condition, schema)
        except FilterRejected as error:
            place = "" if error.at is None else f", at character {error.at}"
            told = f"{named}subscription {asked.id!r}{place}: {error.message}"
            refused = FilterRejected(error.kind, told, at=error.at, hint=error.hint)
            refused.add_note(asked.filter)
            raise refused from None
        if not found.conjunctions and not checked.warnings:
            warnings.append(f"{named}subscription {asked.id!r}: no value of the domain can match")
        filters.append(found)
    return Wanted(tuple(filters), tuple(warnings))


def deliver(
    wanted: Sequence[LabelFilter],
    events: Sequence[tuple[int, Checked]],
    schema: Schema,
    layers: int,
    clock: Clock,
    session: Callable[[], SparkSession],
) -> tuple[Ints, Ints]:
    """Which event, by its number, was opened by which subscription; ordered."""
    if not events or not wanted:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    need = len(events) * _BYTES_PER_EVENT + len(wanted) * _BYTES_PER_SUBSCRIBER
    with scratch.directory(need) as root:
        network = Network(layers, len(wanted))
        nodes = Nodes(root, network)
        with clock("keys"):
            nodes.create(wanted)
            files = _put(nodes, events, schema)
        with clock("spark"):
            from sealcast.lab.layered.stages import Stages  # imports Spark

            stages = Stages(session(), str(root), layers, len(wanted), files)
        with _explained():
            return _run(stages, network, schema, clock)


def _run(stages: Stages, network: Network, schema: Schema, clock: Clock) -> tuple[Ints, Ints]:
    with clock("filters"):
        messages = stages.subscribe()
        for _ in network.levels:
            messages = stages.build(messages).localCheckpoint()
    with clock("publish"):
        arrived = stages.publish(schema).localCheckpoint()
    with clock("deliver"):
        for _ in network.levels:
            arrived = stages.hop(arrived).localCheckpoint()
    with clock("open"):
        return _opened(stages, arrived)


def _opened(stages: Stages, arrived: DataFrame) -> tuple[Ints, Ints]:
    rows = stages.open(arrived)
    unopened = sum(rows.column("unopened").to_pylist())
    if unopened:
        why = next(why for why in rows.column("why").to_pylist() if why is not None)
        raise Bug(f"{unopened} deliveries did not open for whom they were encrypted; the first: {why}")
    event, subscription = (
        np.frombuffer(b"".join(rows.column(name).to_pylist()), "<i8").astype(np.int64)
        for name in ("places", "subscribers")
    )
    order = np.lexsort((subscription, event))
    return event[order], subscription[order]


def _put(nodes: Nodes, events: Sequence[tuple[int, Checked]], schema: Schema) -> int:
    """Events into files, each of which becomes a piece. How many."""
    codec, number = RecordCodec(schema), 0
    share = -(-len(events) // _PIECES)
    size = max(LEAST_PER_PIECE, min(EVENTS_PER_PIECE, share))
    places, messages, held = list[int](), list[bytes](), 0
    for place, event in _neighbours(events, schema):
        (message,) = codec.encode([event.values], [event.payload], [event.content_type])
        if messages and (len(messages) == size or held + len(message) > BYTES_PER_PIECE):
            nodes.put_events(number, places, messages)
            places, messages, held, number = [], [], 0, number + 1
        places.append(place)
        messages.append(message)
        held += len(message)
    if messages:
        nodes.put_events(number, places, messages)
        number += 1
    return number


def _neighbours(events: Sequence[tuple[int, Checked]], schema: Schema) -> Sequence[tuple[int, Checked]]:
    """By the number that has the most labels: events next to each other share all but the longest of its prefixes, so
    that what the worker of one piece hashed and raised, that of another seldom has to."""
    grids = Labeller(schema).grids
    if not grids:
        return events
    widest = schema.by_name[max(grids, key=lambda name: grids[name].bits)]

    def number(event: tuple[int, Checked]) -> tuple[bool, float]:
        physical = widest.to_physical(event[1].values.get(widest.name))
        return (False, 0) if physical is None or isinstance(physical, str) else (True, physical)

    return sorted(events, key=number)


@contextmanager
def _explained() -> Iterator[None]:
    # Here, so that checking the input does not wait for Spark to be imported.
    from sealcast.pipeline.failures import explained

    with explained():
        yield
