"""The one injective encoding of several byte strings into one, under every KDF and MAC here.

Each part is its length (u32, big-endian) followed by its bytes. Different tuples of parts never give the same bytes:
("ab", "c") and ("a", "bc") are told apart, and so are ("a",) and ("a", ""). Plain concatenation tells neither apart.
"""

from __future__ import annotations

from sealcast.errors import Misuse


def joined(parts: tuple[bytes, ...]) -> bytes:
    """The encoding of `parts`."""
    pieces: list[bytes] = []
    for part in parts:
        if not isinstance(part, bytes):
            raise Misuse(f"contexts and parts are bytes, not {type(part).__name__}")
        pieces.append(len(part).to_bytes(4, "big"))
        pieces.append(part)
    return b"".join(pieces)
