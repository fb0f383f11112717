"""Publishers and subscribers that have an address, their own keys and a home: every protection with a broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sealcast import Publisher, Subscriber
from sealcast.errors import Misuse, Unavailable
from sealcast.log.lane_log import LaneLog
from sealcast.model.protection import PROTECTIONS
from sealcast.pipeline.outbox import Outbox
from sealcast.trust import worker_home
from sealcast.trust.handles import EntityRealm
from tests.remote.world import TOPIC, Served, events, served

WITH_BROKERS = [name for name, kind in PROTECTIONS.items() if not kind().peers]


@pytest.fixture(scope="module", params=WITH_BROKERS)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("remote"), request.param) as made:
        yield made


def test_events_travel_from_one_home_to_another_and_the_cursor_is_the_readers_own(world: Served) -> None:
    publisher_home, reader_home = world.client("nyse"), world.client("ann")
    with world.side.interests(reader_home, TOPIC, "ann") as interests:
        made = interests.add("price < 100")
        assert made.id in [each.id for each in interests.filters()]
    with Publisher(publisher_home, TOPIC, "nyse") as publisher:
        with Subscriber(reader_home, TOPIC, "ann") as early:
            assert early.poll() == []  # and tells the broker what it wants, where brokers cannot read
        world.pump()
        assert len(publisher.publish(events(5, 200, 7))) == 3
        assert len(publisher.publish(events(99, 100))) == 2
    world.pump()
    with world.side.key_asker(reader_home, TOPIC, "ann") as ask, Subscriber(reader_home, TOPIC, "ann", ask=ask) as sub:
        got = sub.poll(timeout=60)
        assert [event.payload for event in got] == [b"at 5", b"at 7", b"at 99"]
        assert {event.publisher for event in got} == {"nyse"}
        sub.ack()
        assert sub.lag() == 0
    with Subscriber(EntityRealm(reader_home.paths.root), TOPIC, "ann") as again:
        assert again.poll() == []
    cursors = sorted(path.name for path in reader_home.paths.root.rglob("*.cursor"))
    assert cursors == ["ann.cursor"]
    # What was acknowledged is also reported, signed, so that the operator sees it.
    assert list(world.realm.paths.root.rglob("ann.cursor"))


def test_a_subscription_ends_from_afar(world: Served) -> None:
    home = world.client("bob")
    with world.side.interests(home, TOPIC, "bob") as interests:
        made = interests.add("price = 3")
        assert made.id is not None
        interests.remove([made.id])
    with world.side.interests(home, TOPIC, "bob") as again:
        assert again.filters() == []


class _DiesAfterOne:
    """A publisher's log whose process ends when the first frame has arrived."""

    def __init__(self, log: LaneLog) -> None:
        self._log, self.end, self.read = log, log.end, log.read

    def append(self, frames: Sequence[bytes], /) -> None:
        self._log.append(frames[:1])
        raise Unavailable("killed")


def test_frames_that_a_spark_job_staged_are_sent_again_and_count_once(world: Served, tmp_path: Path) -> None:
    if "spark-write" in world.protection.lacks:
        return  # the conformance suite has it refused
    with Publisher(world.client("xetra"), TOPIC, "xetra") as publisher:
        with world.realm.frames(TOPIC) as log:
            before = log.partition(publisher.partition).end()
        outbox = Outbox(tmp_path, "query")
        staged = outbox.stage(0, [*publisher.seal(events(1, 2)), *publisher.seal(events(3))])
        assert staged is not None
        with pytest.raises(Unavailable):
            outbox.publish(0, [staged], _DiesAfterOne(publisher.log))
        assert outbox.publish(0, [staged], publisher.log) == 2
        assert outbox.publish(0, [staged], publisher.log) == 0, "the batch is done"
        with world.realm.frames(TOPIC) as log:
            assert log.partition(publisher.partition).end() == before + 2


def test_a_home_for_jobs_behind_a_gateway_publishes_and_is_brought_up_to_date(world: Served, tmp_path: Path) -> None:
    for _ in range(2):
        made = worker_home.make_of_entity(world.client("nyse"), tmp_path / "job", "nyse")
        assert made.shared == [] and {"realm.json", "entities/nyse.key", "entities/nyse.crt"} <= {*made.files}
        if "spark-write" in world.protection.lacks:
            continue  # jobs do not publish there, and agreement keys are where a publisher first was
        with Publisher(EntityRealm(tmp_path / "job"), TOPIC, "nyse") as publisher:
            assert len(publisher.publish(events(6))) == 1
    assert [path.name for path in (tmp_path / "job" / "entities").glob("*.key")] == ["nyse.key"]


def test_a_home_holds_no_secret_of_anybody_else_and_no_log(world: Served) -> None:
    home = world.client("ann")
    home.state()
    assert not (home.paths.secrets).exists()
    assert not list(home.paths.root.rglob("frames")) and not list(home.paths.root.rglob("pieces"))
    with (
        Publisher(world.client("xetra"), TOPIC, "xetra") as publisher,
        pytest.raises(Misuse, match="not on this machine"),
    ):
        _ = publisher.directory
