"""Writes peers.json beside this file: `python -m tests.vectors.make_peers` from the root.

A good message must be read, and written again to the same bytes; one with a `reason` must be refused for that reason
(`frame` or `version`). A test makes them anew and compares.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sealcast.wire import cbor, limits, peers
from sealcast.wire.peers import PartingReason, PeerBody, PeerMessage, Urgency
from tests.vectors.make import _plain
from tests.wire.frames import seeded

FILE = Path(__file__).parent / "peers.json"
TOPIC = bytes(range(16))
SEARCH = seeded("search")[:16]
OWN = seeded("own search")[:16]
PROOF = seeded("proof")
EVENT = b"a sealed event"
IDS = tuple(sorted(peers.event_id(bytes([n])) for n in range(3)))

#: From a seat (None: from the peer), to a seat, and the message.
GOOD: dict[str, tuple[int | None, int | None, PeerBody]] = {
    "a newcomer's search": (
        None,
        None,
        peers.Search(SEARCH, "ward-7", 2, "pulse", b"a request", Urgency.FREE, (), 0),
    ),
    "a search of a seat with children, passed on": (
        4,
        1,
        peers.Search(SEARCH, "ward-7", 2, "pulse", b"a request", Urgency.DISPLACE, (("ward-1/00", 17),), 255),
    ),
    "an offer": (1, 2, peers.Offer(SEARCH, False, PROOF)),
    "a root's offer": (0, 2, peers.Offer(SEARCH, True, PROOF)),
    "an acceptance": (2, 1, peers.Accept(SEARCH, PROOF, b"a token", 4_500)),
    "an acceptance without a token": (2, 1, peers.Accept(SEARCH, PROOF, b"", 0)),
    "a refusal of an offer": (2, 0, peers.Decline(SEARCH)),
    "a swap": (5, 2, peers.Swap(SEARCH, OWN, "ward-1", 0, b"a request")),
    "a replacement": (2, 0, peers.Replace(SEARCH, "ward-3", 5, PROOF, b"a token", 0)),
    "a pulse": (0, 2, peers.Pulse("ward-1/00", 18, 0)),
    "a pulse of a root that may lack something": (0, 2, peers.Pulse("ward-1/00", 18, 0, 2_500)),
    "an answer to a pulse": (2, 0, peers.Alive()),
    **{f"a parting, {reason.name.lower()}": (2, 0, peers.Unlink(reason)) for reason in PartingReason},
    "an announcement": (None, None, peers.Announce(b"an advertisement")),
    "a publisher's event": (None, None, peers.Inject(EVENT)),
    "a confirmation": (None, None, peers.Taken(peers.event_id(EVENT))),
    "a parent's event": (0, 2, peers.Carry(EVENT)),
    "an inventory": (0, 2, peers.Inventory(IDS, 60_000, 2)),
    "an empty inventory": (0, 2, peers.Inventory((), 0, 0)),
    "a fetch": (2, 0, peers.Fetch(IDS)),
    "a proof in a new epoch": (2, 0, peers.Reprove(SEARCH, b"a request", b"a token")),
    "an unknown publisher": (None, None, peers.Unknown()),
    "a rendezvous that asks for news": (None, None, peers.AskNews(281_474_976_710_657)),
    "news of a rendezvous": (None, None, peers.News(281_474_976_710_660, IDS, 60_000, 0)),
    "a rendezvous that fetches": (None, None, peers.Fetch(IDS)),
}


def good(name: str) -> bytes:
    source, target, body = GOOD[name]
    return peers.encode(PeerMessage(TOPIC, source, target, body))


def bent(name: str, field: int | None, value: object) -> bytes:
    """A good message with one field replaced; all fields with None."""
    outer = cbor.decode(good(name))
    outer[6] = value if field is None else [value if at == field else each for at, each in enumerate(outer[6])]
    return cbor.encode(outer)


def bad() -> dict[str, tuple[str, bytes]]:
    search, offer, inventory = "a newcomer's search", "an offer", "an inventory"
    late = "a pulse of a root that may lack something"
    outer, data = cbor.decode(good(offer)), good(offer)
    return {
        "nothing": ("frame", b""),
        "noise": ("frame", seeded("noise")),
        "another version": ("version", cbor.encode([outer[0], 2, *outer[2:]])),
        "another kind of document": ("frame", cbor.encode(["sealcast-post", *outer[1:]])),
        "one byte too many": ("frame", data + b"\x00"),
        "cut": ("frame", data[:-1]),
        "no fields": ("frame", cbor.encode(outer[:6])),
        "fields as a map": ("frame", cbor.encode([*outer[:6], {0: SEARCH}])),
        "a field too many": ("frame", bent(offer, None, [SEARCH, False, PROOF, 0])),
        "a field missing": ("frame", bent(offer, None, [SEARCH, False])),
        "an answer to a pulse with a field": ("frame", bent("an answer to a pulse", None, [0])),
        "a topic of 15 bytes": ("frame", cbor.encode([*outer[:2], bytes(15), *outer[3:]])),
        "a topic in text": ("frame", cbor.encode([*outer[:2], "x" * 16, *outer[3:]])),
        "kind 0": ("frame", cbor.encode([*outer[:3], 0, *outer[4:]])),
        "kind 18": ("frame", cbor.encode([*outer[:3], 18, *outer[4:]])),
        "kind 20": ("frame", cbor.encode([*outer[:3], 20, *outer[4:]])),
        "kind true": ("frame", cbor.encode([*outer[:3], True, *outer[4:]])),
        "kind in text": ("frame", cbor.encode([*outer[:3], "Offer", *outer[4:]])),
        "a seat below 0": ("frame", cbor.encode([*outer[:4], -1, *outer[5:]])),
        "a seat of 65,536": ("frame", cbor.encode([*outer[:5], limits.MAX_PEER_SEAT + 1, outer[6]])),
        "a seat that is true": ("frame", cbor.encode([*outer[:5], True, outer[6]])),
        "a search of 15 bytes": ("frame", bent(offer, 0, SEARCH[:15])),
        "a root flag as a number": ("frame", bent(offer, 1, 1)),
        "a proof of 16 bytes": ("frame", bent(offer, 2, PROOF[:16])),
        "an origin without a name": ("frame", bent(search, 1, "")),
        "an origin of 257 bytes": ("frame", bent(search, 1, "n" * 257)),
        "an attribute that is a number": ("frame", bent(search, 3, 7)),
        "an empty request": ("frame", bent(search, 4, b"")),
        "a request too long": ("frame", bent(search, 4, bytes(limits.MAX_PEER_REQUEST_BYTES + 1))),
        "an urgency of 3": ("frame", bent(search, 5, 3)),
        "nine roots": ("frame", bent(search, 6, [["r", 1]] * 9)),
        "a root without a number": ("frame", bent(search, 6, [["r"]])),
        "a root's number below 0": ("frame", bent(search, 6, [["r", -1]])),
        "256 hops": ("frame", bent(search, 7, 256)),
        "a token of 193 bytes": ("frame", bent("an acceptance", 2, bytes(193))),
        "away for eight days": ("frame", bent("an acceptance", 3, 8 * 24 * 3_600_000)),
        "a root behind for eight days": ("frame", bent(late, 3, 8 * 24 * 3_600_000)),
        "a root that says that it is not behind": ("frame", bent(late, 3, 0)),
        "a root behind since before it was": ("frame", bent(late, 3, -1)),
        "news after a number below 0": ("frame", bent("news of a rendezvous", 0, -1)),
        "a pulse of 2^63": ("frame", bent("a pulse", 1, 2**63)),
        "a parting without a known reason": ("frame", bent("a parting, moved", 0, 6)),
        "an empty event": ("frame", bent("a parent's event", 0, b"")),
        "an id of 15 bytes": ("frame", bent(inventory, 0, [bytes(15)])),
        "an inventory that is a map": ("frame", bent(inventory, 0, {})),
    }


def vectors() -> dict[str, Any]:
    return {
        "about": "messages between peers",
        "vectors": [
            *({"message": good(name), "good": name} for name in GOOD),
            *({"message": data, "reason": reason, "why": why} for why, (reason, data) in bad().items()),
        ],
    }


def text() -> str:
    return json.dumps(_plain(vectors()), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
