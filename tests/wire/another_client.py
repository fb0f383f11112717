"""A client of another team: written from SPEC.md alone, with a general CBOR library and nothing of ours.

It is here to be an oracle. Section numbers are the specification's. It does not repeat the limits; ours has tests for
those.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import cbor2
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256, SHA512
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, MLKEM768X25519PrivateKey, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand


class Refused(Exception):
    """With the specification's word for the reason."""


# --- 3. keys and sealing ------------------------------------------------------------------------


def parts(*each: bytes) -> bytes:
    return b"".join(len(p).to_bytes(4, "big") + p for p in each)


def derive(secret: bytes, *context: bytes, length: int = 32) -> bytes:
    info = b"sealcast/1" + length.to_bytes(2, "big") + parts(*context)
    return HKDFExpand(algorithm=SHA256(), length=length, info=info).derive(secret)


class Key:
    def __init__(self, secret: bytes, data: bytes) -> None:
        info = b"sealcast/1 aead" + len(data).to_bytes(4, "big") + data
        both = HKDFExpand(algorithm=SHA512(), length=64, info=info).derive(secret)
        self.gcm, self.commitment = AESGCM(both[:32]), both[32:]

    def open(self, nonce: bytes, commitment: bytes | None, sealed: bytes, aad: bytes = b"") -> bytes:
        if commitment is not None and not hmac.compare_digest(commitment, self.commitment):
            raise Refused("cannot-open")
        try:
            return self.gcm.decrypt(nonce, sealed, aad)
        except InvalidTag:
            raise Refused("cannot-open") from None


def position_nonce(partition: int, offset: int, row: int) -> bytes:
    return partition.to_bytes(4, "big") + offset.to_bytes(5, "big") + row.to_bytes(2, "big") + b"\0"


def receive_pair_key(private: bytes, sealed: bytes, topic: bytes, epoch: int, entity: str) -> bytes:
    info = parts(b"sealcast pair key", topic + epoch.to_bytes(8, "big") + entity.encode())
    halves = hashlib.shake_256(private).digest(96)
    curve = X25519PrivateKey.from_private_bytes(halves[64:])
    key = MLKEM768X25519PrivateKey(MLKEM768PrivateKey.from_seed_bytes(halves[:64]), curve)
    return Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM).decrypt(sealed, key, info=info)


# --- 4. messages --------------------------------------------------------------------------------

CELLS = {"int": "q", "decimal": "q", "timestamp": "q", "float": "d", "bool": "B", "string": "I"}


def scale_of(attribute: dict[str, Any]) -> int:
    """Of the decimals in these tests: their step says it all, or there is neither step nor bound."""
    return max(0, -int(Decimal(attribute["step"]).as_tuple().exponent)) if "step" in attribute else 6


def read_message(schema: dict[str, Any], message: bytes) -> tuple[dict[str, Any], bytes, str]:
    """Physical values (decimals as Decimal), payload and content type."""
    attributes = schema["attributes"]
    cells = struct.Struct("<" + "".join(CELLS[a["type"]] for a in attributes) + "BI")
    at = 17 + (len(attributes) + 7) // 8
    present = int.from_bytes(message[17:at], "little")
    *values, kind_length, payload_length = cells.unpack_from(message, at)
    at += cells.size
    record: dict[str, Any] = {}
    for j, (attribute, value) in enumerate(zip(attributes, values, strict=True)):
        if attribute["type"] == "string":
            value, at = message[at : at + value].decode(), at + value
        elif attribute["type"] == "decimal":
            value = Decimal(value).scaleb(-scale_of(attribute))
        elif attribute["type"] == "bool":
            value = bool(value)
        record[attribute["name"]] = value if present >> j & 1 else None
    kind = message[at : at + kind_length].decode("ascii")
    payload = message[at + kind_length :]
    if message[0] != 0 or len(payload) != payload_length:
        raise Refused("event")
    return record, payload, kind


def write_message(schema: dict[str, Any], values: dict[str, Any], payload: bytes, kind: str, salt: bytes) -> bytes:
    present, cells, strings = 0, b"", b""
    for j, attribute in enumerate(schema["attributes"]):
        value = values.get(attribute["name"])
        present |= (value is not None) << j
        if isinstance(value, str) and attribute["type"] == "string":
            strings += value.encode()
            value = len(value.encode())
        elif attribute["type"] == "decimal" and value is not None:
            value = int(Decimal(value).scaleb(scale_of(attribute)))
        cells += struct.pack("<" + CELLS[attribute["type"]], value or 0)
    bitmap = present.to_bytes((len(schema["attributes"]) + 7) // 8, "little")
    lengths = struct.pack("<BI", len(kind), len(payload))
    return b"\0" + salt + bitmap + cells + lengths + strings + kind.encode() + payload


# --- 5. the tree --------------------------------------------------------------------------------


def node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def root_of(leaves: list[bytes]) -> bytes:
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return node(root_of(leaves[:split]), root_of(leaves[split:]))


def root_from(nodes: bytes, count: int, row: int, leaf: bytes) -> bytes:
    """The root that a leaf leads to, with the siblings stored in `nodes`."""
    start, width = 0, count
    while width > 1:
        sibling = row ^ 1
        if sibling < width:
            other = nodes[32 * (start + sibling) : 32 * (start + sibling + 1)]
            leaf = node(other, leaf) if row & 1 else node(leaf, other)
        start, width, row = start + width, (width + 1) // 2, row // 2
    return leaf


# --- 6. frames ----------------------------------------------------------------------------------

ED25519 = bytes.fromhex("a10132")


def key_data(topic: bytes, epoch: int) -> bytes:
    return b"sealcast/endpoint/1" + topic + epoch.to_bytes(8, "big")


def verify_header(signed: bytes, verify_key: bytes) -> dict[int, Any]:
    protected, _, payload, signature = cbor2.loads(signed).value
    to_be_signed = cbor2.dumps(["Signature1", protected, b"sealcast/1 frame", payload])
    try:
        Ed25519PublicKey.from_public_bytes(verify_key).verify(signature, to_be_signed)
    except InvalidSignature:
        raise Refused("signature") from None
    return dict(cbor2.loads(payload))


def read_frame(data: bytes, verify_key: bytes, pair_key: bytes) -> tuple[dict[int, Any], list[bytes]]:
    _, _, token, signed, sealed = cbor2.loads(data)
    header = verify_header(signed, verify_key)
    if header[10] != hashlib.sha256(token).digest():
        raise Refused("token")
    protected, unprotected, ciphertext = cbor2.loads(sealed).value
    key = Key(derive(pair_key, b"frame", header[3]), key_data(header[1], header[8]))
    aad = cbor2.dumps(["Encrypt0", protected, signed])
    try:
        body = key.open(unprotected[5], cbor2.loads(protected)[-65537], ciphertext, aad)
    except Refused:
        raise Refused("seal") from None
    lengths, joined = cbor2.loads(body)
    messages, at = [], 0
    for (length,) in struct.iter_unpack("<I", raw(lengths)):
        messages.append(joined[at : at + length])
        at += length
    if len(messages) != header[5] or at != len(joined):
        raise Refused("seal")
    if root_of([hashlib.sha256(m).digest() for m in messages]) != header[9]:
        raise Refused("root")
    return header, messages


def write_frame(
    header: dict[int, Any], messages: list[bytes], signing_seed: bytes, pair_key: bytes, token: bytes
) -> bytes:
    header = {**header, 5: len(messages), 9: root_of([hashlib.sha256(m).digest() for m in messages])}
    header[10] = hashlib.sha256(token).digest()
    payload = cbor2.dumps(header)
    to_be_signed = cbor2.dumps(["Signature1", ED25519, b"sealcast/1 frame", payload])
    signature = Ed25519PrivateKey.from_private_bytes(signing_seed).sign(to_be_signed)
    signed = cbor2.dumps(cbor2.CBORTag(18, [ED25519, {}, payload, signature]))
    key = Key(derive(pair_key, b"frame", header[3]), key_data(header[1], header[8]))
    protected = cbor2.dumps({1: 3, -65537: key.commitment})
    nonce = header[4].to_bytes(12, "big")
    lengths = b"".join(struct.pack("<I", len(m)) for m in messages)
    body = cbor2.dumps([cbor2.CBORTag(70, lengths), b"".join(messages)])
    ciphertext = key.gcm.encrypt(nonce, body, cbor2.dumps(["Encrypt0", protected, signed]))
    sealed = cbor2.dumps(cbor2.CBORTag(16, [protected, {5: nonce}, ciphertext]))
    return cbor2.dumps(["sealcast-frame", 2, token, signed, sealed])


# --- 7, 8, 9: pieces, and opening what is in them -----------------------------------------------


@dataclass(frozen=True)
class Opened:
    position: tuple[int, int, int]
    publisher: str
    sequence: int
    values: dict[str, Any]
    payload: bytes
    content_type: str


class Holder:
    """A subscriber, and what it has taken from pieces so far."""

    def __init__(self, slot: int, pair_key: bytes) -> None:
        self.slot, self.pair_key = slot, pair_key
        self.secrets = {b"pair" + slot.to_bytes(12, "big"): pair_key}
        #: Of a table, by name: the labels given, by depth and path; and in how many places.
        self.tables: dict[bytes, tuple[dict[tuple[int, int], bytes], int]] = {}

    def take(self, f: dict[int, Any], a: dict[int, list[int]], data: bytes) -> None:
        for h, to in enumerate(a[22]):
            if to == self.slot:
                key_id = f[14][16 * a[23][h] :][:16]
                carrier = Key(derive(self.pair_key, b"handout", key_id), data)
                self.secrets[key_id] = carrier.open(bytes(12), None, f[25][48 * h :][:48])
        for t, to in enumerate(a[34]):
            if to == self.slot:
                name = f[37][12 * t :][:12]
                carrier = Key(derive(self.pair_key, b"table part", name), data)
                part = carrier.open(bytes(12), None, f[39][a[38][t] : a[38][t + 1]])
                slots = slots_of_tile(a, a[35][t])
                given = asked_for(slots.index(self.slot), len(slots))
                self.tables[name] = {at: part[32 * i :][:32] for i, at in enumerate(given)}, len(slots)

    def key(self, f: dict[int, Any], a: dict[int, list[int]], key: int) -> bytes | None:
        key_id = f[14][16 * key :][:16]
        if key_id in self.secrets:
            return self.secrets[key_id]
        if a[28][key] == 2 and key_id[:12] in self.tables:
            return leaf(*self.tables[key_id[:12]], int.from_bytes(key_id[12:], "big"))
        hidden = 0
        for to, under, grows in zip(a[29], a[30], a[32], strict=True):
            if to == key and (other := self.key(f, a, under)) is not None:
                found = grow(other, key_id) if grows else unmask(other, b"link", key_id, f[33][48 * hidden :][:48])
                self.secrets[key_id] = found
                return found
            hidden += not grows
        return None


def mailbox(f: dict[int, Any], a: dict[int, list[int]], slot: int) -> list[tuple[int, int]]:
    """The events that a slot gets, each with the use through which it opens."""
    members, width = [], len(f[43]) // max(1, len(a[19]) - 1)
    for group in range(len(a[19]) - 1):
        if f[43]:
            row = f[43][width * group :][:width]
            members.append([s for s in range(8 * width) if row[s // 8] >> s % 8 & 1])
        else:
            members.append(a[20][a[19][group] : a[19][group + 1]])
    found = []
    for event, group in enumerate(a[18]):
        if slot in members[group]:
            rank, uses = members[group].index(slot), a[15][event + 1] - a[15][event]
            said = a[21][a[44][group] : a[44][group + 1]]
            found.append((event, a[15][event] + (said[rank] if said else rank if uses > 1 else 0)))
    return found


def slots_of_tile(a: dict[int, list[int]], tile: int) -> list[int]:
    slots = [first + i for first, count in zip(a[41][::2], a[41][1::2], strict=True) for i in range(count)]
    start = sum(a[40][:tile])
    return slots[start : start + a[40][tile]]


def place_asked(path: int, depth: int, places: int) -> int:
    left = list(range(places))
    for d in range(depth):
        left.pop((path >> depth - d) % len(left))
    return left[path % len(left)]


def asked_for(place: int, places: int) -> list[tuple[int, int]]:
    """Depth and path of the labels that the subscriber at a place is given."""
    return [
        (depth + 1, path << 1 | 1)
        for depth in range(places)
        for path in range(1 << depth)
        if place_asked(path, depth, places) == place
    ]


def leaf(labels: dict[tuple[int, int], bytes], places: int, pattern: int) -> bytes | None:
    path, label = 0, None
    for depth in range(places):
        right = pattern >> place_asked(path, depth, places) & 1
        path = path << 1 | right
        if label is not None:
            label = hashlib.blake2b(b"sealcast/1 label" + label).digest()[32 * right :][:32]
        else:
            label = labels.get((depth + 1, path))
    return label


def grow(label: bytes, name: bytes) -> bytes:
    return hashlib.blake2b(b"sealcast/1 grown" + label + name).digest()[:32]


def unmask(under: bytes, purpose: bytes, place: bytes, masked: bytes) -> bytes:
    mask = hashlib.blake2b(b"sealcast/1 masks" + purpose + under + place).digest()
    plain = bytes(x ^ y for x, y in zip(mask, masked, strict=False))
    if plain[32:] != hashlib.blake2b(b"sealcast/1 check" + plain[:32]).digest()[:16]:
        raise Refused("cannot-open")
    return plain[:32]


NUMBERS = {
    **dict.fromkeys((8, 9, 15, 16, 18, 19, 20, 21, 22, 23, 24, 29, 30, 31, 34, 35, 36, 41, 42, 44), "I"),
    **dict.fromkeys((10, 38), "Q"),
    **dict.fromkeys((13, 28, 32, 40), "B"),
}


def open_piece(data: bytes, holder: Holder, verify_keys: dict[str, bytes], schema: dict[str, Any]) -> list[Opened]:
    """Everything in a piece that is for one subscriber, in order."""
    f = cbor2.loads(data)[2]
    a = {label: [n for (n,) in struct.iter_unpack("<" + kind, raw(f[label]))] for label, kind in NUMBERS.items()}
    data_of_keys = key_data(f[1], f[2])
    holder.take(f, a, data_of_keys)
    opened = []
    for event, use in mailbox(f, a, holder.slot):
        offset, count, signed, nodes = f[7][a[8][event]]
        row = a[9][event]
        nonce = position_nonce(f[4], offset, row)
        secret = holder.key(f, a, a[16][use])
        if secret is None:
            raise Refused("key-missing")
        if a[13][event]:
            before = sum(a[15][e + 1] - a[15][e] for e in range(event) if a[13][e]) + use - a[15][event]
            wrap = f[17][48 * before :][:48]
            if a[28][a[16][use]] == 2:
                content = unmask(secret, b"wrap", nonce, wrap)
            else:
                content = Key(derive(secret, b"wrap"), data_of_keys).open(nonce, None, wrap)
            key = Key(content, data_of_keys)
        else:
            key = Key(derive(secret, b"body"), data_of_keys)
        message = key.open(nonce, f[12][32 * event :][:32], f[11][a[10][event] : a[10][event + 1]])
        publisher = cbor2.loads(cbor2.loads(signed).value[2])[2]
        header = verify_header(signed, verify_keys[publisher])
        leaf_hash = hashlib.sha256(message).digest()
        same = (header[1], header[8], header[5]) == (f[1], f[2], count)
        if message[0] != 0 or not same or root_from(nodes, count, row, leaf_hash) != header[9]:
            raise Refused("cannot-open")
        values, payload, kind = read_message(schema, message)
        opened.append(Opened((f[4], offset, row), publisher, header[4] + row, values, payload, kind))
    return opened


def raw(value: Any) -> bytes:
    """A typed array's bytes, however the CBOR library shows it."""
    return bytes(value.value if isinstance(value, cbor2.CBORTag) else value.tobytes())


def schema_digest(text: str) -> bytes:
    return hashlib.sha256(json.dumps(json.loads(text), sort_keys=True).encode()).digest()
