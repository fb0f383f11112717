"""`seal`: what our sealing of a batch costs beside bare AES-GCM.

Ours is the whole step: nonces from (partition, offset, row), sealing, the bodies put together as a piece holds them,
and the key commitment. The reference is nothing but `AESGCM.encrypt` in a loop, nonces at hand, no associated data:
the least that Python can do. Rounds alternate, CPU time of this process is taken, medians are compared.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sealcast.primitives import aead
from sealcast.primitives.secrets import Secret

PAYLOAD_BYTES: Final = 256
EVENTS: Final = 10_000
ROWS_PER_FRAME: Final = 1_000
ROUNDS: Final = 15


def seal_rows(events: int = EVENTS, rounds: int = ROUNDS) -> list[dict[str, object]]:
    """The row `seal`: CPU microseconds per event, and how many times the reference."""
    payload = os.urandom(PAYLOAD_BYTES * events)
    messages = [payload[at : at + PAYLOAD_BYTES] for at in range(0, len(payload), PAYLOAD_BYTES)]
    secret = Secret.random()
    numbers = np.arange(events)
    offsets, rows = 1_000_000 + numbers // ROWS_PER_FRAME, numbers % ROWS_PER_FRAME
    bare = AESGCM(secret.reveal())
    ready = [aead.nonces(7, offsets[i : i + 1], rows[i : i + 1]) for i in range(events)]

    def ours() -> object:
        key = aead.SealingKey(secret, b"sealcast bench")
        bodies = key.seal_many(aead.nonces(7, offsets, rows), messages)
        return b"".join(bodies), key.commitment

    def reference() -> object:
        return [bare.encrypt(nonce, message, None) for nonce, message in zip(ready, messages, strict=True)]

    our_times, their_times = [], []
    for _ in range(rounds):
        our_times.append(_cpu_seconds(ours))
        their_times.append(_cpu_seconds(reference))
    mine, theirs = median(our_times) / events * 1e6, median(their_times) / events * 1e6
    return [
        {
            "name": "seal",
            "ours": round(mine, 4),
            "reference": round(theirs, 4),
            "reference_name": "bare AESGCM.encrypt, nonces ready",
            "ratio": round(mine / theirs, 3),
            "unit": "CPU us per 256-byte event",
        }
    ]


def _cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
