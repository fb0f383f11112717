"""Who gets what: strangers, those whose right has ended, and those who ask for what is another's.

Each attack is mounted twice: on the gateway as it is, where it fails, and on one that lacks the check, where it
succeeds. So the tests cannot pass because the attack was none.
"""

from __future__ import annotations

import http.client
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sealcast.clients.publisher import Publisher
from sealcast.gateway import access, control, mail
from sealcast.gateway.asked import ApiCall
from sealcast.gateway.callers import Caller, Callers
from sealcast.gateway.hub import Hub
from sealcast.model.event import Event
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.realm.state import RealmState
from tests.clients.pump import pump
from tests.gateway.stock_client import StockClient
from tests.gateway.world import AT, TOPIC, RunningGateway, identity_pem, make_realm, running


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[RunningGateway]:
    (tmp_path / "clients").mkdir()
    with running(make_realm(tmp_path / "market"), tmp_path / "clients") as made:
        yield made


def _published(realm: Realm) -> list[str]:
    """The names of pieces in which alice and bob find something, and mallory nothing."""
    with Publisher(realm, TOPIC, "nyse") as publisher:
        publisher.publish([Event({"price": 500}, b"for two")])
    pump(realm, TOPIC)
    return sorted(path.name for path in realm.paths.topic(TOPIC).pieces.glob("*.piece"))


# --- a revoked caller, on a connection that it has -----------------------------------------------------


def _ask_after_revocation(served: RunningGateway) -> int:
    alice = served.client("alice")
    assert alice.get(f"{AT}/mail/ledger").status == 200
    version = served.realm.revoke_entity("alice")
    nyse = served.client("nyse")
    assert nyse.get("/v1/registry/changes", after=version - 1, wait=60).value["newest"] >= version
    return alice.get(f"{AT}/mail/ledger").status


def test_a_connection_outlives_no_revocation(fresh: RunningGateway) -> None:
    assert _ask_after_revocation(fresh) == 401


def test_without_judging_each_request_it_would(fresh: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[bytes | None, Caller] = {}
    judge = Callers.judge

    def once(self: Callers, der: bytes | None) -> Caller:
        return known[der] if der in known else known.setdefault(der, judge(self, der))

    monkeypatch.setattr(Callers, "judge", once)
    assert _ask_after_revocation(fresh) == 200


def test_a_long_poll_that_was_begun_before_is_refused_at_its_end(fresh: RunningGateway) -> None:
    alice = fresh.client("alice")
    alice.connection.request("GET", f"{AT}/mail/ledger?from=0&wait=60")
    fresh.realm.revoke_entity("alice")
    fresh.client("nyse").get("/v1/registry/changes", after=fresh.realm.state().version - 1, wait=60)
    _published(fresh.realm)
    assert alice.connection.getresponse().status == 401


def _followed_after_its_time(served: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a follower still gets mail when its certificate has ended, and nothing was decided in the realm."""
    alice = served.client("alice")
    end = alice.get(f"{AT}/mail/ledger").value["end"]
    coming = alice.follow(f"{AT}/mail/follow", from_=end)
    assert next(coming)[0] == "reseals"
    later = served.realm.trust(served.realm.state()).recognise(served.realm.state().entity("alice").certificate)
    monkeypatch.setattr(served.hub.callers, "_clock", lambda: later.not_after_us + 1)
    _published(served.realm)
    try:
        return any(item[0] == "record" for item in coming)
    except (http.client.HTTPException, OSError):
        return False


def test_an_endless_answer_ends_with_the_certificate(fresh: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _followed_after_its_time(fresh, monkeypatch)


def test_where_only_the_registry_ends_it_it_goes_on(fresh: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[int, Caller] = {}
    again = Hub.again

    def by_version(self: Hub, asked: ApiCall) -> Caller:
        version = self.newest.version
        return known[version] if version in known else known.setdefault(version, again(self, asked))

    monkeypatch.setattr(Hub, "again", by_version)
    assert _followed_after_its_time(fresh, monkeypatch)


# --- others' mail --------------------------------------------------------------------------------------


def _everybody(state: RealmState, caller: Caller, topic: str, part: str = "") -> bool:
    return True


WEAKENED: list[tuple[object, str, Callable[..., object]]] = [
    (access, "reads", _everybody),
    (mail.Readers, "concerns", lambda self, name, caller, slot: True),
]


def test_pieces_are_for_whom_they_concern(fresh: RunningGateway) -> None:
    (name, *_) = _published(fresh.realm)
    assert fresh.client("alice").get(f"{AT}/mail/pieces/{name}").status == 200
    assert fresh.client("mallory").get(f"{AT}/mail/pieces/{name}").status == 403
    assert fresh.client("mallory").get(f"{AT}/mail/ledger").status == 403
    assert fresh.client("mallory").get(f"{AT}/mail/follow").status == 403
    assert fresh.client("mallory").get(f"{AT}/frames").status == 403
    assert fresh.client("nyse").get(f"{AT}/replays/ledger").status == 403


def test_without_the_table_anybody_had_them(fresh: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, attribute, weaker in WEAKENED:
        monkeypatch.setattr(owner, attribute, weaker)
    (name, *_) = _published(fresh.realm)
    stolen = fresh.client("mallory").get(f"{AT}/mail/pieces/{name}")
    assert stolen.status == 200 and stolen.raw == (fresh.realm.paths.topic(TOPIC).pieces / name).read_bytes()


@pytest.mark.parametrize(
    "name", ["../ledger/frontier", "..%2f..%2frealm.json", "x", "0000-0000000000000-0000000000001-0" * 3]
)
def test_names_lead_nowhere_else(served: RunningGateway, name: str) -> None:
    assert served.client("alice").get(f"{AT}/mail/pieces/{name}").status in (400, 404)


# --- another's name ------------------------------------------------------------------------------------


def test_frames_are_their_publishers_own(fresh: RunningGateway) -> None:
    with Publisher(fresh.realm, TOPIC, "nyse") as publisher:
        (frame,) = publisher.seal([Event({"price": 1}, b"mine")])
    own = fresh.client("nyse").get(f"{AT}/frames").value["own"][0]
    body = {"partition": own, "frames": [frame]}
    assert fresh.client("mallory").post(f"{AT}/frames", body).problem == "forbidden"
    assert fresh.client("nyse").post(f"{AT}/frames", {"partition": own + 7, "frames": [frame]}).status == 400
    forged = frame[:-1] + bytes([frame[-1] ^ 1])
    torn = fresh.client("nyse").post(f"{AT}/frames", {"partition": own, "frames": [frame[:40]]})
    assert torn.problem == "not-appended:frame"
    assert fresh.client("nyse").post(f"{AT}/frames", body).value["offsets"] == [0]
    # The body is sealed: only the broker can tell that it was altered, and admission does.
    assert fresh.client("nyse").post(f"{AT}/frames", {"partition": own, "frames": [forged]}).value["offsets"] == [1]
    assert fresh.client("nyse").post(f"{AT}/frames", {"partition": own, "frames": [frame, forged]}).value[
        "offsets"
    ] == [0, 1]


def test_control_topics_are_their_makers_own(fresh: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob, topic = fresh.client("alice"), fresh.client("bob"), os.urandom(16).hex()
    assert alice.put(f"/v1/control/{topic}").status == 403, "entities make topics for answers only"
    assert alice.put(f"/v1/control/{topic}", reply=1).status == 204
    assert bob.post(f"/v1/control/{topic}", {"data": b"sealed"}).value == {"offset": 0}
    assert bob.get(f"/v1/control/{topic}").status == bob.delete(f"/v1/control/{topic}").status == 403
    assert bob.put(f"/v1/control/{topic}", reply=1).status == 403
    found = alice.get(f"/v1/control/{topic}", from_=0).value["records"]
    assert [(record[0], record[2], record[3]) for record in found] == [(0, "entity bob", b"sealed")]
    monkeypatch.setattr(control.ControlTopics, "own", lambda self, plane, caller, topic: None)
    assert bob.get(f"/v1/control/{topic}").value["records"], "without the check another reads it"
    monkeypatch.undo()
    assert alice.delete(f"/v1/control/{topic}").status == 204
    assert alice.get(f"/v1/control/{topic}").status == 404


# --- strangers -----------------------------------------------------------------------------------------


def test_a_certificate_of_another_realm_fails_the_handshake(fresh: RunningGateway, tmp_path: Path) -> None:
    other = Realm.create(tmp_path / "other", "other")
    other.enrol("alice")
    stranger = StockClient("localhost", fresh.port, fresh.root, identity_pem(other, "alice", tmp_path / "clients"))
    with pytest.raises(OSError):
        stranger.get("/v1/realm")


def test_a_gateway_cannot_be_played_by_an_entity(fresh: RunningGateway, tmp_path: Path) -> None:
    """An entity's certificate is for no host: a client that pins the root and verifies the name refuses it."""
    import socket
    import ssl
    import threading

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity_pem(fresh.realm, "mallory", tmp_path / "clients"))
    listening = socket.create_server(("127.0.0.1", 0))

    def play() -> None:
        connection, _ = listening.accept()
        try:
            context.wrap_socket(connection, server_side=True).close()
        except OSError:
            connection.close()

    playing = threading.Thread(target=play, daemon=True)
    playing.start()
    with pytest.raises(ssl.SSLCertVerificationError):
        StockClient("localhost", listening.getsockname()[1], fresh.root).get("/v1/realm")
    playing.join(60)
    listening.close()


def test_the_gateway_holds_no_key_of_a_topic(fresh: RunningGateway) -> None:
    state = fresh.realm.state()
    own = Identity.load(fresh.realm.paths.gateway_key("door"), "door")
    assert state.pair_key(TOPIC, state.topic(TOPIC).epoch, own.name) is None
    assert state.topic_key(TOPIC, state.topic(TOPIC).epoch, own.name) is None
