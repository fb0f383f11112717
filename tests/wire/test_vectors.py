"""The published vectors, read from their files as another team would: good ones, and must-fail ones with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sealcast.errors import CannotOpen, EventRejected, FrameRejected
from sealcast.model.event import Position
from sealcast.model.schema import Schema, value_to_json
from sealcast.primitives import aead, kdf, labels, mac, merkle
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey, VerifyKey
from sealcast.wire import frame, sealed
from sealcast.wire.records import RecordCodec, check_domain
from tests.vectors import make
from tests.wire import another_client as theirs

VECTORS = Path(__file__).parent.parent / "vectors"
unhex = bytes.fromhex


def load(name: str) -> Any:
    return json.loads((VECTORS / f"{name}.json").read_text())


def named(vectors: list[dict[str, Any]]) -> dict[str, Any]:
    return {v.get("why", f"good {i}"): v for i, v in enumerate(vectors)}


PRIMITIVES, RECORDS, FRAMES, PIECES = (load(n) for n in ("primitives", "records", "frames", "pieces"))


@pytest.mark.parametrize("name", make.FILES)
def test_the_files_are_what_the_code_makes(name: str) -> None:
    assert (VECTORS / name).read_text() == make.text_of(name), "run `python -m tests.vectors.make` and say why"


# --- primitives ---------------------------------------------------------------------------------


def test_derivations_and_tags() -> None:
    for v in PRIMITIVES["derive"]:
        context = map(unhex, v["context"])
        assert kdf.derive(Secret(unhex(v["secret"])), *context, length=v["length"]).reveal().hex() == v["output"]
    for v in PRIMITIVES["mac"]:
        assert mac.verify(Secret(unhex(v["secret"])), unhex(v["tag"]), *map(unhex, v["parts"]))
    for v in PRIMITIVES["nonce"]:
        assert aead.nonce(Position(v["partition"], v["offset"], v["row"])).hex() == v["nonce"]


@pytest.mark.parametrize("vector", PRIMITIVES["seal"], ids=lambda v: v.get("why", "good"))
def test_seals(vector: dict[str, str]) -> None:
    key = SealingKey(Secret(unhex(vector["secret"])), unhex(vector["aad"]))
    nonce, commitment, ciphertext = (unhex(vector[n]) for n in ("nonce", "commitment", "ciphertext"))
    if "reason" in vector:
        with pytest.raises(CannotOpen) as caught:
            key.open(nonce, commitment, ciphertext)
        assert caught.value.code == vector["reason"]
    else:
        assert key.open(nonce, commitment, ciphertext).hex() == vector["plaintext"]
        assert key.seal(nonce, unhex(vector["plaintext"])) == ciphertext
        assert key.commitment == commitment


def test_labels_masks_and_tables() -> None:
    """The code, and a client written from the specification alone."""
    v = PRIMITIVES["labels"]
    label = unhex(v["label"])
    assert labels.expand(label, 3).hex() == "".join(v["leaves"])
    for g in v["grown"]:
        assert labels.grow(label, unhex(g["name"])).hex() == theirs.grow(label, unhex(g["name"])).hex() == g["label"]
    for m in v["masked"]:
        under, purpose, place, masked = (unhex(m[n]) for n in ("under", "purpose", "place", "masked"))
        assert labels.unmask(under, place, purpose, masked).hex() == m["key"]
        assert theirs.unmask(under, purpose, place, masked).hex() == m["key"]
    for t in v["tables"]:
        assert [list(at) for at in theirs.asked_for(t["place"], t["places"])] == t["given"]


def test_trees() -> None:
    v = PRIMITIVES["merkle"]
    leaves = [merkle.leaf_hash(unhex(e)) for e in v["entries"]]
    assert merkle.build(leaves).hex() == v["nodes"]
    for index, path in enumerate(v["paths"]):
        assert merkle.verify(unhex(v["root"]), leaves[index], index, len(leaves), [unhex(h) for h in path])


# --- messages, frames, pieces -------------------------------------------------------------------


@pytest.mark.parametrize("name", named(RECORDS["vectors"]))
def test_records(name: str) -> None:
    vector = named(RECORDS["vectors"])[name]
    schema = Schema.from_json(RECORDS["schema"])
    codec, message = RecordCodec(schema), unhex(vector["message"])
    assert schema.digest.hex() == RECORDS["schema_digest"]
    decoded = codec.decode([message])
    if "domain" in vector:
        assert [attribute for attribute, _ in check_domain(schema, decoded.columns).values()] == [vector["domain"]]
    elif "reason" in vector:
        assert list(decoded.bad) == [0]
        with pytest.raises(EventRejected) as caught:
            codec.decode_one(message)
        assert caught.value.code == vector["reason"]
    else:
        values, payload, kind = codec.decode_one(message)
        assert {n: value_to_json(v) for n, v in values.items()} == vector["values"]
        assert (payload.hex(), kind) == (vector["payload"], vector["content_type"])
        assert codec.encode([values], [payload], kind, message[1:17]) == [message]


def admit(data: bytes) -> tuple[frame.Header, list[bytes]]:
    """The specification's order of checks, with the keys of the vectors and nothing of the tests' own publisher."""
    keys = {name: unhex(value) for name, value in FRAMES["keys"].items()}
    received = frame.parse(data)
    header = received.header
    if frame.token_digest(received.token) != received.header.token:
        raise FrameRejected("token", "")
    if not VerifyKey(keys["verify_key"]).verify(received.to_be_signed, received.signature):
        raise FrameRejected("signature", "")
    aad = b"sealcast/endpoint/1" + header.topic + header.epoch.to_bytes(8, "big")
    key = SealingKey(kdf.derive(Secret(keys["pair_key"]), b"frame", header.boot), aad)
    try:
        body = key.open(received.nonce, received.commitment, received.ciphertext, received.body_aad)
        batch = frame.decode_body(body, header.count)
    except (CannotOpen, FrameRejected):
        raise FrameRejected("seal", "") from None
    if merkle.root(merkle.build(merkle.hash_messages(batch)), len(batch)) != header.root:
        raise FrameRejected("root", "")
    # A good one is written again to the same bytes.
    signed = frame.encode_signed(header, SigningKey(Secret(keys["sign_seed"])).sign(frame.to_be_signed(header)))
    again = key.seal(frame.body_nonce(header), frame.encode_body(batch), frame.body_aad(signed, key.commitment))
    assert frame.encode(signed, key.commitment, again, token=received.token) == data
    return header, batch


@pytest.mark.parametrize("name", named(FRAMES["vectors"]))
def test_frames(name: str) -> None:
    vector = named(FRAMES["vectors"])[name]
    if "reason" in vector:
        with pytest.raises(FrameRejected) as caught:
            admit(unhex(vector["frame"]))
        assert caught.value.reason == vector["reason"]
    else:
        header, batch = admit(unhex(vector["frame"]))
        shown = {n: getattr(header, n) for n in frame.Header.__slots__}
        assert {n: v.hex() if isinstance(v, bytes) else v for n, v in shown.items()} == vector["header"]
        assert [m.hex() for m in batch] == vector["messages"]


@pytest.mark.parametrize("name", named(PIECES["vectors"]))
def test_pieces(name: str) -> None:
    vector = named(PIECES["vectors"])[name]
    data = unhex(vector["piece"])
    if "reason" in vector:
        with pytest.raises(FrameRejected) as caught:
            sealed.parse(data)
        assert caught.value.reason == vector["reason"]
    else:
        piece = sealed.parse(data)
        assert sealed.encode(piece) == data
        assert sorted(vector["mailboxes"]) == sorted(map(str, piece.slots.tolist()))
        for slot, expected in vector["mailboxes"].items():
            events, uses = piece.rows_for(int(slot))
            assert [str(piece.position(e)) for e in events.tolist()] == [d["position"] for d in expected]
            assert [piece.key_id(int(piece.uses[u])).hex() for u in uses.tolist()] == [d["key_id"] for d in expected]
