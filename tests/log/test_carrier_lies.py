"""A carrier that lies is found out, by name of what is missing: it drops, truncates, repeats, reorders and alters.

Each lie is told by the real server's own means where it has any: NATS deletes a message, a stream is made anew. For the
rest the registry is pointed to a copy with what a liar would leave out or exchange, as if the carrier served that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm
from sealcast.bench.carrier_servers import NatsServer
from sealcast.errors import Corrupt
from sealcast.log.carriers import Placement, Stored
from sealcast.log.nats import NatsCarrier
from sealcast.log.nats_partition import stream_of
from sealcast.protections import steps
from sealcast.protections.steps import StepName
from sealcast.trust.realm.changes import CarryTopic
from tests.clients.pump import pump
from tests.log.test_carried_topics import SCHEMA, TOPIC, deliver, opened


@pytest.fixture
def realm(tmp_path: Path, nats: NatsServer) -> Realm:
    made = Realm.create(tmp_path / "realm", f"r{tmp_path.name[-12:]}")
    made.create_topic(TOPIC, SCHEMA, access="members")
    made.enrol_many(["nyse", "alice"])
    made.subscribe(TOPIC, "alice", "price > 10")
    made.add_carrier("away", nats.address)
    made.move_topic(TOPIC, "away")
    with Publisher(made, TOPIC, "nyse") as writing:
        for n in range(11, 19):  # a frame each
            writing.publish([Event({"price": n}, b"%d" % n)])
    return made


def carrier(realm: Realm) -> NatsCarrier:
    found = realm.carriers.carrier(realm.state(), "away")
    assert isinstance(found, NatsCarrier)
    return found


def name(realm: Realm) -> str:
    return realm.state().carried[TOPIC, "broker"].name


def served_instead(realm: Realm, lie: Callable[[list[Stored]], list[Stored]]) -> None:
    """The carrier serves something else from now on."""
    there = carrier(realm)
    source = there.partition(name(realm), 0)
    told = lie(list(source.fetch(*source.bounds())))
    other = f"{name(realm)}.lie"
    there.create(other, Placement(1))
    there.partition(other, 0).append([(each.head, each.data) for each in told])
    realm.registry.apply(CarryTopic(TOPIC, "broker", "away", other, (0,), (0,)))


def test_an_honest_carrier(realm: Realm) -> None:
    deliver(realm)
    assert opened(realm) == list(range(11, 19))


def test_one_that_drops_is_found_out_by_the_number(realm: Realm) -> None:
    there = carrier(realm)

    async def delete() -> bool:
        return await (await there.streams()).delete_msg(stream_of(name(realm), 0), 4)  # the record numbered 3

    assert there.ask(delete())
    with pytest.raises(Corrupt, match="record 3 is missing"):
        deliver(realm)
    assert opened(realm) == []


def test_one_that_drops_the_last_is_found_out_by_the_number(realm: Realm) -> None:
    there = carrier(realm)

    async def delete() -> bool:
        return await (await there.streams()).delete_msg(stream_of(name(realm), 0), 8)

    assert there.ask(delete())
    with pytest.raises(Corrupt, match="record 7 is missing"):
        deliver(realm)


def test_one_that_truncates_is_found_out_by_what_the_ledger_has_taken(realm: Realm) -> None:
    deliver(realm)
    served_instead(realm, lambda stored: stored[:5])
    steps._open.cache_clear()
    with pytest.raises(Corrupt, match="has 5 frames, but the ledger has delivered 8"):
        StepName(str(realm.paths.root), TOPIC).open().prepare()


def test_one_that_shrinks_while_it_is_read_is_found_out(realm: Realm) -> None:
    log = realm.frames(TOPIC).partition(0)
    assert log.end() == 8
    there, stream = carrier(realm), stream_of(name(realm), 0)

    async def anew() -> None:
        streams = await there.streams()
        await streams.delete_stream(stream)

    there.ask(anew())
    there.create(name(realm), Placement(1))
    with pytest.raises(Corrupt, match="ended at 8 before: records 0 to 7 are gone"):
        log.end()


def test_one_that_repeats_delivers_nothing_twice(realm: Realm) -> None:
    served_instead(realm, lambda stored: [*stored, *stored[2:5]])
    steps._open.cache_clear()
    StepName(str(realm.paths.root), TOPIC).open().begin()
    counts = pump(realm, TOPIC)
    assert counts["rejected_replay"] == 3
    assert opened(realm) == list(range(11, 19))


def test_one_that_reorders_loses_and_doubles_nothing(realm: Realm) -> None:
    served_instead(realm, lambda stored: stored[::-1])
    deliver(realm)
    assert sorted(opened(realm)) == list(range(11, 19))


def test_one_that_alters_is_found_out_by_the_digest_and_then_by_the_signature(realm: Realm) -> None:
    served_instead(
        realm, lambda stored: [*stored[:2], stored[2]._replace(data=bytes(len(stored[2].data))), *stored[3:]]
    )
    with pytest.raises(Corrupt, match="record 2 is not what was written"):
        deliver(realm)


def test_one_that_alters_and_writes_heads_of_its_own_is_refused_at_admission(realm: Realm) -> None:
    def lie(stored: list[Stored]) -> list[Stored]:
        flipped = bytearray(stored[2].data)
        flipped[-1] ^= 1
        return [*stored[:2], Stored(2, b"", bytes(flipped)), *stored[3:]]

    served_instead(realm, lie)
    steps._open.cache_clear()
    StepName(str(realm.paths.root), TOPIC).open().begin()
    counts = pump(realm, TOPIC)
    assert sum(n for reason, n in counts.items() if reason.startswith("rejected")) == 1
    assert opened(realm) == [11, 12, *range(14, 19)]


def test_one_that_leaves_out_what_it_acknowledged_and_renumbers_is_found_out_by_the_publisher(realm: Realm) -> None:
    """Nobody but the publisher knows that there was a frame. It asks the broker, which answers under its signature."""
    with Publisher(realm, TOPIC, "nyse") as writing:
        writing.publish([Event({"price": 19}, b"19")])
        writing.publish([Event({"price": 20}, b"20")])
        assert writing.confirm().waiting == 2
        served_instead(realm, lambda stored: [*stored[:8], stored[9]])
        deliver(realm)
        assert opened(realm) == [*range(11, 19), 20]
        said = writing.confirm()
        assert [(lost.offset, lost.standing) for lost in said.lost] == [(8, "other"), (9, "missing")]
        assert said.committed == said.waiting == 0


def test_an_honest_one_is_confirmed(realm: Realm) -> None:
    with Publisher(realm, TOPIC, "nyse") as writing:
        writing.publish([Event({"price": 19}, b"19")])
        deliver(realm)
        said = writing.confirm()
        assert (said.committed, said.waiting, said.lost) == (1, 0, [])
        assert writing.confirm().committed == 0  # it is not asked about again
