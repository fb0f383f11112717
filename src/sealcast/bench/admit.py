"""Suite `admit`: what admission costs, with all checks on, beside verifying one signature for each event.

    batch-signed   frames of a thousand events: how many times as many events a core admits
    event-signed   frames of one event, so that each event has a signature: what share of the limit is reached

The limit is PyNaCl, the fastest Ed25519 that Python has here: a loop that verifies the signature of each event, keys
and signatures at hand, and does nothing else. Ours begins with frames as the log holds them and ends with the events'
columns, checks 1 to 20: frame, token (cached by its hash, revocation looked up), signature, clock, replay windows and
rates, opening, tree, schema, domain. Both halves of admission are in it, each taking the frames apart anew, as the
pipeline runs them. Every core is at work at once, in a process each as Spark's workers are, all of them on the one side
and then on the other; CPU time is taken.

What else a machine does must not decide. Both sides take turns of some tens of milliseconds, so that a slow second is
slow for both. Of each turn the best of all rounds counts: the one in which others disturbed it least.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final

import numpy as np
import pyarrow as pa
from nacl.signing import SigningKey, VerifyKey

from sealcast.bench.report import BenchRow
from sealcast.broker.admit import admit
from sealcast.broker.authenticate import authenticate
from sealcast.broker.frames import MAX_FRAMES_PER_PIECE
from sealcast.broker.gate import Gate
from sealcast.broker.replay import Windows
from sealcast.broker.rulings import gathered
from sealcast.errors import Bug
from sealcast.lab import market, scratch
from sealcast.lab.attacks import Insider
from sealcast.log.offsets import Arrival
from sealcast.log.port import Record
from sealcast.model.stages import Received, Ruled
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.steps import StepName
from sealcast.trust.deployment import Realm
from sealcast.wire.records import RecordCodec

TOPIC: Final = "ticks"
PUBLISHERS: Final = ("nyse", "nasdaq", "lse", "six")
PAYLOAD_BYTES: Final = 256
BATCH_EVENTS: Final = 60_000
SINGLE_EVENTS: Final = 6_000
EVENTS_PER_FRAME: Final = 1_000
ROUNDS: Final = 9


@dataclass(frozen=True, slots=True)
class Load:
    """The same events twice: in frames, and each (of the first few thousand) with a signature of its own."""

    events: int
    received: tuple[Received, ...]
    signed: tuple[tuple[VerifyKey, bytes, bytes], ...]


def rows() -> Iterator[BenchRow]:
    with scratch.realm(need_bytes=256 << 20) as realm:
        realm.create_topic(TOPIC, market.SCHEMA, access="members")
        realm.enrol_many(PUBLISHERS)
        gate = FramesStep.of(StepName(str(realm.paths.root), TOPIC)).gate(realm.registry.version())
        for name, events, per_frame in (
            ("batch-signed", BATCH_EVENTS, EVENTS_PER_FRAME),
            ("event-signed", SINGLE_EVENTS, 1),
        ):
            load = prepare(realm, events, per_frame)
            ours, limit = _fastest(load, gate)
            ours, limit = events / ours, len(load.signed) / limit
            cores = len(os.sched_getaffinity(0))
            unit = f"events/s per core, {cores} at work, frames of {per_frame:,}"
            yield BenchRow(name, ours, limit, "PyNaCl, a signature per event", ours / limit, unit)


def prepare(realm: Realm, events: int, per_frame: int) -> Load:
    """Seals frames of several publishers, as the log has them."""
    topic = realm.state().topic(TOPIC)
    ticks = market.ticks(events, seed=1, n_symbols=500, payload_bytes=PAYLOAD_BYTES)
    messages = RecordCodec(topic.schema).encode_columns(ticks.columns, pa.array(ticks.payloads, pa.binary()))
    sealers = [Insider.of(realm, TOPIC, name).sealer(topic) for name in PUBLISHERS]
    now = time.time_ns() // 1000
    frames = [
        sealers[at // per_frame % len(sealers)].seal_messages(messages[at : at + per_frame], now)
        for at in range(0, events, per_frame)
    ]
    records = (Record(offset, now, data) for offset, data in enumerate(frames))
    # As many at a time as the pipeline takes.
    received = tuple(gathered(0, records, Arrival(now, now), MAX_FRAMES_PER_PIECE))
    keys = [SigningKey.generate() for _ in PUBLISHERS]
    signed = tuple(
        (key.verify_key, message, key.sign(message).signature)
        for key, message in ((keys[i % len(keys)], m) for i, m in enumerate(messages[:SINGLE_EVENTS]))
    )
    return Load(events, received, signed)


def admitting(load: Load, gate: Gate) -> Iterator[None]:
    """Runs both halves of admission, and the windows between them, a step for each piece of the log."""
    windows, admitted = Windows(gate.bounds), 0
    for received in load.received:
        claims, _ = authenticate(received, gate)
        codes = np.zeros(len(received.frames), np.uint8)
        codes[claims["offset"] - received.offsets[0]] = windows.decide(claims)
        admitted += len(admit(Ruled(received, codes), gate).messages)
        yield
    if admitted != load.events:
        raise Bug(f"{load.events} honest events, and {admitted} were admitted")


def verifying(load: Load) -> Iterator[None]:
    """Verifies every signature, in as many steps."""
    steps = len(load.received)
    for step in range(steps):
        for key, message, signature in load.signed[step::steps]:
            key.verify(message, signature)
        yield


def _fastest(load: Load, gate: Gate) -> tuple[float, float]:
    """Measures the seconds of CPU that a core takes for all steps of each side, while all cores do the same."""
    fork = multiprocessing.get_context("fork")
    cores = len(os.sched_getaffinity(0))
    turn = fork.Barrier(cores)
    told = [fork.Pipe(duplex=False) for _ in range(cores)]

    def run(report: Connection) -> None:
        for number in range(1 + ROUNDS):
            sides, spent = (admitting(load, gate), verifying(load)), [list[float](), list[float]()]
            for _ in load.received:
                for side, took in zip(sides, spent, strict=True):
                    turn.wait()  # all cores do the same at the same time
                    began = time.process_time()
                    next(side)
                    took.append(time.process_time() - began)
            for side in sides:
                if next(side, side) is not side:
                    raise Bug("a side of a benchmark has more steps than the other")
            if number:  # the first is for warming up
                report.send(spent)

    workers = [fork.Process(target=run, args=(report,)) for _, report in told]
    for worker in workers:
        worker.start()
    for _, report in told:
        report.close()
    try:
        spent = np.array([[heard.recv() for _ in range(ROUNDS)] for heard, _ in told])
    except EOFError:
        raise Bug("a benchmark's worker failed") from None
    finally:
        for worker in workers:
            worker.join()
    # By core, round, side and step: the best round of each step, all steps together, and the mean of the cores.
    mine, theirs = spent.min(axis=1).sum(axis=2).mean(axis=0).tolist()
    return mine, theirs
