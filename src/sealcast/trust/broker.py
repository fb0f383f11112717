"""The trusted broker's secrets: one master secret, from which every pair key follows, and the key of its journals.

Only the pipeline and the administrator's commands load them; clients get their pair keys sealed, through the registry.
Pair keys are derived, not stored: a broker that restarts, or another one with the same file, has the same keys.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, Misuse, NotFound
from sealcast.primitives import hpke, kdf
from sealcast.primitives.hpke import KemKey
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.primitives.sign import SigningKey
from sealcast.trust import keyfile
from sealcast.trust.changes import PublishPairKey
from sealcast.trust.identity import PAIR_KEY_INFO, pair_key_place
from sealcast.trust.realm import Entity, Topic

KIND: Final = "sealcast broker"
_FIELDS: Final = ("master", "journal", "ed25519_seed", "x25519_private")


class BrokerSecrets(Unpicklable):
    """What the end-point broker of paper 000 is trusted with. It crosses no process boundary: load it where it is."""

    __slots__ = ("_journal", "kem", "master", "signer")

    def __init__(self, master: Secret, journal: Secret, signer: SigningKey, kem: KemKey) -> None:
        self.master = master
        self._journal = journal
        self.signer = signer
        self.kem = kem

    @classmethod
    def generate(cls) -> BrokerSecrets:
        return cls(Secret.random(), Secret.random(), SigningKey.generate(), KemKey.generate())

    @classmethod
    def load(cls, path: Path) -> BrokerSecrets:
        missing = NotFound(
            f"the broker's secrets are not here ({path} does not exist)",
            hint="run this where the realm was made, or copy the file there for the broker alone",
        )
        body = keyfile.read(path, KIND, missing)
        try:
            master, journal, seed, private = (Secret(bytes.fromhex(body[f])) for f in _FIELDS)
            return cls(master, journal, SigningKey.from_seed(seed), KemKey.from_private(private))
        except (KeyError, ValueError, TypeError, Misuse):
            raise Corrupt(f"{path} does not hold a broker's secrets", hint="restore it from a copy") from None

    def save(self, path: Path) -> None:
        secrets = (self.master, self._journal, self.signer.seed, self.kem.private)
        keyfile.write(path, KIND, {f: s.reveal().hex() for f, s in zip(_FIELDS, secrets, strict=True)})

    def pair_key(self, topic_id: bytes, epoch: int, entity: str) -> Secret:
        """The key that the broker and `entity` share for one topic and epoch."""
        return kdf.derive(self.master, b"pair", pair_key_place(topic_id, epoch, entity))

    def topic_secret(self, topic_id: bytes, epoch: int) -> Secret:
        """The root of a topic's content and group keys in one epoch."""
        return kdf.derive(self.master, b"topic", topic_id, epoch.to_bytes(8, "big"))

    def journal_key(self, topic_id: bytes) -> Secret:
        """Authenticates a topic's ledger and offset journal: who cannot forge it cannot rewrite what was delivered."""
        return kdf.derive(self._journal, b"journal", topic_id)

    def issue_pair_key(self, topic: Topic, entity: Entity) -> PublishPairKey:
        """The entity's pair key for the topic's current epoch, sealed to it alone: a change ready for the registry."""
        key = self.pair_key(topic.id, topic.epoch, entity.name)
        place = pair_key_place(topic.id, topic.epoch, entity.name)
        sealed = hpke.seal(entity.kem_public, key.reveal(), PAIR_KEY_INFO, place)
        return PublishPairKey(topic.name, topic.epoch, entity.name, sealed)
