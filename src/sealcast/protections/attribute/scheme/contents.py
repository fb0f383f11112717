"""What publishers and subscribers agree on beside the equations: how keys, nonces and signed messages are made.

key of a header      SealingKey(derive(extract(Y^b), "header", the header))     it commits to its key, and to the header
nonce                u32 purpose | u64 number           events under one header are numbered from 0; purpose 1: session
signed, event        "event", header, number, payload   each with its length
signed, session      "session", verify key
leaf of a frame      SHA-256(0x00 | SHA-256(header) | number u64 | payload)
signed, frame        "sealcast/attribute/1 frame" | epoch u64 | leaves u32 | root
"""

from __future__ import annotations

import hashlib
from typing import Final

from sealcast.primitives import kdf
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.encoding import joined
from sealcast.primitives.secrets import Secret

_EVENT: Final = bytes(4)
SESSION_NONCE: Final = (1).to_bytes(4, "big") + bytes(8)
_FRAME: Final = b"sealcast/attribute/1 frame"


def header_key(target: bytes, header: bytes) -> SealingKey:
    """The key that events under one header are sealed with."""
    extracted = Secret(kdf.hkdf_extract(b"sealcast/attribute/1", target))
    return SealingKey(kdf.derive(extracted, b"header", hashlib.sha256(header).digest()), b"attribute/1 event")


def event_nonce(number: int) -> bytes:
    return _EVENT + number.to_bytes(8, "big")


def event_message(header: bytes, number: int, payload: bytes) -> bytes:
    return joined((b"event", header, number.to_bytes(8, "big"), payload))


def session_message(verify_key: bytes) -> bytes:
    return joined((b"session", verify_key))


def leaf(header_digest: bytes, number: int, payload: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + header_digest + number.to_bytes(8, "big") + payload).digest()


def frame_message(epoch: int, count: int, root: bytes) -> bytes:
    return _FRAME + epoch.to_bytes(8, "big") + count.to_bytes(4, "big") + root
