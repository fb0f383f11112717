"""The registry against a plain oracle, against other processes, and against damage, in both databases."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sealcast.errors import Corrupt, FilterRejected, Misuse, NotFound, Rejected, SealcastError, Unavailable
from sealcast.model import Schema
from sealcast.trust.realm.changes import (
    Access,
    AddSubscription,
    Change,
    CreateTopic,
    EnrolEntity,
    Grant,
    PublishPairKey,
    RemoveSubscription,
    Revoke,
    RevokeEntity,
    Right,
)
from sealcast.trust.realm.machine import RealmState
from sealcast.trust.registry import Registry
from sealcast.trust.storage.address import Server as Address
from tests.children import forked, start
from tests.trust.places import FilePlace, Place, ServerPlace
from tests.trust.postgres import Server

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int"}]})
KEY = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
ENTITIES = ("ann", "bob", "cid")
TOPICS = ("open", "closed")
IDS = ("s1", "s2", "s3", "s4")


# --- the oracle: the same rules, written the slow and obvious way -----------------------------------


class Oracle:
    """Plain lists of what happened; every question is answered by looking through all of it."""

    def __init__(self) -> None:
        self.history: list[Change] = []

    def said(self, kind: type[Change]) -> list[Change]:
        return [c for c in self.history if isinstance(c, kind)]

    def enrolled(self, name: str) -> bool:
        return any(c.name == name for c in self.said(EnrolEntity))

    def revoked(self, name: str) -> bool:
        return any(c.name == name for c in self.said(RevokeEntity))

    def access(self, topic: str) -> Access | None:
        return next((c.access for c in self.said(CreateTopic) if c.name == topic), None)

    def may(self, right: Right, topic: str, name: str) -> bool:
        if not self.enrolled(name) or self.revoked(name) or self.access(topic) is None:
            return False
        allowed = self.access(topic) is Access.MEMBERS
        for c in self.history:
            if isinstance(c, Grant | Revoke) and (c.topic, c.entity) == (topic, name) and right in c.rights:
                allowed = isinstance(c, Grant)
        return allowed

    def table(self, topic: str) -> list[tuple[str, int, str]]:
        adds = [c for c in self.said(AddSubscription) if c.topic == topic]
        order = list(dict.fromkeys(c.subscriber for c in adds))
        removed = {c.id for c in self.said(RemoveSubscription)}
        return [(c.id, order.index(c.subscriber), c.filter) for c in adds if c.id not in removed]

    def admits(self, c: Change) -> bool:
        match c:
            case EnrolEntity():
                return not self.enrolled(c.name)
            case RevokeEntity():
                return self.enrolled(c.name) and not self.revoked(c.name)
            case CreateTopic():
                return self.access(c.name) is None
            case Grant():
                return self.enrolled(c.entity) and not self.revoked(c.entity) and self.access(c.topic) is not None
            case Revoke():
                return self.enrolled(c.entity) and self.access(c.topic) is not None
            case AddSubscription():
                return all(a.id != c.id for a in self.said(AddSubscription)) and self.may(
                    Right.SUBSCRIBE, c.topic, c.subscriber
                )
            case RemoveSubscription():
                return any(a.id == c.id for a in self.said(AddSubscription)) and all(
                    r.id != c.id for r in self.said(RemoveSubscription)
                )
            case PublishPairKey():
                fresh = all((p.topic, p.entity) != (c.topic, c.entity) for p in self.said(PublishPairKey))
                known = self.enrolled(c.entity) and not self.revoked(c.entity) and self.access(c.topic) is not None
                return fresh and known and c.epoch == 1


def agrees(state: RealmState, oracle: Oracle) -> None:
    assert state.version == len(oracle.history)
    for topic in TOPICS:
        for name in ENTITIES:
            for right in Right:
                assert state.may(right, topic, name) == oracle.may(right, topic, name)
        if oracle.access(topic) is None:
            assert topic not in state.topics
            continue
        table = oracle.table(topic)
        slots = state.slots_of(topic)
        assert [(s.id, slots[s.subscriber], s.filter) for s in state.subscriptions_of(topic)] == table
        assert sorted(slots.values()) == list(range(len(slots)))
        may = {n for n in ENTITIES if oracle.may(Right.SUBSCRIBE, topic, n)}
        assert set(state.authorised_slots(topic)) == {s for n, s in slots.items() if n in may}


rights = st.sampled_from([(Right.PUBLISH,), (Right.SUBSCRIBE,), (Right.PUBLISH, Right.SUBSCRIBE)])
names, topics, ids = st.sampled_from(ENTITIES), st.sampled_from(TOPICS), st.sampled_from(IDS)
filters = st.sampled_from(["price > 1", "price BETWEEN 2 AND 5"])
changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(EnrolEntity, names, st.just(KEY), st.just(bytes(32))),
    st.builds(RevokeEntity, names),
    st.builds(lambda n, a: CreateTopic(n, n.encode().ljust(16), SCHEMA, access=a), topics, st.sampled_from(Access)),
    st.builds(Grant, topics, names, rights),
    st.builds(Revoke, topics, names, rights),
    st.builds(AddSubscription, ids, topics, names, filters),
    st.builds(AddSubscription, ids, topics, names, filters),
    st.builds(RemoveSubscription, ids),
    st.builds(PublishPairKey, topics, st.integers(1, 2), names, st.just(b"sealed")),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(changes, max_size=40), st.randoms(use_true_random=False))
def test_agrees_with_the_oracle_at_every_version(
    tmp_path_factory: pytest.TempPathFactory, attempts: list[Change], random: object
) -> None:
    follow(FilePlace(tmp_path_factory.mktemp("registry")), attempts, random)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(changes, max_size=40), st.randoms(use_true_random=False))
def test_agrees_with_the_oracle_on_a_server(postgres: Server, attempts: list[Change], random: object) -> None:
    follow(ServerPlace(postgres), attempts, random)


def follow(place: Place, attempts: list[Change], random: object) -> None:
    registry, oracle = Registry.create(place.address), Oracle()
    for change in attempts:
        expected = oracle.admits(change)
        try:
            version = registry.apply(change)
        except SealcastError:
            assert not expected, change
        else:
            assert expected, change
            oracle.history.append(change)
            assert version == len(oracle.history)
    # Old versions, in any order and from another handle, are what they were.
    versions = list(range(len(oracle.history) + 1))
    random.shuffle(versions)  # type: ignore[attr-defined]
    fresh = Registry(place.address)
    for version in versions[:12]:
        past = Oracle()
        past.history = oracle.history[:version]
        agrees(registry.state(version), past)
        assert fresh.state(version) == registry.state(version)
    assert [c for _, _, c in fresh.changes()] == oracle.history


# --- transactions -----------------------------------------------------------------------------------


@pytest.fixture
def registry(place: Place) -> Registry:
    made = Registry.create(place.address)
    made.apply_many([EnrolEntity("ann", KEY, bytes(32)), CreateTopic("open", bytes(16), SCHEMA)])
    return made


def test_all_or_nothing(registry: Registry) -> None:
    with pytest.raises(NotFound):
        registry.apply_many([EnrolEntity("bob", KEY, bytes(32)), RevokeEntity("zoe")])
    assert registry.version() == 2
    assert "bob" not in registry.state().entities
    assert registry.apply(EnrolEntity("bob", KEY, bytes(32))) == 3


def test_unknown_versions_are_refused(registry: Registry) -> None:
    for version in (-1, 3):
        with pytest.raises(NotFound, match="versions 0 to 2"):
            registry.state(version)


def _enrol_some(address: Path | Address, who: int) -> None:
    registry = Registry(address)
    for i in range(25):
        registry.apply(EnrolEntity(f"p{who}-{i}", KEY, bytes(32)))


def test_several_processes_write(registry: Registry) -> None:
    writers = [start(_enrol_some, registry.address, who) for who in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert registry.version() == 2 + 75
    assert len(registry.state().entities) == 1 + 75


def test_a_forked_child_gets_its_own_connection(registry: Registry) -> None:
    registry.state()
    forked(lambda: registry.apply(EnrolEntity("forked", KEY, bytes(32))))
    assert "forked" in registry.state().entities


def test_several_threads_write(registry: Registry) -> None:
    def write(who: int) -> None:
        for i in range(10):
            registry.apply(EnrolEntity(f"t{who}-{i}", KEY, bytes(32)))

    threads = [threading.Thread(target=write, args=(w,)) for w in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert registry.version() == 42


def test_ids_decided_inside_a_transaction_cannot_collide(registry: Registry) -> None:
    def one_more(state: RealmState) -> list[Change]:
        return [AddSubscription(f"s{state.version}", "open", "ann", "price > 1")]

    assert registry.transact(one_more).version == 3
    assert Registry(registry.address).transact(one_more).version == 4


# --- damage -----------------------------------------------------------------------------------------


def test_history_cannot_be_rewritten_by_mistake(registry: Registry, place: Place) -> None:
    Registry(place.address, realm=b"r" * 16).version()
    for table in ("changes", "realm"):
        for statement in (f"UPDATE {table} SET chain = chain", f"DELETE FROM {table}"):
            with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError), match="only added"):
                place.run(statement)
    if place.kind == "postgres":
        with pytest.raises(psycopg.IntegrityError, match="only added"):
            place.run("TRUNCATE changes")
    assert Registry(place.address).state() == registry.state()


@pytest.mark.parametrize(
    ("tamper", "words"),
    [
        ("UPDATE changes SET body = replace(body, 'ann', 'eve') WHERE version = 1", "change 1 is not the one"),
        ("UPDATE changes SET kind = 'revoke-entity' WHERE version = 2", "change 2 is not the one"),
        ("UPDATE changes SET at_us = at_us + 1 WHERE version = 2", "change 2 is not the one"),
        ("DELETE FROM changes WHERE version = 1", "one before it is missing"),
    ],
)
def test_a_rewritten_history_is_refused(registry: Registry, place: Place, tamper: str, words: str) -> None:
    place.unguard()
    place.run(tamper)
    with pytest.raises(Corrupt, match=words) as refusal:
        Registry(registry.address).state()
    assert refusal.value.hint is not None and "restore" in refusal.value.hint


def _flip_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[0:16] = b"\0" * 16
    path.write_bytes(data)


def _garbage(path: Path) -> None:
    path.write_bytes(b"this is no database at all" * 100)


def _foreign(path: Path) -> None:
    path.unlink()
    sqlite3.connect(path).executescript("CREATE TABLE t (x);")


@pytest.mark.parametrize("damage", [_flip_page, _garbage, _foreign])
def test_what_is_no_registry_is_named(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    path = tmp_path / "registry.sqlite"
    Registry.create(path).apply(EnrolEntity("ann", KEY, bytes(32)))
    damage(path)
    with pytest.raises(Corrupt, match=r"registry.sqlite") as refusal:
        Registry(path).version()
    assert refusal.value.hint is not None


def test_a_missing_registry_is_not_made_up(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="is missing"):
        Registry(tmp_path / "registry.sqlite").version()
    assert not (tmp_path / "registry.sqlite").exists()


def test_a_registry_is_made_once(registry: Registry) -> None:
    with pytest.raises(Misuse, match="already"):
        Registry.create(registry.address)


# --- vetting ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (AddSubscription("s1", "open", "ann", "prise > 1"), FilterRejected, "prise"),
        (AddSubscription("s1", "open", "ann", "price > 'x'"), FilterRejected, "price"),
        (AddSubscription("s1", "open", "ann", "price >"), FilterRejected, "end"),
        (EnrolEntity("eve", bytes(32), bytes(32)), Rejected, "no canonical point"),
        (EnrolEntity("eve", b"\x01" + bytes(31), bytes(32)), Rejected, "no canonical point"),
    ],
)
def test_what_readers_rely_on_is_never_stored_unchecked(
    registry: Registry, change: Change, error: type[SealcastError], words: str
) -> None:
    with pytest.raises(error, match=words):
        registry.apply(change)
    assert registry.version() == 2
