"""A publisher and a broker in miniature, with fixed keys: frames for tests, vectors and the specification's example."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from sealcast.errors import CannotOpen, FrameRejected
from sealcast.model.schema import Schema
from sealcast.primitives import kdf, merkle
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey
from sealcast.wire import frame
from sealcast.wire.frame import Header
from sealcast.wire.records import RecordCodec

SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "symbol", "type": "string", "max_length": 8},
            {"name": "price", "type": "decimal", "min": 0, "max": 100000, "step": "0.01"},
            {"name": "hot", "type": "bool"},
        ]
    }
)


def seeded(label: str, size: int = 32) -> bytes:
    return hashlib.shake_256(label.encode()).digest(size)


@dataclass(frozen=True)
class Publisher:
    name: str = "ticker-1"
    topic: bytes = seeded("topic", 16)
    boot: bytes = seeded("boot", 16)
    epoch: int = 1
    token: bytes = seeded("token", 40)

    @property
    def signer(self) -> SigningKey:
        return SigningKey(Secret(seeded(f"sign {self.name}")))

    @property
    def frame_key(self) -> SealingKey:
        aad = b"sealcast/endpoint/1" + self.topic + self.epoch.to_bytes(8, "big")
        return SealingKey(kdf.derive(Secret(seeded(f"pair {self.name}")), b"frame", self.boot), aad)

    def header(self, messages: Sequence[bytes], sequence: int = 0, time: int = 1_767_225_600_000_000) -> Header:
        nodes = merkle.build(merkle.hash_messages(messages))
        return Header(
            topic=self.topic,
            publisher=self.name,
            boot=self.boot,
            sequence=sequence,
            count=len(messages),
            time=time,
            schema=SCHEMA.digest,
            epoch=self.epoch,
            root=merkle.root(nodes, len(messages)),
            token=frame.token_digest(self.token),
        )

    def publish(self, messages: Sequence[bytes], sequence: int = 0) -> bytes:
        return self.finish(self.header(messages, sequence), messages)

    def finish(self, header: Header, messages: Sequence[bytes]) -> bytes:
        signed = frame.encode_signed(header, self.signer.sign(frame.to_be_signed(header)))
        key = self.frame_key
        aad = frame.body_aad(signed, key.commitment)
        sealed = key.seal(frame.body_nonce(header), frame.encode_body(messages), aad)
        return frame.encode(signed, key.commitment, sealed, token=self.token)

    def admit(self, data: bytes) -> list[bytes]:
        """What a broker does with a frame of this publisher, in order; FrameRejected with the reason otherwise."""
        received = frame.parse(data)
        if frame.token_digest(received.token) != received.header.token:
            raise FrameRejected("token", "not the token that was signed for")
        if not self.signer.verify_key.verify(received.to_be_signed, received.signature):
            raise FrameRejected("signature", "not this publisher's")
        try:
            body = self.frame_key.open(received.nonce, received.commitment, received.ciphertext, received.body_aad)
            messages = frame.decode_body(body, received.header.count)
        except (CannotOpen, FrameRejected) as error:
            raise FrameRejected("seal", error.message) from None
        nodes = merkle.build(merkle.hash_messages(messages))
        if merkle.root(nodes, len(messages)) != received.header.root:
            raise FrameRejected("root", "not the events that were signed")
        return messages


def messages(count: int) -> list[bytes]:
    """A few events of SCHEMA with salts that are fixed, which real ones never are."""
    values = [
        SCHEMA.parse({"symbol": f"S{i % 7}", "price": f"{i}.25", "hot": None if i % 3 == 0 else i % 2 == 0})
        for i in range(count)
    ]
    payloads = [f"event {i}".encode() for i in range(count)]
    return RecordCodec(SCHEMA).encode(values, payloads, "text/plain", seeded("salts", 16 * count))
