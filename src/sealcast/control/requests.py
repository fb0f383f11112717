"""What an entity asks for by itself: a topic owner of its key center, a subscriber of its broker.

Each function is one request over a control topic, signed by who asks and answered by whoever decides. A refusal is
ServiceRefused, in the words and with the reason of the one who refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from sealcast.control.bodies import number_in
from sealcast.control.center import requests
from sealcast.control.center.requests import Authorise, Deauthorise, Register, Rotate
from sealcast.control.correspondence import Correspondent, strange
from sealcast.control.desk import DeskReason, Renew, Subscribe, Unsubscribe
from sealcast.control.envelopes import ProvenMessage
from sealcast.control.service import ServiceRefused
from sealcast.control.wallet import Wallet
from sealcast.errors import FrameRejected, NotFound
from sealcast.model.schema import Schema
from sealcast.model.subscription import Subscription
from sealcast.trust.certificates.roles import Role
from sealcast.trust.layout import FIRST_CENTER
from sealcast.trust.realm.changes import EVERYTHING, Access, Right
from sealcast.trust.realm.state import RealmState

# --- a topic's owner ----------------------------------------------------------------------------------


def register_topic(
    owner: Correspondent,
    name: str,
    schema: Schema,
    *,
    center: str = FIRST_CENTER,
    partitions: int = 1,
    access: Access | str = Access.GRANTED,
    parameters: Mapping[str, object] | None = None,
) -> int:
    """Make a topic secure, under a key center; its first epoch. The center refuses parameters by their names."""
    wanted = Register(
        name, os.urandom(requests.REGISTER_NONCE_BYTES), schema, partitions, str(access), parameters or {}
    )
    return _number(owner.ask_center(center, Register.KIND, wanted.to_bytes()))


def authorise(
    owner: Correspondent,
    center: str,
    topic: str,
    entity: str,
    rights: Iterable[Right],
    *,
    not_before_us: int = 0,
    until_us: int | None = None,
    template: str = EVERYTHING,
) -> int:
    """Rights for an entity on one's own topic; the realm's version from which on it has them."""
    wanted = Authorise(topic, entity, frozenset(rights), not_before_us, until_us, template)
    return _seen(owner, owner.ask_center(center, Authorise.KIND, wanted.to_bytes()))


def deauthorise(owner: Correspondent, center: str, topic: str, entity: str, rights: Iterable[Right]) -> int:
    """Takes rights on one's own topic away; the realm's version from which on they are gone."""
    wanted = Deauthorise(topic, entity, frozenset(rights))
    return _seen(owner, owner.ask_center(center, Deauthorise.KIND, wanted.to_bytes()))


def rotate(owner: Correspondent, center: str, topic: str, epoch: int) -> int:
    """Ends an epoch of one's own topic; the epoch that it is in then."""
    return _number(owner.ask_center(center, Rotate.KIND, Rotate(topic, epoch).to_bytes()))


# --- a subscriber -------------------------------------------------------------------------------------


def subscribe(
    wallet: Wallet, topic: str, filter: str, id: str | None = None, *, broker: str | None = None
) -> Subscription:
    """A subscription, by one's token; without an id it gets the subscriber's name and a number."""
    state = wallet.realm.state()
    token = wallet.get(topic, Right.SUBSCRIBE).token
    broker = broker or serving_broker(state, topic)
    number = 0
    while True:
        chosen = id
        while chosen is None or (id is None and chosen in state.subscription_topics):
            number += 1
            chosen = f"{wallet.name}-{number}"
        try:
            wanted = Subscribe(topic, filter, chosen, token)
            _seen(wallet.correspondent, wallet.correspondent.ask_broker(broker, Subscribe.KIND, wanted.to_bytes()))
            return Subscription(chosen, topic, wallet.name, filter)
        except ServiceRefused as refusal:
            # Someone took that number meanwhile: the next one will do, unless it was asked for by name.
            state = wallet.realm.state()
            if id is not None or refusal.reason != DeskReason.TAKEN or chosen not in state.subscription_topics:
                raise


def renew_subscriptions(wallet: Wallet, topic: str, ids: Iterable[str], *, broker: str | None = None) -> int:
    """A later token for subscriptions of one's own; the realm's version from which on they live by it."""
    token = wallet.get(topic, Right.SUBSCRIBE).token
    broker = broker or serving_broker(wallet.realm.state(), topic)
    wanted = Renew(topic, tuple(ids), token)
    return _seen(wallet.correspondent, wallet.correspondent.ask_broker(broker, Renew.KIND, wanted.to_bytes()))


def unsubscribe(asker: Correspondent, broker: str, ids: Iterable[str]) -> int:
    """Ends subscriptions of one's own, all or none; the realm's version from which on they are gone."""
    return _seen(asker, asker.ask_broker(broker, Unsubscribe.KIND, Unsubscribe(tuple(ids)).to_bytes()))


def serving_broker(state: RealmState, topic: str) -> str:
    """A broker that has the topic's key of today."""
    about = state.topic(topic)
    for broker in state.holders(Role.BROKER):
        if state.topic_key(topic, about.epoch, broker.name) is not None:
            return broker.name
    raise NotFound(f"no broker serves topic {topic!r}", hint=f"let one: sealcast topic serve {topic} BROKER")


def _seen(asker: Correspondent, reply: ProvenMessage) -> int:
    """The version that an answer names, once whoever asked has come to it, too: it reads what it has brought about."""
    version = _number(reply)
    asker.come_to(version)
    return version


def _number(reply: ProvenMessage) -> int:
    try:
        return number_in(reply.message.body, reply.message.kind)
    except FrameRejected:
        raise strange(reply) from None
