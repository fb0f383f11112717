"""What a client gets that was written from the OpenAPI document alone."""

from __future__ import annotations

import hashlib
import json

from sealcast.clients.publisher import Publisher
from sealcast.model.event import Event
from sealcast.trust.deployment import Realm
from tests.clients.pump import pump
from tests.gateway.world import AT, TOPIC, RunningGateway


def test_the_realm_is_for_anybody(served: RunningGateway) -> None:
    found = served.client().get("/v1/realm")
    assert found.status == 200, found
    body = found.value
    assert body["id"] == served.realm.id and body["gateway"] == "door"
    assert hashlib.sha256(body["root"]).hexdigest() == json.loads(served.realm.paths.mark.read_text())["root"]
    assert int(found.headers["sealcast-version"]) == body["version"] == served.realm.state().version


def test_the_rest_is_not(served: RunningGateway) -> None:
    nobody = served.client()
    assert nobody.get("/v1/registry/changes").problem == "certificate:missing"
    assert nobody.get(f"{AT}/mail/ledger").problem == "certificate:missing"
    assert nobody.get("/healthz").status == nobody.get("/readyz").status == 200
    assert nobody.get("/nothing").status == 404


def test_the_whole_registry_comes_in_pages(served: RunningGateway) -> None:
    alice, rows = served.client("alice"), []
    while True:
        page = alice.get("/v1/registry/changes", after=len(rows), max_bytes=4_000).value
        if not page["rows"]:
            break
        rows += page["rows"]
        assert page["rows"][-1][5], "a page ends where a transaction ends"
    assert len(rows) == page["newest"] == served.realm.state().version
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))


def test_frames_are_durable_once_and_mail_comes_back(served: RunningGateway, realm: Realm) -> None:
    nyse, alice = served.client("nyse"), served.client("alice")
    with Publisher(realm, TOPIC, "nyse") as publisher:
        publisher.publish([Event({"price": 150}, b"one")])
        publisher.publish([Event({"price": 5}, b"two")])
    log = realm.frames(TOPIC, read_only=True)
    (partition,) = [p for p in log.own if log.partition(p).end()]
    frames = [record.data for record in log.partition(partition).read(0)]
    again = nyse.post(f"{AT}/frames", {"partition": partition, "frames": frames})
    assert again.status == 200, again.raw
    assert again.value["offsets"] == list(range(len(frames))), "what came before has its first offset"
    looked = nyse.get(f"{AT}/frames", partition=partition).value
    assert looked == {"start": 0, "end": len(frames), "waiting": len(frames)}
    pump(realm, TOPIC)
    page = alice.get(f"{AT}/mail/ledger", from_=0).value
    assert page["end"] == len(page["records"]) == 1
    names = [name for name in (p.name for p in realm.paths.topic(TOPIC).pieces.iterdir()) if name.endswith(".piece")]
    for name in names:
        found = alice.get(f"{AT}/mail/pieces/{name}")
        assert found.status == 200 and found.raw == (realm.paths.topic(TOPIC).pieces / name).read_bytes()
        assert served.client("mallory").get(f"{AT}/mail/pieces/{name}").status == 403
    assert served.client("mallory").get(f"{AT}/mail/ledger").problem == "forbidden"
