"""An entity's own keys: one to be known by, one to sign frames with, one to receive keys by.

An entity reads its own file and nobody else's. Its pair keys are not in it: they come from the registry, sealed to the
receiving key, so that a new epoch needs no new file. Nor is its certificate, which is public and renewed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sealcast.errors import CannotOpen, Corrupt, Misuse, NotFound
from sealcast.primitives import p256
from sealcast.primitives.hpke import KemKey
from sealcast.primitives.hybrid import HybridKey
from sealcast.primitives.kem import EntityKey
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.primitives.sign import SigningKey
from sealcast.trust.certificates.certificate import PublicKeys
from sealcast.trust.keys.topic_keys import EntityKeys, open_entity_keys
from sealcast.trust.realm.state import RealmState
from sealcast.trust.statements import Author
from sealcast.trust.vault import keyfile

KIND: Final = "sealcast entity"
#: Where a key file has the receiving key, by its kind: one of the two.
_FIELDS: Final[Mapping[type[EntityKey], str]] = {HybridKey: "hybrid_private", KemKey: "x25519_private"}


class Identity(Unpicklable):
    """The private half of an entity."""

    __slots__ = ("kem", "key", "name", "signer")

    def __init__(self, name: str, signer: SigningKey, kem: EntityKey, key: p256.P256SigningKey) -> None:
        self.name = name
        #: Signs frames (Ed25519).
        self.signer = signer
        #: Opens what is sealed to this entity: hybrid, or X25519 where it was enrolled by an earlier release.
        self.kem = kem
        #: What its certificate is about (P-256): signs requests, renewals and whatever its role lets it sign.
        self.key = key

    @classmethod
    def generate(cls, name: str) -> Identity:
        return cls(name, SigningKey.generate(), HybridKey.generate(), p256.P256SigningKey.generate())

    @classmethod
    def load(cls, path: Path, name: str) -> Identity:
        """From the entity's file; the name in it must be the one asked for."""
        missing = NotFound(
            f"there are no keys of entity {name!r} here ({path} does not exist)",
            hint=f"enrol it (sealcast entity enrol {name}), or copy its key file from where it was enrolled",
        )
        found = cls.from_fields(keyfile.read(path, KIND, missing), path)
        if found.name != name:
            raise Misuse(f"{path} holds the keys of {found.name!r}, not of {name!r}")
        return found

    @classmethod
    def from_fields(cls, body: Mapping[str, Any], path: Path) -> Identity:
        """Out of a key file's body, an entity's own or of one of the realm's roles."""
        try:
            signer = SigningKey(Secret(bytes.fromhex(body["ed25519_seed"])))
            kem = _receiving(body)
            key = p256.P256SigningKey(Secret(bytes.fromhex(body["p256_private"])))
            return cls(str(body["entity"]), signer, kem, key)
        except (KeyError, ValueError, TypeError, Misuse):
            raise Corrupt(f"{path} does not hold an entity's keys", hint="restore it from a copy") from None

    def fields(self) -> dict[str, str]:
        """For a key file, and nothing else."""
        return {
            "entity": self.name,
            "ed25519_seed": self.signer.seed.reveal().hex(),
            _FIELDS[type(self.kem)]: self.kem.private.reveal().hex(),
            "p256_private": self.key.private.reveal().hex(),
        }

    def save(self, path: Path) -> None:
        keyfile.write(path, KIND, self.fields())

    @staticmethod
    def save_many(identities: Mapping[Path, Identity]) -> None:
        """`save` for each, for much less than each."""
        keyfile.write_many(KIND, {path: identity.fields() for path, identity in identities.items()})

    @property
    def author(self) -> Author:
        """This entity as the author of changes of the realm."""
        return Author(self.name, self.signer)

    @property
    def public_keys(self) -> PublicKeys:
        """What a certificate is about."""
        return PublicKeys(bytes(self.key.verify_key), bytes(self.signer.verify_key), self.kem.public)

    def topic_keys(self, state: RealmState, topic: str, epoch: int | None = None) -> EntityKeys:
        """Its keys for a topic (of the current epoch, unless another is named), opened with its own key."""
        about = state.topic(topic)
        epoch = about.epoch if epoch is None else epoch
        sealed = state.pair_key(topic, epoch, self.name)
        if sealed is None:
            raise NotFound(
                f"no key of topic {topic!r} (epoch {epoch}) was issued to entity {self.name!r}",
                hint=f"the administrator issues one with: sealcast grant {topic} {self.name} publish subscribe",
            )
        try:
            return open_entity_keys(self.kem, sealed, about.id, epoch, self.name)
        except CannotOpen:
            raise CannotOpen(
                f"the key of topic {topic!r} that was issued to {self.name!r} does not open with the keys in its file",
                hint="the file belongs to another enrolment of that name, or the registry was altered",
            ) from None

    def pair_key(self, state: RealmState, topic: str, epoch: int | None = None) -> Secret:
        """The one that it shares with brokers."""
        return self.topic_keys(state, topic, epoch).pair


def _receiving(body: Mapping[str, Any]) -> EntityKey:
    """KeyError or ValueError when there is none, or more than one."""
    found = [(kind, name) for kind, name in _FIELDS.items() if name in body]
    if len(found) != 1:
        raise ValueError("receiving keys")
    ((kind, name),) = found
    return kind(Secret(bytes.fromhex(body[name])))
