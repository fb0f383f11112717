"""Group keys in the running pipeline: every member opens, and nobody else, alone or together, then, before or after."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from sealcast.filters import bits
from sealcast.filters.bits import Indices, Words
from sealcast.groupkeys.catalog import ALGORITHMS, Setting, make
from sealcast.groupkeys.handed import DELIVERED
from sealcast.groupkeys.interface import GroupKey, KeyPlan, Planner
from sealcast.groupkeys.mosaic.planner import Mosaic
from sealcast.groupkeys.plans import assign
from sealcast.model import Position
from sealcast.pipeline.run import run_batch
from sealcast.protections.endpoint import memory
from sealcast.protections.endpoint.audit import EndpointAudit
from sealcast.wire.sealed import SealedPiece
from tests.groupkeys.security import check
from tests.pipeline.crowd import TOPIC, Crowd, Pool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUBSCRIBERS = 34


def small(algorithm: str, subscribers: int) -> Planner:
    """Small caches and tiles, so that things are evicted, bought and grown within a test."""
    if algorithm == "mosaic":
        return Mosaic(subscribers, 20_000, tile=5)
    return make(algorithm, Setting(subscribers, 24, 5, policy="tinylfu"))


@pytest.fixture
def small_planners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "planner_for", small)


def lived_through(crowd: Crowd, batches: int = 6) -> None:
    """Popular groups and others; members leave, come back, and come newly, also to groups that were there before."""
    rng, number = crowd.rng, 0
    names = list(crowd.wishes)
    for batch in range(batches):
        fresh = {}
        for _ in range(12 if batch == 0 else 5):
            number += 1
            fresh[number] = rng.sample(names, rng.randint(1, len(names)))
        crowd.want(fresh)
        if batch == 2:
            crowd.leave(names[0])
            crowd.leave(names[1])
            crowd.join({f"late{i}": set(rng.sample(range(1, number + 1), 6)) for i in range(7)})
            names += [f"late{i}" for i in range(7)]
        if batch == 4:
            crowd.come_back(names[0])
        if batch == 5:
            crowd.realm.rotate(TOPIC)
        crowd.publish([*fresh, *(rng.randint(1, number) for _ in range(25))])
        crowd.pump()


def events_of(pieces: list[SealedPiece]) -> Iterator[tuple[SealedPiece, int, Position]]:
    for piece in pieces:
        for event in range(len(piece)):
            yield piece, event, piece.position(event)


@pytest.mark.usefixtures("small_planners")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_members_open_and_all_others_together_do_not(tmp_path: Path, algorithm: str) -> None:
    crowd = Crowd(tmp_path, SUBSCRIBERS, algorithm, seed=len(algorithm))
    lived_through(crowd)
    pieces = crowd.pieces()
    everyone = set(crowd.wishes)

    for name in everyone:
        assert crowd.opened(name, pieces) == {p for p, members in crowd.groups.items() if name in members}

    events = list(events_of(pieces))
    checked, opened = 0, 0
    for piece, event, position in crowd.rng.sample(events, 6):
        members = crowd.groups[position]
        pool = Pool(crowd, everyone - members, pieces)
        assert not pool.opens(piece, event) and not pool.guesses(piece, event)
        checked += 1
        opened += Pool(crowd, [min(members)], pieces).opens(piece, event)
    assert opened == checked == 6, "and the attack opens what it should open"

    report = EndpointAudit(crowd.realm, TOPIC).run()
    assert report.ok, report.problems[:3]
    kinds = {int(kind) for piece in pieces for kind in piece.key_kind}
    assert kinds == {"naive": {0}, "mosaic": {0, 2, 3}}.get(algorithm, {0, 1})


@pytest.mark.usefixtures("small_planners")
def test_leavers_do_not_read_on_and_joiners_do_not_read_back(tmp_path: Path) -> None:
    """Each of them against every event of the other side of its leaving or joining, with all its keys."""
    crowd = Crowd(tmp_path, SUBSCRIBERS)
    lived_through(crowd)
    pieces = crowd.pieces()
    left = Pool(crowd, ["s1"], pieces)
    joined = [name for name in crowd.wishes if name.startswith("late")]
    back = Pool(crowd, joined, pieces)
    for number, piece in enumerate(pieces):
        for event in range(len(piece)):
            if number >= 2:
                assert not left.opens(piece, event)
            if number < 2:
                assert not back.opens(piece, event)
    assert any(left.opens(pieces[0], event) for event in range(len(pieces[0])))
    assert any(back.opens(piece, event) for piece in pieces[2:] for event in range(len(piece)))


def test_the_same_on_spark_with_several_partitions_tasks_and_workers(tmp_path: Path, spark: SparkSession) -> None:
    """Workers share nothing but the ledger: keys are handed out again at most, and everybody opens."""
    crowd = Crowd(tmp_path, SUBSCRIBERS, partitions=2)
    names, rng = list(crowd.wishes), crowd.rng
    crowd.want({g: rng.sample(names, rng.randint(4, SUBSCRIBERS)) for g in range(1, 25)})
    costs = []
    for batch in range(3):
        for _ in range(5):
            crowd.publish(rng.choices(range(1, 25), k=24))
        if batch == 2:
            crowd.leave(names[3])
            crowd.realm.rotate(TOPIC)
        counts = crowd.pump(lambda realm, topic: run_batch(spark, realm.paths.root, topic))
        costs.append(counts["encryptions"] / counts["matched"])
    assert costs[1] < 0.6 * costs[0], "what one batch hands out, the next relies on"
    pieces = crowd.pieces()
    for name in names:
        assert crowd.opened(name, pieces) == {p for p, members in crowd.groups.items() if name in members}
    for piece, event, position in rng.sample(list(events_of(pieces)), 4):
        assert not Pool(crowd, set(names) - crowd.groups[position], pieces).opens(piece, event)
    report = EndpointAudit(crowd.realm, TOPIC).run()
    assert report.ok, report.problems[:3]


# --- an attack that would succeed ---------------------------------------------------------------------------


class Weak:
    """A planner that gives each group a key that one outsider holds, too."""

    name = "weak"

    def plan(self, groups: Words, group_of: Indices | None = None, tag: int = DELIVERED) -> KeyPlan:
        group, slot = bits.pairs(groups)
        members = [slot[group == g].tolist() for g in range(groups.shape[0])]
        spy = [min(set(range(SUBSCRIBERS)) - set(m), default=0) for m in members]
        refs = [GroupKey(tuple(sorted({*m, s}))) for m, s in zip(members, spy, strict=True)]
        plan = assign(groups.shape[0], group, slot, group.copy(), refs, np.ones(len(refs), np.bool_))
        assert check(plan, groups) is not None
        inside = np.array([s in members[g] for s, g in zip(plan.handout_slot, plan.handout_group, strict=True)])
        fields = ("handout_slot", "handout_key", "handout_group")
        self.leaked = [
            (int(s), int(g)) for s, g in zip(plan.handout_slot[~inside], plan.handout_group[~inside], strict=True)
        ]
        # The wire takes nothing for a slot that has no event: the spy is told in another way.
        return KeyPlan(**{f: getattr(plan, f) for f in plan.__slots__} | {f: getattr(plan, f)[inside] for f in fields})

    def settle(self, tag: int, delivered: bool) -> None:
        pass


def test_a_weak_planner_is_broken_by_the_same_attack_and_found_by_the_checker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "planner_for", lambda algorithm, subscribers: Weak())
    crowd = Crowd(tmp_path, SUBSCRIBERS)
    rng = random.Random(3)
    crowd.want({g: rng.sample(list(crowd.wishes), 12) for g in range(1, 7)})
    crowd.publish(range(1, 7))
    crowd.pump()
    pieces = crowd.pieces()
    sealer = EndpointAudit(crowd.realm, TOPIC)._keys(1, b"").sealer
    broken = 0
    for piece, event, position in events_of(pieces):
        members = sorted(crowd.slot(name) for name in crowd.groups[position])
        spy = min(set(range(SUBSCRIBERS)) - set(members))
        pool = Pool(crowd, [f"s{spy}"], pieces)
        assert not pool.opens(piece, event)
        key = GroupKey(tuple(sorted({*members, spy})))
        pool._secrets[(1, b""), sealer.key_id(key)] = sealer.secret(key)  # as a member of that larger group has it
        broken += pool.opens(piece, event)
    assert broken == 6
    assert EndpointAudit(crowd.realm, TOPIC).run().found["keys"] >= 6  # type: ignore[index]
