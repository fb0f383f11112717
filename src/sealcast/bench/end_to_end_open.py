"""`open` and `open-sparse` of suite `end-to-end`: opening, beside bare AES-GCM and SHA-256 over the same bytes.

    open          a subscriber of every event
    open-sparse   a subscriber of one event in ten, scattered over all frames

Ours is `Subscriber.poll_arrow` on an `endpoint` topic that both of them read, as a user calls it: reading the ledger
and its pieces and verifying them, keys, opening, the trees and signatures, the window of what was had before, and
columns. Making the subscriber is left out: it stands. The reference deciphers each event's message once and hashes it
once: the least that Python can do for an event that is opened and verified by itself.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sealcast.bench.end_to_end_publish import SCHEMA, TOPIC, events
from sealcast.bench.report import BenchRow, side_by_side
from sealcast.clients.intake import taken
from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Bug
from sealcast.lab import scratch
from sealcast.lab.pallickara.broker import LabBroker
from sealcast.trust.deployment import Realm
from sealcast.wire.records import RecordCodec, fresh_salts

EVENTS: Final = 100_000
#: Batches of the pipeline that they come in.
BATCHES: Final = 5
ROUNDS: Final = 9
READERS: Final = {"every": "volume >= 0", "tenth": "volume < 100000"}
ROWS: Final = {"open": "every", "open-sparse": "tenth"}


def rows() -> Iterator[BenchRow]:
    """CPU microseconds per event that is opened, and how many times the reference."""
    with scratch.realm(256 << 20) as realm:
        deliver(realm)
        for name, reader in ROWS.items():
            yield _row(realm, name, reader)


def deliver(realm: Realm, count: int = EVENTS) -> None:
    """Events of 256 bytes in frames of 1,000, published, sealed and committed for everyone in `READERS`."""
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.enrol_many(["publisher", *READERS])
    for reader, text in READERS.items():
        realm.subscribe(TOPIC, reader, text)
    table, each = events(count), count // BATCHES
    with Publisher(realm, TOPIC, as_="publisher") as publisher, LabBroker(realm, TOPIC) as broker:
        for start in range(0, count, each):
            publisher.publish(table.slice(start, each))
            broker.turn()


def _row(realm: Realm, name: str, reader: str) -> BenchRow:
    with ExitStack() as held:
        waiting = [held.enter_context(Subscriber(realm, TOPIC, reader, from_="start")) for _ in range(ROUNDS + 1)]
        with Subscriber(realm, TOPIC, reader, from_="start") as first:
            table = first.to_arrow().read_all()
        count = table.num_rows
        given, codec = table.select([*SCHEMA.names, "payload", "content_type"]), RecordCodec(SCHEMA)
        batches = [batch for _, batch, _ in taken(SCHEMA, given)]
        messages = [each for batch in batches for each in batch.records(codec, fresh_salts(len(batch)))]
        key = AESGCM(os.urandom(32))
        nonces = [number.to_bytes(12, "big") for number in range(count)]
        sealed = [key.encrypt(nonce, each, None) for nonce, each in zip(nonces, messages, strict=True)]

        def ours() -> None:
            opened = 0
            # Closed when it is done: its memory is used again, as that of a subscriber that stands is.
            with waiting.pop() as subscriber:
                while found := subscriber.poll_arrow().num_rows:
                    opened += found
            if opened != count:
                raise Bug(f"{opened} events were opened, not {count}")

        def reference() -> object:
            opened = [key.decrypt(nonce, each, None) for nonce, each in zip(nonces, sealed, strict=True)]
            return [hashlib.sha256(each).digest() for each in opened]

        spent, bare = (seconds / count * 1e6 for seconds in side_by_side(ours, reference, ROUNDS))
    told = "bare AESGCM.decrypt and sha256 of each message"
    return BenchRow(name, spent, bare, told, spent / bare, "CPU us per 256-byte event")
