"""A realm with a topic that was used, by friends and by strangers, and a console over it."""

from __future__ import annotations

import asyncio
import http.client
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sealcast import Event, Publisher, Realm, Schema
from sealcast.console.serving import ConsoleService
from sealcast.console.viewer import Viewer
from sealcast.lab.pallickara.broker import LabBroker

TOPIC = "quotes"
SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "symbol", "type": "string", "max_length": 64},
            {"name": "price", "type": "int", "min": 0, "max": 1000},
        ]
    }
)
#: What becomes a script wherever text is put into a page as it is.
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
PATIENCE_S = 30


def make(directory: Path) -> Realm:
    """Two events delivered, one of them hostile, and a frame of a stranger's that was refused."""
    realm = Realm.create(directory, "market")
    realm.enrol_many(["nyse", "alice", "bob"])
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.subscribe(TOPIC, "alice", "price < 120")
    realm.subscribe(TOPIC, "bob", f"symbol = '{HOSTILE[:60].replace(chr(39), '')}' OR price > 900")
    publish(realm, 118, 121)
    with realm.frames(TOPIC) as log:
        log.partition(0).append([HOSTILE.encode()])
    turn(realm)
    return realm


def publish(realm: Realm, *prices: int, symbol: str = "IBM") -> None:
    with Publisher(realm, TOPIC, as_="nyse") as publisher:
        publisher.publish([Event({"symbol": symbol, "price": price}, b"paid in full") for price in prices])


def turn(realm: Realm) -> None:
    with LabBroker(realm, TOPIC) as broker:
        broker.turn()


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: str


def answer_of(
    connection: http.client.HTTPConnection, path: str, method: str, body: str, headers: Mapping[str, str]
) -> Answer:
    """One request over a connection of its own (`_` in a header's name is a hyphen)."""
    try:
        connection.request(
            method, path, body or None, {name.replace("_", "-"): value for name, value in headers.items()}
        )
        found = connection.getresponse()
        named = {name.lower(): value for name, value in found.getheaders()}
        return Answer(found.status, named, found.read().decode(errors="replace"))
    finally:
        connection.close()


class Served:
    """A console that runs, and a browser that is none: it sends what it is told to."""

    def __init__(self, service: ConsoleService) -> None:
        self.service, self.host = service, service.host
        self.origin = f"http://{service.host}"
        self._cookie = ""

    def enter(self) -> str:
        """The cookie of a fresh session."""
        answer = self.ask(self.service.link().removeprefix(self.origin))
        assert answer.status == 200
        self._cookie = answer.headers["set-cookie"].split(";")[0]
        return self._cookie

    @property
    def cookie(self) -> str:
        return self._cookie or self.enter()

    def ask(self, path: str, method: str = "GET", body: str = "", **headers: str) -> Answer:
        """Exactly this, and no other header than the host's, unless one is given (`_` is a hyphen)."""
        given = {"Host": self.host} | headers
        if method != "GET":
            given["Content-Type"] = "application/x-www-form-urlencoded"
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=PATIENCE_S)
        return answer_of(connection, path, method, body, given)

    def page(self, path: str, **headers: str) -> Answer:
        """As a browser with a session asks."""
        return self.ask(path, Cookie=self.cookie, **headers)

    def send(self, path: str, body: str, **headers: str) -> Answer:
        """As a form of a page of ours is sent."""
        return self.ask(path, "POST", body, Cookie=self.cookie, **{"Origin": self.origin} | headers)


@contextmanager
def serving(realm: Realm, viewer: Viewer | None = None, **settings: Any) -> Iterator[Served]:
    service = ConsoleService(realm, viewer or Viewer(), **settings)
    thread = threading.Thread(target=lambda: asyncio.run(service.run()), daemon=True)
    thread.start()
    assert service.started.wait(PATIENCE_S)
    try:
        yield Served(service)
    finally:
        service.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
