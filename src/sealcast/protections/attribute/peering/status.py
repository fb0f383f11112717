"""What a running process of peers shows of itself: a small file for each identity, for `sealcast peer show`.

brokers/NAME/peer.json      written anew all the time, removed at the end; one that is left behind says who died
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sealcast.overlay.peers.net.transport import Transport
from sealcast.protections.attribute.peering.member import PeerMember
from sealcast.trust.handles import EntityRealm, OpenRealm
from sealcast.trust.keys.peer_addresses import PeerAddress

MAX_BYTES: Final = 16 << 20
#: Older than this, a process has not written it for long: it is dead, or cut off from its disk.
STALE_US: Final = 15_000_000


def _path(realm: OpenRealm, name: str) -> Path:
    return realm.paths.broker(name) / "peer.json"


def write(
    realm: EntityRealm, name: str, address: PeerAddress, transport: Transport, members: Iterable[PeerMember]
) -> None:
    """Says how a peer stands. Not synced: it is about now, and nothing depends on it."""
    body = {
        "entity": name,
        "process": os.getpid(),
        "time_us": realm.clock(),
        "address": str(address),
        "links": transport.links,
        "counts": dict(transport.counts),
        "topics": {member.topic: _topic(member) for member in members},
    }
    path = _path(realm, name)
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(body))
    os.replace(beside, path)


def _topic(member: PeerMember) -> dict[str, Any]:
    return {
        "rendezvous": list(member.rendezvous),
        "serves": member.name in member.rendezvous,
        "seats": [
            {
                "seat": seat.seat,
                "attribute": seat.attribute,
                "root": seat.root,
                "parent": None if seat.parent is None else seat.parent.peer,
                "parent_seat": None if seat.parent is None else seat.parent.seat,
                "children": sorted({child.peer for child in seat.children}),
                "depth": seat.depth,
            }
            for seat in member.node.seats()
        ],
        "waiting": 0 if member.publisher is None else member.publisher.waiting(),
        "unconfirmed": dict(member.unconfirmed),
        "counts": {**member.node.counts, **member.journal.counts},
    }


def remove(realm: OpenRealm, name: str) -> None:
    with suppress(FileNotFoundError):
        _path(realm, name).unlink()


def read(realm: OpenRealm, name: str) -> dict[str, Any] | None:
    """How a peer stands, if its process says so; with `live`, whether that is news."""
    try:
        body = json.loads(_path(realm, name).read_bytes()[:MAX_BYTES])
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(body, dict) or type(body.get("time_us")) is not int:
        return None
    return {**body, "live": realm.clock() - body["time_us"] < STALE_US}


def all_here(realm: OpenRealm) -> list[dict[str, Any]]:
    """Those whose processes run on this machine, or did."""
    return [found for name in realm.state().entities if (found := read(realm, name)) is not None]
