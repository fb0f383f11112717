"""Writers that are killed, connections that are cut, servers that fall: a transaction is there whole, or not at all."""

from __future__ import annotations

import os
import random
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from sealcast.errors import Unavailable
from sealcast.trust.realm.changes import EnrolEntity
from sealcast.trust.realm.machine import RealmState
from sealcast.trust.registry import Registry
from sealcast.trust.storage.address import Server as Address
from sealcast.trust.storage.rows import Rows
from sealcast.trust.storage.store import Store
from tests.children import forked, run, start
from tests.trust.places import Place, ServerPlace
from tests.trust.postgres import Server

KEY = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
#: Changes in one transaction.
TOGETHER = 40


def batch(state: RealmState) -> list[EnrolEntity]:
    return [EnrolEntity(f"e{state.version + n}", KEY, bytes(32)) for n in range(TOGETHER)]


def whole(place: Place, acknowledged: int) -> int:
    """The version, after everything was found to be in order."""
    fresh = Registry(place.address)
    state = fresh.state()
    assert state.version % TOGETHER == 0, "half a transaction"
    assert state.version >= acknowledged, "an acknowledged change is gone"
    assert len(state.entities) == state.version
    assert [v for v, _, _ in fresh.changes()] == list(range(1, state.version + 1))
    return state.version


# --- killed writers -------------------------------------------------------------------------------


def _write_for_ever(address: Path | Address, told: int) -> None:
    registry = Registry(address)
    while True:
        os.write(told, struct.pack(">q", registry.transact(batch).version))


def test_a_writer_killed_at_any_moment_leaves_all_or_nothing(place: Place) -> None:
    registry = Registry.create(place.address)
    moments, version = random.Random(7), 0
    for _ in range(8):
        told, tell = os.pipe()
        writer = start(_write_for_ever, registry.address, hand_over=[tell])
        os.close(tell)
        heard = os.read(told, 8)  # it is at work
        time.sleep(moments.uniform(0, 0.03))
        writer.kill()
        assert writer.wait() == -signal.SIGKILL
        while more := os.read(told, 8):
            heard = more
        os.close(told)
        acknowledged = struct.unpack(">q", heard)[0]
        version = whole(place, acknowledged)
        # Nobody has to clean up after it: the next writer's turn comes at once.
        assert registry.transact(batch).version == version + TOGETHER


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _killed(address: Path | Address, spoil: Callable[[], None]) -> None:
    registry = Registry(address)
    spoil()
    registry.transact(batch)


def _before_rows() -> None:
    Rows.add = _die  # type: ignore[method-assign,assignment]


def _half_of_the_rows() -> None:
    add = Rows.add

    def half(self: Rows, rows: Any) -> None:
        add(self, rows[: TOGETHER // 2])
        _die()

    Rows.add = half  # type: ignore[method-assign]


def _before_commit() -> None:
    from sqlalchemy import Connection

    Connection.commit = _die  # type: ignore[method-assign,assignment]


def _after_commit() -> None:
    from sealcast.trust.storage import postgres, sqlite

    sqlite.SqliteFile.settle = postgres.PostgresDatabase.settle = _die  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize(
    ("spoil", "there"),
    [(_before_rows, False), (_half_of_the_rows, False), (_before_commit, False), (_after_commit, True)],
)
def test_killed_at_each_step(place: Place, spoil: Callable[[], None], there: bool) -> None:
    registry = Registry.create(place.address)
    registry.transact(batch)
    assert run(_killed, registry.address, spoil) == -signal.SIGKILL
    assert whole(place, TOGETHER) == (2 * TOGETHER if there else TOGETHER)
    assert registry.transact(batch).version == (3 * TOGETHER if there else 2 * TOGETHER)


def test_a_decision_that_fails_holds_nobody_up(place: Place) -> None:
    registry = Registry.create(place.address)

    def fail(state: RealmState) -> list[EnrolEntity]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        registry.transact(fail)
    assert Registry(place.address).transact(batch).version == TOGETHER
    assert registry.version() == TOGETHER


def test_a_child_leaves_its_parents_connection_alone(place: Place) -> None:
    """Both go on, also when the child ends: it closes only what is its own."""
    registry = Registry.create(place.address)
    registry.transact(batch)
    for round in range(3):
        forked(lambda: registry.transact(batch).version)
        assert registry.transact(batch).version == TOGETHER * (2 * round + 3)
    whole(place, TOGETHER * 7)


# --- cut connections ------------------------------------------------------------------------------


@pytest.fixture
def server_place(postgres: Server) -> ServerPlace:
    return ServerPlace(postgres)


def _cut(place: ServerPlace) -> None:
    """Every session of the registry, as an administrator or a firewall would."""
    with place.server.connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'sealcast'"
        )


def test_a_connection_that_was_cut_is_made_again(server_place: ServerPlace) -> None:
    registry = Registry.create(server_place.address)
    for use in (registry.version, registry.state, lambda: registry.transact(batch), registry.version):
        _cut(server_place)
        use()
    assert whole(server_place, TOGETHER) == TOGETHER


def test_a_connection_cut_during_a_decision_changes_nothing(server_place: ServerPlace) -> None:
    registry = Registry.create(server_place.address)
    registry.transact(batch)

    def decide(state: RealmState) -> list[EnrolEntity]:
        _cut(server_place)
        return batch(state)

    with pytest.raises(Unavailable, match="server closed the connection|terminat"):
        registry.transact(decide)
    assert whole(server_place, TOGETHER) == TOGETHER
    assert registry.transact(batch).version == 2 * TOGETHER


@pytest.mark.parametrize("there", [False, True])
def test_a_connection_cut_during_a_commit_is_looked_into(
    server_place: ServerPlace, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """Whether the server had done it when the connection broke, the chain tells."""
    from sqlalchemy import Connection

    registry = Registry.create(server_place.address)
    registry.transact(batch)
    real, cuts = Connection.commit, [1]

    def commit(self: Connection) -> None:
        if not cuts:
            return real(self)
        cuts.clear()
        if there:
            real(self)
        _cut(server_place)
        if there:
            raise OperationalError("COMMIT", {}, OSError("cut"), connection_invalidated=True)
        return real(self)

    monkeypatch.setattr(Connection, "commit", commit)
    if there:
        assert registry.transact(batch).version == 2 * TOGETHER
    else:
        with pytest.raises(Unavailable, match="nothing was changed"):
            registry.transact(batch)
    assert whole(server_place, TOGETHER) == (2 * TOGETHER if there else TOGETHER)
    assert registry.transact(batch).version == (3 * TOGETHER if there else 2 * TOGETHER)


def test_a_commit_that_nobody_can_look_into_says_so(server_place: ServerPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry.create(server_place.address)
    tries: list[object] = []
    real = Store._begun

    def begun(self: Store, begin: Any) -> Any:
        tries.append(self)
        if len(tries) > 1:
            raise OperationalError("BEGIN", {}, OSError("gone"), connection_invalidated=True)
        return real(self, begin)

    from sqlalchemy import Connection

    def commit(self: Connection) -> None:
        raise OperationalError("COMMIT", {}, OSError("cut"), connection_invalidated=True)

    registry.version()
    monkeypatch.setattr(Store, "_begun", begun)
    monkeypatch.setattr(Connection, "commit", commit)
    with pytest.raises(Unavailable, match="not known whether") as refusal:
        registry.transact(batch)
    assert "look" in (refusal.value.hint or "")


def test_what_a_server_acknowledged_survives_its_fall(server_place: ServerPlace) -> None:
    """SIGQUIT: it stops where it stands, and reads its log again when it starts."""
    registry = Registry.create(server_place.address)
    acknowledged = [registry.transact(batch).version for _ in range(3)][-1]
    server_place.server.stop(signal.SIGQUIT)
    with pytest.raises(Unavailable, match="127.0.0.1"):
        registry.version()
    server_place.server.start()
    assert registry.version() == acknowledged, "the same handle goes on"
    assert whole(server_place, acknowledged) == acknowledged
    assert registry.transact(batch).version == acknowledged + TOGETHER
