"""Members of a group are killed and added at random: each event is in the ledger of acknowledgements exactly once."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from sealcast.clients.publisher import Publisher
from sealcast.clients.realm import Realm
from sealcast.errors import NotFound
from sealcast.model import Event, Schema
from sealcast.model.protection import PROTECTIONS
from sealcast.protections.attribute.carry import carry
from tests.clients.layered_pump import pump as pump_layered
from tests.clients.pump import pump as pump_slots
from tests.clients.test_groups import acknowledged
from tests.trust.postgres import PASSWORD, Server

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 255}]})
PUBLISHERS = [f"p{number}" for number in range(6)]
PATIENCE_S = 120.0


class Crowd:
    """Members as processes of their own."""

    def __init__(self, realm: Realm, directory: Path, random: Random) -> None:
        self._realm, self._random, self._stop = realm, random, directory / "stop"
        self._members: list[subprocess.Popen[bytes]] = []
        self.killed = 0

    def add(self) -> None:
        arguments = [str(self._realm.paths.root), str(self._random.randrange(1 << 30)), str(self._stop)]
        command = [sys.executable, "-m", "tests.clients.group_member", *arguments]
        self._members.append(subprocess.Popen(command, stderr=subprocess.PIPE))

    def kill(self) -> None:
        member = self._members.pop(self._random.randrange(len(self._members)))
        member.kill()
        member.communicate()
        self.killed += 1

    def __len__(self) -> int:
        return len(self._members)

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for member in self._members:
            member.kill()
            member.communicate()

    def end(self) -> None:
        """In good order: none of them has anything to complain about."""
        self._stop.touch()
        for member in self._members:
            _, said = member.communicate(timeout=PATIENCE_S)
            assert member.returncode == 0, said.decode()
        self._members.clear()


def carried(realm: Realm) -> None:
    protection = realm.state().topic("quotes").protection
    if protection.peers:
        carry(realm, ["quotes"])
    elif protection.overlay:
        pump_layered(realm, "quotes")
    else:
        pump_slots(realm, "quotes")


def campaign(
    directory: Path, protection: str, *, rounds: int, seed: int, registry: str | None = None
) -> Counter[tuple[str, str, int]]:
    """So many rounds of publishing, killing and adding; the ledger of acknowledgements when all was read."""
    random = Random(seed)
    realm = Realm.create(directory / "realm", registry=registry)
    realm.create_topic("quotes", SCHEMA, protection=protection, access="members")
    realm.enrol_many(["alice", *PUBLISHERS])
    realm.subscribe("quotes", "alice", "price >= 0")
    carried(realm)
    published = 0
    with Crowd(realm, directory, random) as crowd, ExitStack() as open_:
        publishers = [open_.enter_context(Publisher(realm, "quotes", as_=name)) for name in PUBLISHERS]
        for _ in range(rounds):
            while len(crowd) < 2 or (len(crowd) < 4 and random.random() < 0.3):
                crowd.add()
            before = len(_known(realm))
            for publisher in publishers:
                count = random.randint(1, 12)
                publisher.publish([Event({"price": n}, b"work") for n in range(count)])
                published += count
            carried(realm)
            _until(lambda before=before: len(_known(realm)) > before)  # type: ignore[misc]  # somebody works
            time.sleep(random.random() / 2)
            crowd.kill()
        crowd.add()
        _until(lambda: len(_known(realm)) >= published)
        crowd.end()
    assert crowd.killed == rounds
    counted = Counter(acknowledged(realm))
    assert len(counted) == published
    return counted


def _known(realm: Realm) -> list[tuple[str, str, int]]:
    """What was acknowledged so far."""
    try:
        return list(acknowledged(realm))
    except NotFound:
        return []  # nobody has made the group yet


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_each_event_is_acknowledged_once_whoever_is_killed(tmp_path: Path, protection: str) -> None:
    assert set(campaign(tmp_path, protection, rounds=1, seed=7).values()) == {1}


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("protection", PROTECTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_each_event_is_acknowledged_once_over_many_kills(tmp_path: Path, protection: str, seed: int) -> None:
    assert set(campaign(tmp_path, protection, rounds=25, seed=seed).values()) == {1}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", [2, pytest.param(25, marks=pytest.mark.soak)])
def test_it_is_so_where_groups_are_on_a_server(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    registry = postgres.url(postgres.schema(), password=None)
    assert set(campaign(tmp_path, "endpoint", rounds=rounds, seed=11, registry=registry).values()) == {1}
    assert not list(tmp_path.rglob("groups")), "nothing of the group is in the directory"
