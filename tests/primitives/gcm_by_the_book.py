"""AES-GCM written out from NIST SP 800-38D, slow and plain: an oracle, and the algebra of an attack on bare GCM."""

from __future__ import annotations

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

# Bit 0 of a block is its first byte's highest: a field element is the block read big-endian, x**i at bit 127 - i.
_REDUCTION = 0xE1 << 120


def multiply(x: int, y: int) -> int:
    """In GF(2**128)."""
    product = 0
    for i in range(127, -1, -1):
        if x >> i & 1:
            product ^= y
        y = y >> 1 ^ (_REDUCTION if y & 1 else 0)
    return product


def inverse(x: int) -> int:
    """x**(2**128 - 2)."""
    result, square = 1 << 127, x  # one
    for _ in range(127):
        square = multiply(square, square)
        result = multiply(result, square)
    return result


def block(key: bytes, data: bytes) -> int:
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return int.from_bytes(encryptor.update(data), "big")


def hash_key(key: bytes) -> int:
    return block(key, bytes(16))


def keystream(key: bytes, nonce: bytes, blocks: int) -> bytes:
    return b"".join(block(key, nonce + (2 + i).to_bytes(4, "big")).to_bytes(16, "big") for i in range(blocks))


def lengths(aad: bytes, ciphertext: bytes) -> int:
    return 8 * len(aad) << 64 | 8 * len(ciphertext)


def ghash(h: int, aad: bytes, ciphertext: bytes) -> int:
    padded = b"".join(part + bytes(-len(part) % 16) for part in (aad, ciphertext))
    digest = 0
    for at in range(0, len(padded), 16):
        digest = multiply(digest ^ int.from_bytes(padded[at : at + 16], "big"), h)
    return multiply(digest ^ lengths(aad, ciphertext), h)


def tag(key: bytes, nonce: bytes, aad: bytes, ciphertext: bytes) -> bytes:
    mask = block(key, nonce + (1).to_bytes(4, "big"))
    return (mask ^ ghash(hash_key(key), aad, ciphertext)).to_bytes(16, "big")


def seal(key: bytes, nonce: bytes, plaintext: bytes, aad: bytes = b"") -> bytes:
    stream = keystream(key, nonce, -(-len(plaintext) // 16))
    ciphertext = bytes(p ^ s for p, s in zip(plaintext, stream, strict=False))
    return ciphertext + tag(key, nonce, aad, ciphertext)


def opens_under_both(one: bytes, other: bytes, nonce: bytes, first_block: bytes) -> bytes:
    """A ciphertext whose tag is right under two keys: GHASH is linear, so the second block is solved for.

    With C = c1 | c2: mask + c1 H^3 + c2 H^2 + L H must be the same tag under both keys.
    """
    h, g = hash_key(one), hash_key(other)
    h2, g2 = multiply(h, h), multiply(g, g)
    c1, counter = int.from_bytes(first_block, "big"), nonce + (1).to_bytes(4, "big")
    constant = block(one, counter) ^ block(other, counter)
    constant ^= multiply(c1, multiply(h2, h) ^ multiply(g2, g))
    constant ^= multiply(lengths(b"", bytes(32)), h ^ g)
    c2 = multiply(constant, inverse(h2 ^ g2))
    ciphertext = first_block + c2.to_bytes(16, "big")
    return ciphertext + tag(one, nonce, b"", ciphertext)
