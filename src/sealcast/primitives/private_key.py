"""What all private keys for receiving have in common: their bytes, which go into their owner's key file alone."""

from __future__ import annotations

from typing import ClassVar, Self

from sealcast.errors import Misuse
from sealcast.primitives.secrets import Secret, Unpicklable


class ReceivingPrivateKey(Unpicklable):
    """A private key, by the bytes that it is made from."""

    __slots__ = ("_private",)

    #: What it is called in messages, and how many bytes it is made from.
    WHAT: ClassVar[str]
    SIZE: ClassVar[int]

    def __init__(self, private: Secret) -> None:
        if private.size != self.SIZE:
            raise Misuse(f"{self.WHAT} has {self.SIZE} bytes, not {private.size}")
        self._private = private

    @classmethod
    def generate(cls) -> Self:
        return cls(Secret.random(cls.SIZE))

    @property
    def private(self) -> Secret:
        """For the owner's key file, and nothing else."""
        return self._private
