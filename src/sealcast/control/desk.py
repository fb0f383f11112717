"""The broker's desk: where a subscription is asked for, with the token that lets one (paper 004, sections 4.7, 4.8.4).

    desk/subscribe     [topic, filter, id, token]      -> desk/done      [version]
    desk/renew         [topic, [id, ...], token]       -> desk/done      [version]
    desk/unsubscribe   [[id, ...]]                     -> desk/done      [version]
    desk/topics        [after a name, or ""], by a broker
                                                       -> desk/topics    [[[name, id, center, epoch], ...], more]
    desk/frames        what became of one's frames (`standings`)

Who asks was proven by the envelope; whether it may is proven by its token, at the same gate that frames pass. A request
with a bad token, or with none, gets an error back with the reason, and nothing has changed. A filter is parsed, typed
and priced before it is stored. Where brokers read filters, the desk seals it to those that serve the topic, and to its
owner. The subscription is the subscriber's: nobody else renews or ends it. All of it can be asked twice and is done
once. What else a broker is asked (keys, say) is added by who knows of it: `more`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from sealcast.control.bodies import MAX_NAME, MAX_NAMES, Body, Name, Names, binary, natural, rows, text, that
from sealcast.control.budgets import Allowance
from sealcast.control.discovery.advertisements import What
from sealcast.control.discovery.restrictions import EVERYONE, Restrictions
from sealcast.control.envelopes import ProvenMessage
from sealcast.control.service import Answer, Service
from sealcast.control.serving import AtHand, listening, settle
from sealcast.control.standings import AskFrames, FrameStandings
from sealcast.errors import CannotOpen, FrameRejected, ReasonedRejection
from sealcast.model.protection import MAX_FILTER_EPOCHS, MAX_SEALED_FILTER_CHARACTERS
from sealcast.model.subscription import Subscription
from sealcast.primitives.secrets import Unpicklable
from sealcast.trust import vetting
from sealcast.trust.certificates.certificate import Certificate, Role
from sealcast.trust.handles import OpenRealm
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.filter_texts import BrokerFilters, FilterSealer
from sealcast.trust.realm.changes import (
    AddSubscription,
    Change,
    Credential,
    RemoveSubscription,
    RenewSubscription,
    Right,
)
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic
from sealcast.trust.tokens import gates
from sealcast.trust.tokens.token import VerifiedTokens
from sealcast.wire import cbor
from sealcast.wire.limits import MAX_EPOCH
from sealcast.wire.searching import SealedFilter

DONE: Final = "desk/done"

#: Live subscriptions that one entity can have on one topic by asking for them.
MAX_SUBSCRIPTIONS_EACH: Final = 4_096
#: Epochs of a topic whose filters are sealed in which one entity can have as many: what is over is ended by its owner.
MAX_EPOCHS_EACH: Final = MAX_FILTER_EPOCHS
#: The characters of all their filters, as the registry has them. A sealed label has 115, and costs a broker a
#: multiplication in every new table: so these are 290,000 labels, or a quarter of a minute. Without it, one entity
#: could ask for an hour.
MAX_CHARACTERS_EACH: Final = 32 << 20
#: Subscriptions named in one request, and topics in one answer.
MAX_IDS: Final = MAX_NAMES
#: A reader with little memory asks for keys again and again; who answers that has a budget of its own for it.
ALLOWANCE: Final = Allowance(per_second=50, burst=500)


class DeskReason(StrEnum):
    """Why a desk says no, beside the reasons of the token's own checks and of the filter's."""

    FORM = "form"
    SENDER = "sender"
    TAKEN = "taken"
    QUOTA = "quota"
    SUBSCRIPTION = "subscription"
    ROLE = "role"


class DeskRejected(ReasonedRejection[DeskReason]):
    """A request that a broker's desk refuses."""

    code = "desk"


# --- requests -----------------------------------------------------------------------------------------

#: The longest of any protection; whose filters are shorter refuses longer ones by itself (`vetting`).
FilterText = Annotated[str, that(lambda value: isinstance(value, str) and len(value) <= MAX_SEALED_FILTER_CHARACTERS)]
NameOrNone = Annotated[str, that(lambda value: isinstance(value, str) and len(value.encode()) <= MAX_NAME)]
Flag = Annotated[bool, that(lambda value: isinstance(value, bool))]
TokenBytes = Annotated[bytes, that(lambda value: isinstance(value, bytes))]


_TOPICS: Final = rows(MAX_IDS, text(MAX_NAME), binary(16, 16), text(MAX_NAME), natural(MAX_EPOCH))


@dataclass(frozen=True, slots=True)
class Subscribe(Body):
    """The id is the subscriber's choice, so that asking twice is asking once."""

    KIND = "desk/subscribe"
    topic: Name
    filter: FilterText
    id: Name
    token: TokenBytes


@dataclass(frozen=True, slots=True)
class Renew(Body):
    """A later token for subscriptions that one has."""

    KIND = "desk/renew"
    MAX_ITEMS = MAX_IDS + 16
    topic: Name
    ids: Names
    token: TokenBytes


@dataclass(frozen=True, slots=True)
class Unsubscribe(Body):
    """The end of subscriptions that one has, all of them or none."""

    KIND = "desk/unsubscribe"
    MAX_ITEMS = MAX_IDS + 16
    ids: Names


@dataclass(frozen=True, slots=True)
class ListTopics(Body):
    """The secure topics, in pages: those after a name, or from the first."""

    KIND = "desk/topics"
    after: NameOrNone = ""


@dataclass(frozen=True, slots=True)
class Topics(Body):
    """A page of secure topics, each with its name, id, key center and epoch; and whether there are more."""

    KIND = "desk/topics"
    MAX_DEPTH = 3
    MAX_ITEMS = 8 * MAX_IDS
    page: Annotated[tuple[tuple[str, bytes, str, int], ...], _TOPICS]
    more: Flag


# --- rules --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeskDecision:
    """What is to change, and what to say."""

    answer: Answer
    changes: tuple[Change, ...] = ()


_BODIES: Final[Mapping[str, type[Subscribe | Renew | Unsubscribe | ListTopics]]] = {
    each.KIND: each for each in (Subscribe, Renew, Unsubscribe, ListTopics)
}


def decide(
    kind: str,
    body: bytes,
    sender: Certificate,
    state: RealmState,
    now_us: int,
    tokens: VerifiedTokens,
    broker: BrokerSecrets,
) -> DeskDecision:
    """What a desk does about a proven request: DeskRejected, TokenRejected or FilterRejected when it is nothing."""
    who = state.entities.get(sender.name)
    if who is None or who.revoked or (who.verify_key, who.kem_public) != (sender.verify_key, sender.kem_public):
        raise _no(DeskReason.SENDER, f"{sender.name!r} is not enrolled in this realm, with these keys")
    try:
        wanted = _BODIES[kind].from_bytes(body)
    except FrameRejected as error:
        raise _no(DeskReason.FORM, error.message) from None
    match wanted:
        case Subscribe():
            return _subscribe(wanted, sender, state, now_us, tokens, broker)
        case Renew():
            return _renew(wanted, sender, state, now_us, tokens)
        case Unsubscribe():
            return _unsubscribe(wanted, sender, state)
        case ListTopics():
            return _topics(wanted, sender, state)


def _subscribe(
    wanted: Subscribe,
    sender: Certificate,
    state: RealmState,
    now_us: int,
    tokens: VerifiedTokens,
    broker: BrokerSecrets,
) -> DeskDecision:
    about, credential = _let_in(wanted.topic, wanted.token, sender, state, now_us, tokens)
    if wanted.id in state.subscription_topics:
        if not _is(wanted, sender.name, state, broker):
            raise _no(DeskReason.TAKEN, f"subscription id {wanted.id!r} was given before", "ids are never given twice")
        return DeskDecision(_done(state.version))
    vetting.vet_filter(about, wanted.filter, vetting.filter_epochs(about))
    found = state.topic_state(about.name)
    own = [each.filter for each in found.subscriptions.values() if each.subscriber == sender.name]
    # A sealed filter is registered in several epochs, each by itself.
    if about.protection.filters_sealed:
        epoch = SealedFilter.epoch_in(wanted.filter)
        counted = [text for text in own if SealedFilter.epoch_in(text) == epoch]
    else:
        counted = own
    if len(counted) >= MAX_SUBSCRIPTIONS_EACH or len(own) >= MAX_EPOCHS_EACH * MAX_SUBSCRIPTIONS_EACH:
        raise _no(
            DeskReason.QUOTA,
            f"{sender.name!r} has {MAX_SUBSCRIPTIONS_EACH} subscriptions on topic {about.name!r}, which is all it may",
            "join some of them by OR, or end some",
        )
    made = Subscription(wanted.id, about.name, sender.name, wanted.filter)
    keys: Sequence[Change] = ()
    if about.protection.brokers_read:
        sealer, keys = FilterSealer.at_desk(state, about.name, broker)
        made = made._replace(filter=sealer.seal(made))
    if sum(map(len, counted)) + len(made.filter) > MAX_CHARACTERS_EACH:
        raise _no(
            DeskReason.QUOTA,
            f"the filters of {sender.name!r} on topic {about.name!r} would have more than {MAX_CHARACTERS_EACH} "
            "characters, which is all they may",
            "end some, or ask for less: wider ranges and fewer alternatives have fewer labels",
        )
    add = AddSubscription(made.id, made.topic, made.subscriber, made.filter, credential)
    return DeskDecision(_done(state.version + len(keys) + 1), (*keys, add))


def _renew(wanted: Renew, sender: Certificate, state: RealmState, now_us: int, tokens: VerifiedTokens) -> DeskDecision:
    about, credential = _let_in(wanted.topic, wanted.token, sender, state, now_us, tokens)
    for id in wanted.ids:
        if state.subscription_topics.get(id) != about.name or not _own(id, sender.name, state):
            raise _no_subscription(id, sender.name)
    known = state.credentials_of(about.name)
    if all(known.get(id) == credential for id in wanted.ids):
        return DeskDecision(_done(state.version))
    return DeskDecision(_done(state.version + 1), (RenewSubscription(wanted.ids, credential),))


def _unsubscribe(wanted: Unsubscribe, sender: Certificate, state: RealmState) -> DeskDecision:
    # Asked twice, ended once. Whether somebody else's ended is nobody's business: that is like one that never was.
    live = [id for id in wanted.ids if state.ended_subscriptions.get(id) != sender.name]
    for id in live:
        if not _own(id, sender.name, state):
            raise _no_subscription(id, sender.name)
    return DeskDecision(_done(state.version + len(live)), tuple(map(RemoveSubscription, live)))


def _topics(wanted: ListTopics, sender: Certificate, state: RealmState) -> DeskDecision:
    """The secure topics, for a broker that has just come."""
    if Role.BROKER not in sender.roles:
        raise _no(DeskReason.ROLE, "the list of secure topics is for brokers")
    names = sorted(name for name in state.topics if name > wanted.after)
    page = (state.topic(name) for name in names[:MAX_IDS])
    listed = tuple((topic.name, topic.id, topic.center, topic.epoch) for topic in page)
    return DeskDecision(Answer(Topics.KIND, Topics(listed, len(names) > MAX_IDS).to_bytes()))


def _let_in(
    topic: str, token: bytes, sender: Certificate, state: RealmState, now_us: int, tokens: VerifiedTokens
) -> tuple[Topic, Credential]:
    """The topic and what the token says, if it lets the sender subscribe there now: TokenRejected otherwise."""
    found, gate = state.topics.get(topic), gates.gate_of(state, tokens)
    if found is None:
        raise gate.refusal(token, topic)
    passed = gate.verify(token, found.topic, now_us, Right.SUBSCRIBE, sender.verify_key, holder=sender.name)
    return found.topic, gates.credential(token, passed)


def _is(wanted: Subscribe, subscriber: str, state: RealmState, broker: BrokerSecrets) -> bool:
    """Whether that id is this very subscription, asked for once more. A filter that this broker cannot open is another
    one."""
    topic = state.subscription_topics[wanted.id]
    if topic != wanted.topic:
        return False
    there = state.topics[topic].subscriptions[wanted.id]
    if there.subscriber != subscriber:
        return False
    with suppress(CannotOpen):
        there = there._replace(filter=BrokerFilters(broker).text(state, there))
    return there.filter == wanted.filter


def _own(id: str, subscriber: str, state: RealmState) -> bool:
    topic = state.subscription_topics.get(id)
    return topic is not None and state.topics[topic].subscriptions[id].subscriber == subscriber


# --- the desk at work ---------------------------------------------------------------------------------

More = Mapping[str, Callable[[ProvenMessage, int], Answer]]
#: What a broker of that name is asked besides.
MoreOf = Callable[[str], More]


class Desk(Unpicklable):
    """Answers for one broker. It is a `service.Handler`."""

    def __init__(self, realm: OpenRealm, broker: BrokerSecrets, more: More | None = None) -> None:
        """The broker states what its desk takes in, and seals filters."""
        self._realm, self._broker = realm, broker
        self._more = {AskFrames.KIND: FrameStandings(realm, broker).answer, **(more or {})}
        self._tokens = VerifiedTokens()

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(_BODIES) | frozenset(self._more)

    def handle(self, request: ProvenMessage, now_us: int, /) -> Answer:
        message = request.message
        if message.kind in self._more:
            return self._more[message.kind](request, now_us)

        def decided(state: RealmState) -> DeskDecision:
            return decide(message.kind, message.body, request.sender, state, now_us, self._tokens, self._broker)

        return settle(self._realm, decided, self._broker.identity.author).answer


def desk_service(
    realm: OpenRealm,
    broker: BrokerSecrets,
    *,
    more: More | None = None,
    advertised: bool = True,
    restrictions: Restrictions = EVERYONE,
) -> tuple[Service, Desk]:
    """A broker's desk and its service, ready to `start`; `more` are kinds of request that others answer."""
    desk = Desk(realm, broker, more)
    found_by = restrictions if advertised else None
    return listening(realm, What.BROKER, broker.identity, desk, found_by, senders=ALLOWANCE), desk


def desk_here(realm: OpenRealm, broker: str, more: MoreOf | None = None, *, advertised: bool = False) -> Service | None:
    """The desk of the broker of that name, where its keys are at hand."""
    path = realm.paths.broker_key_of(broker)
    if not path.exists():
        return None
    besides = None if more is None else more(broker)
    return desk_service(realm, BrokerSecrets.load(path), more=besides, advertised=advertised)[0]


def desks_at_hand(realm: OpenRealm, more: MoreOf | None = None) -> AtHand:
    """For a `Correspondent`: the desks of all brokers whose keys are on this machine, and no key center. None in a
    realm that does not let clients use them."""
    return lambda what, name: desk_here(realm, name, more) if what is What.BROKER and realm.at_hand else None


# --- answers ---------------------------------------------------------------------------------------


def _done(version: int) -> Answer:
    return Answer(DONE, cbor.encode([version]))


def _no_subscription(id: str, subscriber: str) -> DeskRejected:
    return _no(DeskReason.SUBSCRIPTION, f"{subscriber!r} has no subscription {id!r}")


def _no(reason: DeskReason, message: str, hint: str | None = None) -> DeskRejected:
    return DeskRejected(reason, message, hint=hint)
