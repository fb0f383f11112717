"""An entity's own keys: one to sign with, one to receive keys by.

An entity reads its own file and nobody else's. Its pair keys are not in it: they come from the registry, sealed to the
receiving key, so that a new epoch needs no new file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sealcast.errors import CannotOpen, Corrupt, Misuse, NotFound
from sealcast.primitives.hpke import KemKey
from sealcast.primitives.secrets import KEY_BYTES, Secret, Unpicklable
from sealcast.primitives.sign import SigningKey
from sealcast.trust import keyfile
from sealcast.trust.changes import EnrolEntity
from sealcast.trust.realm import RealmState

KIND: Final = "sealcast entity"
#: What a sealed pair key is for: part of what HPKE binds, so that it opens as nothing else.
PAIR_KEY_INFO: Final = b"sealcast pair key"


def pair_key_place(topic_id: bytes, epoch: int, entity: str) -> bytes:
    """Names one pair key. The topic's id has a fixed size, so the parts cannot run into each other."""
    return topic_id + epoch.to_bytes(8, "big") + entity.encode()


class Identity(Unpicklable):
    """The private half of an entity."""

    __slots__ = ("kem", "name", "signer")

    def __init__(self, name: str, signer: SigningKey, kem: KemKey) -> None:
        self.name = name
        self.signer = signer
        self.kem = kem

    @classmethod
    def generate(cls, name: str) -> Identity:
        return cls(name, SigningKey.generate(), KemKey.generate())

    @classmethod
    def load(cls, path: Path, name: str) -> Identity:
        """From the entity's file; the name in it must be the one asked for."""
        missing = NotFound(
            f"there are no keys of entity {name!r} here ({path} does not exist)",
            hint=f"enrol it (sealcast entity enrol {name}), or copy its key file from where it was enrolled",
        )
        body = keyfile.read(path, KIND, missing)
        try:
            signer = SigningKey.from_seed(Secret(bytes.fromhex(body["ed25519_seed"])))
            kem = KemKey.from_private(Secret(bytes.fromhex(body["x25519_private"])))
            named = str(body["entity"])
        except (KeyError, ValueError, TypeError, Misuse):
            raise Corrupt(f"{path} holds no whole pair of keys", hint="restore it from a copy") from None
        if named != name:
            raise Misuse(f"{path} holds the keys of {named!r}, not of {name!r}")
        return cls(name, signer, kem)

    def save(self, path: Path) -> None:
        keyfile.write(
            path,
            KIND,
            {
                "entity": self.name,
                "ed25519_seed": self.signer.seed.reveal().hex(),
                "x25519_private": self.kem.private.reveal().hex(),
            },
        )

    def enrolment(self) -> EnrolEntity:
        """The public half, as the change that makes it known."""
        return EnrolEntity(self.name, bytes(self.signer.verify_key), self.kem.public)

    def pair_key(self, state: RealmState, topic: str, epoch: int | None = None) -> Secret:
        """Its pair key for a topic (of the current epoch, unless another is named), opened with its own key."""
        about = state.topic(topic)
        epoch = about.epoch if epoch is None else epoch
        sealed = state.pair_key(topic, epoch, self.name)
        if sealed is None:
            raise NotFound(
                f"no key of topic {topic!r} (epoch {epoch}) was issued to entity {self.name!r}",
                hint=f"the administrator issues one with: sealcast grant {topic} {self.name} publish subscribe",
            )
        try:
            opened = self.kem.open(sealed, PAIR_KEY_INFO, pair_key_place(about.id, epoch, self.name))
        except CannotOpen:
            raise CannotOpen(
                f"the key of topic {topic!r} that was issued to {self.name!r} does not open with the keys in its file",
                hint="the file belongs to another enrolment of that name, or the registry was altered",
            ) from None
        if len(opened) != KEY_BYTES:
            raise CannotOpen(f"the key of topic {topic!r} that was issued to {self.name!r} has the wrong size")
        return Secret(opened)
