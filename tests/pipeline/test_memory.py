"""What workers remember of who holds which key: it follows the ledger, whoever made the pieces, whatever is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sealcast.filters.bits import Indices, Words
from sealcast.groupkeys.catalog import ALGORITHMS
from sealcast.groupkeys.interface import KeyPlan, Planner
from sealcast.groupkeys.mosaic.planner import Mosaic
from sealcast.log.ledger import LedgerReader
from sealcast.log.pieces import Pieces
from sealcast.protections import steps
from sealcast.protections.endpoint import memory
from sealcast.protections.endpoint.broker import EndpointStep
from sealcast.protections.endpoint.memory import FEW, KeyMemory, planner_for
from sealcast.wire import mailboxes
from tests.groupkeys.groups import packed
from tests.pipeline.crowd import TOPIC, Crowd

SUBSCRIBERS = 40
GROUPS = 30


@pytest.fixture
def crowd(tmp_path: Path) -> Crowd:
    made = Crowd(tmp_path, SUBSCRIBERS)
    rng = made.rng
    made.want({g: rng.sample(list(made.wishes), rng.randint(5, SUBSCRIBERS)) for g in range(1, GROUPS + 1)})
    return made


def everyone_opens(crowd: Crowd) -> None:
    pieces = crowd.pieces()
    for name in crowd.wishes:
        assert crowd.opened(name, pieces) == {p for p, members in crowd.groups.items() if name in members}


def forget() -> None:
    """As if every worker had died."""
    steps._open.cache_clear()


@pytest.mark.parametrize("between", [lambda: None, forget], ids=["one worker", "a new worker each time"])
def test_a_key_is_handed_out_once_whoever_makes_the_next_piece(crowd: Crowd, between: Callable[[], None]) -> None:
    costs = []
    for _ in range(3):
        crowd.publish(range(1, GROUPS + 1))
        costs.append(crowd.pump()["encryptions"])
        between()
    assert costs[1:] == [GROUPS, GROUPS] and costs[0] > 2 * GROUPS
    everyone_opens(crowd)


def test_members_as_bits_and_one_by_one_teach_the_same(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    real = mailboxes.of_groups

    def one_by_one(*args: object) -> dict[str, object]:
        fields = real(*args)  # type: ignore[arg-type]
        return {**fields, "member_bits": b"", "members": args[3]}

    monkeypatch.setattr(mailboxes, "of_groups", one_by_one)
    for _ in range(2):
        crowd.publish(range(1, GROUPS + 1))
        cost = crowd.pump()["encryptions"]
        forget()
    assert cost == GROUPS
    everyone_opens(crowd)


def test_what_was_planned_and_never_committed_is_handed_out_again(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is sealed and lost, sealed again and committed: the second must not rely on the first."""
    seen: list[KeyPlan] = []
    real = KeyMemory.plan

    def twice(self: KeyMemory, groups: Words, group_of: Indices | None = None) -> KeyPlan:
        seen.append(real(self, groups, group_of))  # nobody ever gets to see this one
        return real(self, groups, group_of)

    monkeypatch.setattr(KeyMemory, "plan", twice)
    for _ in range(3):
        crowd.publish(range(1, GROUPS + 1))
        crowd.pump()
    assert seen[0].handout_slot.size + seen[0].link_key.size > 0
    everyone_opens(crowd)


def test_another_workers_piece_in_place_of_ones_own_is_noticed(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker A seals a batch, B's piece of it is committed, with other keys; then A goes on."""
    version = crowd.realm.registry.version()
    crowd.publish(range(1, 12))
    worker = EndpointStep(steps.StepName(str(crowd.realm.paths.root), TOPIC))
    planner = worker.at(version).sealing.planner  # type: ignore[attr-defined]
    plan = planner.plan(_groups(crowd))
    assert plan.handout_slot.size + plan.link_key.size > 0
    crowd.pump()  # by B
    piece = crowd.pieces()[-1]
    planner.made(piece, b"what A made of it, which is something else")
    monkeypatch.setattr(steps, "_open", lambda name, where: worker)
    crowd.publish(range(1, GROUPS + 1))
    crowd.pump()  # by A
    everyone_opens(crowd)


def _groups(crowd: Crowd) -> Words:
    rows = [[crowd.slot(n) for n, wanted in crowd.wishes.items() if g in wanted] for g in range(12, GROUPS)]
    return packed([frozenset(row) for row in rows], SUBSCRIBERS)


def test_few_subscribers_are_served_one_by_one_and_more_are_not(tmp_path: Path) -> None:
    ledger, pieces = LedgerReader(tmp_path / "ledger"), Pieces(tmp_path / "pieces")
    kept = KeyMemory(ledger, pieces, bool, FEW - 1, "mosaic")
    assert kept._planner.name == "naive"
    kept.grown_to(4 * FEW)
    assert kept._planner.name == "mosaic"
    for name in ALGORITHMS:
        assert planner_for(name, 50).name == name


def test_pieces_that_cannot_be_read_teach_nothing_and_stop_nobody(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    crowd.publish(range(1, GROUPS + 1))
    first = crowd.pump()["encryptions"]
    forget()
    monkeypatch.setattr(steps.OpenStep, "pieces", property(lambda step: Pieces(tmp_path / "nowhere")))
    crowd.publish(range(1, GROUPS + 1))
    assert crowd.pump()["encryptions"] == first > GROUPS
    everyone_opens(crowd)


def test_a_planner_of_ones_own_choice(tmp_path: Path) -> None:
    def mine(algorithm: str, subscribers: int) -> Planner:
        return Mosaic(subscribers, 10_000)

    kept = KeyMemory(LedgerReader(tmp_path / "ledger"), Pieces(tmp_path / "pieces"), bool, 3, "naive", mine)
    assert kept._planner.name == "mosaic" and memory.planner_for is planner_for
