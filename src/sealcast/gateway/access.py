"""Who may have what. A pure table over the state of the realm: no file, no clock, no connection.

    log of frames          how far it goes: who has a right on the topic, and brokers; appending: the publisher itself
    ledger and reseals     who has or had a place among the topic's readers at all; brokers; the topic's center
    a piece                whom it concerns: by slot, by name on a layered topic, by reader for a replay; brokers
    notes on replays       nobody: they name other readers and what they asked for
    posts, a cursor, notes on suspension     their own subject
    a consumer group       its reader, where the realm is
    a control topic        posting: whoever knows its 128 bits; reading and dropping: who made it
    frames to be forwarded brokers, of their own block; how far they came: brokers that serve the topic
    a broker's things      from the gateway of the machine that they are on, and from no other

Whoever has no place at a topic learns nothing of it here, not even that it is busy. Filters and rights are in the
registry, whose whole signed history every enrolled entity gets: it cannot be verified in parts.
"""

from __future__ import annotations

from sealcast.gateway.callers import Caller
from sealcast.gateway.problems import Refusal, forbidden
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic

#: The parts of a topic's directory at a broker that are served.
MAIL, HOPS, REPLAYS = "mail", "hops", "replays"


def topic_at(state: RealmState, topic: str, broker: str) -> Topic:
    """A topic at one of its brokers; NotFound when there is no such thing."""
    about = state.topic(topic)
    state.broker_number(broker)
    return about


def be_here(state: RealmState, broker: str, gateway: str, *, home: bool) -> None:
    """A broker's things are served where they are: by the gateway that it announced, else by those where the realm is.
    What was appended anywhere else would be lost."""
    announced = state.gateways.get(broker)
    if (None if announced is None else announced.gateway) != (gateway if home else None):
        raise Refusal(
            421,
            "elsewhere",
            f"broker {broker!r} is not on this machine",
            hint="read the registry: it says which gateway has the broker's things",
            reason="elsewhere",
        )


def be_realms(*, home: bool) -> None:
    """The registry is written, newcomers are enrolled and requests are carried where the realm is."""
    if home:
        raise Refusal(
            421,
            "elsewhere",
            "this gateway has the things of a broker, and no others",
            hint="ask the gateway that the realm was joined through",
            reason="elsewhere",
        )


def look_at_frames(state: RealmState, caller: Caller, topic: str) -> None:
    """Asks how far a log of frames goes."""
    if not caller.is_broker and not state.rights_of(topic, caller.name) and not reads(state, caller, topic):
        raise forbidden(f"{caller.name!r} has no right on topic {topic!r}")


def reads(state: RealmState, caller: Caller, topic: str) -> bool:
    """Whether somebody reads the topic, or ever did: what was sealed for it then is still its own."""
    if state.slot_of(topic, caller.name) is not None or state.may_subscribe(topic, caller.name):
        return True
    overlay = state.overlay(topic)
    return caller.name in overlay.places or caller.name in overlay.left or caller.name in overlay.parents


def read_journal(state: RealmState, caller: Caller, topic: str, part: str) -> None:
    """Reads a ledger, or the notes on what was resealed."""
    if part == REPLAYS:
        raise forbidden("notes on replays name other readers: ask the broker for a replay of your own")
    if not caller.is_broker and state.topic(topic).center != caller.name and not reads(state, caller, topic):
        raise forbidden(
            f"{caller.name!r} is no reader of topic {topic!r}",
            hint=f"subscribe first: sealcast subscription add {topic} --as {caller.name} --filter ...",
        )


def be(caller: Caller, name: str, what: str) -> None:
    """Does something in its own name."""
    if caller.name != name:
        raise forbidden(f"{what} is {name!r}'s own, and {caller.name!r} asks")


def be_broker(caller: Caller) -> None:
    if not caller.is_broker:
        raise forbidden("this is for brokers")
