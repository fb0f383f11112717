"""Consumer groups in the database of the registry: who is alive, whose clock counts, and groups that were in files.

What all groups promise, wherever they are, is in `test_groups`; members are killed in `test_group_soak`.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Locked, NotFound, Unavailable
from sealcast.log.group_file import GroupFile, GroupFiles
from sealcast.log.groups import KeptGroup, ShareLost
from sealcast.trust.backups.making import back_up, restore
from sealcast.trust.deployment import Realm
from sealcast.trust.shared_groups import SharedGroup
from sealcast.trust.storage import group_tables
from tests.cli.shell import sealcast
from tests.clients.test_groups import PUBLISHERS, SCHEMA, drained, ledger, member, publish
from tests.trust.postgres import PASSWORD, Server

HOUR_NS = 3_600_000_000_000


@pytest.fixture
def place(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new schema without tables."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    return postgres.schema()


@pytest.fixture
def realm(tmp_path: Path, postgres: Server, place: str) -> Realm:
    made = Realm.create(tmp_path / "realm", registry=postgres.url(place, password=None))
    made.create_topic("quotes", SCHEMA, access="members")
    made.enrol_many(["alice", *PUBLISHERS])
    made.subscribe("quotes", "alice", "price >= 0")
    publish(made)
    return made


def kept(realm: Realm, name: str = "workers", *, here: bool = True) -> KeptGroup:
    return realm.site.local.groups("quotes").of("alice", name, here=here)


def file_of(realm: Realm, name: str = "workers") -> GroupFile:
    return GroupFiles(realm.paths.topic("quotes").groups).of("alice", name)


def rows(postgres: Server, place: str, query: str) -> list[Any]:
    with postgres.connect(place) as connection:
        return connection.execute(query).fetchall()  # type: ignore[arg-type]


def put_into_file(realm: Realm, name: str = "workers") -> Path:
    """As an earlier release left it, or a backup brings it: the group in a file, and not in the database."""
    group, file = kept(realm, name), file_of(realm, name)
    assert isinstance(group, SharedGroup)
    group.copy_to(file)
    group._forget()
    return file.path


class TestWhoIsAlive:
    def test_a_member_whose_connection_breaks_loses_its_shares_and_comes_back(
        self, realm: Realm, postgres: Server
    ) -> None:
        """The server lets a member's lock go with its connection, as when its machine is gone."""
        with member(realm) as one, member(realm) as other:
            assert len(one.poll(100)) == 40
            assert not other.poll(timeout=0.5), "all of it is the first one's"
            assert _end_connections(postgres, one) == 1
            got = drained([other])[0]
            assert len(got) == 40, "the other one took over"
            with pytest.raises(ShareLost):
                one.ack()
            publish(realm)
            again = drained([one, other])
            assert all(again), "who comes back takes part again"
        assert set(ledger(realm).values()) == {1}
        assert len(ledger(realm)) == 80

    def test_leases_go_by_the_servers_clock(self, realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
        """A gateway whose clock is an hour ahead takes nobody for dead."""
        with member(realm) as one:
            one.poll(0)
        now = time.time_ns

        def alive_for_a_gateway_ahead(first: KeptGroup, ahead: KeptGroup) -> bool:
            with first, ahead:
                first.turn("0" * 16, "a member", {}, ())
                with monkeypatch.context() as patched:
                    patched.setattr(time, "time_ns", lambda: now() + HOUR_NS)
                    return any(each.id == "0" * 16 for each in ahead.members())

        assert alive_for_a_gateway_ahead(kept(realm, here=False), kept(realm, here=False))
        # A file has the clock of whoever reads it.
        path = put_into_file(realm)
        weak = [GroupFile(path, here=False) for _ in range(2)]
        assert not alive_for_a_gateway_ahead(*weak)


def _end_connections(postgres: Server, of: Subscriber) -> int:
    """Ends the connection that holds the lock of a member; how many there were."""
    group = of._group
    assert group is not None and isinstance(group._group, SharedGroup)
    what = group._group._lock_of(group._member)
    from sealcast.trust.storage.postgres import _key

    high, low = (int.from_bytes(half, "big") for half in (_key(what)[:4], _key(what)[4:]))
    query = (
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"
        f" AND classid = {high}::bigint::oid AND objid = {low}::bigint::oid"
    )
    with postgres.connect() as connection:
        return len(connection.execute(query).fetchall())  # type: ignore[arg-type]


class TestGroupsThatWereInFiles:
    def test_one_goes_on_in_the_database_where_it_was(self, realm: Realm) -> None:
        with member(realm) as one:
            assert len(one.poll(13)) == 13
            one.ack()
        path = put_into_file(realm)
        with pytest.raises(NotFound):
            shutil.move(path, path.with_suffix(".away"))
            kept(realm).acks()
        shutil.move(path.with_suffix(".away"), path)
        with member(realm) as other:
            assert len(drained([other])[0]) == 27, "what was acknowledged stays so"
        assert len(ledger(realm)) == 40 and set(ledger(realm).values()) == {1}
        assert not path.exists()

    def test_one_that_has_members_there_is_left_to_them(self, realm: Realm) -> None:
        with member(realm) as one:
            one.poll(0)
        path = put_into_file(realm)
        with GroupFile(path) as earlier:
            earlier.turn("0" * 16, "of an earlier release", {}, ())
            with pytest.raises(Locked, match="has members there"):
                kept(realm).acks()
        assert len(kept(realm).acks()) == 1

    def test_a_copy_that_stayed_behind_is_no_second_group(self, realm: Realm) -> None:
        """The process was killed after the database had the group, and before the file was removed."""
        with member(realm) as one:
            one.poll(13)
            one.ack()
        path = put_into_file(realm)
        shutil.copy(path, path.with_suffix(".copy"))
        with member(realm) as other:
            assert len(drained([other])[0]) == 27
        shutil.move(path.with_suffix(".copy"), path)
        assert len(ledger(realm)) == 40
        assert not path.exists()

    def test_one_that_went_on_in_both_places_is_named(self, realm: Realm) -> None:
        with member(realm) as one:
            one.poll(0)
        path = put_into_file(realm)
        shutil.copy(path, path.with_suffix(".copy"))
        kept(realm).acks()
        shutil.move(path.with_suffix(".copy"), path)
        with GroupFile(path) as there, there._transaction() as earlier:
            (first,) = earlier.acks(0, 1)
            earlier.add_acks([first._replace(id=2)])
        with pytest.raises(Unavailable, match="with other acknowledgements") as refused:
            kept(realm).acks()
        assert refused.value.hint is not None and "move the file away" in refused.value.hint
        path.unlink()
        assert len(kept(realm).acks()) == 1


class TestTheTables:
    def test_those_of_an_earlier_release_are_made_when_they_are_needed(
        self, realm: Realm, postgres: Server, place: str
    ) -> None:
        names = ", ".join(group_tables.TABLES)
        with postgres.connect(place) as connection:
            connection.execute(f"DROP TABLE {names}")  # type: ignore[arg-type]
        assert realm.site.local.groups("quotes").names() == []
        with pytest.raises(NotFound):
            kept(realm).members()
        with member(realm) as one:
            assert len(drained([one])[0]) == 40
        with postgres.connect(place) as connection:
            connection.execute(f"DROP TABLE {names}")  # type: ignore[arg-type]
        realm.registry.migrate()
        assert rows(postgres, place, f"SELECT * FROM {group_tables.GROUPS}") == []

    def test_a_role_without_rights_is_told_which_it_needs(
        self, realm: Realm, postgres: Server, place: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        role = f"{place}_gateway"
        with member(realm) as one:
            one.poll(0)
        with postgres.connect(place) as connection:
            connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")  # type: ignore[arg-type]
            connection.execute(f"GRANT USAGE ON SCHEMA {place} TO {role}")  # type: ignore[arg-type]
            connection.execute(f"GRANT SELECT ON changes, realm, sealcast_schema TO {role}")  # type: ignore[arg-type]
            monkeypatch.setenv("SEALCAST_REGISTRY_URL", postgres.url(place, user=role))
            limited = Realm(realm.paths.root)
            with pytest.raises(Unavailable, match="permission denied") as refused:
                kept(limited).acks()
            told = refused.value.hint
            assert told is not None
            rights = told.partition("and GRANT ")[2]
            connection.execute(f"GRANT {rights} TO {role}")  # type: ignore[arg-type]
        assert len(kept(limited).acks()) == 1
        with member(limited) as one:
            assert len(drained([one])[0]) == 40

    def test_rows_of_a_later_release_are_refused(self, realm: Realm, postgres: Server, place: str) -> None:
        with member(realm) as one:
            one.poll(0)
        with postgres.connect(place) as connection:
            connection.execute(f"UPDATE {group_tables.GROUPS} SET format = 2")  # type: ignore[arg-type]
        with pytest.raises(Unavailable, match="has format 2; this release knows 1"):
            kept(realm).acks()


class TestItsLife:
    def test_commands_show_and_remove_it(self, realm: Realm, postgres: Server, place: str) -> None:
        with member(realm) as one:
            drained([one])
        at = ("--realm", str(realm.paths.root))
        (shown,) = sealcast(*at, "group", "list", "quotes", "--json").document["groups"]
        assert (shown["group"], shown["reader"], shown["members"]) == ("workers", "alice", [])
        assert shown["acknowledgements"] > 0
        done = sealcast(*at, "group", "remove", "quotes", "workers", "--as", "alice", "--yes")
        assert done.code == 0, done.err
        assert not any(rows(postgres, place, f"SELECT * FROM {table}") for table in group_tables.TABLES)

    def test_it_goes_with_its_topic_and_no_other(self, realm: Realm, postgres: Server, place: str) -> None:
        realm.create_topic("other", SCHEMA, access="members")
        realm.subscribe("other", "alice", "price >= 0")
        for topic in ("quotes", "other"):
            with Subscriber(realm, topic, as_="alice", group="workers") as one:
                one.poll(0)
        realm.delete_topic("quotes")
        assert len(rows(postgres, place, f"SELECT * FROM {group_tables.GROUPS}")) == 1
        assert realm.site.local.groups("other").names() == [("alice", "workers")]

    @pytest.mark.parametrize("onto", ["a directory", "a server"])
    def test_a_restored_realm_has_it(self, realm: Realm, tmp_path: Path, postgres: Server, onto: str) -> None:
        with member(realm) as one:
            one.poll(13)
            one.ack()
        made = back_up(realm, tmp_path / "backup")
        registry = None if onto == "a directory" else postgres.url(postgres.schema(), password=None)
        restored = Realm(restore(made.path, tmp_path / "again", registry=registry).root)
        with member(restored) as other:
            assert len(drained([other])[0]) == 27
        assert len(ledger(restored)) == 40 and set(ledger(restored).values()) == {1}
        assert isinstance(kept(restored), GroupFile) == (registry is None)
        assert len(ledger(realm)) == 13, "they share nothing"
