"""Layered topics on Spark: deliveries against brute force, restarts, and a broker that runs alone with its own keys."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
from pyspark.sql import SparkSession

from sealcast.log.piece_reader import hop_reader
from sealcast.model.protection import Layered
from sealcast.pipeline import run
from sealcast.primitives.algebra import group_named
from sealcast.protections.layered.layers import shared_exponent
from sealcast.protections.layered.node import HopStep
from sealcast.protections.layered.tree import TreeId
from sealcast.protections.steps import StepName
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.layer_keys import LayerKeyring, agreement_keys
from tests.pipeline.drivers import Driver
from tests.pipeline.layered_world import TOPIC, HopLoop, LayeredWorld, a_task

PAGE = os.sysconf("SC_PAGE_SIZE")
CHUNK = 256 << 10


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> LayeredWorld:
    return LayeredWorld(tmp_path_factory.mktemp("made") / "realm")


@pytest.fixture
def world(made: LayeredWorld, tmp_path: Path) -> LayeredWorld:
    return made.copy(tmp_path / "realm")


def test_a_layered_topic_on_spark(world: LayeredWorld, spark: SparkSession) -> None:
    for publisher in ("p0", "p1"):
        world.publish(publisher, 30)
    totals = run.run(world.realm, once=True, spark=spark)
    world.check()
    due = sum(map(len, world.due.values()))
    assert (totals["admitted"], totals["frames"], totals["deliveries"]) == (60, 2, due)
    # The same checkpoints go on.
    world.publish("p0", 10)
    assert run.run(world.realm, once=True, spark=spark)["admitted"] == 10
    world.check()
    queries = [[e.entry.query for e in name.open().ledger.entries()] for name in world.names]
    assert all(len(set(found)) == 1 for found in queries), "a checkpoint was dropped that belongs to its ledgers"
    # Without them, new ones go on where the ledgers end; frames that come again are refused there, too.
    paths = [world.realm.paths.topic(TOPIC).hops, world.realm.paths.topic(TOPIC, world.names[0].broker)]
    for found in paths:
        shutil.rmtree(found.checkpoint)
    _publish_again(world)
    world.publish("p1", 10)
    totals = run.run(world.realm, once=True, spark=spark)
    assert (totals["admitted"], totals["rejected_replay"]) == (10, 30)
    world.check()
    for name in world.names:
        assert name.open().ledger.verify()


def _publish_again(world: LayeredWorld) -> None:
    """The first frame of the root's log, once more."""
    with world.realm.frames(TOPIC, world.names[0].broker) as log:
        partition = next(p for p in range(log.partitions) if log.partition(p).end())
        frame = next(iter(log.partition(partition).read(0, 1))).data
        log.partition(partition).append([frame])


# --- one broker alone -----------------------------------------------------------------------------


#: The source, the kernel and the sink of a broker, called in turn.
KERNELS = """
import sys, time
from sealcast.protections.layered.node import HopStep
from sealcast.protections.steps import StepName
from tests.pipeline.layered_world import TOPIC, HopLoop
loop = HopLoop((StepName(sys.argv[1], TOPIC, sys.argv[5], "hops"),))
while True:
    loop.step() or time.sleep(0.02)
"""


@pytest.mark.parametrize("script", [KERNELS, pytest.param(None, marks=pytest.mark.soak)], ids=["kernels", "command"])
def test_a_broker_alone_holds_no_keys_but_its_own(world: LayeredWorld, tmp_path: Path, script: str | None) -> None:
    root, ours, other = world.names
    HopStep.turn(world.names)
    above = HopLoop((root,))
    for publisher in ("p0", "p1"):
        world.publish(publisher, 40)
    world.admit()
    assert above.step()
    # The root's next batch is ready, and committed when its keys are no longer here.
    world.publish("p0", 40)
    world.admit()
    end = above.plan()
    assert end is not None
    with a_task():
        staged = [above.sink.write(above.source.read(task)) for task in above.source.partitions(above.start, end)]
    own, others = held_by(world, ours), [*held_by(world, root), *held_by(world, other)]
    # What a file holds, and nobody needs once the rest is derived from it.
    others += [BrokerSecrets.load(world.realm.paths.broker_key_of(n.broker))._secret.reveal() for n in (root, other)]
    done = hop_reader(world.realm.paths.topic(TOPIC, ours.broker).hops.root)
    alone = ("--node", ours.broker, "--master", "local[1]")
    driver = Driver(world.realm.paths.root, log=tmp_path / "log", command=True, options=alone, script=script)
    try:
        driver.wait_until(lambda: done.end() == 1, 120)
        assert done.end() == 1, driver.told()
        found = search(driver.everyone(), [*own, *others])
        assert found.issuperset(own), "its own are not found: the search finds nothing"
        assert found.isdisjoint(others), "it has keys of other brokers"
        away = tmp_path / "away"
        away.mkdir()
        for path in sorted((world.realm.paths.root / "secrets").rglob("*")):
            if path.is_file() and ours.broker not in str(path.relative_to(world.realm.paths.root)):
                path.rename(away / path.name)
        above.sink.commit([*staged], above.batch)
        driver.wait_until(lambda: done.end() == 2, 60)
        assert done.end() == 2, driver.told()
        driver.process.terminate()
        assert driver.wait(60) == 0 or script is not None, driver.told()
    finally:
        driver.kill_all()
    assert not world.realm.paths.topic(TOPIC, other.broker).hops.pieces.exists()
    mine = [name for name, home in world.realm.state().overlay(TOPIC).places.items() if home == ours.broker]
    assert mine and any(world.due[name] for name in mine)
    for name in mine:
        assert sorted(world.got(name)) == sorted(world.due[name])


def held_by(world: LayeredWorld, name: StepName) -> list[bytes]:
    """What this broker alone holds while it runs: the key by which it agrees with others, its ledger's, and a layer."""
    state, node = world.realm.state(), name.open()
    keyring = LayerKeyring(world.realm, world.realm.broker(name.broker).identity)
    agreement = keyring.own(state, TOPIC, state.topic(TOPIC).epoch)
    return [agreement.private.reveal(), node.journal_key.reveal(), exponent(world, name.broker)]


def exponent(world: LayeredWorld, node: str, publisher: str = "p0") -> bytes:
    """The layer that a broker takes off what a publisher sent two hops down, as the group's arithmetic takes it."""
    state = world.realm.state()
    about = state.topic(TOPIC)
    assert isinstance(about.protection, Layered)
    identity = BrokerSecrets.load(world.realm.paths.broker_key_of(node)).identity
    pair = agreement_keys(world.realm, identity, state, TOPIC, about.epoch).pair(publisher)
    assert pair is not None
    tree = TreeId(publisher, about.epoch, state.overlay(TOPIC).generation)
    return shared_exponent(pair, group_named(about.protection.group), tree.domain(about.id), node, publisher).packed


def search(processes: Sequence[psutil.Process], needles: Sequence[bytes]) -> set[bytes]:
    """Which of these, as they are or in hexadecimal, are in the memory of any of the processes."""
    spelled = {spelling: needle for needle in needles for spelling in (needle, needle.hex().encode())}
    found, seen = set[bytes](), dict[int, bytes]()
    for process in processes:
        for first, data in _while_it_lives(process.pid):
            for at in range(0, len(data), CHUNK):
                part = data[at : at + CHUNK + max(map(len, spelled))]
                # Processes are forked from one another: most of what one has, another has at the same place.
                if seen.get(first + at) != part:
                    seen[first + at] = part
                    found.update(needle for spelling, needle in spelled.items() if spelling in part)
    return found


def _while_it_lives(pid: int) -> Iterator[tuple[int, bytes]]:
    """Spark starts programs that live for a moment (chmod): what has ended since it was listed holds nothing."""
    with suppress(FileNotFoundError, ProcessLookupError):
        yield from _writable(pid)


def _writable(pid: int) -> Iterator[tuple[int, bytes]]:
    """What is there of a process's own memory, without what is only reserved: (address, bytes)."""
    with (
        Path(f"/proc/{pid}/maps").open() as maps,
        Path(f"/proc/{pid}/mem").open("rb", 0) as memory,
        Path(f"/proc/{pid}/pagemap").open("rb", 0) as pages,
    ):
        for line in maps:
            span, rights = line.split()[:2]
            if "w" not in rights:
                continue
            first, end = (int(bound, 16) for bound in span.split("-"))
            entries = np.frombuffer(os.pread(pages.fileno(), 8 * (end - first) // PAGE, 8 * first // PAGE), "<u8")
            used = np.concatenate(([0], (entries >> np.uint64(62)) != 0, [0]))  # in memory, or swapped out
            for begin, stop in np.flatnonzero(np.diff(used)).reshape(-1, 2).tolist():
                yield from _read(memory.fileno(), first + PAGE * begin, first + PAGE * stop)


def _read(memory: int, first: int, end: int) -> Iterator[tuple[int, bytes]]:
    parts, at = list[bytes](), first
    with suppress(OSError):  # the pages of devices
        while at < end:
            parts.append(os.pread(memory, end - at, at))
            at += len(parts[-1])
    yield first, b"".join(parts)
