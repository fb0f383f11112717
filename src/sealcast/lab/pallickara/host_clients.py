"""The publisher and the subscriber of `pallickara/hosts`, on one host as in the paper: their clock is one clock.

A message is stamped when it is handed to the publisher. Its transit ends when the subscriber has it, opened.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.control.discovery.advertisements import What
from sealcast.control.discovery.embedded import RealmDiscovery
from sealcast.control.wallet import Wallet
from sealcast.errors import Bug, Unavailable
from sealcast.lab.pallickara.end_to_end import FILTER, KINDS, PLAIN
from sealcast.lab.pallickara.parties import CENTER, HEAD, TOPICS, join, receive, say
from sealcast.model.event import Event
from sealcast.primitives.secrets import Secret
from sealcast.protections.port import client_side
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.changes import Right

#: Seconds to publish, and seconds until it was opened, of one message.
Transit = Callable[[Event], tuple[float, float]]
PATIENCE_S: Final = 120.0
#: Between two requests to the key center, which answers each entity so often and no oftener.
_PAUSE_S: Final = 0.1
_WARM: Final = 2


def clients(directory: Path, address: str, told: Mapping[str, Any]) -> None:
    """Measures everything, all cases in turn, and says it."""
    homes = {name: directory / name for name in ("publisher", "subscriber")}
    for name, home in homes.items():
        join(told, home, name)
    at = {name: EntityRealm(home) for name, home in homes.items()}
    with ExitStack() as open_:
        say(discoveries=[_discovery(at["subscriber"]) for _ in range(told["runs"])])
        say(tokens=list(_tokens(at["publisher"], told["tokens"])))
        send = {kind: _secured(at, topic, open_) for kind, topic in TOPICS.items()}
        say(subscribed=True)
        send[PLAIN] = _plain(told["broker"], int(input()), open_)
        bodies, number = {size: Secret.random(size).reveal() for size in told["payloads"]}, 0
        for run in range(-_WARM, told["runs"]):
            for size, body in bodies.items():
                turn = number % len(KINDS)
                for kind in (*KINDS[turn:], *KINDS[:turn]):
                    taken = send[kind](Event({"number": number}, body))
                    if run >= 0:
                        say(kind=kind, payload=size, taken=taken)
                number += 1
    say(done=True)


def _discovery(realm: EntityRealm) -> float:
    """Seconds until the topic is found that the key center listens on."""
    with closing(RealmDiscovery(realm, realm.identity("subscriber"))) as discovery:
        began = time.monotonic()
        while time.monotonic() < began + PATIENCE_S:
            asked = time.monotonic()
            if any(each.owner == CENTER for each in discovery.client.find("*", What.KEY_CENTER)):
                return time.monotonic() - asked
            time.sleep(_PAUSE_S)  # it was not advertised yet
    raise Unavailable("the key center of the lab was not found")


def _tokens(realm: EntityRealm, runs: int) -> Iterator[float]:
    """Seconds of each request for a topic's key and a token, after a first one."""
    topic = TOPICS[KINDS[-1]]
    with Wallet(realm, "publisher", keep=False) as wallet:
        wallet.ask(topic, Right.PUBLISH)
        for _ in range(runs):
            time.sleep(_PAUSE_S)
            began = time.monotonic()
            wallet.ask(topic, Right.PUBLISH)
            yield time.monotonic() - began


def _secured(at: Mapping[str, EntityRealm], topic: str, open_: ExitStack) -> Transit:
    reading = at["subscriber"]
    with client_side(reading.state().topic(topic).protection).interests(reading, topic, "subscriber") as interests:
        interests.add(FILTER)
    publisher = open_.enter_context(Publisher(at["publisher"], topic, "publisher"))
    subscriber = open_.enter_context(Subscriber(reading, topic, "subscriber"))

    def send(event: Event) -> tuple[float, float]:
        began = time.monotonic()
        publisher.publish_one(event)
        published = time.monotonic()
        return _checked(event, [e.payload for e in subscriber.poll(1, timeout=PATIENCE_S)], began, published)

    return send


def _plain(host: str, port: int, open_: ExitStack) -> Transit:
    """In the clear, over two connections to the broker."""
    lines = [open_.enter_context(socket.create_connection((host, port), timeout=PATIENCE_S)) for _ in range(2)]
    for line in lines:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    publisher, subscriber = lines

    def send(event: Event) -> tuple[float, float]:
        began = time.monotonic()
        publisher.sendall(HEAD.pack(int(str(event.attributes["number"])), len(event.payload)) + event.payload)
        published = time.monotonic()
        _, size = HEAD.unpack(receive(subscriber, HEAD.size))
        return _checked(event, [receive(subscriber, size)], began, published)

    return send


def _checked(event: Event, got: list[bytes], began: float, published: float) -> tuple[float, float]:
    if got != [event.payload]:  # a measurement of something that does not work measures nothing
        raise Bug("what the lab's subscriber opened is not what its publisher published")
    return published - began, time.monotonic() - began
