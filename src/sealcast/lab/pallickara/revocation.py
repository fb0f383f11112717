"""Revoking one in a hundred subscribers while events flow: from when on does it count, and does it count for all?

Paper 004 has brokers told of revoked entities and prints no number of it (sections 4.1 and 5.3). Here a publisher keeps
the broker busy: there is always something waiting. Meanwhile 1 % of the subscribers are revoked, in one transaction. It
counts from the first batch on that is pinned to a version with the revocation in it; the batch before it, which was
under way, is the last that may still hold something for them. Three moments are told:

    decided      the revocation is durable
    in effect    the first batch under it is committed
    last         the last batch without it was committed, which was under way when the revocation came

That it counts is not taken from the broker's word. The revoked go on with all that they ever had, their own keys and
every key that was handed to them, and try each event of each later batch through every key that it was sealed under:
nothing may open. The others must get exactly what they asked for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sealcast.clients.publisher import Publisher
from sealcast.errors import Unavailable
from sealcast.lab import scratch, thief
from sealcast.lab.pallickara.broker import LabBroker
from sealcast.lab.report import Report, Row, Told
from sealcast.log.ledger import Committed, LedgerReader
from sealcast.log.piece_reader import sealed_reader
from sealcast.model.event import Event, Position
from sealcast.model.schema import Schema
from sealcast.trust.deployment import Realm
from sealcast.wire.sealed import SealedPiece

NAME: Final = "pallickara/revocation"
TOPIC: Final = "load"
SCHEMA: Final = Schema.from_json({"attributes": [{"name": "desk", "type": "int", "min": 0}]})
#: Subscribers that want the same events.
PER_DESK: Final = 100
SHARE: Final = 0.01
SUBSCRIBERS: Final = 10_000
QUICK_SUBSCRIBERS: Final = 500
EVENTS_PER_FRAME: Final = 50
#: Frames that wait for the broker, at least: it is never idle.
AHEAD: Final = 4
#: Batches before the revocation, and after it is in effect.
BATCHES: Final = 4
#: Of the revoked, those who try to read on; and of the others, those who do.
TRIED: Final = 5
_PATIENCE_S: Final = 300.0
_BYTES_EACH: Final = 32_768

#: Runs a realm's broker in the background for as long as the block lasts.
Running = Callable[[Realm], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class RevocationOutcome:
    """What a revocation under load led to. Times are seconds from when it was asked for."""

    subscribers: int
    revoked: int
    decided: float
    in_effect: float
    #: None if no batch was under way.
    last: float | None
    #: Batches, events and deliveries after it was in effect.
    batches: int
    events: int
    deliveries: int
    #: Deliveries that there had to be.
    expected: int
    #: Batches, after it was in effect, that have something for a revoked subscriber.
    addressed: int
    #: Of those who tried: events they opened before, attempts after, and what they opened then.
    opened_before: int
    attempts: int
    opened_after: int

    @property
    def holds(self) -> bool:
        return self.addressed == self.opened_after == 0 and self.deliveries == self.expected and self.attempts > 0


# --- under load -----------------------------------------------------------------------------------------


@contextmanager
def by_hand(realm: Realm) -> Iterator[None]:
    """Runs the lab's own broker in a thread, one batch after the other."""
    ended = threading.Event()

    def serve() -> None:
        with LabBroker(Realm(realm.paths.root), TOPIC) as broker:
            while not ended.is_set():
                if broker.turn() is None:
                    time.sleep(0.002)

    with ThreadPoolExecutor(1) as threads:
        serving = threads.submit(serve)
        try:
            yield
        finally:
            ended.set()
            serving.result()


def populate(realm: Realm, subscribers: int) -> list[str]:
    """Enrols so many subscribers, a hundred of them to a desk; their names."""
    names = [f"reader-{number}" for number in range(subscribers)]
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.enrol_many(["publisher", *names])
    realm.subscribe_many(TOPIC, [(name, f"desk = {at // PER_DESK}", None) for at, name in enumerate(names)])
    return names


def drill(realm: Realm, subscribers: int, running: Running = by_hand, batches: int = BATCHES) -> RevocationOutcome:
    """Revokes under load, on an empty realm, with at least so many batches before and after."""
    names = populate(realm, subscribers)
    revoked = names[:: round(1 / SHARE)]
    ended = threading.Event()
    paths = realm.paths.topic(TOPIC)
    with ThreadPoolExecutor(1) as threads, LedgerReader(paths.ledger) as ledger:
        load = threads.submit(_publish, realm, subscribers // PER_DESK, ended)
        try:
            with running(realm):
                _wait(lambda: ledger.end() >= batches)
                asked, began = time.time_ns() // 1000, time.perf_counter()
                version = realm.revoke_entities(revoked)
                decided = time.perf_counter() - began
                _wait(lambda: _since(ledger, version) >= batches)
                ended.set()
                desks = load.result()
        finally:
            ended.set()
        records = list(ledger.entries())
    return _judge(realm, records, revoked, desks, version, asked, decided)


def _publish(realm: Realm, desks: int, ended: threading.Event) -> dict[Position, int]:
    """Publishes frames, a few ahead of the broker, until `ended`; the desk of every event, by its position."""
    said: dict[Position, int] = {}
    ours, number, frames = Realm(realm.paths.root), 0, 0
    with Publisher(ours, TOPIC, "publisher") as publisher, LedgerReader(ours.paths.topic(TOPIC).ledger) as ledger:
        while not ended.is_set():
            last = ledger.last()
            if frames - (0 if last is None else sum(last.entry.end.partitions)) >= AHEAD:
                time.sleep(0.001)
                continue
            wanted = [(number + i) % max(1, desks) for i in range(EVENTS_PER_FRAME)]
            number, frames = number + EVENTS_PER_FRAME, frames + 1
            positions = publisher.publish([Event({"desk": desk}, b"for the desk") for desk in wanted])
            said |= dict(zip(positions, wanted, strict=True))
    return said


def _since(ledger: LedgerReader, version: int) -> int:
    """Counts the newest batches that are under a version or a later one."""
    count = 0
    while count < ledger.end() and ledger.at(ledger.end() - 1 - count).entry.version >= version:
        count += 1
    return count


def _wait(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not happened():
        if time.monotonic() > deadline:
            raise Unavailable("the broker did not get on within five minutes", hint="the machine may be too busy")
        time.sleep(0.002)


# --- what became of it ----------------------------------------------------------------------------------


def _judge(
    realm: Realm,
    records: Sequence[Committed],
    revoked: Sequence[str],
    desks: dict[Position, int],
    version: int,
    asked: int,
    decided: float,
) -> RevocationOutcome:
    state = realm.state()
    before = [r for r in records if r.entry.version < version]
    after = [r for r in records if r.entry.version >= version]
    slots = {slot for name in revoked if (slot := state.slot_of(TOPIC, name)) is not None}
    reader = sealed_reader(realm.paths.topic(TOPIC).root)
    earlier, later = ([reader.piece(ref) for r in rs for ref in r.entry.pieces] for rs in (before, after))
    reader.close()
    opened_before = attempts = opened_after = 0
    for name in revoked[:TRIED]:
        slot = state.slot_of(TOPIC, name)
        assert slot is not None  # a slot that was given stays
        # It still has its key file, and tries every event of a piece through every key that it was sealed under.
        opener = thief.opener(state, TOPIC, slot, realm.identity(name).pair_key(state, TOPIC))
        opened_before += sum(len(opener(piece).open_rows(piece)) for piece in earlier)
        for piece in later:
            for event, (first, end) in enumerate(pairwise(piece.use_start.tolist())):
                attempts += end - first
                opened_after += sum(thief.opens(opener, piece, event, use) for use in range(first, end))
    events = [desks[p.position(e)] for p in later for e in range(len(p))]
    left = _left_at_desks(len(state.slots_of(TOPIC)), slots)
    return RevocationOutcome(
        subscribers=len(state.slots_of(TOPIC)),
        revoked=len(slots),
        decided=decided,
        in_effect=(after[0].time_us - asked) / 1e6,
        last=(before[-1].time_us - asked) / 1e6 if before[-1].time_us > asked else None,
        batches=len(after),
        events=len(events),
        deliveries=sum(len(piece.mailbox_event) for piece in later),
        expected=sum(left[desk] for desk in events),
        addressed=sum(_addressed(piece, slots) for piece in later),
        opened_before=opened_before,
        attempts=attempts,
        opened_after=opened_after,
    )


def _left_at_desks(subscribers: int, revoked: set[int]) -> list[int]:
    """How many still want each desk's events: slots are given in the order of subscribing."""
    left = [0] * -(-subscribers // PER_DESK)
    for slot in range(subscribers):
        left[slot // PER_DESK] += slot not in revoked
    return left


def _addressed(piece: SealedPiece, slots: set[int]) -> bool:
    """Whether a piece has an event or a key for one of these slots."""
    given = (piece.slots, piece.handout_slot, piece.table_slot)
    return any(not slots.isdisjoint(array.tolist()) for array in given)


# --- the report -----------------------------------------------------------------------------------------


def run(quick: bool, told: Told) -> Report:
    subscribers = QUICK_SUBSCRIBERS if quick else SUBSCRIBERS
    with scratch.realm(subscribers * _BYTES_EACH) as realm:
        outcome = drill(realm, subscribers)
    told(1, 1)
    return report(outcome)


def report(outcome: RevocationOutcome) -> Report:
    o = outcome
    rows = [
        _row("subscribers", o.subscribers),
        _row("revoked", o.revoked),
        _row("milliseconds until decided", _ms(o.decided)),
        _row("milliseconds until in effect", _ms(o.in_effect)),
        _row("milliseconds until the last batch without it", None if o.last is None else _ms(o.last)),
        _row("batches after it", o.batches),
        _row("events after it", o.events),
        _row("deliveries after it", o.deliveries, o.deliveries == o.expected),
        _row("batches after it with something for the revoked", o.addressed, o.addressed == 0),
        _row("events that the revoked opened before it", o.opened_before),
        _row("attempts of the revoked after it", o.attempts),
        _row("events that the revoked opened after it", o.opened_after, o.opened_after == 0),
    ]
    notes = [
        "the paper prints no number of this; agrees says that what must hold did",
        f"in effect {_ms(o.in_effect)} ms after it was asked for, of which {_ms(o.decided)} ms to sign and store the "
        f"revocation of {o.revoked} of {o.subscribers:,} subscribers, and the rest for the batch that was under way "
        "and the first one after it; on Spark those are micro-batches",
    ]
    return Report(NAME, rows, o.holds, notes)


def _row(cell: str, measured: float | None, agrees: bool | None = None) -> Row:
    return {"cell": cell, "printed": None, "measured": measured, "agrees": agrees}


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 1)
