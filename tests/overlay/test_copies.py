"""Copies of other brokers' frames, read by tasks on machines that do not have them."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.broker.copies import Copies, FramesAnywhere, copies_of, needed
from sealcast.broker.frames import HeldFrames
from sealcast.errors import Corrupt, SealcastError
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.forwarded import BrokerTopic
from sealcast.log.port import PartitionLog, Record

#: Of a topic with one partition: the broker's own, and the other one's.
OWN, OTHERS = 0, 1


class Scene(NamedTuple):
    """A broker's log with copies, the same without any, and the log that they are copies of."""

    here: BrokerTopic
    elsewhere: BrokerTopic
    origin: EmbeddedLog

    def opened(self, partition: int) -> PartitionLog | None:
        return self.origin if partition == OTHERS else None

    def task(self, told: list[Copies]) -> FramesAnywhere:
        return FramesAnywhere(self.elsewhere, told, self.opened)


def scene(directory: Path, taken: list[bool]) -> Scene:
    """The origin has a frame for each; those that are true were taken, the others were refused there."""
    origin = EmbeddedLog(directory / "origin")
    frames = [b"frame %d" % number for number in range(len(taken))]
    origin.append(frames)
    here, elsewhere = (BrokerTopic(directory / name, 1, 0, 2) for name in ("here", "elsewhere"))
    pairs = [(number, frame) for number, frame in enumerate(frames) if taken[number]]
    for at in range(0, len(pairs), 3):  # at different times
        here.forwarded(OTHERS).take(pairs[at : at + 3])
    return Scene(here, elsewhere, origin)


@settings(max_examples=40)
@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(0, 2**32))
def test_a_task_reads_elsewhere_what_it_would_read_here(
    tmp_path_factory: pytest.TempPathFactory, taken: list[bool], seed: int
) -> None:
    """Whatever part of the copies it reads: the same numbers, times and bytes."""
    world, dice = scene(tmp_path_factory.mktemp("copies"), [*taken, True]), Random(seed)
    local = world.here.partition(OTHERS)
    first, end = sorted(dice.sample(range(local.end() + 1), 2))
    told = copies_of(world.here, [(OTHERS, first, end), (OWN, 0, 0)], world.opened)
    assert [(each.partition, each.first) for each in told] == [(OTHERS, first)]
    frames = HeldFrames(world.task(told))
    expected = list(local.read(first, end))
    assert list(frames.first(OTHERS, first, end)) == expected
    begin, stop = sorted(dice.sample(range(first, end + 1), 2))
    assert list(frames.read(OTHERS, begin, stop)) == list(local.read(begin, stop))
    assert list(world.task(told).partition(OTHERS).read(begin, stop)) == list(local.read(begin, stop))
    assert list(FramesAnywhere(world.here, told, lambda _: None).partition(OTHERS).read(first, end)) == expected, "here"


class Exchanged:
    """A carrier that shows another frame than it showed before."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log

    def read(self, start: int, end: int) -> list[Record]:
        return [record._replace(data=record.data.replace(b"3", b"4")) for record in self._log.read(start, end)]


def test_a_carrier_that_shows_another_frame_is_found_out(tmp_path: Path) -> None:
    world = scene(tmp_path, [True] * 6)
    told = copies_of(world.here, [(OTHERS, 0, 6)], world.opened)
    lying = FramesAnywhere(world.elsewhere, told, lambda _: Exchanged(world.origin))  # type: ignore[arg-type,return-value]
    with pytest.raises(Corrupt, match="frame 3 was taken from its origin's frame 3, and the carrier shows another"):
        list(lying.partition(OTHERS).read_seen(0, 6))


def test_what_is_nowhere_is_named(tmp_path: Path) -> None:
    """Nobody told of it, or its origin's log is on no carrier."""
    world = scene(tmp_path, [True] * 4)
    told = copies_of(world.here, [(OTHERS, 0, 2)], world.opened)
    with pytest.raises(SealcastError):
        list(world.task(told).partition(OTHERS).read(1, 4))
    with pytest.raises(SealcastError):
        list(FramesAnywhere(world.elsewhere, told, lambda _: None).partition(OTHERS).read(0, 2))
    assert copies_of(world.here, [(OTHERS, 0, 2)], lambda _: None) == []


def test_what_the_origin_removed_is_named_and_copies_here_go_on(tmp_path: Path) -> None:
    world = scene(tmp_path, [True] * 4)
    told = copies_of(world.here, [(OTHERS, 0, 4)], world.opened)
    world.origin.close()
    shutil.rmtree(tmp_path / "origin")
    gone = EmbeddedLog(tmp_path / "origin")
    with pytest.raises(SealcastError):
        list(FramesAnywhere(world.elsewhere, told, lambda _: gone).partition(OTHERS).read(0, 4))
    here = FramesAnywhere(world.here, told, lambda _: gone).partition(OTHERS)
    assert [record.data for record in here.read(0, 4)] == [b"frame %d" % n for n in range(4)]


def test_a_task_is_told_what_it_may_read_and_no_more() -> None:
    """Its own partitions, and those in which the same publishers may be."""
    told = [Copies(partition, 0, b"") for partition in (2, 3, 4, 5)]
    assert [each.partition for each in needed(told, {2}, {0}, 2)] == [2, 4]
    assert [each.partition for each in needed(told, {3}, frozenset(), 2)] == [3]
    assert needed(told, frozenset(), frozenset(), 2) == ()
