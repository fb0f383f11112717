"""Key centers that are killed while they decide: what was asked is done whole or not at all, and answered later."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sealcast.control import envelopes
from sealcast.control import requests as ask
from sealcast.control.center.requests import Authorise, Register, Rotate
from sealcast.control.center.service import center_service
from sealcast.control.correspondence import Correspondent
from sealcast.control.envelopes import ControlMessage, EnvelopeRecipient
from sealcast.control.journal import ServiceJournal
from sealcast.errors import Unavailable
from sealcast.log.control_topics import ControlPlane
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.state import RealmState
from sealcast.trust.storage.rows import Rows
from tests.children import run
from tests.cli.shell import spawn
from tests.trust.center_world import SCHEMA, World

BOTH = frozenset({Right.PUBLISH, Right.SUBSCRIBE})


def check_whole(state: RealmState) -> None:
    """Every epoch of every topic has its key with the broker, and everyone who may has a pair key."""
    for name, found in state.topics.items():
        for epoch in range(1, found.topic.epoch + 1):
            assert state.topic_key(name, epoch, "broker") is not None, f"{name}: half an epoch"
        for who in state.entitled(name, 0):
            assert state.pair_key(name, found.topic.epoch, who.name) is not None, f"{name}: {who.name} has no key"


# --- at each step -------------------------------------------------------------------------------------


def _die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _before_rows() -> None:
    Rows.add = _die  # type: ignore[method-assign,assignment]


def _half_of_the_rows() -> None:
    add = Rows.add

    def half(self: Rows, rows: list[tuple[int, int, str, str, bytes]]) -> None:
        add(self, rows[: len(rows) // 2])
        _die()

    Rows.add = half  # type: ignore[method-assign,assignment]


def _before_commit() -> None:
    from sqlalchemy import Connection

    Connection.commit = _die  # type: ignore[method-assign,assignment]


def _before_the_journal() -> None:
    ServiceJournal.commit = _die  # type: ignore[method-assign,assignment]


def _before_the_answer() -> None:
    ControlPlane.post = _die  # type: ignore[method-assign,assignment]


STEPS = [
    (_before_rows, False),
    (_half_of_the_rows, False),
    (_before_commit, False),
    (_before_the_journal, True),
    (_before_the_answer, True),
]


def _turn(root: Path, now_us: int, spoil: Callable[[], None]) -> None:
    realm = Realm(root, clock=lambda: now_us)
    service, _ = center_service(realm, realm.center(), advertised=False)
    spoil()
    service.serve_once(now_us)


@pytest.mark.parametrize(("spoil", "there"), STEPS, ids=lambda value: getattr(value, "__name__", ""))
def test_killed_at_each_step_of_what_an_owner_asks(tmp_path: Path, spoil: Callable[[], None], there: bool) -> None:
    world = World(tmp_path)
    service, center = world.center()
    plane = service._plane
    answers, party = plane.create(reply=True), world.party("owner")
    to = EnvelopeRecipient("center", world.realm.state().entity("center").kem_public)
    asked = [
        (Register.KIND, Register("orders", bytes(16), SCHEMA, 1, "members", {}).to_bytes()),
        (Authorise.KIND, Authorise("orders", "alice", BOTH, until_us=world.now + 10**12).to_bytes()),
        (Rotate.KIND, Rotate("orders", 1).to_bytes()),
    ]
    for number, (kind, body) in enumerate(asked, start=1):
        message = ControlMessage.request(kind, body, answers, world.now)
        before = world.realm.state().version
        plane.post(service.topic, envelopes.seal(party, world.realm.id, to, message))

        assert run(_turn, world.realm.paths.root, world.now, spoil) == -signal.SIGKILL
        state = world.realm.state()
        check_whole(state)
        assert (state.version > before) == there, "all of it, or nothing"
        # Whoever serves next answers it; what was done is not done again.
        service.serve_once(world.now)
        after = world.realm.state()
        check_whole(after)
        assert after.version > before and (after.version == state.version or not there)
        assert len(plane.read(answers, 0)) == number
    assert world.realm.state().topic("orders").epoch == 2
    service.close()
    center.close()
    world.close()


# --- the server itself --------------------------------------------------------------------------------


def test_kill_minus_nine_of_the_server_while_topics_are_registered_and_rotated(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "market")
    realm.enrol_many(["owner", "alice", "bob"])
    over, done, moments = threading.Event(), dict[str, int](), random.Random(11)

    def work() -> None:
        handle = Realm(realm.paths.root)
        with Correspondent(handle, handle.identity("owner")) as owner:
            number = 0
            while not over.is_set():
                try:
                    name = f"topic-{number}"
                    ask.register_topic(owner, name, SCHEMA, access="members")
                    done[name] = 1
                    done[name] = ask.rotate(owner, "center", name, 1)
                except Unavailable:
                    pass  # killed in its face, and for longer than an asker waits
                number += 1

    worker = threading.Thread(target=work)
    for round in range(2):
        server = spawn("--realm", realm.paths.root, "serve", "center")
        assert server.stderr is not None
        while "serving" not in server.stderr.readline():
            assert server.poll() is None
        if not round:
            worker.start()
            while not done:  # a first answer, however busy the machine is
                assert server.poll() is None
                time.sleep(0.05)
        time.sleep(moments.uniform(0.2, 0.7))
        server.kill()
        server.communicate()
        check_whole(Realm(realm.paths.root).state())
    last = spawn("--realm", realm.paths.root, "serve", "center")
    assert last.stderr is not None
    while "serving" not in last.stderr.readline():  # a process that is still being loaded ends by a signal at once
        assert last.poll() is None
    over.set()
    worker.join()
    last.send_signal(signal.SIGTERM)
    out, err = last.communicate()
    assert last.returncode == 0, err
    assert "key-center" in out
    state = realm.state()
    check_whole(state)
    assert done, "the server had done something before it was killed"
    for name, epoch in done.items():
        assert state.topic(name).epoch >= epoch, "what was answered is there"
