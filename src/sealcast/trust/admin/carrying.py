"""Carriers of a realm, and the topics that they keep: how topics come to a carrier, and from there to another one or
back to the directory."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final, NamedTuple

from sealcast.errors import Misuse, Unavailable
from sealcast.log.carried import CarriedLog
from sealcast.log.carriers import CarrierAddress, CarrierPartition, Placement
from sealcast.log.driver_lock import kept_from_running
from sealcast.log.embedded import FrameLog
from sealcast.log.port import SharedLog
from sealcast.trust.admin.handle import Handle
from sealcast.trust.admin.leaving import has_landed, leave_carrier
from sealcast.trust.admin.moving_journals import clear_directory, move_journal
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.changes import AddCarrier, CarryTopic
from sealcast.trust.realm.rules.carriers import EMBEDDED
from sealcast.trust.realm.state import Carried, CarriedName
from sealcast.trust.realm.topics import Topic

#: What is copied at a time.
_BYTES_AT_ONCE: Final = 4 << 20


class Carrying(NamedTuple):
    """What became of a topic that was moved."""

    #: What it is called where it is; `embedded` in the realm's directory.
    name: str
    #: Frames that were copied, over all partitions.
    copied: int
    version: int
    #: What had to stay where the topic was, because others have records in it.
    left: tuple[str, ...] = ()


def add_carrier(realm: Handle, name: str, address: str) -> str:
    """Names a carrier, or says that it is reached at another address; the address as it is stored."""
    realm.registry.apply(AddCarrier(name, str(CarrierAddress.parse(address))))
    return realm.state().carrier(name)


def move_topic(
    realm: Handle,
    topic: str,
    carrier: str,
    *,
    broker: str | None = None,
    name: str | None = None,
    replicas: int = 1,
    in_sync: int = 1,
) -> Carrying:
    """Moves all that a broker has of a topic to a carrier, or to the directory (`embedded`), while nobody runs the
    topic; everything keeps its number. Of a topic with an overlay, unless one broker is named: of every broker in it.

    What is on another carrier comes back to the directory first (`leaving`). From there:

    1. nobody appends to the directory any more: who tries is told to try again
    2. the frames are copied
    3. the registry says where they are
    4. ledger, notes on it and sealed pieces are copied, the registry says where they are, and the directory's are
       removed (`moving_journals`)
    Should it be cut short, do it again: what was copied before is passed over. A topic whose frames were moved by a
    release before ledgers could be is moved on from 4.
    """
    state = realm.state()
    about, placement = state.topic(topic), Placement(state.topic(topic).partitions, replicas, in_sync)
    if about.protection.peers:
        raise Misuse(
            f"no broker has anything of topic {topic!r} that a carrier could keep: publishers and subscribers carry it",
            hint="choose a protection with brokers for what is to be on a carrier: sealcast topic create --protection",
        )
    if broker is not None or not about.protection.overlay:
        return _move_part(realm, about, broker or FIRST_BROKER, carrier, name, placement)
    nodes = state.overlay(topic).downwards()
    called = EMBEDDED if carrier == EMBEDDED else name or f"{realm.name}.{topic}"
    away = next((node for node in nodes if not realm.paths.broker_key_of(node).exists()), None)
    if away is not None:
        raise Misuse(
            f"broker {away!r} of topic {topic!r} is on another machine",
            hint=f"move the part of each broker where it is: sealcast topic move {topic} --broker {away}",
        )
    others = [node for node in nodes if _place(realm, topic, node) != carrier]
    if not others:
        raise _is_there(topic, carrier)
    moved = [_move_part(realm, about, node, carrier, f"{called}.{node}", placement) for node in others]
    left = tuple(each for part in moved for each in part.left)
    return Carrying(called, sum(each.copied for each in moved), realm.state().version, left)


def _place(realm: Handle, topic: str, broker: str) -> str | None:
    """The carrier that has all that a broker has of a topic, or `embedded`; None while something is on its way."""
    state, at = realm.state(), (topic, broker)
    if at in state.leaving or has_landed(realm, topic, broker) or (at in state.carried) != (at in state.journals):
        return None
    return state.journals[at].carrier if at in state.journals else EMBEDDED


def _is_there(topic: str, carrier: str) -> Misuse:
    where = "in the realm's directory" if carrier == EMBEDDED else f"on carrier {carrier!r}"
    return Misuse(f"topic {topic!r} is {where} already", hint="sealcast carrier list")


def follow_overlay(realm: Handle, topic: str, broker: str) -> None:
    """Gives a broker that came into an overlay its place where all the others have theirs, if that is a carrier."""
    state = realm.state()
    if (topic, broker) in state.journals or not realm.paths.broker_key_of(broker).exists():
        return
    others = [node for node in state.overlay(topic).parents if node != broker]
    places = [state.journals.get((topic, node)) for node in others]
    if others and None not in places and len({place.carrier for place in places if place is not None}) == 1:
        beside = next(place for place in places if place is not None)
        like = realm.carriers.carrier(state, beside.carrier).placement(beside.name)
        _move_part(realm, state.topic(topic), broker, beside.carrier, None, like)


def _move_part(
    realm: Handle, about: Topic, broker: str, carrier: str, name: str | None, placement: Placement
) -> Carrying:
    """What one broker has of a topic."""
    topic, paths, left = about.name, realm.paths.topic(about.name, broker), list[str]()
    if carrier != EMBEDDED:
        realm.state().carrier(carrier)  # says what is wrong, before anything is moved
    place, half = _place(realm, topic, broker), _half_moved(realm, topic, broker)
    if place == carrier:
        if carrier != EMBEDDED:
            clear_directory(realm, about, broker)  # should it have been cut short after the registry said so
        raise _is_there(topic, carrier)
    if place != EMBEDDED and (half is None or half.carrier != carrier):
        came, left = leave_carrier(realm, about, broker)
        if carrier == EMBEDDED:
            return Carrying(EMBEDDED, came, realm.state().version, tuple(left))
    with ExitStack() as held:
        held.enter_context(kept_from_running(paths.ledger))
        if about.protection.overlay:
            held.enter_context(kept_from_running(paths.hops.ledger))
        if half is None:
            called = name or ".".join([realm.name, topic, *([] if broker == FIRST_BROKER else [broker])])
            copied = _move_frames(realm, about, broker, carrier, called, placement)
        else:
            called, copied = half.name, 0
        move_journal(realm, about, broker, CarriedName(carrier, called), placement)
    return Carrying(called, copied, realm.state().version, tuple(left))


def _half_moved(realm: Handle, topic: str, broker: str) -> Carried | None:
    """Where frames are that are on a carrier while their ledger is not: a release before ledgers could be moved left
    them so, or a move to a carrier that was cut short."""
    state = realm.state()
    return None if (topic, broker) in state.journals else state.carried.get((topic, broker))


def _move_frames(realm: Handle, about: Topic, broker: str, carrier: str, called: str, placement: Placement) -> int:
    """Steps 1 to 3; how many frames were copied."""
    there = realm.carriers.carrier(realm.state(), carrier)
    found = there.partitions(called)
    if found is None:
        there.create(called, placement)
    elif found < about.partitions:
        raise Misuse(f"{called!r} has {found} partitions there, and the topic has {about.partitions}")
    there.check(called)
    with realm.frames(about.name, broker) as log:
        sources = [log.partition(number) for number in log.own]
        for source in sources:
            if isinstance(source, FrameLog):
                source.retire(f"{carrier}/{called}")
        targets = [there.partition(called, number) for number in range(about.partitions)]
        positions = tuple(target.bounds()[1] for target in targets)
        numbers = tuple(source.start() for source in sources)
        copied = sum(map(_copy, sources, targets, positions))
        for target in targets:
            target.close()
        realm.registry.apply(CarryTopic(about.name, broker, carrier, called, positions, numbers))
    return copied


def _copy(source: SharedLog, target: CarrierPartition, position: int) -> int:
    """Every frame of a partition, in order; refuses if somebody else writes to the target meanwhile."""
    start, end = source.start(), source.end()
    at, log = start, CarriedLog(target, position, start)
    while at < end:
        some = [record.data for record in source.read(at, end, _BYTES_AT_ONCE)]
        if log.append(some) != list(range(at, at + len(some))):
            raise Unavailable(
                f"somebody else writes to {target.shown}: the frames would not keep their numbers",
                hint="let nobody else write there, then move the topic again",
            )
        at += len(some)
    return end - start
