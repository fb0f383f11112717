"""Makes handed-keys.json: pair keys sealed to receiving keys of both kinds. HPKE draws at random, so the file is made
once and kept; run again, it has other bytes of the same meaning."""

from __future__ import annotations

import json
from pathlib import Path

from sealcast.primitives import kem
from sealcast.primitives.hpke import KemKey
from sealcast.primitives.hybrid import HybridKey
from sealcast.primitives.secrets import Secret
from sealcast.trust.keys.topic_keys import PAIR_KEY_INFO, place
from tests.wire.frames import seeded

FILE = Path(__file__).with_name("handed-keys.json")


def cases() -> list[dict[str, str]]:
    found = []
    for kind, label in ((HybridKey, "hybrid"), (KemKey, "x25519")):
        own, plain, topic = kind(Secret(seeded(f"handed {label}"))), seeded("pair key"), seeded("topic", 16)
        sealed = kem.seal(own.public, plain, PAIR_KEY_INFO, place(topic, 3, "alice"))
        case = {
            "private": own.private.reveal().hex(),
            "public": own.public.hex(),
            "topic": topic.hex(),
            "epoch": "3",
            "entity": "alice",
            "plain": plain.hex(),
        }
        found.append({"name": label, **case, "sealed": sealed.hex()})
        end, middle = len(sealed) - 1, len(sealed) // 2
        for what, bad in (
            ("altered at its end", sealed[:end] + bytes([sealed[end] ^ 1])),
            ("altered within", sealed[:middle] + bytes([sealed[middle] ^ 1]) + sealed[middle + 1 :]),
            ("cut", sealed[:end]),
            ("for another epoch", kem.seal(own.public, plain, PAIR_KEY_INFO, place(topic, 4, "alice"))),
        ):
            found.append({"name": f"refused: {label}, {what}", **case, "sealed": bad.hex()})
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps(cases(), indent=1) + "\n")
