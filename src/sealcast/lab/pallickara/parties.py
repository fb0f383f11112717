"""What runs on the hosts of `pallickara/hosts`: one process for each party of the paper's Figure 1.

    python -m sealcast.lab.pallickara.parties PARTY DIRECTORY ADDRESS

A party is told what it has to know in one line of JSON on stdin, says in one line on stdout when it is ready, and ends
when its stdin does. All but the lab's broker are what the commands run: `sealcast gateway`, `serve`, `join`, `pub` and
`sub`. The broker is the lab's own (`broker.py`), which looks for work again and again, a millisecond apart.
"""

from __future__ import annotations

import asyncio
import json
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from sealcast.control.reception import Reception, invite
from sealcast.control.running import Running
from sealcast.gateway.running import GatewayService
from sealcast.lab.pallickara.broker import LabBroker
from sealcast.lab.pallickara.end_to_end import BITS, SCHEMA
from sealcast.lab.pallickara.plain import PlainPath
from sealcast.model.event import Event
from sealcast.overlay.brokers import requests_of
from sealcast.protections.frame_steps import MatchingStep
from sealcast.protections.port import center_rules
from sealcast.protections.steps import StepName
from sealcast.transports.address import GatewayAddress
from sealcast.trust import joining
from sealcast.trust.admin.entities import revoke_entities
from sealcast.trust.certificates.roles import Role
from sealcast.trust.deployment import Realm
from sealcast.trust.handles import GatewayRealm
from sealcast.trust.invitations import InvitationCode
from sealcast.trust.layout import FIRST_BROKER, FIRST_DISCOVERY_NODES
from sealcast.trust.realm.parameters import KeyParameters
from sealcast.trust.registry import now_us

GATEWAY, CENTER, NODE = "door", "kmc", "tdn"
#: Who joins, and as what.
INVITED: Final = {
    CENTER: Role.KEY_CENTER,
    NODE: Role.DISCOVERY,
    "publisher": Role.ENTITY,
    "subscriber": Role.ENTITY,
}
TOPICS: Final = {f"AES-{bits}": f"aes-{bits}" for bits in BITS}
#: Of one message in the clear: its number, and how long its payload is.
HEAD: Final = struct.Struct("<QI")
_HOUR_US: Final = 3_600_000_000
_IDLE_S: Final = 0.001
#: As `sealcast serve` does.
_SERVE_S: Final = 0.02


def say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def over() -> bool:
    """Whether whoever started this has closed its stdin."""
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(ready) and not sys.stdin.readline()


def join(told: Mapping[str, Any], home: Path, *names: str) -> None:
    """With keys that are made here, through the gateway."""
    for name in names:
        code = InvitationCode.parse(told["codes"][name])
        joining.join(GatewayAddress.parse(told["gateway"]), code, home, now_us)


# --- host of the broker ---------------------------------------------------------------------------------


def found(directory: Path, address: str, told: Mapping[str, Any]) -> None:
    """Makes the realm and its invitations; ends."""
    realm = Realm.create(directory / "realm", "paper")
    revoke_entities(realm, FIRST_DISCOVERY_NODES)  # the only one is on a host of its own
    realm.add_gateway(GATEWAY, [address])
    say(codes={name: invite(realm, name, (), _HOUR_US, role)[0].reveal() for name, role in INVITED.items()})


def gateway(directory: Path, address: str, told: Mapping[str, Any]) -> None:
    made = GatewayService(GatewayRealm(directory / "realm"), GATEWAY, host=address)

    def watch() -> None:
        made.started.wait()
        say(gateway=f"sealcast://{address}:{made.port}")
        sys.stdin.read()
        made.stop()

    threading.Thread(target=watch, daemon=True).start()
    asyncio.run(made.run())


def reception(directory: Path, address: str, told: Mapping[str, Any]) -> None:
    """Enrols who has a code."""
    with Reception(Realm(directory / "realm")) as made:
        say(serving=[])
        while not over():
            if not made.turn():
                time.sleep(_SERVE_S)


def desk(directory: Path, address: str, told: Mapping[str, Any]) -> None:
    """The broker's desk. It advertises itself at the discovery node, which is there by then."""
    here = Realm(directory / "realm")
    _serve(Running(here, [FIRST_BROKER], more=lambda name: requests_of(here, name)))


def broker(directory: Path, address: str, told: Mapping[str, Any]) -> None:
    realm = Realm(directory / "realm")
    with ExitStack() as open_:
        turns = [open_.enter_context(LabBroker(realm, topic)) for topic in TOPICS.values()]
        step = MatchingStep.of(StepName(str(realm.paths.root), TOPICS[f"AES-{BITS[0]}"]))
        table = step.at(step.version()).table
        plain = open_.enter_context(PlainPath(realm.paths.root / "plain", SCHEMA, table))
        server = open_.enter_context(socket.create_server((address, 0)))
        threading.Thread(target=_pass_on, args=(server, plain), daemon=True).start()
        say(plain=server.getsockname()[1])
        while not over():
            if not any(each.turn() for each in turns):
                time.sleep(_IDLE_S)


def _pass_on(server: socket.socket, plain: PlainPath) -> None:
    """Takes messages in the clear from the first who calls, and gives them to the second."""
    publisher, subscriber = server.accept()[0], server.accept()[0]
    for line in (publisher, subscriber):
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while head := receive(publisher, HEAD.size):
        number, size = HEAD.unpack(head)
        plain.publish(Event({"number": number}, receive(publisher, size)))
        plain.turn()
        for payload in plain.read():
            subscriber.sendall(HEAD.pack(number, len(payload)) + payload)


def receive(line: socket.socket, size: int) -> bytes:
    """So many bytes; none when the other end is gone."""
    parts, left = list[bytes](), size
    while left:
        part = line.recv(left)
        if not part:
            return b""
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


# --- hosts of the key center and of the discovery node --------------------------------------------------


def center(directory: Path, address: str, told: Mapping[str, Any]) -> None:
    """It makes the keys of the topics where it is."""
    home = directory / "home"
    join(told, home, CENTER)
    here = Realm(home)
    for bits, topic in zip(BITS, TOPICS.values(), strict=True):
        parameters = KeyParameters(key_bits=bits)
        here.create_topic(topic, SCHEMA, center=CENTER, parameters=parameters, access="members")
    _serve(Running(here, center_more=center_rules))


def node(directory: Path, address: str, told: Mapping[str, Any]) -> None:
    home = directory / "home"
    join(told, home, NODE)
    _serve(Running(Realm(home)))


def _serve(made: Running) -> None:
    with made as running:
        running.start()
        say(serving=[each.name for each in running.services])
        while not over():
            if not running.turn():
                time.sleep(_SERVE_S)


def main(arguments: Sequence[str]) -> None:
    from sealcast.lab.pallickara.host_clients import clients

    party, directory, address = arguments
    parties = {each.__name__: each for each in (found, gateway, reception, desk, broker, center, node, clients)}
    parties[party](Path(directory), address, json.loads(sys.stdin.readline()))


if __name__ == "__main__":
    main(sys.argv[1:])
