"""Writes `searchable.json` from fixed seeds: `python -m tests.vectors.make_searchable` from the repository's root.

Everything in it comes from `tests.protections.searchable.by_the_book`, which shares no code with what it checks.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tests.protections.searchable import by_the_book as book

HERE = Path(__file__).parent
USERS = ("ana", "bo")
LABELS = (b"\x00\x05priceN\x04\x00\x00\x00\x00\x00\x00\x00\x09", b"\x00\x06symbolEACME", b"")
BITS = (0, 1, 16, 32)
EPOCH = 3


def _seed(name: str) -> bytes:
    return hashlib.sha256(b"searchable vectors " + name.encode()).digest()


def _number(name: str) -> int:
    return int.from_bytes(_seed(name), "big") % book.Q


def made() -> dict[str, Any]:
    content, topic_key, topic_id = _seed("content"), _seed("topic"), _seed("topic id")[:16]
    place = topic_id + EPOCH.to_bytes(8, "big")
    x, search = book.exponent(content, b"searchable x", place), book.derived(content, b"searchable search", place)
    public = book.times(x, book.G)
    brokers = {name: book.exponent(topic_key, b"broker half", place + name.encode()) for name in USERS}
    users = {name: (x - half) % book.Q for name, half in brokers.items()}
    cases = []
    for number, (label, bits) in enumerate((label, bits) for label in LABELS for bits in BITS):
        subscriber, publisher = USERS[number % 2], USERS[number // 2 % 2]
        r, s = _number(f"r {number}"), _number(f"s {number}")
        reader = place + subscriber.encode()
        sealed = book.sealed(search, users[subscriber], public, reader, label, r, bits)
        trapdoor = book.trapdoor(search, users[publisher], public, label, s, bits)
        token = book.at_broker(brokers[publisher], trapdoor[4:37], trapdoor[37:70])
        encrypted = book.at_broker(brokers[subscriber], sealed[4:37], sealed[37:70])
        assert book.matches(reader, encrypted, token, sealed[70:])
        cases.append(
            {
                "label": label.hex(),
                "tag_bits": bits,
                "subscriber": subscriber,
                "publisher": publisher,
                "label_r": f"{r:064x}",
                "trapdoor_r": f"{s:064x}",
                "sealed_label": sealed.hex(),
                "trapdoor": trapdoor.hex(),
                "C": book.compressed(encrypted).hex(),
                "T": book.compressed(token).hex(),
            }
        )
    return {
        "content": content.hex(),
        "topic_key": topic_key.hex(),
        "topic_id": topic_id.hex(),
        "epoch": EPOCH,
        "search": search.hex(),
        "H": book.compressed(public).hex(),
        "broker_halves": {name: f"{half:064x}" for name, half in brokers.items()},
        "user_halves": {name: f"{half:064x}" for name, half in users.items()},
        "cases": cases,
    }


def main() -> None:
    (HERE / "searchable.json").write_text(json.dumps(made(), indent=1) + "\n")


if __name__ == "__main__":
    main()
