"""A trusted broker's secrets: its own keys, by which it is handed the keys of the topics it serves, and its journals'.

Only the pipeline loads them. The broker makes no topic key and can make none: it opens what a topic's center sealed to
it (`PublishTopicKey`), so that it knows the topics it serves, in the epochs it serves them, and no other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from sealcast.errors import CannotOpen, Misuse, NotFound
from sealcast.log.annals import JournalKey
from sealcast.primitives import kdf
from sealcast.primitives.secrets import KEY_BYTES, Secret
from sealcast.trust.keys.holder import HolderSecrets
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.receiving import ReceivingKeys
from sealcast.trust.keys.topic_keys import NUMBER_BYTES, TOPIC_KEY_INFO, TopicKeys, place, received_by
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic


class BrokerSecrets(HolderSecrets):
    """What the end-point broker of paper 000 is trusted with."""

    __slots__ = ("_receiving",)

    KIND = "sealcast broker"
    FIELD = "journal"
    CALLED = "broker"
    ELSEWHERE = "run this where the realm was made, or copy the file there for the broker alone"

    def __init__(self, identity: Identity, secret: Secret) -> None:
        super().__init__(identity, secret)
        self._receiving: ReceivingKeys | None = None

    @classmethod
    def load(cls, path: Path) -> Self:
        found = super().load(path)
        found._receiving = ReceivingKeys(path, found.name)
        return found

    @property
    def receiving(self) -> ReceivingKeys:
        """The keys by which it is handed keys that it forgets one day; they lie beside its key file."""
        if self._receiving is None:
            raise Misuse("a broker's receiving keys lie beside its key file: load its secrets from there")
        return self._receiving

    def topic_keys(self, state: RealmState, topic: Topic, epoch: int | None = None) -> TopicKeys:
        """The keys of a topic in an epoch (the current one, unless another is named), if they were handed to it."""
        epoch = topic.epoch if epoch is None else epoch
        sealed = state.topic_key(topic.name, epoch, self.name)
        if sealed is None:
            raise NotFound(
                f"broker {self.name!r} was not handed the key of topic {topic.name!r} in epoch {epoch}",
                hint=f"the topic's center hands it over: sealcast topic serve {topic.name} {self.name}",
            )
        at, number = place(topic.id, epoch, self.name), received_by(sealed)
        try:
            if number is None:
                opened = self.identity.kem.open(sealed, TOPIC_KEY_INFO, at)
            else:
                key = self.receiving.own(topic, number)
                opened = key.open(sealed[NUMBER_BYTES:], TOPIC_KEY_INFO, sealed[:NUMBER_BYTES] + at)
        except CannotOpen:
            raise CannotOpen(
                f"the key of topic {topic.name!r} that was handed to broker {self.name!r} does not open with its keys",
                hint="its key file is another broker's of that name, or the registry was altered",
            ) from None
        if len(opened) != KEY_BYTES:
            raise CannotOpen(f"the key of topic {topic.name!r} that was handed to {self.name!r} has the wrong size")
        return TopicKeys(topic.id, epoch, Secret(opened))

    def tables_key(self, topic_id: bytes) -> Secret:
        """Seals what this broker keeps of a topic's filters in the topic's directory."""
        return kdf.derive(self._secret, b"tables", topic_id)

    def journal_key(self, topic_id: bytes) -> JournalKey:
        """Authenticates a topic's ledger and offset journal: who cannot forge it cannot rewrite what was delivered."""
        return JournalKey(kdf.derive(self._secret, b"journal", topic_id), self.identity.signer, topic_id)
