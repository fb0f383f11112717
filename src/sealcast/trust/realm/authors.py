"""Who may state what: for each kind of change, those whose signature makes it count. Pure: no key, no signature.

    ADMINISTRATOR   the holder of the key that the realm's root appointed
    CENTER          the key center of the topic that the change is about; of a new topic, the one that it names
    SUBJECT         whom the change is about: a subscriber, a participant, a peer, a broker that begins to seal
    BROKER          any broker that was not revoked: what its desk takes in, it states for whom it came from

Keys are stated by their center and by nobody else, not even by the administrator. `statements` verifies signatures; the
table below says what they are good for.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from sealcast.trust.realm import changes
from sealcast.trust.realm.changes import Change
from sealcast.trust.realm.rules.draft import Draft

#: How the administrator is called as an author. No entity can have such a name.
ADMINISTRATOR: Final = "the administrator"


class Voice(Enum):
    """Who somebody is to a change."""

    ADMINISTRATOR = auto()
    CENTER = auto()
    SUBJECT = auto()
    BROKER = auto()


_RULES_THE_REALM: Final = (Voice.ADMINISTRATOR,)
_RULES_THE_TOPIC: Final = (Voice.ADMINISTRATOR, Voice.CENTER)
_MAKES_ITS_KEYS: Final = (Voice.CENTER,)
_TAKES_IT_IN: Final = (Voice.ADMINISTRATOR, Voice.BROKER)
_WANTS_IT: Final = (Voice.ADMINISTRATOR, Voice.SUBJECT, Voice.BROKER)
_OWN_AFFAIR: Final = (Voice.ADMINISTRATOR, Voice.SUBJECT)

#: Whoever is listed may state that kind of change by itself.
MAY_STATE: Final[Mapping[type[Change], tuple[Voice, ...]]] = {
    changes.FoundRealm: _RULES_THE_REALM,
    changes.AppointAdministrator: _RULES_THE_REALM,
    changes.AddAuthority: _RULES_THE_REALM,
    changes.EnrolEntity: _RULES_THE_REALM,
    changes.RenewCertificate: _RULES_THE_REALM,
    changes.RevokeCertificates: _RULES_THE_REALM,
    changes.RevokeEntity: _RULES_THE_REALM,
    changes.CreateTopic: _RULES_THE_TOPIC,
    changes.AlterTopic: _RULES_THE_TOPIC,
    changes.RotateTopic: _RULES_THE_TOPIC,
    # It cannot be undone, and a center that was stolen should not be able to.
    changes.DeleteTopic: _RULES_THE_REALM,
    changes.ForgetEpochs: _RULES_THE_REALM,
    # What a run seals depends on it: a broker's own word, and no other's.
    changes.BeginIncarnation: (Voice.SUBJECT,),
    # Whoever could state it could read the topic's next epochs.
    changes.AnnounceReceivingKey: (Voice.SUBJECT,),
    changes.PublishTopicKey: _MAKES_ITS_KEYS,
    changes.PublishPairKey: _MAKES_ITS_KEYS,
    changes.Grant: _RULES_THE_TOPIC,
    changes.Revoke: _RULES_THE_TOPIC,
    # Who takes in a token has verified it: not its holder.
    changes.AddSubscription: _TAKES_IT_IN,
    changes.HandFilterKey: _TAKES_IT_IN,
    changes.RenewSubscription: (*_TAKES_IT_IN, Voice.CENTER),
    changes.RemoveSubscription: _WANTS_IT,
    changes.AttachSubscriber: _WANTS_IT,
    changes.SettleSubscriber: _WANTS_IT,
    changes.PlaceNode: _RULES_THE_TOPIC,
    changes.RemoveNode: _RULES_THE_TOPIC,
    # Whoever takes a right away takes the place away with it.
    changes.PlaceSubscriber: (*_OWN_AFFAIR, Voice.CENTER),
    changes.AnnounceLayerKey: _OWN_AFFAIR,
    changes.AnnouncePeer: _OWN_AFFAIR,
    changes.AnnounceGateway: _OWN_AFFAIR,
    # Whoever could state it could have everybody's frames appended where nobody looks.
    changes.AddCarrier: _RULES_THE_REALM,
    changes.CarryTopic: _RULES_THE_REALM,
    changes.CarryJournal: _RULES_THE_REALM,
    changes.LeaveCarrier: _RULES_THE_REALM,
    changes.ReturnTopic: _RULES_THE_REALM,
}


class Voices(NamedTuple):
    """Whose word one change needs: that of one of these, or that of any broker if brokers may."""

    names: tuple[str, ...]
    brokers: bool


_THE_ADMINISTRATOR: Final = Voices((ADMINISTRATOR,), brokers=False)


def voices(draft: Draft, change: Change) -> Voices:
    """By name, the widest voice first. Asked after the change was applied."""
    who = MAY_STATE[type(change)]
    if isinstance(change, changes.RotateTopic) and draft.topic(change.topic).center_since == change.epoch:
        # No center takes a topic away from another.
        who = _RULES_THE_REALM
    if who is _RULES_THE_REALM:
        return _THE_ADMINISTRATOR
    names = [ADMINISTRATOR] if Voice.ADMINISTRATOR in who else []
    if Voice.SUBJECT in who:
        names.append(_subject(draft, change))
    if Voice.CENTER in who:
        names.append(draft.topic(_topic(draft, change)).center)
    brokers = Voice.BROKER in who
    # Of all brokers, those whom the change names: somebody at hand is asked first.
    return Voices((*names, *_brokers(draft, change)) if brokers else tuple(names), brokers)


def _topic(draft: Draft, change: Any) -> str:
    match change:
        case changes.CreateTopic():
            return change.name
        case changes.RenewSubscription():
            return draft.subscription(change.ids[0]).topic
    topic: str = change.topic
    return topic


def _subject(draft: Draft, change: Any) -> str:
    match change:
        case changes.RemoveSubscription():
            return draft.ended.read[change.id]
        case changes.AnnounceLayerKey() | changes.AnnouncePeer():
            return change.entity
        case changes.BeginIncarnation() | changes.AnnounceReceivingKey() | changes.AnnounceGateway():
            return change.broker
    subscriber: str = change.subscriber
    return subscriber


def _brokers(draft: Draft, change: Change) -> tuple[str, ...]:
    match change:
        case changes.AttachSubscriber():
            return (change.broker,)
        case changes.SettleSubscriber():
            stays = draft.tables(change.topic).stays.read.get(change.subscriber, ())
            return tuple(stay.broker for stay in stays[-2:])
    return ()
