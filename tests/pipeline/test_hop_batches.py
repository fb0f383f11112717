"""Hop batches over real ledgers, the way that Spark calls for them: exactly once, whatever dies in between."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from sealcast.errors import Corrupt, Locked, Misuse, NotFound
from sealcast.log.entry import Entry
from sealcast.log.ledger import Committed, Ledger
from sealcast.pipeline import offsets, run
from sealcast.pipeline.sinks import StreamPieces
from sealcast.pipeline.sources import Limits, StepsStream
from sealcast.protections import steps
from sealcast.protections.layered.node import HopStep
from sealcast.protections.layered.together import refresh_all
from sealcast.trust.keys.layer_keys import LayerKeyring
from tests.pipeline.layered_world import TOPIC, HopLoop, LayeredWorld, a_task


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> LayeredWorld:
    return LayeredWorld(tmp_path_factory.mktemp("made") / "realm")


@pytest.fixture
def world(made: LayeredWorld, tmp_path: Path) -> LayeredWorld:
    return made.copy(tmp_path / "realm")


def test_everybody_gets_what_they_asked_for_and_nothing_else(world: LayeredWorld) -> None:
    world.publish("p0", 40)
    world.publish("p1", 40)
    world.admit()
    assert world.drain() == 2  # the root's hop, then that of those below, together
    world.check()
    assert all(world.due[name] for name in ("ann", "bob", "eve")) and not world.due["joe"]
    world.publish("p1", 10)
    world.admit()
    world.drain()  # as under a new checkpoint: on where the ledgers end
    world.check()
    for name in world.names:
        assert name.open().ledger.verify() == name.open().ledger.end()


def test_a_worker_that_was_not_brought_a_new_epochs_keys_refuses_no_event(world: LayeredWorld) -> None:
    """Its home is from before the epoch. What it could not route was refused, and so lost."""
    world.realm.rotate(TOPIC)
    world.publish("p0", 40)
    world.admit()
    loop = HopLoop(world.names)
    end = loop.plan()
    assert end is not None
    epoch = world.realm.state().topic(TOPIC).epoch
    newest = list(world.realm.paths.secrets.rglob(f"*.layers/*/{epoch}.key"))
    assert len(newest) == len(world.names)
    for path in newest:
        path.rename(path.with_suffix(".away"))
    steps._open.cache_clear()
    with pytest.raises(NotFound, match=f"epoch {epoch}, is not here"):
        loop.run(end)
    for path in newest:
        path.with_suffix(".away").rename(path)
    steps._open.cache_clear()
    world.drain()
    world.check()


def test_what_came_under_a_key_that_was_forgotten_is_refused(world: LayeredWorld) -> None:
    """As after a compromise: the batch was planned before, and a newer key is here."""
    world.publish("p0", 40)
    world.admit()
    loop = HopLoop(world.names)
    end = loop.plan()
    assert end is not None
    world.realm.rotate(TOPIC)
    root = world.realm.broker(world.names[0].broker).identity
    assert LayerKeyring(world.realm, root).forget(TOPIC, before=world.realm.state().topic(TOPIC).epoch)
    steps._open.cache_clear()
    loop.run(end)
    (entry,) = world.names[0].open().ledger.entries()
    assert entry.entry.counts["rejected_event"] > 0 and not entry.entry.counts.get("matched")


class Died(BaseException):
    """Not an error that anybody catches."""


@pytest.mark.parametrize("committed", [0, 1])
def test_a_driver_that_dies_between_two_brokers_commits(
    world: LayeredWorld, committed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publish("p0", 60)
    world.admit()
    loop = HopLoop(world.names)
    assert loop.step()
    end = loop.plan()
    assert end is not None
    real, left = Ledger.commit, [committed]

    def dying(ledger: Ledger, entry: Entry, term: str | None = None, after: Committed | None = None) -> bool:
        if not left[0]:
            raise Died
        left[0] -= 1
        return real(ledger, entry, term, after)

    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(Ledger, "commit", dying)
        loop.run(end)
    ends = [name.open().ledger.end() for name in world.names]
    assert ends == [1, committed, 0]
    # Spark starts again, and runs the batch again that it had planned: only the others have a part in it.
    again = HopLoop(world.names)
    again.start, again.batch = loop.start, loop.batch
    tasks = again.source.partitions(again.start, end)
    assert len({span.name.broker for task in tasks for span in task.value.spans}) == 2 - committed
    again.run(end)
    assert not again.step()
    assert [name.open().ledger.end() for name in world.names] == [1, 1, 1]
    world.check()
    # And once more, when it died after the last commit: nothing has a part in it.
    again.start, again.batch = loop.start, loop.batch
    assert not again.source.partitions(again.start, end)
    again.run(end)
    assert [name.open().ledger.end() for name in world.names] == [1, 1, 1]


def test_what_is_not_the_brokers_offset_is_refused(world: LayeredWorld) -> None:
    world.publish("p0", 5)
    world.admit()
    loop = HopLoop(world.names)
    first = loop.start
    root = world.names[0].broker
    end = loop.plan()
    assert end is not None
    for field, value in (("partitions", [7]), ("version", 99), ("tag", "00" * 32)):
        with pytest.raises(Corrupt, match="altered"):
            loop.source.partitions(first, _altered(end, root, field, value))
    others = end["nodes"][world.names[1].broker]
    with pytest.raises(Corrupt, match="altered"):
        loop.source.partitions(first, {"nodes": {**end["nodes"], root: others}})
    for nonsense in ({}, {"nodes": []}, {"nodes": {root: 3}}, []):
        with pytest.raises(Corrupt, match="altered"):
            loop.source.partitions(first, nonsense)  # type: ignore[arg-type]
    while loop.step():
        pass
    # An offset of ours, but an old one: what is behind it was delivered.
    world.publish("p0", 5)
    world.admit()
    later = HopLoop(world.names)
    planned = later.plan()
    assert planned is not None
    with pytest.raises(Corrupt, match="again"):
        later.source.partitions(first, planned)


def _altered(end: dict[str, Any], node: str, field: str, value: object) -> dict[str, Any]:
    return {"nodes": {**end["nodes"], node: {**end["nodes"][node], field: value}}}


def test_a_driver_that_was_replaced_commits_nothing(world: LayeredWorld) -> None:
    world.publish("p0", 5)
    world.admit()
    loop = HopLoop(world.names)
    end = loop.plan()
    assert end is not None
    root = world.names[0]
    with root.open().ledger.exclusive() as old:
        pass
    with root.open().ledger.exclusive():
        loop.sink = StreamPieces(world.names, f'{{"{root.broker}": "{old}"}}')
        with pytest.raises(Locked):
            loop.run(end)
        with pytest.raises(Locked):
            root.open().ledger.collect(root.open().pieces, 1 << 60, old)
    assert not root.open().ledger.end()


def test_a_batch_is_bounded(world: LayeredWorld) -> None:
    for _ in range(5):
        world.publish("p0", 4)
        world.admit()
    loop = HopLoop(world.names, Limits(2, 1 << 30, 2))
    sizes = []
    while (end := loop.plan()) is not None:
        sizes.append(end["nodes"][world.names[0].broker]["partitions"][0])
        loop.run(end)
    assert sizes[:3] == [2, 4, 5]
    world.check()
    by_bytes = HopLoop(world.names, Limits(1000, 1, 2))
    assert by_bytes.plan() is None


def test_a_broker_that_moves_goes_on_below_another_and_loses_nothing(world: LayeredWorld) -> None:
    root, below = (name.broker for name in world.names[:2])
    _join(world, "deep", below)
    HopStep.turn(world.names)
    world.publish("p0", 30)
    world.admit()
    loop = HopLoop(world.names)
    assert loop.step() and loop.step()  # as far as the broker above it: what it will get is on its way
    world.realm.place_node(TOPIC, "deep", under=root)
    _speak(world)
    world.publish("p1", 30)
    world.admit()
    world.drain()
    moved = next(name for name in world.names if name.broker == "deep").open()
    assert moved.upstreams() == (below, root) and len(moved.committed().partitions) == 2
    world.check()
    assert world.due["zoe"]


def _join(world: LayeredWorld, broker: str, under: str) -> None:
    """A broker with a subscriber."""
    world.realm.add_broker(broker)
    world.realm.place_node(TOPIC, broker, under=under)
    world.realm.enrol("zoe")
    world.realm.place_subscriber(TOPIC, "zoe", broker)
    world.subscribe("zoe", "price < 100")


def _speak(world: LayeredWorld) -> None:
    while HopStep.turn(world.names) or any(getattr(done, "posts", 0) for *_, done in refresh_all(world.realm)):
        pass


def test_a_broker_that_joins_begins_where_it_stands(world: LayeredWorld) -> None:
    world.publish("p0", 10)
    world.admit()
    loop = HopLoop(world.names)
    while loop.step():
        pass
    _join(world, "new", world.names[0].broker)
    # The same checkpoint, which has never heard of it.
    source = StepsStream(world.names, loop.limits)
    assert len(world.names) == 4
    found = {name.broker: offset for name, offset in offsets.from_json(loop.start, world.names).items()}
    assert found["new"].partitions == (0,)
    world.publish("p0", 20)
    world.admit()
    after = HopLoop(world.names)
    after.source, after.start, after.batch = source, loop.start, loop.batch
    while after.step():
        pass
    world.check()
    assert world.due["zoe"]


def test_a_root_that_is_none_any_more_admits_what_was_published_to_it(world: LayeredWorld) -> None:
    root = world.names[0].broker
    HopStep.turn(world.names)
    world.publish("p0", 10)
    world.realm.add_broker("new")
    world.realm.place_node(TOPIC, "new")
    world.realm.place_node(TOPIC, root, under="new")
    assert world.realm.state().overlay(TOPIC).roots == ("new",)
    assert {q.names[0].broker for q in run.queries_of(world.realm, [TOPIC]) if q.reads_frames} == {"new", root}
    world.admit("new", root)
    world.drain()
    world.check()
    assert {q.names[0].broker for q in run.queries_of(world.realm, [TOPIC]) if q.reads_frames} == {"new"}


def test_nothing_secret_is_in_what_spark_pickles(world: LayeredWorld) -> None:
    world.publish("p0", 3)
    world.admit()
    loop = HopLoop(world.names)
    end = loop.plan()
    assert end is not None
    with a_task():
        tasks = loop.source.partitions(loop.start, end)
        staged = [loop.sink.write(loop.source.read(task)) for task in tasks]
    for traveller in (loop.source, loop.sink, tasks, staged):
        assert pickle.loads(pickle.dumps(traveller)) is not None
    for name in world.names:
        with pytest.raises(Misuse):
            pickle.dumps(name.open())


def test_a_realm_that_is_made_anew_in_its_place_is_another_one(made: LayeredWorld, tmp_path: Path) -> None:
    """A process that outlives a realm must not go on with the handles it had on it."""
    first = made.copy(tmp_path / "realm")
    first.publish("p0", 5)
    first.admit()
    first.drain()
    before = first.names[0].open()
    assert before.ledger.end() and before.reader(before.upstreams()[0]).end()
    shutil.rmtree(tmp_path / "realm")
    again = made.copy(tmp_path / "realm")
    after = again.names[0].open()
    assert after.realm is not before.realm and not after.ledger.end()
    again.publish("p0", 7)
    again.admit()
    again.drain()
    again.check()
