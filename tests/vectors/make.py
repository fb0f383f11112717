"""Writes the vectors beside this file, from fixed seeds: `python -m tests.vectors.make` from the repository's root.

Another team checks its client against them. A good vector must be read, and written again to the same bytes; one with
a `reason` must be refused for that reason (a word of `sealcast.model.rejection.Reason`, or `cannot-open`). Everything
is hexadecimal unless it is text. A test makes them anew and compares, so they can not fall behind the code.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sealcast.groupkeys.mosaic.tables import labels_of as table_labels
from sealcast.model.event import Position
from sealcast.model.schema import value_to_json
from sealcast.primitives import aead, kdf, labels, mac, merkle
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.secrets import Secret
from sealcast.wire import cbor, cose, frame, sealed
from sealcast.wire.records import RecordCodec
from tests.wire.frames import SCHEMA, Publisher, messages, seeded
from tests.wire.pieces import piece

HERE = Path(__file__).parent
Vector = dict[str, Any]


def primitives() -> Vector:
    secret, aad = seeded("vector secret"), b"topic and epoch"
    key, position = SealingKey(Secret(secret), aad), Position(3, 1_000_000, 41)
    nonce = aead.nonce(position)
    ciphertext = key.seal(nonce, b"an event")
    contexts = [[b"frame", b"boot"], [b"a", b"bc"], [b"ab", b"c"], [b""]]
    entries = [bytes([i]) * i for i in range(7)]
    nodes = merkle.build([merkle.leaf_hash(e) for e in entries])
    flipped, hidden = bytes([ciphertext[0] ^ 1]) + ciphertext[1:], seeded("vector hidden")
    opened = {"secret": secret, "aad": aad, "nonce": nonce, "commitment": key.commitment}
    return {
        "about": "derive, MAC, nonces, sealing with commitment, Merkle trees",
        "derive": [
            {"secret": secret, "context": c, "length": n, "output": kdf.derive(Secret(secret), *c, length=n).reveal()}
            for c in contexts
            for n in (16, 32, 64)
        ],
        "mac": [{"secret": secret, "parts": c, "tag": mac.tag(Secret(secret), *c)} for c in contexts],
        "nonce": [
            {"partition": p.partition, "offset": p.offset, "row": p.row, "nonce": aead.nonce(p)}
            for p in (Position(0, 0, 0), position, Position(2**32 - 1, 2**40 - 1, 2**16 - 1))
        ],
        "seal": [
            {**opened, "ciphertext": ciphertext, "plaintext": b"an event"},
            {**opened, "ciphertext": flipped, "reason": "cannot-open", "why": "a flipped bit"},
            {**opened, "ciphertext": ciphertext[:-1], "reason": "cannot-open", "why": "a cut tag"},
            {
                **opened,
                "ciphertext": ciphertext,
                "commitment": bytes(32),
                "reason": "cannot-open",
                "why": "another commitment",
            },
            {
                **opened,
                "ciphertext": ciphertext,
                "aad": b"topic and epocx",
                "reason": "cannot-open",
                "why": "another topic",
            },
            {
                **opened,
                "ciphertext": ciphertext,
                "nonce": bytes(12),
                "reason": "cannot-open",
                "why": "another position",
            },
        ],
        "labels": {
            "label": secret,
            "leaves": [labels.descend(secret, path, 3) for path in range(8)],
            "grown": [{"name": name, "label": labels.grow(secret, name)} for name in (b"", b"a name of a key.")],
            "masked": [
                {"under": secret, "purpose": purpose, "place": place, "key": hidden, "masked": masked}
                for purpose, place in ((b"wrap", nonce), (b"link", b"a name of a key."))
                for masked in labels.mask_many([secret], [place], purpose, labels.checked([hidden]))
            ],
            "tables": [
                {"place": place, "places": 5, "given": [list(at) for at in table_labels(place, 5)]}
                for place in range(5)
            ],
        },
        "merkle": {
            "entries": entries,
            "root": merkle.root(nodes, 7),
            "nodes": nodes,
            "paths": [list(merkle.path(nodes, 7, i)) for i in range(7)],
        },
    }


def records() -> Vector:
    codec = RecordCodec(SCHEMA)
    good = []
    for message in messages(4):
        values, payload, kind = codec.decode_one(message)
        shown = {name: value_to_json(value) for name, value in values.items()}
        good.append({"message": message, "values": shown, "payload": payload, "content_type": kind})
    whole, fixed = messages(2)[1], codec.layout.fixed_bytes

    def put(at: int, data: bytes) -> bytes:
        return whole[:at] + data + whole[at + len(data) :]

    price, hot = codec.layout.cell_at[1], codec.layout.cell_at[2]
    bad = {
        "shorter than its fixed part": whole[: fixed - 1],
        "the first byte of an inner node": put(0, b"\x01"),
        "a presence bit for no attribute": put(17, b"\x0f"),
        "an absent cell that is not zero": put(17, b"\x05"),
        "a bool of 2": put(hot, b"\x02"),
        "a decimal that does not fit": put(price, struct.pack("<q", -(2**63))),
        "a string length past the end": put(codec.layout.cell_at[0], struct.pack("<I", 99)),
        "a string that is not UTF-8": put(fixed, b"\xff"),
        "a content type with a control character": put(fixed + 2, b"\x00"),
        "a byte more": whole + b"\0",
        "a byte less": whole[:-1],
    }
    return {
        "about": "messages of one schema; refused are those that are no record, or (`domain`) off the schema",
        "schema": SCHEMA.to_json(),
        "schema_digest": SCHEMA.digest,
        "vectors": [
            *good,
            *({"message": m, "reason": "event", "why": why} for why, m in bad.items()),
            {
                "message": put(price, struct.pack("<q", 10_000_001)),
                "reason": "event",
                "why": "above the maximum",
                "domain": "price",
            },
        ],
    }


def frames() -> Vector:
    publisher = Publisher()
    batch = messages(3)
    data = publisher.publish(batch, sequence=40)
    received = frame.parse(data)
    other = frame.parse(Publisher(name="ticker-2").publish(batch, sequence=40))
    altered = dataclasses.replace(received.header, time=received.header.time + 1)

    def outer(*parts: object) -> bytes:
        return cbor.encode([frame.MAGIC, frame.VERSION, received.token, *parts])

    def with_(signed: bytes, body: frame.Frame, token: bytes = received.token) -> bytes:
        return frame.encode(signed, body.commitment, body.ciphertext, token=token)

    def signed(payload: bytes, protected: dict[int, Any], unprotected: dict[int, Any]) -> bytes:
        return cbor.encode(cbor.TaggedValue(18, [cbor.encode(protected), unprotected, payload, received.signature]))

    payload = cose.parse_sign1(received.signed).payload
    bad: dict[str, tuple[str, bytes]] = {
        "empty": ("frame", b""),
        "truncated": ("frame", data[:-1]),
        "a byte behind the end": ("frame", data + b"\0"),
        "another magic": ("frame", data.replace(b"sealcast-frame", b"sealcast-frome")),
        "a later version": ("version", cbor.encode([frame.MAGIC, 3, received.token, received.signed, received.sealed])),
        "an earlier version": ("version", cbor.encode([frame.MAGIC, 1, received.signed, received.sealed])),
        "a later version of another shape": ("version", cbor.encode([frame.MAGIC, 4, {"new": 1}])),
        "an indefinite array": ("frame", b"\x9f" + data[1:] + b"\xff"),
        "nested too deep": ("frame", b"\x85" + cbor.encode(frame.MAGIC) + b"\x02" + b"\x81" * 64),
        "a length that claims the world": ("frame", b"\x85" + cbor.encode(frame.MAGIC) + b"\x02\x5b" + b"\xff" * 8),
        "EdDSA instead of Ed25519": ("frame", outer(signed(payload, {1: -8}, {}), received.sealed)),
        "no algorithm": ("frame", outer(signed(payload, {}, {1: -19}), received.sealed)),
        "an unprotected key id": ("frame", outer(signed(payload, {1: -19}, {4: b"k"}), received.sealed)),
        "a header with one label more": (
            "frame",
            outer(signed(cbor.encode({**cbor.decode(payload), 11: 0}), {1: -19}, {}), received.sealed),
        ),
        "a nonce that is not the sequence": (
            "frame",
            outer(received.signed, cose.encode_encrypt0(received.commitment, bytes(12), received.ciphertext)),
        ),
        "a header changed after signing": (
            "signature",
            with_(frame.encode_signed(altered, received.signature), received),
        ),
        "another token than was signed for": ("token", with_(received.signed, received, b"another")),
        "no token, and one was signed for": ("token", with_(received.signed, received, b"")),
        "another publisher's signature": ("signature", with_(other.signed, other)),
        "another publisher's body": ("seal", with_(received.signed, other)),
        "a flipped bit in the body": ("seal", data[:-1] + bytes([data[-1] ^ 1])),
        "fewer events than signed": ("seal", publisher.finish(publisher.header(batch, 40), batch[:2])),
        "other events than signed": ("root", publisher.finish(publisher.header(batch, 40), batch[::-1])),
    }
    header = {name: getattr(received.header, name) for name in frame.Header.__slots__}
    return {
        "about": "frames of one publisher; to be read with these keys",
        "keys": {
            "sign_seed": publisher.signer.seed.reveal(),
            "verify_key": bytes(publisher.signer.verify_key),
            "pair_key": seeded(f"pair {publisher.name}"),
        },
        "vectors": [
            {"frame": data, "header": header, "messages": batch},
            *({"frame": bytes_, "reason": reason, "why": why} for why, (reason, bytes_) in bad.items()),
        ],
    }


def pieces() -> Vector:
    made = piece(seed=16, frames=1, subscribers=2)
    data = sealed.encode(made)
    fields = cbor.decode(data, tags=frozenset({64, 70, 71}))[2]

    def bent(label: int, value: object) -> bytes:
        return cbor.encode([sealed.MAGIC, sealed.VERSION, {**fields, label: value}])

    def u32(*numbers: int) -> cbor.TaggedValue:
        return cbor.TaggedValue(70, struct.pack(f"<{len(numbers)}I", *numbers))

    bad: dict[str, tuple[str, bytes]] = {
        "truncated": ("frame", data[:-1]),
        "a later version": ("version", cbor.encode([sealed.MAGIC, sealed.VERSION + 1, {}])),
        "an event of no frame": ("frame", bent(8, u32(*[7] * len(made)))),
        "a use of no key": ("frame", bent(16, u32(*[9] * len(made.uses)))),
        "a wrap cut": ("frame", bent(17, bytes(made.wraps)[:-1])),
        "an event of no group": ("frame", bent(18, u32(*[99] * len(made)))),
        "members that are not counted": ("frame", bent(43, b"\xff" * len(made.member_bits))),
        "big-endian arrays": ("frame", bent(16, cbor.TaggedValue(66, struct.pack(f">{len(made.uses)}I", *made.uses)))),
        "a link of no key": ("frame", bent(29, u32(*[9] * len(made.link_key)))),
        "a part of no table": ("frame", bent(35, u32(*[9] * len(made.table_tile)))),
        "a node of no tiles": ("frame", bent(42, u32(2, 2))),
        "a label missing": (
            "frame",
            cbor.encode([sealed.MAGIC, sealed.VERSION, {k: v for k, v in fields.items() if k != 16}]),
        ),
    }
    mailboxes = {
        str(slot): [
            {
                "position": str(made.position(e)),
                "key_id": made.key_id(int(made.uses[u])),
                "wrapped": bool(made.wrapped[e]),
            }
            for e, u in zip(*(a.tolist() for a in made.rows_for(slot)), strict=True)
        ]
        for slot in made.slots.tolist()
    }
    return {
        "about": "sealed pieces (bodies are noise: how they open is in primitives.json)",
        "vectors": [
            {"piece": data, "mailboxes": mailboxes},
            *({"piece": bytes_, "reason": reason, "why": why} for why, (reason, bytes_) in bad.items()),
        ],
    }


FILES: dict[str, Callable[[], Vector]] = {
    "primitives.json": primitives,
    "records.json": records,
    "frames.json": frames,
    "pieces.json": pieces,
}


def text_of(name: str) -> str:
    return json.dumps(_plain(FILES[name]()), indent=1, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    match value:
        case bytes() | memoryview():
            return bytes(value).hex()
        case dict():
            return {k: _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
        case _:
            return value


if __name__ == "__main__":
    for name in FILES:
        (HERE / name).write_text(text_of(name))
