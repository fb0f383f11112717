"""Control topics in the database of the registry: the same promises as in a directory, for several machines.

What services do with them is in `test_control`; gateways on two machines are in `tests/remote/test_shared_control`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sealcast import Event, Publisher, Schema
from sealcast.control.envelopes import MAX_ENVELOPE_BYTES
from sealcast.control.journal import ServiceJournal
from sealcast.errors import Busy, Misuse, NotFound
from sealcast.log.control_topics import ControlPlane, new_topic_id
from sealcast.trust.backups.making import back_up, restore
from sealcast.trust.deployment import Realm
from sealcast.trust.registry import Registry
from sealcast.trust.shared_control import KeptPlane, SharedPlane
from sealcast.trust.storage import control_tables
from sealcast.trust.storage.address import Server as Address
from sealcast.trust.storage.address import parse
from tests.trust.control_world import Echo
from tests.trust.postgres import PASSWORD, Server
from tests.trust.test_control import ALICE, CENTER, WORLD, asked

Make = Callable[..., KeptPlane]
SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 255}]})


@pytest.fixture
def schema(postgres: Server) -> str:
    return postgres.schema()


@pytest.fixture
def address(postgres: Server, schema: str) -> Address:
    """Of a database that has a registry, and with it the tables."""
    found = parse(postgres.url(schema))
    assert isinstance(found, Address)
    Registry.create(found)
    return found


@pytest.fixture(params=["directory", "server"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes a plane of an origin."""
    if request.param == "directory":
        return lambda **settings: ControlPlane(tmp_path, **settings)
    address = request.getfixturevalue("address")
    return lambda **settings: SharedPlane(address, **settings)


class TestTopics:
    def test_a_topic_is_random_and_gone_when_dropped(self, make: Make) -> None:
        plane, other = make(origin="here"), make(origin="elsewhere")
        topic = plane.create()
        assert len({plane.create() for _ in range(8)} | {topic}) == 9
        assert [plane.post(topic, b"one"), other.post(topic, b"two")] == [0, 1]
        assert [(p.offset, p.data, p.origin) for p in plane.read(topic, 0)] == [
            (0, b"one", "here"),
            (1, b"two", "elsewhere"),
        ]
        assert (other.end(topic), [p.data for p in other.read(topic, 1)]) == (2, [b"two"])
        plane.drop(topic)
        plane.drop(topic)
        for gone in (plane, other):
            assert not gone.exists(topic)
            for call in (lambda: gone.post(topic, b"x"), lambda: gone.read(topic, 0), lambda: gone.end(topic)):  # noqa: B023
                with pytest.raises(NotFound):
                    call()
        assert plane.create(topic) == topic and plane.end(topic) == 0, "a new one of the name begins anew"

    @pytest.mark.parametrize("topic", [b"", b"short", bytes(17)], ids=repr)
    def test_only_ids_name_topics(self, make: Make, topic: bytes) -> None:
        plane = make()
        for call in (plane.create, plane.exists, plane.drop, lambda t: plane.post(t, b"x"), lambda t: plane.read(t, 0)):
            with pytest.raises(Misuse):
                call(topic)

    def test_a_queue_is_bounded_for_all_and_for_each_origin(self, make: Make) -> None:
        planes = [make(origin=f"origin {i}", max_queue=16) for i in range(5)]
        topic, took = planes[0].create(), Counter[str]()
        for plane in planes:
            for _ in range(16):
                try:
                    plane.post(topic, b"x")
                    took[plane.origin] += 1
                except Busy as busy:
                    assert busy.hint
                    break
        assert took == {f"origin {i}": 4 for i in range(4)}
        planes[4].take(topic, 8)
        assert planes[4].taken(topic) == 8
        assert len(planes[4].read(topic, 8)) == 8
        planes[4].post(topic, b"x")

    def test_a_queue_is_bounded_in_bytes(self, make: Make) -> None:
        plane = make(max_queue_bytes=4 << 20)
        topic, big = plane.create(), bytes(1 << 20)
        for turn in range(1, 3):
            with pytest.raises(Busy):
                while True:
                    plane.post(topic, big)
            assert plane.end(topic) == 4 * turn
            assert len(plane.read(topic, 4 * turn - 4, max_bytes=(3 << 20) - 1)) == 2, "at most so much at a time"
            plane.take(topic, 4 * turn)
        for size in (0, MAX_ENVELOPE_BYTES + 1):
            with pytest.raises(Misuse):
                plane.post(topic, bytes(size))

    def test_who_made_it_and_who_waits_is_known(self, make: Make) -> None:
        plane = make()
        own, answers = plane.create(maker="alice"), plane.create(reply=True, maker="alice")
        assert (plane.maker(own), plane.maker(answers), plane.maker(plane.create())) == ("alice", "alice", None)
        assert (plane.awaits_reply(own), plane.awaits_reply(answers), plane.awaits_reply(new_topic_id())) == (
            *(False, True),
            False,
        )
        assert plane.maker(new_topic_id()) is None
        count = plane.made_by("alice") if isinstance(plane, SharedPlane) else plane.makers()["alice"]
        assert count == 2

    def test_reply_topics_of_the_dead_are_swept(self, make: Make) -> None:
        plane = make()
        kept, left = plane.create(), plane.create(reply=True)
        assert plane.sweep() == 0
        time.sleep(0.05)
        assert plane.sweep(10_000) == 1
        assert plane.exists(kept) and not plane.exists(left)


class TestOnAServer:
    def test_nobody_sees_a_gap_however_many_post(self, address: Address) -> None:
        """A position is given out and committed under one lock. Readers go on from the last that they saw."""
        topic, seen, done = SharedPlane(address).create(), list[int](), threading.Event()

        def post(origin: int) -> None:
            plane = SharedPlane(address, origin=f"origin {origin}")
            for _ in range(25):
                plane.post(topic, b"x")

        def read() -> None:
            plane = SharedPlane(address)
            while len(seen) < 100 and not done.wait(0.002):
                seen.extend(p.offset for p in plane.read(topic, len(seen)))

        reader = threading.Thread(target=read)
        writers = [threading.Thread(target=post, args=(n,)) for n in range(4)]
        for thread in (reader, *writers):
            thread.start()
        for thread in writers:
            thread.join(60)
        reader.join(20)
        done.set()
        assert seen == list(range(100))

    def test_an_origin_is_bounded_over_all_machines(self, address: Address, tmp_path: Path) -> None:
        """Two gateways have a plane each for the same caller. Where each counts for itself, the caller has twice as
        much of the queue."""

        def taken(one: KeptPlane, other: KeptPlane) -> int:
            topic, count = one.create(), 0
            for plane in (one, other):
                try:
                    while True:
                        plane.post(topic, b"x")
                        count += 1
                except Busy:
                    pass
            return count

        settings: dict[str, Any] = {"origin": "entity mallory", "max_queue": 16}
        assert taken(*(SharedPlane(address, **settings) for _ in range(2))) == 4
        assert taken(*(ControlPlane(tmp_path, **settings) for _ in range(2))) == 8

    @pytest.mark.parametrize("step", ["handle", "commit", "post", "sent", "take"])
    def test_death_at_every_step_of_a_turn_loses_nothing(
        self, tmp_path: Path, address: Address, step: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Killed before the step; the next process takes over. Handled again only if nothing was written yet."""

        class Killed(BaseException):
            pass

        def die(*_: object, **__: object) -> None:
            raise Killed

        echo, plane = Echo(), SharedPlane(address, origin="alice")
        service = WORLD.service(tmp_path, CENTER, echo, plane=SharedPlane(address))
        topic = plane.create(reply=True)
        plane.post(service.topic, asked(ALICE, b"abc", topic))
        journal = dict.fromkeys(("commit", "sent"), ServiceJournal)
        where = {**journal, **dict.fromkeys(("post", "take"), SharedPlane), "handle": Echo}[step]
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(where, step, die)
            service.serve_once(WORLD.now)
        after = WORLD.service(tmp_path, CENTER, echo, plane=SharedPlane(address))
        assert after.topic == service.topic
        for _ in range(2):
            after.serve_once(WORLD.now)
        sent = [p.data for p in plane.read(topic, 0)]
        assert len(set(sent)) == 1 and len(sent) == (2 if step == "sent" else 1)
        assert echo.handled[b"abc"] == (2 if step == "commit" else 1)

    def test_a_database_without_the_tables_leaves_requests_to_the_directory(
        self, tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As an earlier release made it, until somebody migrates it."""
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        place = postgres.schema()
        realm = Realm.create(tmp_path / "realm", registry=postgres.url(place, password=None))
        assert isinstance(realm.site.local.control(), SharedPlane)
        with postgres.connect(place) as connection:
            connection.execute(f"DROP TABLE {', '.join(control_tables.TABLES)}")  # type: ignore[arg-type]
        assert isinstance(realm.site.local.control(), ControlPlane)
        realm.registry.migrate()
        assert isinstance(realm.site.local.control(), SharedPlane)


class TestARealm:
    """Its services are run by whoever asks, where their keys are. A publisher of a payload topic asks a key center."""

    @pytest.fixture
    def place(self, postgres: Server, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        return postgres.schema()

    @pytest.fixture
    def realm(self, tmp_path: Path, postgres: Server, place: str) -> Realm:
        made = Realm.create(tmp_path / "realm", registry=postgres.url(place, password=None))
        made.create_topic("quotes", SCHEMA, access="members", protection="payload")
        made.enrol_many([f"p{n}" for n in range(4)])
        return made

    @staticmethod
    def ask(realm: Realm, name: str) -> None:
        with Publisher(Realm(realm.paths.root), "quotes", name) as publisher:
            assert len(publisher.publish([Event({"price": 1}, b"sealed")])) == 1

    @staticmethod
    def in_directory(realm: Realm) -> set[str]:
        return {path.parent.name for path in realm.paths.root.glob("control/*/*.seg")}

    def test_its_requests_pass_through_the_database(self, realm: Realm, postgres: Server, place: str) -> None:
        self.ask(realm, "p0")
        assert not self.in_directory(realm)
        with postgres.connect(place) as connection:
            (count,) = connection.execute(f"SELECT sum(next) FROM {control_tables.TOPICS}").fetchall()[0]  # type: ignore[arg-type]
        assert count > 0

    def test_one_that_is_migrated_goes_on_there(self, realm: Realm, postgres: Server, place: str) -> None:
        with postgres.connect(place) as connection:
            connection.execute(f"DROP TABLE {', '.join(control_tables.TABLES)}")  # type: ignore[arg-type]
        self.ask(realm, "p0")
        before = self.in_directory(realm)
        assert before
        realm.registry.migrate()
        self.ask(realm, "p1")
        assert self.in_directory(realm) == before, "and what is left in the directory is left alone"

    @pytest.mark.parametrize("onto", ["a directory", "a server"])
    def test_one_that_is_restored_begins_with_new_topics(
        self, realm: Realm, tmp_path: Path, postgres: Server, onto: str
    ) -> None:
        self.ask(realm, "p0")
        made = back_up(realm, tmp_path / "backup")
        registry = None if onto == "a directory" else postgres.url(postgres.schema(), password=None)
        restored = Realm(restore(made.path, tmp_path / "again", registry=registry).root)
        self.ask(restored, "p1")
        self.ask(realm, "p2")
