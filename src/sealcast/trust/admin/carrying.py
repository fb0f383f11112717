"""Carriers of a realm, and the topics whose frames they keep."""

from __future__ import annotations

from typing import Final, NamedTuple

from sealcast.errors import Misuse, Unavailable
from sealcast.log.carried import CarriedLog
from sealcast.log.carriers import CarrierAddress, CarrierPartition, Placement
from sealcast.log.embedded import FrameLog
from sealcast.log.ledger import kept_from_running
from sealcast.log.port import SharedLog
from sealcast.trust.admin.handle import Handle
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.changes import AddCarrier, CarryTopic

#: What is copied at a time.
_BYTES_AT_ONCE: Final = 4 << 20


class Carrying(NamedTuple):
    """What became of a topic that was moved."""

    name: str
    #: Frames that were copied, over all partitions.
    copied: int
    version: int


def add_carrier(realm: Handle, name: str, address: str) -> str:
    """Names a carrier, or says that it is reached at another address; the address as it is stored."""
    realm.registry.apply(AddCarrier(name, str(CarrierAddress.parse(address))))
    return realm.state().carrier(name)


def move_topic(
    realm: Handle,
    topic: str,
    carrier: str,
    *,
    broker: str = FIRST_BROKER,
    name: str | None = None,
    replicas: int = 1,
    in_sync: int = 1,
) -> Carrying:
    """Moves a broker's frames of a topic to a carrier, while nobody runs the topic; frames keep their numbers.

    1. nobody appends to the directory any more: who tries is told to try again
    2. the frames are copied
    3. the registry says where they are
    Should it be cut short, do it again: what was copied before is passed over.
    """
    state = realm.state()
    about, paths = state.topic(topic), realm.paths.topic(topic, broker)
    if (topic, broker) in state.carried:
        raise Misuse(f"topic {topic!r} is on carrier {state.carried[topic, broker].carrier!r} already")
    there = realm.carriers.carrier(state, carrier)
    called = name or ".".join([realm.name, topic, *([] if broker == FIRST_BROKER else [broker])])
    found = there.partitions(called)
    if found is None:
        there.create(called, Placement(about.partitions, replicas, in_sync))
    elif found < about.partitions:
        raise Misuse(f"{called!r} has {found} partitions there, and the topic has {about.partitions}")
    there.check(called)
    with kept_from_running(paths.ledger), realm.frames(topic, broker) as log:
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
        version = realm.registry.apply(CarryTopic(topic, broker, carrier, called, positions, numbers))
    return Carrying(called, copied, version)


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
