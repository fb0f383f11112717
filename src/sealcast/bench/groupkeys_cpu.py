"""Rows `cpu` and `planning` of `sealcast bench groupkeys`: CPU time, not encryptions.

    cpu         random groups, N = 1,000, C = 10,000: planning, key set-up, sealing each body once and wrapping its
                content key for the group, per event; ratio = ours over the clustered cache
    planning    popular groups, 1,000 of them: what planning costs over the sealing that it saves beside naive

Everything is warm: the reference's cache is full and its ciphers are expanded, ours has seen as much. Keys that are
handed out on the way are part of both sides.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from sealcast.bench.report import BenchRow
from sealcast.filters import bits
from sealcast.filters.bits import Indices, Words
from sealcast.groupkeys.clustered import Clustered
from sealcast.groupkeys.clusters import by_id, by_rule
from sealcast.groupkeys.interface import KeyPlan, Planner
from sealcast.groupkeys.mosaic.planner import Mosaic
from sealcast.groupkeys.naive import Naive
from sealcast.lab import groups as workloads
from sealcast.model.stages import Admitted, Grouped
from sealcast.primitives import kdf
from sealcast.primitives.secrets import Secret
from sealcast.protections.endpoint.seal import seal
from sealcast.protections.endpoint.sealer import EndpointSealer

SUBSCRIBERS: Final = 1_000
CACHE: Final = 10_000
MEMORY_BYTES: Final = 330_000
BATCH: Final = 500
WARM_BATCHES: Final = 8
BATCHES: Final = 4
PAYLOAD_BYTES: Final = 256


class LastLeg:
    """The pipeline's own sealing of batches and nothing else, with one planner's keys."""

    def __init__(self, planner: Planner) -> None:
        topic = Secret.random()
        pairs = [kdf.derive(topic, b"pair", i.to_bytes(4, "big")) for i in range(SUBSCRIBERS)]
        self._planner = planner
        self._sealer = EndpointSealer(bytes(16), 1, topic, lambda slot: pairs[slot])
        self.planning = self.sealing = 0.0

    def plan(self, groups: Words, group_of: Indices | None = None) -> KeyPlan:
        began = time.process_time()
        plan = self._planner.plan(groups, group_of)
        self.planning += time.process_time() - began
        return plan

    def batch(self, words: Words, offset: int) -> None:
        groups, group_of = bits.unique_rows(words)
        rows, frame = np.arange(group_of.size), np.zeros(group_of.size, np.int64)
        messages, nothing = [bytes(PAYLOAD_BYTES)] * group_of.size, pa.RecordBatch.from_pylist([])
        admitted = Admitted(0, offset, offset + 1, (), frame, frame + offset, rows, messages, nothing, frame, ())
        began, planned = time.process_time(), self.planning
        seal(Grouped(admitted, groups, rows, group_of), self, self._sealer)
        self.sealing += time.process_time() - began - (self.planning - planned)


def rows() -> Iterator[BenchRow]:
    yield _cpu_row()
    yield _planning_row()


def _cpu_row() -> BenchRow:
    events = workloads.random_groups(BATCH * (WARM_BATCHES + BATCHES), SUBSCRIBERS, seed=1)
    ours = _measured(Mosaic(SUBSCRIBERS, MEMORY_BYTES, seed=1), events)
    reference = _measured(Clustered(by_id(SUBSCRIBERS, by_rule(SUBSCRIBERS, CACHE)), CACHE), events)
    mine, theirs = (1e6 * (leg.planning + leg.sealing) / (BATCH * BATCHES) for leg in (ours, reference))
    return BenchRow("cpu", mine, theirs, "the clustered cache", mine / theirs, "CPU us per event")


def _planning_row() -> BenchRow:
    events = workloads.popular_groups(BATCH * (WARM_BATCHES + BATCHES), SUBSCRIBERS, seed=1, popular=1_000)
    ours = _measured(Mosaic(SUBSCRIBERS, CACHE * 157, seed=1), events)
    naive = _measured(Naive(), events)
    count = BATCH * BATCHES
    spent = 1e6 * ours.planning / count
    saved = 1e6 * (naive.sealing - ours.sealing) / count
    return BenchRow("planning", spent, saved, "the sealing that it saves", spent / saved, "CPU us per event")


def _measured(planner: Planner, events: Words) -> LastLeg:
    leg = LastLeg(planner)
    for number, start in enumerate(range(0, events.shape[0], BATCH)):
        if number == WARM_BATCHES:
            leg.planning = leg.sealing = 0.0
        leg.batch(events[start : start + BATCH], number)
    return leg
