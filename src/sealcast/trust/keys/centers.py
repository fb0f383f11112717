"""A key center's secrets: its own keys, and the one secret from which the key of every topic it manages follows.

Topic keys are derived, not stored: a center that restarts, or is restored from a copy of its file, has the same keys,
also those of epochs long past. What it decides is for `key_center`; here is what it needs to be able to.
"""

from __future__ import annotations

from sealcast.errors import Misuse
from sealcast.primitives import kdf
from sealcast.primitives.secrets import Secret
from sealcast.trust.keys.holder import HolderSecrets
from sealcast.trust.keys.topic_keys import TopicKeys
from sealcast.trust.realm.topics import Topic


class CenterSecrets(HolderSecrets):
    """What a key center is trusted with: whoever has it can read its topics and let anyone in."""

    __slots__ = ()

    KIND = "sealcast key center"
    FIELD = "master"
    CALLED = "key center"
    ELSEWHERE = "run this where the realm was made, or ask the center over its topic"

    def topic_keys(self, topic: Topic, epoch: int | None = None) -> TopicKeys:
        """The keys of one of its topics in an epoch (the current one, unless another is named)."""
        self._check_own(topic)
        epoch = topic.epoch if epoch is None else epoch
        if epoch < topic.center_since:
            raise Misuse(
                f"the key of topic {topic.name!r} in epoch {epoch} was another center's: "
                f"{self.name!r} manages the topic since epoch {topic.center_since}"
            )
        key = kdf.derive(self._secret, b"topic key", topic.id, epoch.to_bytes(8, "big"))
        content = kdf.derive(self._secret, b"content key", topic.id, epoch.to_bytes(8, "big"))
        return TopicKeys(topic.id, epoch, key, content)

    def master_seed(self, topic: Topic) -> Secret:
        """What the master secret of a topic is made from whose events are opened by credentials. It is one for all
        epochs of the topic that are this center's: each credential names its epoch."""
        self._check_own(topic)
        return kdf.derive(self._secret, b"master seed", topic.id)

    def _check_own(self, topic: Topic) -> None:
        if topic.center != self.name:
            raise Misuse(f"topic {topic.name!r} is managed by center {topic.center!r}, not by {self.name!r}")
