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

from sealcast.bench.report import Row
from sealcast.filters import bits
from sealcast.filters.bits import Indices, Words
from sealcast.groupkeys.clustered import Clustered
from sealcast.groupkeys.interface import KeyPlan, Planner
from sealcast.groupkeys.mosaic.planner import Mosaic
from sealcast.groupkeys.naive import Naive
from sealcast.lab import groups as workloads
from sealcast.primitives import aead, kdf
from sealcast.primitives.secrets import Secret
from sealcast.protections.endpoint import wraps
from sealcast.protections.endpoint.sealer import EndpointSealer

SUBSCRIBERS: Final = 1_000
CACHE: Final = 10_000
MEMORY_BYTES: Final = 330_000
BATCH: Final = 500
WARM_BATCHES: Final = 8
BATCHES: Final = 4
PAYLOAD_BYTES: Final = 256


class LastLeg:
    """Sealing for groups and nothing else: bodies, wraps and handouts of a batch, with one planner's keys."""

    def __init__(self, planner: Planner) -> None:
        topic = Secret.random()
        pairs = [kdf.derive(topic, b"pair", i.to_bytes(4, "big")) for i in range(SUBSCRIBERS)]
        self._planner = planner
        self._sealer = EndpointSealer(bytes(16), 1, topic, lambda slot: pairs[slot])
        self._message = bytes(PAYLOAD_BYTES)
        self.planning = self.sealing = 0.0

    def batch(self, events: Words, offset: int) -> None:
        groups, group_of = bits.unique_rows(events)
        began = time.process_time()
        plan = self._planner.plan(groups, group_of)
        planned = time.process_time()
        self._seal(plan, group_of, offset)
        self.planning += planned - began
        self.sealing += time.process_time() - planned

    def _seal(self, plan: KeyPlan, group_of: Indices, offset: int) -> None:
        joined = aead.nonces(0, np.full(group_of.size, offset), np.arange(group_of.size))
        nonces = [joined[i : i + 12] for i in range(0, len(joined), 12)]
        use_start = np.concatenate(([0], np.cumsum(np.diff(plan.use_start)[group_of])))
        uses = np.concatenate([plan.uses[plan.use_start[g] : plan.use_start[g + 1]] for g in group_of.tolist()])
        direct = np.diff(use_start) == 1
        keys = wraps.PlannedKeys(plan.keys, self._sealer)
        for event in np.flatnonzero(direct).tolist():
            keys.body_key(int(uses[use_start[event]])).seal(nonces[event], self._message)
        wrapped = np.flatnonzero(~direct).tolist()
        own = [nonces[event] for event in wrapped]
        contents = self._sealer.content_keys(own)
        aead.seal_each(contents, self._sealer.associated_data, b"".join(own), [self._message] * len(own))
        wraps.wrap_content_keys(dict(zip(wrapped, contents, strict=True)), nonces, use_start, uses, keys)
        wraps.links(plan, keys)
        for slot, key in zip(plan.handout_slot.tolist(), plan.handout_key.tolist(), strict=True):
            keys.hand_out(slot, key)
        for tile in np.unique(plan.table_of).tolist():
            wanted = plan.table_slot[plan.table_of == tile].tolist()
            self._sealer.hand_out_table(plan.tables[tile], wanted)


def rows() -> Iterator[Row]:
    yield _cpu_row()
    yield _planning_row()


def _cpu_row() -> Row:
    events = workloads.random_groups(BATCH * (WARM_BATCHES + BATCHES), SUBSCRIBERS, seed=1)
    ours = _measured(Mosaic(SUBSCRIBERS, MEMORY_BYTES, seed=1), events)
    reference = _measured(Clustered.of(SUBSCRIBERS, CACHE), events)
    mine, theirs = (1e6 * (leg.planning + leg.sealing) / (BATCH * BATCHES) for leg in (ours, reference))
    return Row("cpu", mine, theirs, "the clustered cache", mine / theirs, "CPU us per event")


def _planning_row() -> Row:
    events = workloads.popular_groups(BATCH * (WARM_BATCHES + BATCHES), SUBSCRIBERS, seed=1, popular=1_000)
    ours = _measured(Mosaic(SUBSCRIBERS, CACHE * 157, seed=1), events)
    naive = _measured(Naive(), events)
    count = BATCH * BATCHES
    spent = 1e6 * ours.planning / count
    saved = 1e6 * (naive.sealing - ours.sealing) / count
    return Row("planning", spent, saved, "the sealing that it saves", spent / saved, "CPU us per event")


def _measured(planner: Planner, events: Words) -> LastLeg:
    leg = LastLeg(planner)
    for number, start in enumerate(range(0, events.shape[0], BATCH)):
        if number == WARM_BATCHES:
            leg.planning = leg.sealing = 0.0
        leg.batch(events[start : start + BATCH], number)
    return leg
