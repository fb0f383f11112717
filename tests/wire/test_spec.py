"""SPEC.md says what the code does: its worked example and its limits are computed here and compared."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from sealcast.model import event, schema
from sealcast.primitives import aead, kdf, merkle
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.secrets import Secret
from sealcast.trust.keys.frames import associated_data, frame_key
from sealcast.wire import cose, frame, limits, sealed
from tests.wire.frames import SCHEMA, Publisher, messages, seeded

SPEC = (Path(frame.__file__).parent / "SPEC.md").read_text()


def example() -> dict[str, bytes]:
    """Every value of the worked example, by the name it has there."""
    (message,) = messages(2)[1:]
    publisher = Publisher()
    data = publisher.publish([message], sequence=40)
    received = frame.parse(data)
    return {
        "schema digest": SCHEMA.digest,
        "signing seed": publisher.signer.seed.reveal(),
        "verify key": bytes(publisher.signer.verify_key),
        "pair key": seeded(f"pair {publisher.name}"),
        "message": message,
        "root": hashlib.sha256(message).digest(),
        "token": publisher.token,
        "header": cose.parse_sign1(received.signed).payload,
        "to be signed": received.to_be_signed,
        "signed": received.signed,
        "body": frame.encode_body([message]),
        "frame key": kdf.derive(Secret(seeded(f"pair {publisher.name}")), b"frame", publisher.boot).reveal(),
        "key's associated data": associated_data(publisher.topic, publisher.epoch),
        "commitment": received.commitment,
        "nonce": received.nonce,
        "associated data": received.body_aad,
        "ciphertext": received.ciphertext,
        "frame": data,
    }


def rendered() -> str:
    lines = []
    for name, value in example().items():
        text = value.hex()
        lines += [f"{name} ({len(value)} bytes)", *(f"    {text[at : at + 96]}" for at in range(0, len(text), 96))]
    return "\n".join(lines)


def test_the_worked_example_is_what_the_code_makes() -> None:
    (block,) = re.findall(r"```example\n(.*?)\n```", SPEC, re.DOTALL)
    assert block == rendered()


def test_the_schema_in_the_text_has_the_digest_of_the_example() -> None:
    (text,) = re.findall(r"```schema\n(.*?)\n```", SPEC, re.DOTALL)
    assert hashlib.sha256(text.encode()).digest() == SCHEMA.digest == example()["schema digest"]


def test_the_example_holds_together() -> None:
    e = example()
    assert merkle.root(merkle.build([e["root"]]), 1) == e["root"]
    key = SealingKey(Secret(e["frame key"]), e["key's associated data"])
    assert key.commitment == e["commitment"]
    assert key.open(e["nonce"], e["commitment"], e["ciphertext"], e["associated data"]) == e["body"]
    assert frame_key(Secret(e["pair key"]), Publisher().boot, e["key's associated data"]).commitment == key.commitment


def test_the_limits_are_those_of_the_code() -> None:
    table = {
        name: int(value.replace(",", "")) for name, value in re.findall(r"^\| `(MAX_\w+)` \| ([\d,]+) ", SPEC, re.M)
    }
    known = {
        name: value
        for module in (schema, event, aead, limits)
        for name, value in vars(module).items()
        if name.startswith("MAX_")
    }
    assert table
    assert {name: known[name] for name in table} == table
    # Every bound of the wire is in the table.
    assert {n for n in vars(limits) if n.startswith("MAX_")} <= set(table)


def test_labels_of_a_piece_are_listed() -> None:
    section = SPEC.split("\n## 7. ")[1].split("\n## 8. ")[0]
    listed = {int(label): name for label, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", section, re.M)}
    expected = {field.label: name for name, field in sealed._FORMAT.fields.items()}
    assert listed == expected
