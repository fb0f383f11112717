"""The rules of a realm, as a pure state machine: no clock, no file, no key.

    RealmState --change--> RealmState        or a refusal, and nothing has changed

`Fold` applies many changes at the price of the changes; `apply` is one step of it. What a state answers stands in
`state` and `topics`; what may happen to it stands in `rules`, a function for each kind of change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from sealcast.model.names import NAME
from sealcast.trust.realm import changes
from sealcast.trust.realm.changes import Change
from sealcast.trust.realm.rules import carriers, entities, filter_keys, homes, overlays, subscriptions, topics
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
    changes.FoundRealm: entities.believe,
    changes.AppointAdministrator: entities.appoint_administrator,
    changes.AddAuthority: entities.believe,
    changes.EnrolEntity: entities.enrol,
    changes.RenewCertificate: entities.renew_certificate,
    changes.RevokeCertificates: entities.revoke_certificates,
    changes.RevokeEntity: entities.revoke_entity,
    changes.CreateTopic: topics.create_topic,
    changes.AlterTopic: topics.alter_topic,
    changes.DeleteTopic: topics.delete_topic,
    changes.RotateTopic: topics.rotate_topic,
    changes.ForgetEpochs: topics.forget_epochs,
    changes.PublishTopicKey: topics.publish_topic_key,
    changes.PublishPairKey: topics.publish_pair_key,
    changes.Grant: subscriptions.change_rights,
    changes.Revoke: subscriptions.change_rights,
    changes.HandFilterKey: filter_keys.hand_filter_key,
    changes.AddSubscription: subscriptions.add_subscription,
    changes.RenewSubscription: subscriptions.renew_subscription,
    changes.RemoveSubscription: subscriptions.remove_subscription,
    changes.AttachSubscriber: homes.attach_subscriber,
    changes.SettleSubscriber: homes.settle_subscriber,
    changes.BeginIncarnation: topics.begin_incarnation,
    changes.AnnounceReceivingKey: topics.announce_receiving_key,
    changes.PlaceNode: overlays.place_node,
    changes.RemoveNode: overlays.remove_node,
    changes.PlaceSubscriber: overlays.place_subscriber,
    changes.AnnounceLayerKey: overlays.announce_layer_key,
    changes.AnnouncePeer: entities.announce_peer,
    changes.AnnounceGateway: entities.announce_gateway,
    changes.AddCarrier: carriers.add_carrier,
    changes.CarryTopic: carriers.carry_topic,
    changes.CarryJournal: carriers.carry_journal,
    changes.LeaveCarrier: carriers.leave_carrier,
    changes.ReturnTopic: carriers.return_topic,
}


class Fold(Draft):
    """A state in the making. A refused change leaves it as it was."""

    def apply(self, change: Change) -> None:
        RULES[type(change)](self, change)
        self.version += 1


def apply(state: RealmState, change: Change) -> RealmState:
    """The state after one change, or a refusal."""
    return apply_all(state, (change,))


def apply_all(state: RealmState, made: Iterable[Change]) -> RealmState:
    """The state after all of them, or a refusal of all."""
    fold = Fold(state)
    for change in made:
        fold.apply(change)
    return fold.state()
