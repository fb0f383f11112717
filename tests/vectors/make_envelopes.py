"""Writes envelopes.json beside this file: `python -m tests.vectors.make_envelopes` from the repository's root.

Requests and advertisements, with the realm's trust and the private keys that open and sign them. One with a `reason`
must be refused for that reason (a word of `EnvelopeReason`, or of `AdvertisementReason`), one
without is to be taken. A good request was sealed from `signed`, which is to be made again to the same bytes from the
sender's key and the fields; sealing itself draws at random. Everything is hexadecimal unless it is text or a time.

The keys are drawn anew whenever this is run, so the file changes as a whole; a test reads it, and never writes it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.trust.advertising import bent_advertisements, by_hand
from tests.trust.control_world import REALM
from tests.trust.tampering import Case, Cast, bent_envelopes
from tests.vectors.make import _plain

FILE = Path(__file__).parent / "envelopes.json"


def vectors() -> dict[str, Any]:
    cast = Cast.make()
    case, world = Case.of(cast), cast.world
    message, sender, to = case.message, cast.alice, cast.center
    requests = {why: (reason, make(case)) for why, (reason, make) in bent_envelopes(cast).items()}
    offers = {why: (bent.reason, bent.make(cast)) for why, bent in bent_advertisements(cast).items()}
    return {
        "about": "requests sealed to one service, and advertisements signed by their owners",
        "realm": REALM,
        "at_us": world.now,
        "root": world.authority.root.der,
        "authorities": [a.der for a in world.authority.authorities],
        "revoked_serials": [format(s, "x") for s in sorted(world.authority.lists.view.entries)],
        "sender": {"name": sender.name, "certificate": sender.certificate, "p256": sender.signer.private.reveal()},
        "recipient": {"name": to.name, "certificate": to.certificate, "x25519": to.kem.private.reveal()},
        "kinds": ["echo"],
        "requests": [
            {
                "envelope": case.envelope(),
                "signed": case.inside(),
                "kind": message.kind,
                "request_id": message.request_id,
                "time_us": message.time_us,
                "reply_topic": message.reply_topic,
                "body": message.body,
            },
            *({"envelope": data, "reason": reason, "why": why} for why, reason, data in few(requests)),
        ],
        "advertisements": [
            {"advertisement": by_hand(cast), "owner": sender.name},
            *({"advertisement": data, "reason": reason, "why": why} for why, reason, data in few(offers)),
        ],
    }


def few(cases: dict[str, tuple[str, bytes]], most: int = 6) -> Iterator[tuple[str, str, bytes]]:
    """Some for each reason are enough for a file; the tests bend more of them."""
    told = Counter[str]()
    for why, (reason, data) in cases.items():
        told[reason] += 1
        if told[reason] <= most and len(data) <= 8_192:
            yield why, reason, data


if __name__ == "__main__":
    FILE.write_text(json.dumps(_plain(vectors()), indent=1, ensure_ascii=False) + "\n")
