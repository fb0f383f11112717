"""Writes posts.json beside this file, from fixed seeds: `python -m tests.vectors.make_posts` from the root.

A good post must be read, and written again to the same bytes; one with a `reason` must be refused for that reason
(`frame`, `version`, or `signature` where only the sender's key tells). A test makes them anew and compares.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey
from sealcast.wire import cbor, cose, posts
from sealcast.wire.frame import token_digest
from sealcast.wire.posts import PostedFilter, PostHeader
from tests.vectors.make import _plain
from tests.wire.frames import seeded

FILE = Path(__file__).parent / "posts.json"
TOPIC = bytes(range(16))
TOKEN = b"a key center's token"


def signer() -> SigningKey:
    return SigningKey(Secret(seeded("sign alice")))


def element(name: str) -> bytes:
    return b"\x02" + seeded(f"element {name}")


def slots(*names: str) -> tuple[tuple[bytes, ...], ...]:
    return tuple(sorted(tuple(sorted(map(element, each))) for each in names))


GOOD = (
    PostedFilter(slots("ab", "c"), ("alice",), False),
    PostedFilter(slots("d"), ("alice",), True),
)


def header(body: bytes, token: bytes = b"", **other: Any) -> PostHeader:
    made = PostHeader(TOPIC, "node-2", "alice", "papers", 3, 1, 41, False, posts.digest(body), token_digest(token))
    return dataclasses.replace(made, **other)


def signed(made: PostHeader, body: bytes, token: bytes = b"") -> bytes:
    return posts.encode(made, signer().sign(posts.to_be_signed(made)), body, token)


def post(filters: tuple[PostedFilter, ...] = GOOD, token: bytes = TOKEN, **other: Any) -> bytes:
    body = posts.encode_body(filters)
    return signed(header(body, token, **other), body, token)


def bent_header(change: Callable[[dict[int, Any]], Any]) -> bytes:
    """Signed all the same: what is wrong must be seen in the header."""
    body = posts.encode_body(GOOD)
    fields = cbor.decode(cose.parse_sign1(cbor.decode(post())[3]).payload)
    payload = cbor.encode(change(fields))
    signature = signer().sign(cose.sig_structure(cose.SIGN1_PROTECTED, posts.SIGNATURE_CONTEXT, payload))
    return cbor.encode([posts.MAGIC, posts.VERSION, TOKEN, cose.encode_sign1(payload, signature), body])


def bent_body(messages: object) -> bytes:
    body = cbor.encode(messages)
    made = header(body)
    signature = signer().sign(posts.to_be_signed(made))
    inside = cose.encode_sign1(cose.parse_sign1(cbor.decode(signed(made, body))[3]).payload, signature)
    return cbor.encode([posts.MAGIC, posts.VERSION, b"", inside, body])


def bad() -> dict[str, tuple[str, bytes]]:
    good, outer = post(), cbor.decode(post())
    a, b = sorted((element("a"), element("b")))
    as_frame = cose.sig_structure(cose.SIGN1_PROTECTED, b"sealcast/1 frame", cose.parse_sign1(outer[3]).payload)
    crossed = cose.encode_sign1(cose.parse_sign1(outer[3]).payload, signer().sign(as_frame))
    other = SigningKey(Secret(seeded("sign mallory"))).sign(posts.to_be_signed(posts.parse(good).header))
    return {
        "nothing": ("frame", b""),
        "a frame's magic": ("frame", cbor.encode(["sealcast-frame", *outer[1:]])),
        "another version": ("version", cbor.encode([posts.MAGIC, 2, *outer[2:]])),
        "one byte too many": ("frame", good + b"\x00"),
        "cut": ("frame", good[:-1]),
        "another token": ("frame", cbor.encode([*outer[:2], b"another", *outer[3:]])),
        "no token where one was signed for": ("frame", cbor.encode([*outer[:2], b"", *outer[3:]])),
        "another body": ("frame", cbor.encode([*outer[:4], posts.encode_body(GOOD[:1])])),
        "a token too long": ("frame", cbor.encode([*outer[:2], bytes(2049), *outer[3:]])),
        "signed by another": ("signature", posts.encode(posts.parse(good).header, other, outer[4], TOKEN)),
        "signed as a frame": ("signature", cbor.encode([*outer[:3], crossed, outer[4]])),
        "a label missing": ("frame", bent_header(lambda f: {k: v for k, v in f.items() if k != 7})),
        "a label too many": ("frame", bent_header(lambda f: {**f, 11: 0})),
        "a negative number": ("frame", bent_header(lambda f: {**f, 7: -1})),
        "a number that is true": ("frame", bent_header(lambda f: {**f, 7: True})),
        "a receiver without a name": ("frame", bent_header(lambda f: {**f, 2: ""})),
        "fresh as a number": ("frame", bent_header(lambda f: {**f, 8: 1})),
        "a topic of 15 bytes": ("frame", bent_header(lambda f: {**f, 1: f[1][1:]})),
        "a body that is a map": ("frame", bent_body({})),
        "a filter without slots": ("frame", bent_body([[[], ["alice"], False]])),
        "an empty slot": ("frame", bent_body([[[[]], ["alice"], False]])),
        "a filter without a path": ("frame", bent_body([[[[a]], [], False]])),
        "a path of 17": ("frame", bent_body([[[[a]], [f"n{i}" for i in range(17)], False]])),
        "a name twice on a path": ("frame", bent_body([[[[a]], ["alice", "alice"], False]])),
        "remove as a number": ("frame", bent_body([[[[a]], ["alice"], 0]])),
        "tokens unsorted": ("frame", bent_body([[[[b, a]], ["alice"], False]])),
        "a token twice": ("frame", bent_body([[[[a, a]], ["alice"], False]])),
        "slots unsorted": ("frame", bent_body([[[[b], [a]], ["alice"], False]])),
        "a token of 31 bytes": ("frame", bent_body([[[[a[:31]]], ["alice"], False]])),
        "a token of 513 bytes": ("frame", bent_body([[[[bytes(513)]], ["alice"], False]])),
        "129 slots": ("frame", bent_body([[[[a]] * 129, ["alice"], False]])),
    }


def vectors() -> dict[str, Any]:
    good = {
        "a subscriber's": post(),
        "a broker's": post((PostedFilter(slots("a"), ("node-2", "alice"), False),), b"", receiver="node-1"),
        "a newer token, and no filter": post((), TOKEN),
        "everything taken back": post((), TOKEN, fresh=True),
    }
    return {
        "about": "filter posts, by the key of alice",
        "verify_key": bytes(signer().verify_key),
        "seed": signer().seed.reveal(),
        "vectors": [
            *({"post": data, "good": name} for name, data in good.items()),
            *({"post": data, "reason": reason, "why": why} for why, (reason, data) in bad().items()),
        ],
    }


def text() -> str:
    return json.dumps(_plain(vectors()), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
