"""What brokers and key centers have in their key files: an identity, and one secret more.

Each is a class of its own, so that neither can be loaded as the other; how their files are made and read is here.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from sealcast.errors import Corrupt, Misuse, NotFound
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.trust.keys.identity import Identity
from sealcast.trust.vault import keyfile


class HolderSecrets(Unpicklable):
    """The secrets of whoever has a role in the realm. They cross no process boundary: load them where they are."""

    __slots__ = ("_secret", "identity")

    #: The kind of its key file, the name of its secret there, and how it is called in messages.
    KIND: ClassVar[str]
    FIELD: ClassVar[str]
    CALLED: ClassVar[str]
    ELSEWHERE: ClassVar[str]

    def __init__(self, identity: Identity, secret: Secret) -> None:
        self.identity = identity
        self._secret = secret

    @property
    def name(self) -> str:
        return self.identity.name

    @classmethod
    def generate(cls, name: str) -> Self:
        return cls(Identity.generate(name), Secret.random())

    @classmethod
    def load(cls, path: Path) -> Self:
        missing = NotFound(f"the {cls.CALLED}'s secrets are not here ({path} does not exist)", hint=cls.ELSEWHERE)
        body = keyfile.read(path, cls.KIND, missing)
        try:
            return cls(Identity.from_fields(body, path), Secret(bytes.fromhex(body[cls.FIELD])))
        except (KeyError, ValueError, TypeError, Misuse):
            raise Corrupt(f"{path} does not hold a {cls.CALLED}'s secrets", hint="restore it from a copy") from None

    def save(self, path: Path) -> None:
        keyfile.write(path, self.KIND, {**self.identity.fields(), self.FIELD: self._secret.reveal().hex()})
