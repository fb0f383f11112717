"""Ciphers to compare ours with, in the lab. Nothing here protects anything: no key of a realm ever comes here.

Paper 000 measured what encryptions cost with DES and leaves open what integrity and authentication would cost on top.
To measure both again takes ciphers that we would never use, and since `primitives` is the only door to cryptographic
libraries, they are let in here, under a name that says what they are for:

    BlockCipher      one block and no mode: what a cipher itself costs (3DES and AES)
    Unauthenticated  AES-256-CTR: nobody reads it, anybody alters it
    Uncommitted      AES-256-GCM as the library has it, without a commitment to its key

Each keeps its expanded key, so that set-up and use can be timed apart; `encrypt` is the library's own function, for a
call of ours around it would cost as much as the cipher. Single DES is in no library that we use: 3DES with one key
three times gives its ciphertexts, at the price of three passes.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import Cipher, CipherAlgorithm, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256

from sealcast.errors import CannotOpen, Misuse
from sealcast.primitives.secrets import Secret, Unpicklable

#: Ciphers by name: bytes of a key, bytes of a block.
CIPHERS: Final = {"3des": (24, 8), "aes-256": (32, 16)}


class BlockCipher(Unpicklable):
    """A block cipher under one key, a block at a time."""

    __slots__ = ("encrypt",)

    def __init__(self, cipher: str, key: Secret) -> None:
        if cipher not in CIPHERS:
            raise Misuse(f"there is no {cipher!r} to compare with; there is {', '.join(CIPHERS)}")
        algorithm: CipherAlgorithm = (TripleDES if cipher == "3des" else AES256)(key.reveal())
        #: One block in, one block out.
        self.encrypt = Cipher(algorithm, modes.ECB()).encryptor().update


class Unauthenticated(Unpicklable):
    """AES-256-CTR. A nonce has twelve bytes, as ours have; the rest of the block counts."""

    __slots__ = ("_context",)

    def __init__(self, key: Secret) -> None:
        self._context = Cipher(AES256(key.reveal()), modes.CTR(bytes(16))).encryptor()

    def seal(self, nonce: bytes, plaintext: bytes) -> bytes:
        self._context.reset_nonce(nonce + b"\0\0\0\0")
        return self._context.update(plaintext)

    #: Opening is sealing again: that is what makes it alterable at will.
    open = seal


class Uncommitted(Unpicklable):
    """AES-256-GCM: a ciphertext can be made that opens under two keys."""

    __slots__ = ("_aead", "encrypt")

    def __init__(self, key: Secret) -> None:
        self._aead = AESGCM(key.reveal())
        self.encrypt = self._aead.encrypt

    def seal(self, nonce: bytes, plaintext: bytes) -> bytes:
        return self._aead.encrypt(nonce, plaintext, None)

    def open(self, nonce: bytes, ciphertext: bytes) -> bytes:
        try:
            return self._aead.decrypt(nonce, ciphertext, None)
        except InvalidTag:
            raise CannotOpen("this was sealed under another key or nonce, or it was altered") from None
