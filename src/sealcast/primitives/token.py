"""A secret key that stays in a PKCS#11 token, and what it encrypts: AES-256-GCM, computed by the token.

The token is whatever its vendor's module talks to: a hardware security module, a smart card, or SoftHSM. It is asked to
encrypt and to decrypt; the key itself is made inside and cannot be taken out (not extractable, sensitive).

    wrapped = nonce (12 random bytes) | ciphertext | tag (16)

A session is opened for each call and closed after it. Processes unwrap one key in their life, so nothing is gained by
keeping a session, and one that is inherited by a forked process works in neither.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pkcs11
from pkcs11 import Attribute, GCMParams, KeyType, Mechanism, ObjectClass, PKCS11Error

from sealcast.errors import CannotOpen, Misuse, NotFound, Unavailable
from sealcast.primitives.secrets import Secret, Unpicklable

NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
_KEY_BITS: Final = 256
#: Modules are loaded once in a process, and their first call is not safe in two threads.
_loading: Final = threading.Lock()


class TokenKey(Unpicklable):
    """One AES key of one token, by their labels."""

    __slots__ = ("_label", "_module", "_pin", "_token")

    def __init__(self, module: Path, token: str, label: str, pin: Secret) -> None:
        self._module, self._token, self._label, self._pin = module, token, label, pin

    def make(self) -> None:
        """Lets the token make the key; Misuse when it has one of that label."""
        with self._session(write=True) as session:
            if next(iter(session.get_objects({Attribute.LABEL: self._label})), None) is not None:
                raise Misuse(
                    f"token {self._token!r} has an object {self._label!r} already", hint="use it, or choose another"
                )
            hidden = {Attribute.EXTRACTABLE: False, Attribute.SENSITIVE: True, Attribute.PRIVATE: True}
            session.generate_key(KeyType.AES, _KEY_BITS, label=self._label, store=True, template=hidden)

    def wrap(self, plain: bytes, context: bytes) -> bytes:
        """`plain`, encrypted by the token and bound to `context`."""
        nonce = os.urandom(NONCE_BYTES)
        with self._key() as key:
            sealed: bytes = key.encrypt(plain, mechanism=Mechanism.AES_GCM, mechanism_param=GCMParams(nonce, context))
        return nonce + sealed

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """What was wrapped by the same key under the same `context`, or CannotOpen."""
        nonce, sealed = wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:]
        if len(sealed) < TAG_BYTES:
            raise CannotOpen("this is too short to have been wrapped by a token")
        with self._key() as key:
            try:
                return bytes(
                    key.decrypt(sealed, mechanism=Mechanism.AES_GCM, mechanism_param=GCMParams(nonce, context))
                )
            except (pkcs11.GeneralError, pkcs11.EncryptedDataInvalid, pkcs11.EncryptedDataLenRange):
                # Tokens do not agree on how to say that a tag is wrong; SoftHSM calls it a general error.
                raise CannotOpen(
                    f"key {self._label!r} of token {self._token!r} did not wrap this, or it was altered",
                    hint="is it the token, and the key, that this was wrapped with?",
                ) from None

    @contextmanager
    def _key(self) -> Iterator[Any]:
        """The key, with the methods that the library gives to keys of its kind and does not declare."""
        with self._session() as session:
            try:
                yield session.get_key(object_class=ObjectClass.SECRET_KEY, key_type=KeyType.AES, label=self._label)
            except pkcs11.NoSuchKey:
                raise NotFound(
                    f"token {self._token!r} has no AES key {self._label!r}",
                    hint="let the token make one: sealcast unlock-key wrap --make-key",
                ) from None
            except pkcs11.MultipleObjectsReturned:
                raise Misuse(
                    f"token {self._token!r} has several AES keys {self._label!r}", hint="give each a label of its own"
                ) from None

    @contextmanager
    def _session(self, *, write: bool = False) -> Iterator[pkcs11.Session]:
        try:
            with _loading:
                token = pkcs11.lib(str(self._module)).get_token(token_label=self._token)
            with token.open(rw=write, user_pin=self._pin.reveal().decode()) as session:
                yield session
        except (pkcs11.PinIncorrect, pkcs11.PinLenRange, pkcs11.PinInvalid):
            # Never tried again by itself: after a few wrong ones a token locks itself.
            raise CannotOpen(
                f"token {self._token!r} refuses the PIN", hint="correct it before you try again: tokens lock themselves"
            ) from None
        except pkcs11.PinLocked:
            raise Unavailable(
                f"token {self._token!r} is locked, after too many wrong PINs", hint="its security officer unlocks it"
            ) from None
        except pkcs11.NoSuchToken:
            raise NotFound(f"there is no token {self._token!r} here", hint="is it plugged in, or set up?") from None
        except PKCS11Error as error:
            why = f"{type(error).__name__} {error}".strip()
            raise Unavailable(
                f"token {self._token!r} did not do what it was asked: {why}", hint=f"its module is {self._module}"
            ) from None
