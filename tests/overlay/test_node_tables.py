"""Versioned tables: any version, from any start, is the fold of that many turns; and what was altered is not used."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sealcast.errors import Corrupt, Misuse
from sealcast.primitives.groups import Element
from sealcast.primitives.secrets import Secret
from sealcast.protections.layered.filters import records
from sealcast.protections.layered.filters.fold import TableFold
from sealcast.protections.layered.filters.records import (
    CONTEXT,
    Dropped,
    EndedEpochs,
    OpenedTree,
    RowChange,
    Shown,
    Stream,
    TableTurn,
    Took,
    Withdrew,
)
from sealcast.protections.layered.filters.snapshots import KEPT, TableSnapshots
from sealcast.protections.layered.filters.table import NodeTables, TableLog
from sealcast.protections.layered.route import RoutingNode
from sealcast.protections.layered.tree import TreeId
from tests.overlay.filters_world import World, quick_realms, wants

GENESIS = bytes(32)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A root and one below it, after a dozen turns of coming and going."""
    with quick_realms(tmp_path_factory.mktemp("tables")) as realms:
        made = realms.world(3, [None, 0], [1, 1, 1], publishers=2)
        random = Random(1)
        for _ in range(12):
            name = random.choice(made.readers)
            mine = list(made.wanted[name].elements())
            if mine and random.random() < 0.4:
                made.unsubscribe(name, random.choice(mine))
            else:
                made.subscribe(name, wants([[random.randrange(4)], [random.randrange(4)]]))
            made.keepers["b1"].turn()
        made.start_over("s0", [wants([[5]])])
        made.settle()
        yield made
        made.close()


@pytest.fixture
def log(world: World) -> Iterator[TableLog]:
    opened = TableLog(world.realm, world.topic, world.realm.broker("b1"))
    yield opened
    opened.close()


def snapshots_of(world: World) -> Path:
    return world.realm.paths.topic(world.topic, "b1").filters / "snapshots"


def seen(fold: TableFold) -> object:
    """All that a fold is."""
    trees = {
        number: (
            tree.id,
            tree.place,
            [(row.slots, row.found_by, row.paths) for row in tree.table.rows()],
            list(tree.rows.items()),
            tree.heads,
            tree.tokens,
        )
        for number, tree in fold.trees.items()
    }
    numbers = fold.version, fold.taken, fold.opened, fold.changed, fold.kept
    return numbers, fold.refused, fold.credentials, fold.numbers, trees


def scratch(log: TableLog, version: int) -> TableFold:
    return log.advance(TableFold("b1"), version)


def shown(brokers: Any) -> dict[TreeId, dict[object, object]]:
    return {id: {row.slots: dict(row.paths) for row in b.table.rows()} for id, b in brokers.items()}


# --- versions -----------------------------------------------------------------------------------------


def test_any_version_in_any_order_is_the_fold_of_so_many_turns(world: World, log: TableLog) -> None:
    newest = log.version()
    assert newest >= 13
    expected = {
        version: {
            tree.id: {row.slots: dict(row.paths) for row in tree.table.rows()}
            for tree in scratch(log, version).trees.values()
        }
        for version in range(newest + 1)
    }
    tables, order = (
        NodeTables(world.realm, world.topic, "b1"),
        [*range(newest + 1), *range(newest, -1, -3), 5, 5, newest],
    )
    for version in order:
        assert shown(tables.at(version)) == expected[version]
    with pytest.raises(Misuse):
        tables.at(newest + 1)
    tables.close()


def test_folding_takes_no_power_and_routing_only_the_brokers_own_keys(world: World) -> None:
    tables = NodeTables(world.realm, world.topic, "b1")
    brokers = tables.at(tables.version())
    assert brokers
    assert [broker.layers.powers for broker in brokers.values()] == [0] * len(brokers)
    assert all(isinstance(broker, RoutingNode) and broker.place.name == "b1" for broker in brokers.values())
    tables.close()


def test_threads_at_different_versions_do_not_disturb_each_other(world: World, log: TableLog) -> None:
    newest, tables, wrong = log.version(), NodeTables(world.realm, world.topic, "b1"), list[int]()
    expected = {version: {t.id: len(t.table) for t in scratch(log, version).trees.values()} for version in (4, newest)}

    def look(version: int) -> None:
        for _ in range(20):
            with tables.holding(version) as brokers:
                if {id: len(broker.table) for id, broker in brokers.items()} != expected[version]:
                    wrong.append(version)

    threads = [threading.Thread(target=look, args=(version,)) for version in (4, newest)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    tables.close()


def test_a_turn_that_was_altered_is_not_folded(world: World, tmp_path: Path) -> None:
    """Whoever writes the files, and fixes all that needs no key, still has no journal key."""
    log = TableLog(world.realm, world.topic, world.realm.broker("b1"))
    turns = list(log.turns(0))
    log.close()
    forged = TableLog(world.realm, world.topic, world.realm.broker("b0"))
    forged._annals._place = tmp_path
    forged.append(turns[0], 0)
    forged._annals.close()
    honest = TableLog(world.realm, world.topic, world.realm.broker("b1"))
    honest._annals._place = tmp_path
    with pytest.raises(Corrupt, match="was not written by this broker"):
        list(honest.turns(0))
    honest.close()


# --- snapshots ----------------------------------------------------------------------------------------


def test_a_restart_from_any_snapshot_equals_the_fold_from_scratch(world: World, log: TableLog) -> None:
    newest = log.version()
    for version in range(1, newest + 1):
        for path in snapshots_of(world).glob("*"):
            path.unlink()
        assert log.snapshot(scratch(log, version), always=True)
        assert snapshots_of(world).joinpath(f"{version:020d}.snap").exists()
        again = TableLog(world.realm, world.topic, world.realm.broker("b1"))
        assert seen(again.fold()) == seen(scratch(log, newest))
        again.close()


def test_a_snapshot_remembers_what_has_ended(tmp_path: Path) -> None:
    fold, snapshots = TableFold("b1"), TableSnapshots(tmp_path, Secret(bytes(32)), b"b1")
    fold.apply(TableTurn(3, (EndedEpochs(4, 2),)))
    snapshots.save(fold, GENESIS)
    found = snapshots.load("b1", 1, GENESIS)
    assert found is not None and seen(found) == seen(fold)
    assert found.kept.has(4, 2) and not found.kept.has(3, 9) and not found.kept.has(9, 1)


def test_only_the_newest_are_kept(world: World, log: TableLog) -> None:
    for path in snapshots_of(world).glob("*"):
        path.unlink()
    for version in range(1, KEPT + 3):
        log.snapshot(scratch(log, version), always=True)
    kept = sorted(int(path.stem) for path in snapshots_of(world).glob("*.snap"))
    assert kept == [3, 4, 5]
    assert seen(log.fold(2)) == seen(scratch(log, 2))


def test_a_snapshot_is_written_when_enough_has_changed(
    world: World, log: TableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not log.snapshot(scratch(log, log.version()))
    monkeypatch.setattr("sealcast.protections.layered.filters.table.SNAPSHOT_ROWS", 3)
    fold = scratch(log, log.version())
    assert log.snapshot(fold)
    assert not log.snapshot(fold), "nothing has changed since"


@pytest.mark.parametrize("at", [0, 7, 60, -40, -1])
def test_a_damaged_snapshot_is_not_used(world: World, log: TableLog, at: int) -> None:
    for path in snapshots_of(world).glob("*"):
        path.unlink()
    log.snapshot(scratch(log, 6), always=True)
    (path,) = snapshots_of(world).glob("*.snap")
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)
    assert seen(log.fold()) == seen(scratch(log, log.version()))
    path.write_bytes(raw[:10])
    assert seen(log.fold()) == seen(scratch(log, log.version()))


def test_a_snapshot_of_another_log_version_or_broker_is_not_used(tmp_path: Path) -> None:
    key, tag = Secret.random(), b"t" * 32
    fold = TableFold("b1")
    fold.apply(TableTurn(3, (OpenedTree(TreeId("p", 1, 0), ("b0", "p"), 2),)))
    snapshots = TableSnapshots(tmp_path, key, b"b1")
    snapshots.save(fold, tag)
    again = snapshots.load("b1", 1, tag)
    assert again is not None
    assert seen(again) == seen(fold)
    assert snapshots.load("b1", 1, GENESIS) is None
    assert snapshots.load("b1", 2, tag) is None
    assert TableSnapshots(tmp_path, key, b"b2").load("b2", 1, tag) is None
    assert TableSnapshots(tmp_path, Secret.random(), b"b1").load("b1", 1, tag) is None
    (tmp_path / f"{2:020d}.snap").write_bytes((tmp_path / f"{1:020d}.snap").read_bytes())
    assert snapshots.load("b1", 2, tag) is None


# --- records ------------------------------------------------------------------------------------------

ROW = ((Element(b"a" * 64), Element(b"b" * 64)), (Element(b"c" * 64),))
STEPS = (
    OpenedTree(TreeId("p", 3, 1), ("b0", "p"), 2),
    Took(0, Stream("s0", True), 7, (RowChange(ROW, ("s0",), False), RowChange(ROW[:1], ("s0",), False))),
    Took(0, Stream("b2", False), 8, ()),
    Shown("s0", b"token", 99),
    Withdrew(0, Stream("s0", True), 1),
    Dropped(0),
)


def test_turns_are_read_as_they_were_written() -> None:
    turn = TableTurn(
        12, (*STEPS, EndedEpochs(3, 1)), {"form": 2}, (records.PostRefusal(3, "s0", "form", "noise"),), b"up"
    )
    assert records.parse(records.encode(turn), "here") == turn


ENDS_NOTHING = Took(0, Stream("s0", True), 9, (RowChange(ROW, ("s0",), True),))


@pytest.mark.parametrize("steps", [STEPS[1:], (*STEPS, STEPS[1]), (STEPS[0], ENDS_NOTHING)])
def test_turns_that_no_keeper_took_are_damage(steps: tuple[Any, ...]) -> None:
    with pytest.raises(Corrupt):
        TableFold("b1").apply(TableTurn(0, steps))


@pytest.mark.parametrize("data", [b"", b"\x80", records.encode(TableTurn(0))[:-1], b"\x84\x00\x41\x00\x82\xa0\x80\x40"])
def test_records_that_are_none_are_damage(data: bytes) -> None:
    with pytest.raises(Corrupt):
        records.parse(data, "here")


def test_the_context_is_its_own() -> None:
    assert CONTEXT == b"sealcast/1 filter table"
