"""The key server of `attribute` topics: rules that a key center has beside its own (`control.center.rules`).

A request passes the center's checks first: who asks is enrolled (2), may do what it asks for now (8 to 10), and has
answered its challenge (11). Then

    15 protection    the topic is protected in another way: it has no such keys
    16 epoch         of an epoch that is neither the topic's nor the one before it, or in which one had no right
    17 form          the filter is none of the schema, labels cannot express it, or its keys would fit no answer
    18 subscription  the id was given to somebody else, or more are asked for than one may have
    19 quota         one has asked for keys of more labels than the center has time for

The master secret of a topic is made of a seed that follows from the center's own secret, as topic keys are. So whoever
runs a center from a copy of its file issues keys that fit those of the others. Every key is of one epoch. Who may not
subscribe any more gets none in the next, and the next begins at once (`Issuer.rekeying`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from sealcast.control.bodies import Body
from sealcast.control.budgets import Allowance, Budgets
from sealcast.control.center import requests
from sealcast.control.center.rules import CenterDecision, CenterReason, Rule, Rules, no, rule
from sealcast.control.desk import MAX_SUBSCRIPTIONS_EACH
from sealcast.control.service import Answer
from sealcast.errors import FilterRejected
from sealcast.filters.check import fit
from sealcast.filters.parse import parse
from sealcast.model.protection import OWN_FILTER
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.attribute.asking import (
    EndSubscribing,
    Publishing,
    Subscribing,
    WantPublishing,
    WantSubscribing,
)
from sealcast.protections.attribute.connecting import Connecting, TreeLabel, WantConnecting, made_places
from sealcast.protections.attribute.credentials import EventSpace, WantedLabels
from sealcast.protections.attribute.scheme import MasterSecret, PlacedLabel, PublicParameters
from sealcast.protections.attribute.settings import event_space, is_attribute, settings_of
from sealcast.trust.keys import minting
from sealcast.trust.realm.changes import EVERYTHING, AddSubscription, RemoveSubscription, Right
from sealcast.trust.realm.state import Entity, RealmState
from sealcast.trust.realm.templates import Template
from sealcast.trust.realm.topics import FIRST_EPOCH, Topic
from sealcast.wire import cbor
from sealcast.wire.attribute import Profile, TagKind

#: Labels of one subscription, over all of its alternatives: a key has some 250 bytes for each, and answers are bounded.
MAX_KEY_LABELS: Final = 3_072
_EVERYTHING: Final = Template.parse(EVERYTHING)
#: Labels that one entity may ask keys for: a key takes a third of a millisecond for each. At once, it gets those of
#: more filters than most have; in the long run a third of the center's time.
LABEL_ALLOWANCE: Final = Allowance(per_second=1_000, burst=65_536)
#: Topics whose master secrets are kept ready: making one takes some hundred multiplications.
_READY: Final = 16


class CredentialIssuer(Unpicklable):
    """One center's rules on keys for credentials."""

    def __init__(self, center: Rules) -> None:
        self._center = center
        self._master = lru_cache(_READY)(self._made)
        self._labels = Budgets(LABEL_ALLOWANCE)
        #: What was charged last: a request that changes the registry is decided twice, and charged once.
        self._charged: object = None

    def rules(self) -> Iterable[tuple[str, Rule]]:
        return (
            rule(WantPublishing, self.publishing),
            rule(WantSubscribing, self.subscribing),
            rule(EndSubscribing, self.ending),
            rule(WantConnecting, self.connecting),
        )

    # --- what is asked ----------------------------------------------------------------------------------------------

    def publishing(self, wanted: WantPublishing, who: Entity, state: RealmState, now_us: int) -> CenterDecision:
        about = self._topic(wanted.topic, Right.PUBLISH, who, state, now_us)
        challenge = self._center.challenged(about, who, now_us)
        if challenge is not None:
            return challenge
        about = _in_epoch(wanted.epoch, about, who, state)
        master, public = self._master(about)
        key = master.publisher_key(wanted.epoch, admitted_labels(about, Right.PUBLISH, who, state))
        made = Publishing(wanted.epoch, public.to_bytes(), key.to_bytes())
        return CenterDecision(Answer(Publishing.KIND, made.to_bytes()))

    def subscribing(self, wanted: WantSubscribing, who: Entity, state: RealmState, now_us: int) -> CenterDecision:
        about = self._topic(wanted.topic, Right.SUBSCRIBE, who, state, now_us)
        challenge = self._center.challenged(about, who, now_us)
        if challenge is not None:
            return challenge
        about = _in_epoch(wanted.epoch, about, who, state)
        alternatives = wanted_labels(wanted.filter, about, _template(about, Right.SUBSCRIBE, who, state))
        add = self._registration(wanted, about, who, state, now_us)
        self._charge(who, wanted, sum(len(each) for labels in alternatives for each in labels.values()), now_us)
        master, public = self._master(about)
        space = event_space(about)
        keys = tuple(master.subscription_key(wanted.epoch, placed(space, labels)).to_bytes() for labels in alternatives)
        made = Subscribing(wanted.id, wanted.epoch, public.to_bytes(), keys)
        return CenterDecision(Answer(Subscribing.KIND, made.to_bytes()), add)

    def ending(self, wanted: EndSubscribing, who: Entity, state: RealmState, now_us: int) -> CenterDecision:
        """Also by who may not subscribe any more. What is over already is not ended twice."""
        live = [id for id in wanted.ids if state.subscription_topics.get(id) is not None]
        for id in live:
            there = state.subscription(id)
            if (there.topic, there.subscriber) != (wanted.topic, who.name):
                # (18)
                raise no(CenterReason.SUBSCRIPTION, f"{who.name!r} has no subscription {id!r} on {wanted.topic!r}")
        done = cbor.encode([state.version + len(live)])
        return CenterDecision(Answer(requests.DONE, done), tuple(map(RemoveSubscription, live)))

    def connecting(self, wanted: WantConnecting, who: Entity, state: RealmState, now_us: int) -> CenterDecision:
        subscribes = state.may_subscribe(wanted.topic, who.name, now_us)
        about = self._topic(wanted.topic, Right.SUBSCRIBE if subscribes else Right.PUBLISH, who, state, now_us)
        challenge = self._center.challenged(about, who, now_us)
        if challenge is not None:
            return challenge
        about = _in_epoch(wanted.epoch, about, who, state)
        master, public = self._master(about)
        space = event_space(about)
        if subscribes:
            _check_places(wanted.places, space, admitted_labels(about, Right.SUBSCRIBE, who, state), who.name)
        self._charge(who, wanted, len(wanted.places), now_us)
        places = made_places(master, space, wanted.epoch, wanted.places, who.name if subscribes else None)
        made = Connecting(wanted.epoch, public.to_bytes(), places)
        return CenterDecision(Answer(Connecting.KIND, made.to_bytes()))

    def _charge(self, who: Entity, wanted: Body, labels: int, now_us: int) -> None:
        """A key takes multiplications for each label: nobody's requests may take all of the center's time."""
        # (19)
        if self._charged == (who.name, wanted, now_us):
            return
        verdict = self._labels.spend(who.name, now_us, max(1, labels))
        if not verdict.admitted:
            wait = (verdict.retry_at_us - now_us) / 1e6
            raise no(
                CenterReason.QUOTA,
                f"{who.name!r} has asked for keys of too many labels",
                f"ask again in {wait:.0f} s, or for less: wider ranges and fewer alternatives have fewer labels",
            )
        self._charged = (who.name, wanted, now_us)

    # --- the checks -------------------------------------------------------------------------------------------------

    def _topic(self, name: str, right: Right, who: Entity, state: RealmState, now_us: int) -> Topic:
        about = self._center.authorised(name, right, who, state, now_us)
        # (15)
        if not is_attribute(about):
            raise no(
                CenterReason.PROTECTION, f"topic {name!r} is protected by `{about.protection}`: it has no such keys"
            )
        return about

    def _registration(
        self, wanted: WantSubscribing, about: Topic, who: Entity, state: RealmState, now_us: int
    ) -> tuple[AddSubscription, ...]:
        """What registers the subscription; nothing where it is registered already."""
        # (18)
        if wanted.id in state.subscription_topics:
            topic = state.subscription_topics[wanted.id]
            if topic != about.name or state.subscription(wanted.id).subscriber != who.name:
                raise no(
                    CenterReason.SUBSCRIPTION,
                    f"subscription id {wanted.id!r} was given before",
                    "ids are never given twice: choose another",
                )
            return ()
        if sum(each.subscriber == who.name for each in state.subscriptions_of(about.name)) >= MAX_SUBSCRIPTIONS_EACH:
            raise no(
                CenterReason.SUBSCRIPTION,
                f"{who.name!r} has {MAX_SUBSCRIPTIONS_EACH} subscriptions on topic {about.name!r}, which is all it may",
                "join some of them by OR, or end some",
            )
        token = minting.credential_for(self._center.secrets, state, about.name, who.name, now_us)
        return (AddSubscription(wanted.id, about.name, who.name, OWN_FILTER, token),)

    def _made(self, about: Topic) -> tuple[MasterSecret, PublicParameters]:
        settings, seed = settings_of(about), self._center.secrets.master_seed(about)
        master = MasterSecret(Profile(settings.profile), TagKind[settings.tags.upper()], seed)
        return master, master.public()


def rules(center: Rules) -> Iterable[tuple[str, Rule]]:
    """For `control.center.rules.Rules`."""
    return CredentialIssuer(center).rules()


def admitted_labels(about: Topic, right: Right, who: Entity, state: RealmState) -> WantedLabels:
    """The labels that hold everything which an entity's right is for: by default the roots, else its template's."""
    space, template = event_space(about), _template(about, right, who, state)
    return space.everything if template.every_event else space.advertisement(template.condition(about.schema))


def _template(about: Topic, right: Right, who: Entity, state: RealmState) -> Template:
    return Template.parse(state.terms_of(about.name, who.name)[right].template)


def wanted_labels(text: str, about: Topic, template: Template = _EVERYTHING) -> tuple[WantedLabels, ...]:
    """A filter as the labels that keys are for, an alternative each: of what it asks for and the template admits.
    FilterRejected for what cannot be one."""
    # (17)
    condition = template.within(fit(parse(text), about.schema), about.schema)
    found = event_space(about).subscriptions(condition)
    labels = sum(len(each) for wanted in found for each in wanted.values())
    if labels > MAX_KEY_LABELS:
        raise FilterRejected(
            "limit",
            f"the filter takes keys for {labels} labels, and {MAX_KEY_LABELS} are allowed",
            at=condition.at,
            hint="wider ranges and fewer alternatives have fewer labels; or make several subscriptions of it",
        )
    return found


def _check_places(places: Iterable[TreeLabel], space: EventSpace, allowed: WantedLabels, name: str) -> None:
    """Places are for labels that one's right admits. A root tells which requests there are, and nothing of them."""
    for attribute, label in places:
        about = space.spaces.get(attribute)
        if about is not None and label != about.root and not {*about.path(label)} & {*allowed[attribute]}:
            raise no(CenterReason.RIGHT, f"{name!r} has no right to such a label of {attribute!r}")


def placed(space: EventSpace, wanted: WantedLabels) -> dict[str, list[PlacedLabel]]:
    """Labels with the positions at which events have them."""
    return {
        name: [PlacedLabel(space.position(name, label), label) for label in labels] for name, labels in wanted.items()
    }


def _in_epoch(epoch: int, about: Topic, who: Entity, state: RealmState) -> Topic:
    """The topic with the schema that keys of an epoch are for."""
    # (16) of the epoch before, for what is still on its way: who had a right then
    current = epoch == about.epoch
    before = epoch == about.epoch - 1 and epoch >= max(FIRST_EPOCH, about.center_since)
    if not current and not (before and state.pair_key(about.name, epoch, who.name) is not None):
        raise no(
            CenterReason.EPOCH,
            f"topic {about.name!r} is in epoch {about.epoch}: {who.name!r} gets no keys of epoch {epoch}",
            "ask for those of this epoch",
        )
    return about.in_epoch(epoch)
