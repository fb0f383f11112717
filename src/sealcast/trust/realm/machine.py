"""The rules of a realm, as a pure state machine: no clock, no file, no key.

    RealmState --change--> RealmState        or a refusal, and nothing has changed

`Fold` applies many changes at the price of the changes; `apply` is one step of it. What a state answers stands in
`state` and `topics`; what may happen to it stands in `rules`, a function for each kind of change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from sealcast.model.names import NAME
from sealcast.trust.realm.changes import (
    AddAuthority,
    AddSubscription,
    AnnounceLayerKey,
    AttachSubscriber,
    Change,
    CreateTopic,
    EnrolEntity,
    FoundRealm,
    Grant,
    PlaceNode,
    PlaceSubscriber,
    PublishPairKey,
    PublishTopicKey,
    RemoveNode,
    RemoveSubscription,
    RenewCertificate,
    RenewSubscription,
    Revoke,
    RevokeCertificates,
    RevokeEntity,
    RotateTopic,
    SettleSubscriber,
)
from sealcast.trust.realm.rules import entities, homes, overlays, subscriptions, topics
from sealcast.trust.realm.rules.draft import Draft
from sealcast.trust.realm.rules.entities import KEY_BYTES
from sealcast.trust.realm.rules.topics import MAX_PARTITIONS, MAX_SEALED_KEY_BYTES, TOPIC_ID_BYTES
from sealcast.trust.realm.state import EMPTY, Entity, RealmState
from sealcast.trust.realm.topics import FIRST_EPOCH, Term, Topic, TopicState

__all__ = [
    "EMPTY",
    "FIRST_EPOCH",
    "KEY_BYTES",
    "MAX_PARTITIONS",
    "MAX_SEALED_KEY_BYTES",
    "NAME",
    "TOPIC_ID_BYTES",
    "Entity",
    "Fold",
    "RealmState",
    "Term",
    "Topic",
    "TopicState",
    "apply",
    "apply_all",
]

#: One rule for each kind of change: it refuses and has changed nothing, or writes.
RULES: Final[Mapping[type[Change], Callable[[Draft, Any], None]]] = {
    FoundRealm: entities.believe,
    AddAuthority: entities.believe,
    EnrolEntity: entities.enrol,
    RenewCertificate: entities.renew_certificate,
    RevokeCertificates: entities.revoke_certificates,
    RevokeEntity: entities.revoke_entity,
    CreateTopic: topics.create_topic,
    RotateTopic: topics.rotate_topic,
    PublishTopicKey: topics.publish_topic_key,
    PublishPairKey: topics.publish_pair_key,
    Grant: subscriptions.change_rights,
    Revoke: subscriptions.change_rights,
    AddSubscription: subscriptions.add_subscription,
    RenewSubscription: subscriptions.renew_subscription,
    RemoveSubscription: subscriptions.remove_subscription,
    AttachSubscriber: homes.attach_subscriber,
    SettleSubscriber: homes.settle_subscriber,
    PlaceNode: overlays.place_node,
    RemoveNode: overlays.remove_node,
    PlaceSubscriber: overlays.place_subscriber,
    AnnounceLayerKey: overlays.announce_layer_key,
}


class Fold(Draft):
    """A state in the making. A refused change leaves it as it was."""

    def apply(self, change: Change) -> None:
        RULES[type(change)](self, change)
        self.version += 1


def apply(state: RealmState, change: Change) -> RealmState:
    """The state after one change, or a refusal."""
    return apply_all(state, (change,))


def apply_all(state: RealmState, changes: Iterable[Change]) -> RealmState:
    """The state after all of them, or a refusal of all."""
    fold = Fold(state)
    for change in changes:
        fold.apply(change)
    return fold.state()
