"""The client side of `payload`: publishers seal events for readers, brokers match attributes, readers open."""

from __future__ import annotations

from typing import Final

from sealcast.protections.enveloped.client import EnvelopedSide, EnvelopedWay
from sealcast.protections.payload.open import PayloadOpener
from sealcast.protections.payload.publish import PayloadSealer
from sealcast.protections.port import ClientSide
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.topic_keys import ContentKey, EntityKeys
from sealcast.trust.realm.topics import Topic


class PayloadWay(EnvelopedWay):
    def sealer(self, about: Topic, epoch: int, keys: EntityKeys, content: ContentKey) -> PayloadSealer:
        return PayloadSealer(about, epoch, content.of_publisher(self._identity.name))


class PayloadClient(EnvelopedSide):
    opener = PayloadOpener

    def way(self, realm: EntityRealm, topic: str, identity: Identity, broker: str) -> PayloadWay:
        return PayloadWay(topic, identity, broker)


_SIDE: Final = PayloadClient()
CLIENT: Final[ClientSide] = _SIDE
opener_for = _SIDE.opener_for
