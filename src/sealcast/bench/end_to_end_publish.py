"""`publish` of suite `end-to-end`: what publishing a table costs beside bare AES-GCM and SHA-256 over the same bytes.

Ours is `Publisher.publish` of an Arrow table on an `endpoint` topic, as a user calls it: schema checks, encoding,
salts, the tree, the signature, sealing, and the append to the topic's log. The reference enciphers each event's message
once and hashes it once, all made before: the least that Python can do for an event that is sealed and hashed by itself.
We seal a frame at a time, and hash every message and the nodes above it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sealcast.bench.report import BenchRow, side_by_side
from sealcast.clients.intake import taken
from sealcast.clients.publisher import Publisher
from sealcast.lab import scratch
from sealcast.model.schema import Schema
from sealcast.wire.records import RecordCodec, fresh_salts

PAYLOAD_BYTES: Final = 256
EVENTS: Final = 20_000
ROUNDS: Final = 9
TOPIC: Final = "ticks"
SCHEMA: Final = Schema.from_json(
    {
        "attributes": [
            {"name": "symbol", "type": "string", "max_length": 8},
            {"name": "price", "type": "decimal", "min": 0, "max": 1000, "step": "0.01"},
            {"name": "volume", "type": "int", "min": 0, "max": 1_000_000},
            {"name": "at", "type": "timestamp"},
        ]
    }
)


def events(count: int) -> pa.Table:
    """Four attributes and a payload, as a data team has them: text, a decimal, a number, a moment."""
    random = np.random.default_rng(1)
    payloads = os.urandom(PAYLOAD_BYTES * count)
    return pa.table(
        {
            "symbol": [f"S{n}" for n in random.integers(0, 500, count).tolist()],
            "price": pa.array(random.integers(0, 1000, count)).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2)),
            "volume": random.integers(0, 1_000_000, count),
            "at": pa.array(1_700_000_000_000_000 + np.arange(count) * 1000).cast(pa.timestamp("us", "UTC")),
            "payload": pa.array([payloads[at : at + PAYLOAD_BYTES] for at in range(0, len(payloads), PAYLOAD_BYTES)]),
        }
    )


def rows() -> Iterator[BenchRow]:
    """CPU microseconds per event, and how many times the reference."""
    table, key = events(EVENTS), AESGCM(os.urandom(32))
    with scratch.realm(4 * (ROUNDS + 2) * table.nbytes) as realm:
        realm.create_topic(TOPIC, SCHEMA, access="members")
        realm.enrol_many(["publisher"])
        with Publisher(realm, TOPIC, as_="publisher") as publisher:
            ((_, batch, _),) = taken(SCHEMA, table)
            messages = batch.records(RecordCodec(SCHEMA), fresh_salts(EVENTS))
            nonces = [number.to_bytes(12, "big") for number in range(EVENTS)]

            def reference() -> object:
                sealed = [key.encrypt(nonce, each, None) for nonce, each in zip(nonces, messages, strict=True)]
                return sealed, [hashlib.sha256(each).digest() for each in messages]

            ours, bare = side_by_side(lambda: publisher.publish(table), reference, ROUNDS)
    ours, bare = ours / EVENTS * 1e6, bare / EVENTS * 1e6
    told = "bare AESGCM.encrypt and sha256 of each message"
    yield BenchRow("publish", ours, bare, told, ours / bare, "CPU us per 256-byte event")
