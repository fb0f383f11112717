"""`sealcast demo`: a day of market data in miniature, through the real pipeline, with attackers at the door.

Three exchanges publish while the streaming job runs; a few hundred desks read what their filters say and nothing else;
hostile frames stand in the log between the honest ones. At the end everything is counted twice: once by the ledger,
once by an oracle that evaluates every filter on every event without index, keys or Spark.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Final

import numpy as np

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.filters.check import fit
from sealcast.filters.parse import parse
from sealcast.filters.vector.evaluator import Evaluator
from sealcast.lab import market, thief
from sealcast.lab.attacks import RATES, Attack, Cast, Insider, attacks, outdated, place_of
from sealcast.lab.market import Ticks
from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.piece_reader import sealed_reader
from sealcast.model import OpenedEvent, Position
from sealcast.model.subscription import Subscription
from sealcast.pipeline.metrics import FinishedBatch
from sealcast.pipeline.queries import Pipeline
from sealcast.pipeline.run import start
from sealcast.pipeline.session import session
from sealcast.primitives.secrets import Secret
from sealcast.protections.endpoint.open import Opener
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.changes import Access, Right
from sealcast.wire.sealed import SealedPiece

TOPIC: Final = "ticks"
EXCHANGES: Final = ("nyse", "nasdaq", "lse")
#: Enrolled, but never given a right; and two who had one until the day began.
STRANGER, FORMER_DESK, FORMER_EXCHANGE = "mallory", "former-desk", "former-exchange"
#: May publish events of one venue.
NARROW: Final = "narrow-exchange"
PARTITIONS: Final = 2
WAVES: Final = 12
#: Between waves, so that the day has more than one micro-batch.
PAUSE_SECONDS: Final = 0.3


@dataclass(frozen=True, slots=True)
class Size:
    """How large the demo is: a miniature by default."""

    events: int = 12_000
    desks: int = 300
    symbols: int = 200
    seed: int = 2026


@dataclass(frozen=True, slots=True)
class SubscriberDay:
    """One subscriber's day: what the oracle says it should get, and what it opened."""

    name: str
    filter: str
    wanted: int
    opened: int
    wrong: int


@dataclass(frozen=True, slots=True)
class Outsider:
    """Someone who tried every key of every event."""

    name: str
    story: str
    tried: int
    opened: int


@dataclass(frozen=True, slots=True)
class DemoReport:
    """What the demo saw. `published` counts what was put into the log, hostile events included."""

    published: int
    admitted: int
    rejected: Mapping[str, int]
    deliveries: int
    encryptions: int
    matched: int
    batches: int
    desks: Sequence[SubscriberDay]
    outsiders: Sequence[Outsider]
    attacks: Sequence[Attack]
    seconds: Mapping[str, float]

    @property
    def opened(self) -> int:
        return sum(desk.opened for desk in self.desks)

    @property
    def wrong(self) -> int:
        return sum(desk.wrong for desk in self.desks)

    @property
    def opened_by_outsiders(self) -> int:
        return sum(outsider.opened for outsider in self.outsiders)

    @property
    def as_it_should(self) -> bool:
        expected = Counter[str]()
        for attack in self.attacks:
            expected[attack.reason] += attack.events
        return (
            self.wrong == self.opened_by_outsiders == 0
            and self.opened == self.deliveries > 0
            and self.published == self.admitted + sum(self.rejected.values())
            and dict(expected) == dict(self.rejected)
        )

    def as_json(self) -> dict[str, object]:
        return {
            "published": self.published,
            "admitted": self.admitted,
            "rejected": dict(self.rejected),
            "deliveries": self.deliveries,
            "opened": self.opened,
            "wrong": self.wrong,
            "opened_by_outsiders": self.opened_by_outsiders,
            "encryptions_per_event": round(self.encryptions / max(1, self.matched), 3),
            "seconds": round(sum(self.seconds.values()), 2),
            "stages": {stage: round(took, 2) for stage, took in self.seconds.items()},
        }


class DemoDay:
    """The demo in progress. `tell` hears what is going on, `hear` hears of every micro-batch."""

    def __init__(
        self, realm: Realm, size: Size, tell: Callable[[str], None], hear: Callable[[FinishedBatch], None]
    ) -> None:
        self._realm = realm
        self._size = size
        self._tell = tell
        self._hear = hear
        self._seconds: dict[str, float] = {}
        #: Of every honest event, where it stands in the log: which tick it was.
        self._published: dict[Position, int] = {}
        self._hostile: list[Attack] = []
        self._batches = 0

    def run(self) -> DemoReport:
        with self._timed("enrol"):
            self._tell(f"enrolling {len(EXCHANGES)} exchanges and {self._size.desks} desks ...")
            subscriptions = self._enrol()
        ticks = market.ticks(self._size.events, seed=self._size.seed, n_symbols=self._size.symbols)
        with self._timed("start"):
            self._tell("starting Spark ...")
            spark = session(app_name="sealcast demo", short_lived=True, keep_classes=True)
            pipeline = start(self._realm, [TOPIC], spark=spark, on_batch=self._count)
        with pipeline, self._timed("stream"):
            self._tell("the day begins: exchanges publish, attackers too, the pipeline runs ...")
            self._stream(ticks, pipeline)
        with self._timed("open"):
            self._tell("every desk opens its mailbox ...")
            desks = self._open(subscriptions, ticks)
        with self._timed("outsiders"):
            self._tell("outsiders try every key of every event ...")
            outsiders = list(self._outsiders())
        totals = pipeline.totals
        return DemoReport(
            published=len(self._published) + sum(attack.events for attack in self._hostile),
            admitted=totals["admitted"],
            rejected={n.removeprefix("rejected_"): c for n, c in totals.items() if n.startswith("rejected_") and c},
            deliveries=totals["deliveries"],
            encryptions=totals["encryptions"],
            matched=totals["matched"],
            batches=self._batches,
            desks=desks,
            outsiders=outsiders,
            attacks=self._hostile,
            seconds=self._seconds,
        )

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._seconds[stage] = time.monotonic() - began

    def _count(self, batch: FinishedBatch) -> None:
        self._batches += 1
        self._hear(batch)

    # --- before the day -----------------------------------------------------------------------------

    def _enrol(self) -> list[Subscription]:
        realm, desks = self._realm, [f"desk-{i:03}" for i in range(self._size.desks)]
        realm.create_topic(TOPIC, market.SCHEMA, partitions=PARTITIONS, access=Access.GRANTED, parameters=RATES)
        realm.enrol_many([*EXCHANGES, *desks, STRANGER, FORMER_DESK, FORMER_EXCHANGE, NARROW])
        for name in (*EXCHANGES, FORMER_EXCHANGE):
            realm.grant(TOPIC, name, [Right.PUBLISH])
        realm.grant(TOPIC, NARROW, [Right.PUBLISH], template="symbol=S0")
        for name in (*desks, FORMER_DESK):
            realm.grant(TOPIC, name, [Right.SUBSCRIBE])
        wishes = market.filters(len(desks), seed=self._size.seed, n_symbols=self._size.symbols)
        made = realm.subscribe_many(TOPIC, [(desk, wish, None) for desk, wish in zip(desks, wishes, strict=True)])
        # It keeps its subscription, which matches everything, and its key; what it loses is the right.
        realm.subscribe(TOPIC, FORMER_DESK, "size > 0")
        realm.revoke(TOPIC, FORMER_DESK)
        # Once revoked, it still has its keys and its token.
        self._former = Insider.of(realm, TOPIC, FORMER_EXCHANGE)
        realm.revoke_entity(FORMER_EXCHANGE)
        return made

    # --- the day --------------------------------------------------------------------------------------

    def _stream(self, ticks: Ticks, pipeline: Pipeline) -> None:
        events = ticks.events()
        publishers = [Publisher(self._realm, TOPIC, name) for name in EXCHANGES]
        hostile = list(self._attacks())
        bounds = np.linspace(0, len(events), WAVES + 1).astype(int).tolist()
        for wave, (first, end) in enumerate(pairwise(bounds)):
            for share, publisher in enumerate(publishers):
                mine = range(first + share, end, len(publishers))
                positions = publisher.publish([events[i] for i in mine])
                self._published.update(zip(positions, mine, strict=True))
            self._intrude(hostile[wave::WAVES])
            time.sleep(PAUSE_SECONDS)
        for publisher in publishers:
            publisher.close()
        expected = len(self._published) + sum(attack.events for attack in self._hostile)
        pipeline.wait(lambda: _accounted_for(pipeline.totals) >= expected)

    def _attacks(self) -> Iterator[Attack]:
        realm = self._realm
        cast = Cast(
            publisher=Insider.of(realm, TOPIC, EXCHANGES[0]),
            reader=Insider.of(realm, TOPIC, "desk-000", Right.SUBSCRIBE),
            narrow=Insider.of(realm, TOPIC, NARROW),
            revoked=self._former,
            stranger=Insider.without(realm, STRANGER),
            outdated=outdated(realm, TOPIC, EXCHANGES[0]),
        )
        return attacks(realm.state().topic(TOPIC), cast, time.time_ns() // 1000)

    def _intrude(self, hostile: Sequence[Attack]) -> None:
        """Writes hostile frames straight into the log, past every client, as anyone who can write files could."""
        with EmbeddedTopic(self._realm.paths.topic(TOPIC).frames_root, PARTITIONS) as log:
            for attack in hostile:
                log.partition(place_of(attack.data, PARTITIONS)).append([attack.data])
                self._hostile.append(attack)

    # --- after the day --------------------------------------------------------------------------------

    def _open(self, subscriptions: Sequence[Subscription], ticks: Ticks) -> list[SubscriberDay]:
        oracle = Evaluator(ticks.columns, market.SCHEMA, ticks.payloads)
        place = {tick: position for position, tick in self._published.items()}
        rows = ticks.columns.to_pylist()
        reports = []
        for subscription in subscriptions:
            condition = fit(parse(subscription.filter), market.SCHEMA)
            wanted = {place[tick] for tick in np.flatnonzero(oracle.true(condition)).tolist()}
            with Subscriber(self._realm, TOPIC, subscription.subscriber) as desk:
                opened = list(desk)
                desk.ack()
            right = sum(e.position in wanted and self._same(e, rows, ticks.payloads) for e in opened)
            wrong = len(opened) - right + len(wanted - {e.position for e in opened})
            reports.append(SubscriberDay(subscription.subscriber, subscription.filter, len(wanted), len(opened), wrong))
        return reports

    def _same(self, event: OpenedEvent, rows: Sequence[Mapping[str, object]], payloads: Sequence[bytes]) -> bool:
        """Whether an opened event is what was published, to the last byte."""
        tick = self._published[event.position]
        physical = {name: market.SCHEMA.by_name[name].to_physical(v) for name, v in event.attributes.items()}
        return physical == rows[tick] and event.payload == payloads[tick]

    def _outsiders(self) -> Iterator[Outsider]:
        state = self._realm.state()
        former = self._realm.identity(FORMER_DESK).pair_key(state, TOPIC)
        yield self._try_everything(FORMER_DESK, "had the right, kept its key and a filter that matches all", former)
        yield self._try_everything(STRANGER, "enrolled, never had a right, makes up a key", Secret.random())

    def _try_everything(self, name: str, story: str, pair: Secret) -> Outsider:
        """Tries a key on every use of every sealed event, each time as the subscriber that the use is for."""
        opener_of = cache(partial(self._opener, pair))
        tried = opened = 0
        with closing(sealed_reader(self._realm.paths.topic(TOPIC).root)) as reader:
            refs = [ref for index in range(reader.ledger.end()) for ref in reader.record(index).entry.pieces]
            for piece in map(reader.piece, refs):
                for slot in piece.slots.tolist():
                    for event, use in zip(*(rows.tolist() for rows in piece.rows_for(slot)), strict=True):
                        tried += 1
                        opened += thief.opens(opener_of(slot), piece, event, use)
        return Outsider(name, story, tried, opened)

    def _opener(self, pair: Secret, slot: int) -> Callable[[SealedPiece], Opener]:
        return thief.opener(self._realm.state(), TOPIC, slot, pair)


def _accounted_for(totals: Mapping[str, int]) -> int:
    return totals.get("admitted", 0) + sum(n for name, n in totals.items() if name.startswith("rejected_"))
