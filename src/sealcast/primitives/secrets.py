"""Secret: bytes that stay where they are.

On Spark a key leaks by accident far more easily than by attack: captured in a closure (pickled into a plan), printed
in a log line, compared with `==` that stops early. A `Secret` refuses all of these, so that the accident is an error
at the moment it happens. It is a guard rail, not a vault: Python cannot wipe memory, and whoever can run code can
call `reveal`.
"""

from __future__ import annotations

import hmac
import os
from typing import Final, Never

from sealcast.errors import Misuse

#: The size of every symmetric key of ours.
KEY_BYTES: Final = 32


class Unpicklable:
    """A handle with key material inside: it stays in the process that made it, and refuses to be pickled or copied."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> Never:
        raise Misuse(
            f"a {type(self).__name__} cannot be pickled or copied",
            hint="send its name (topic, epoch, entity) and load or derive the key where it is used",
        )

    def __copy__(self) -> Never:
        self.__reduce_ex__(None)

    def __deepcopy__(self, memo: object) -> Never:
        self.__reduce_ex__(None)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class Secret(Unpicklable):
    """Key material. `reveal()` is the only way out: every use of the raw bytes is found by searching for it."""

    __slots__ = ("_bytes",)

    def __init__(self, material: bytes | bytearray | memoryview) -> None:
        if not isinstance(material, bytes | bytearray | memoryview):
            raise Misuse("a secret is made of bytes")
        if not len(material):
            raise Misuse("an empty secret keeps nothing secret")
        self._bytes = bytes(material)

    @classmethod
    def random(cls, size: int = KEY_BYTES) -> Secret:
        """Fresh from the operating system."""
        return cls(os.urandom(size))

    def reveal(self) -> bytes:
        """The bytes themselves: for a primitive that needs them now, or a key file that must hold them."""
        return self._bytes

    @property
    def size(self) -> int:
        return len(self._bytes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._bytes, other._bytes)

    # A hash of the value would be a fingerprint of it, and dictionaries compare with early exit.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<secret {len(self._bytes)} bytes>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)


class PublicKey:
    """The half of a key that may travel, as bytes. A subclass checks them before it keeps them."""

    __slots__ = ("_public",)

    _public: bytes

    def __bytes__(self) -> bytes:
        return self._public

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and bytes(self) == bytes(other)

    def __hash__(self) -> int:
        return hash(self._public)

    def __reduce__(self) -> tuple[type[PublicKey], tuple[bytes]]:
        return type(self), (self._public,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._public.hex()})"
