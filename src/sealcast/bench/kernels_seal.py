"""`seal`: what our sealing of a batch costs beside bare AES-GCM.

Ours is the whole step: nonces from (partition, offset, row), sealing, the bodies put together as a piece holds them,
and the key commitment. The reference is nothing but `AESGCM.encrypt` in a loop, nonces at hand, no associated data:
the least that Python can do. Rounds alternate, CPU time of this process is taken, medians are compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sealcast.bench.report import BenchRow, side_by_side
from sealcast.primitives import aead
from sealcast.primitives.secrets import Secret

PAYLOAD_BYTES: Final = 256
EVENTS: Final = 10_000
ROWS_PER_FRAME: Final = 1_000
ROUNDS: Final = 15


def rows() -> Iterator[BenchRow]:
    """The row `seal`: CPU microseconds per event, and how many times the reference."""
    payload = os.urandom(PAYLOAD_BYTES * EVENTS)
    messages = [payload[at : at + PAYLOAD_BYTES] for at in range(0, len(payload), PAYLOAD_BYTES)]
    secret = Secret.random()
    numbers = np.arange(EVENTS)
    offsets, places = 1_000_000 + numbers // ROWS_PER_FRAME, numbers % ROWS_PER_FRAME
    bare = AESGCM(secret.reveal())
    ready = [aead.nonces(7, offsets[i : i + 1], places[i : i + 1]) for i in range(EVENTS)]

    def ours() -> object:
        key = aead.SealingKey(secret, b"sealcast bench")
        bodies = key.seal_many(aead.nonces(7, offsets, places), messages)
        return b"".join(bodies), key.commitment

    def reference() -> object:
        return [bare.encrypt(nonce, message, None) for nonce, message in zip(ready, messages, strict=True)]

    mine, theirs = side_by_side(ours, reference, ROUNDS)
    mine, theirs = mine / EVENTS * 1e6, theirs / EVENTS * 1e6
    yield BenchRow(
        "seal", mine, theirs, "bare AESGCM.encrypt, nonces ready", mine / theirs, "CPU us per 256-byte event"
    )
