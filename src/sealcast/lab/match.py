"""`sealcast match`: events against subscriptions with the protection really at work, as a Spark batch.

    read       the three files
    keys       a private realm for this run: every subscription is an entity of its own, with its own keys
    publish    events are checked, sealed to the broker and signed, as publishers do it
    spark      a Spark session, unless there is one
    deliver    admit, match, group, seal, deliver: the pipeline itself, in batch
    open       every subscriber opens what it was sent, with its own keys only

That is `endpoint`; `layered`, whose brokers cannot read, is a tree of them instead (layered/run.py). A pair (event,
subscription) counts when it was opened, and for no other reason. All keys are gone afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from sealcast.clients.publisher import Publisher, admissible, partition_of
from sealcast.errors import Bug, EventRejected, Misuse
from sealcast.lab import scratch
from sealcast.lab.layered import run as layered
from sealcast.lab.match_input import Given, Id, Inputs
from sealcast.model.event import Position
from sealcast.protections.layered.tree import MAX_LAYERS, MIN_LAYERS
from sealcast.protections.port import Checked
from sealcast.trust.deployment import Realm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sealcast.lab.prove import Opened

ENDPOINT: Final = "endpoint"
LAYERED: Final = "layered"
#: Protections, and the stages of each.
STAGES: Final = {ENDPOINT: ("keys", "publish", "spark", "deliver", "open"), LAYERED: layered.STAGES}
PAIRS_FILE: Final = "pairs.parquet"
TOPIC: Final = "match"
#: Publishers, and partitions for them: several, so that nothing here relies on there being one.
MAX_PUBLISHERS: Final = 4
EVENTS_PER_PUBLISHER: Final = 2_000
#: What one delivery takes in a piece at most: its wrapped key and its place in two indices.
_BYTES_PER_DELIVERY: Final = 64
_BYTES_PER_EVENT: Final = 1_024
_INT64: Final = range(-(2**63), 2**63)
#: Deliveries that one job may make if everybody gets everything; more events go through the pipeline in several jobs.
MAX_DELIVERIES_PER_JOB: Final = 16_000_000

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Refused:
    """An event that its schema does not admit."""

    id: Id
    attribute: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
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


def match(
    inputs: Inputs,
    protection: str = ENDPOINT,
    *,
    layers: int | None = None,
    spark: SparkSession | None = None,
    told: Callable[[str], None] = lambda stage: None,
) -> Outcome:
    """Run the protection over the inputs; `told` hears of each stage as it begins."""
    check_protection(protection, layers)
    clock = _Clock(told, STAGES[protection])
    if protection == LAYERED:
        return _match_layered(inputs, layers if layers is not None else MIN_LAYERS, clock, spark)
    need = len(inputs.events) * (_BYTES_PER_EVENT + _BYTES_PER_DELIVERY * len(inputs.subscriptions))
    with scratch.realm(need) as realm:
        with clock("keys"):
            publishers = _populate(realm, inputs, protection)
        with clock("spark"):
            spark = spark or _session()
        published = _Published()
        for some in _jobs(inputs):
            with clock("publish"):
                _publish(realm, publishers, inputs.events, some, published)
            with clock("deliver"):
                _deliver(spark, realm)
        with clock("open"):
            opened = _open(spark, realm, len(inputs.subscriptions))
        event, subscription = _pairs(opened, published)
    return Outcome(inputs, event, subscription, tuple(published.refused), protection, clock.seconds)


def check_protection(protection: str, layers: int | None = None) -> None:
    if protection not in STAGES:
        raise Misuse(
            f"there is no protection {protection!r} here; there is {', '.join(STAGES)}",
            hint=f"--protection {ENDPOINT}",
        )
    if layers is not None and protection != LAYERED:
        raise Misuse(f"{protection} has no layers", hint=f"--protection {LAYERED}")
    if layers is not None and not MIN_LAYERS <= layers <= MAX_LAYERS:
        raise Misuse(f"{MIN_LAYERS} to {MAX_LAYERS} layers, not {layers}", hint=f"--layers {MIN_LAYERS}")


def _match_layered(inputs: Inputs, layers: int, clock: _Clock, spark: SparkSession | None) -> Outcome:
    wanted = layered.in_labels(inputs.subscriptions, inputs.schema)
    events, refused = list[tuple[int, Checked]](), list[Refused]()
    for number, given in enumerate(inputs.events):
        try:
            events.append((number, admissible(inputs.schema, given.event)))
        except EventRejected as error:
            refused.append(Refused(given.id, error.attribute, error.message))
    event, subscription = layered.deliver(
        wanted.filters, events, inputs.schema, layers, clock, lambda: spark or _session()
    )
    return Outcome(inputs, event, subscription, tuple(refused), LAYERED, clock.seconds, wanted.warnings)


# --- the stages -----------------------------------------------------------------------------------------


def _populate(realm: Realm, inputs: Inputs, protection: str) -> list[str]:
    """The topic, its publishers and one entity a subscription, which has slot i if it is subscription i."""
    partitions = max(1, min(MAX_PUBLISHERS, len(inputs.events) // EVENTS_PER_PUBLISHER))
    realm.create_topic(TOPIC, inputs.schema, partitions=partitions, protection=protection)
    publishers = _publishers(partitions)
    subscribers = [f"s{number}" for number in range(len(inputs.subscriptions))]
    realm.enrol_many([*publishers, *subscribers])
    wanted = [(name, asked.filter, name) for name, asked in zip(subscribers, inputs.subscriptions, strict=True)]
    if wanted:
        realm.subscribe_many(TOPIC, wanted)
    return publishers


def _publishers(partitions: int) -> list[str]:
    """Names of publishers, of which each writes to a partition of its own."""
    names: dict[int, str] = {}
    number = 0
    while len(names) < partitions:
        names.setdefault(partition_of(f"p{number}", partitions), f"p{number}")
        number += 1
    return [names[partition] for partition in range(partitions)]


def _jobs(inputs: Inputs) -> Iterator[range]:
    """Events in parts that the pipeline handles at a time, whatever they match."""
    size = max(1, MAX_DELIVERIES_PER_JOB // max(1, len(inputs.subscriptions)))
    return (range(start, min(start + size, len(inputs.events))) for start in range(0, len(inputs.events), size))


class _Published:
    """Where events went, and which were refused."""

    def __init__(self) -> None:
        self.refused: list[Refused] = []
        self.index: list[int] = []
        self.positions: list[Position] = []


def _publish(realm: Realm, names: Sequence[str], events: Sequence[Given], some: range, to: _Published) -> None:
    share = -(-len(some) // len(names))
    for number, name in enumerate(names):
        mine = some[number * share : (number + 1) * share]
        with Publisher(realm, TOPIC, as_=name) as publisher:
            result = publisher.publish_admissible(events[i].event for i in mine)
        refused = {refusal.index: refusal.error for refusal in result.refusals}
        for index, error in refused.items():
            message = error.message.removeprefix(f"event {index}: ")
            to.refused.append(Refused(events[mine[index]].id, error.attribute, message))
        to.index += [i for index, i in enumerate(mine) if index not in refused]
        to.positions += result.positions


def _session() -> SparkSession:
    from sealcast.pipeline.session import session

    return session(app_name="sealcast match", short_lived=True)


def _deliver(spark: SparkSession, realm: Realm) -> None:
    from sealcast.pipeline.run import run_batch

    run_batch(spark, realm.paths.root, TOPIC)


def _open(spark: SparkSession, realm: Realm, subscribers: int) -> Opened:
    # Here, so that checking the input does not wait for Spark to be imported.
    from sealcast.lab.prove import open_all

    opened = open_all(spark, str(realm.paths.root), TOPIC, subscribers)
    if opened.unopened:
        raise Bug(f"{opened.unopened} deliveries did not open for whom they were sealed; the first: {opened.why}")
    return opened


def _pairs(opened: Opened, published: _Published) -> tuple[Ints, Ints]:
    """Positions back to where the events stood in the file."""
    from sealcast.lab.prove import place

    event = np.empty(opened.place.size, np.int64)
    index = np.array(published.index, np.int64)
    at = np.array([(p.partition, p.offset, p.row) for p in published.positions], np.int64).reshape(-1, 3)
    for partition in np.unique(opened.partition).tolist():
        here = np.flatnonzero(at[:, 0] == partition)
        places = place(at[here, 1], at[here, 2])  # ascending: a publisher's events keep their order
        asked = opened.place[opened.partition == partition]
        found = np.minimum(np.searchsorted(places, asked), places.size - 1)
        if not np.array_equal(places[found], asked):
            raise Bug("an event was opened that nobody published")
        event[opened.partition == partition] = index[here[found]]
    order = np.lexsort((opened.slot, event))
    return event[order], opened.slot[order]


# --- odds and ends --------------------------------------------------------------------------------------


class _Clock:
    """Seconds by stage."""

    def __init__(self, told: Callable[[str], None], stages: Sequence[str]) -> None:
        self._told = told
        self.seconds: dict[str, float] = dict.fromkeys(stages, 0.0)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        self._told(stage)
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] += time.monotonic() - began


def _column(ids: Sequence[Id]) -> pa.Array:
    """Ids keep their type: whole numbers if all are, else texts."""
    if ids and all(isinstance(id, int) and id in _INT64 for id in ids):
        return pa.array(ids, pa.int64())
    return pa.array([str(id) for id in ids], pa.string())
