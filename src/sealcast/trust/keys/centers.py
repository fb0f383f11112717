"""A key center's secrets: its own keys, and the one secret from which the key of every topic it manages follows.

Topic keys are derived, not stored: a center that restarts, or is restored from a copy of its file, has the same keys,
also those of epochs long past. What it decides is for `key_center`; here is what it needs to be able to.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, Misuse, NotFound
from sealcast.primitives import kdf
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.topic_keys import TopicKeys
from sealcast.trust.layout import FIRST_CENTER
from sealcast.trust.realm.topics import Topic
from sealcast.trust.vault import keyfile

KIND: Final = "sealcast key center"


class CenterSecrets(Unpicklable):
    """What a key center is trusted with: whoever has it can read its topics and let anyone in."""

    __slots__ = ("_master", "identity")

    def __init__(self, identity: Identity, master: Secret) -> None:
        self.identity = identity
        self._master = master

    @property
    def name(self) -> str:
        return self.identity.name

    @classmethod
    def generate(cls, name: str = FIRST_CENTER) -> CenterSecrets:
        return cls(Identity.generate(name), Secret.random())

    @classmethod
    def load(cls, path: Path) -> CenterSecrets:
        missing = NotFound(
            f"the key center's secrets are not here ({path} does not exist)",
            hint="run this where the realm was made, or ask the center over its topic",
        )
        body = keyfile.read(path, KIND, missing)
        try:
            return cls(Identity.from_fields(body, path), Secret(bytes.fromhex(body["master"])))
        except (KeyError, ValueError, TypeError, Misuse):
            raise Corrupt(f"{path} does not hold a key center's secrets", hint="restore it from a copy") from None

    def save(self, path: Path) -> None:
        keyfile.write(path, KIND, {**self.identity.fields(), "master": self._master.reveal().hex()})

    def topic_keys(self, topic: Topic, epoch: int | None = None) -> TopicKeys:
        """The keys of one of its topics in an epoch (the current one, unless another is named)."""
        if topic.center != self.name:
            raise Misuse(f"topic {topic.name!r} is managed by center {topic.center!r}, not by {self.name!r}")
        epoch = topic.epoch if epoch is None else epoch
        if epoch < topic.center_since:
            raise Misuse(
                f"the key of topic {topic.name!r} in epoch {epoch} was another center's: "
                f"{self.name!r} manages the topic since epoch {topic.center_since}"
            )
        key = kdf.derive(self._master, b"topic key", topic.id, epoch.to_bytes(8, "big"))
        content = kdf.derive(self._master, b"content key", topic.id, epoch.to_bytes(8, "big"))
        return TopicKeys(topic.id, epoch, key, content)
