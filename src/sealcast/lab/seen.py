"""What each party has of one event: as bytes, as what it can read of them, and what a search of its bytes finds.

The event is published, carried and opened under a protection in a realm of its own, which is gone afterwards. Nothing
is imagined: brokers' bytes are read from their logs and pieces, opened with the keys that each of them holds, and
searched for the event's own words. What a party learns beyond its bytes, `explain` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from sealcast.broker.opening import open_frames
from sealcast.broker.rulings import received_of
from sealcast.clients.publisher import Publisher
from sealcast.clients.realm import Realm
from sealcast.clients.subscriber import Subscriber
from sealcast.lab import scratch
from sealcast.lab.turning import turn
from sealcast.log.offsets import AS_STAMPED
from sealcast.log.port import Record
from sealcast.model.event import Event, OpenedEvent
from sealcast.model.protection import Protection
from sealcast.model.schema import Schema, value_to_json
from sealcast.model.stages import Ruled
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.port import Explanation, witness_side
from sealcast.protections.steps import StepName
from sealcast.trust.keys.filter_texts import BrokerFilters
from sealcast.trust.realm.state import RealmState

TOPIC: Final = "sample"
PUBLISHER: Final = "publisher"
#: One whose filter is given, and one whose filter the event does not match.
READER: Final = "reader"
OTHER: Final = "outsider"
_NEED_BYTES: Final = 64 << 20
#: Shorter words occur by chance.
SHORTEST: Final = 3
#: A thief of the disk has everything but private keys, which are sealed under a lock that is elsewhere.
_LOCKED: Final = frozenset({"secrets", "entities"})


class HeldBytes(NamedTuple):
    """Bytes that a party has."""

    what: str
    data: bytes


@dataclass(frozen=True, slots=True)
class SeenBy:
    """One party, and what it has of the event."""

    who: str
    #: publisher, broker, peer, subscriber or thief.
    role: str
    held: Sequence[HeldBytes] = ()
    #: What it reads of attributes, by name; None for one that cannot tell.
    attributes: Mapping[str, object] | None = None
    #: What it has in the payload's place, if it can tell where that is.
    payload: bytes | None = None
    #: The reader's filter, as it reads it.
    filter: str | None = None
    #: Words of the event that are in its bytes as they are, by what they are.
    found: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SeenByAll:
    """One event under one protection."""

    protection: Protection
    #: What was looked for, by what it is.
    words: Mapping[str, bytes]
    parties: Sequence[SeenBy]
    told: Explanation


def seen(protection: Protection, schema: Schema, event: Event, filter: str, unmatched: str | None) -> SeenByAll:
    """Publishes one event to a reader with that filter, and to another one whose filter it does not match.

    Rejected for an event or a filter that a topic of that schema and protection cannot have.
    """
    words = words_of(event, filter)
    with scratch.realm(_NEED_BYTES) as made:
        realm = Realm(made.paths.root)
        realm.enrol_many([PUBLISHER, READER, OTHER])
        realm.create_topic(TOPIC, schema, protection=protection, access="members")
        realm.subscribe(TOPIC, READER, filter)
        if unmatched is not None:
            realm.subscribe(TOPIC, OTHER, unmatched)
        with Publisher(realm, TOPIC, as_=PUBLISHER) as publisher:
            publisher.publish([event])
        carried = _carry(realm, protection)
        state = realm.state()
        parties = [_publisher(schema, event), *_carriers(realm, state, words, carried)]
        parties.append(_subscriber(realm, READER, filter))
        parties.append(SeenBy(OTHER, "subscriber") if unmatched is None else _subscriber(realm, OTHER))
        parties.append(_thief(realm, words))
        return SeenByAll(protection, words, parties, witness_side(protection).explain(state, TOPIC))


def words_of(event: Event, filter: str) -> dict[str, bytes]:
    """What to look for. Numbers are left out: a few bytes of them are in any file."""
    words = {name: value.encode() for name, value in event.attributes.items() if isinstance(value, str)}
    words |= {"payload": event.payload, "filter": filter.encode()}
    return {name: word for name, word in words.items() if len(word) >= SHORTEST}


def _carry(realm: Realm, protection: Protection) -> list[HeldBytes]:
    """By whoever carries events of the topic; what peers handed on to peers elsewhere."""
    if not protection.peers:
        turn(realm, TOPIC)
        return []
    from sealcast.protections.attribute.carry import PeerCarrier
    from sealcast.wire.carried import CarriedEvent

    carried = list[CarriedEvent]()
    with PeerCarrier(realm, [TOPIC], onward=lambda topic, events: carried.extend(events)) as carrier:
        carrier.once()
    return [HeldBytes("what it carries on", each.to_bytes()) for each in carried]


# --- the parties ------------------------------------------------------------------------------------------


def _publisher(schema: Schema, event: Event) -> SeenBy:
    shown = {name: value_to_json(value) for name, value in schema.parse(event.attributes).items() if value is not None}
    return SeenBy(PUBLISHER, "publisher", (), shown, event.payload)


def _carriers(
    realm: Realm, state: RealmState, words: Mapping[str, bytes], carried: Sequence[HeldBytes]
) -> Iterator[SeenBy]:
    """Everyone through whose hands it went: brokers, or peers."""
    if carried:
        yield _with(words, SeenBy("any peer on the way", "peer", carried))
    for broker in state.brokers():
        paths = realm.paths.topic(TOPIC, broker)
        records = list(_frames(realm, broker)) if paths.frames_root.is_dir() else []
        pieces = [HeldBytes("what it hands on", path.read_bytes()) for path in sorted(paths.root.rglob("*.piece"))]
        if not records and not pieces:
            continue
        held = [HeldBytes("the frame, as it came", record.data) for _, record in records]
        yield _with(words, _opened(realm, state, broker, records, [*held, *pieces]))


def _frames(realm: Realm, broker: str) -> Iterator[tuple[int, Record]]:
    with realm.frames(TOPIC, broker, read_only=True) as log:
        for partition in range(log.partitions):
            yield from ((partition, record) for record in log.partition(partition).read(0))


def _opened(
    realm: Realm, state: RealmState, broker: str, records: Sequence[tuple[int, Record]], held: list[HeldBytes]
) -> SeenBy:
    """A broker opens frames that are sealed to it, with its own key; what it finds is what its steps work on."""
    attributes, payload, text = None, None, None
    for partition, record in records:
        step = FramesStep.of(StepName(str(realm.paths.root), TOPIC, broker))
        ruled = Ruled(received_of(partition, [record], AS_STAMPED), np.zeros(1, np.uint8))
        gate = step.gate(state.version)
        opened = open_frames(ruled, gate)
        held[1:1] = [HeldBytes("what its own key opens of it", message) for message in opened.messages]
        if state.topic(TOPIC).protection.brokers_read:
            values, payload, _ = gate.codec.decode_one(opened.messages[0])
            attributes = {name: value_to_json(value) for name, value in values.items() if value is not None}
            texts = BrokerFilters(realm.broker(broker))
            text = next(texts.text(state, s) for s in state.subscriptions_of(TOPIC) if s.subscriber == READER)
    return SeenBy(broker, "broker", held, attributes, payload, text)


def _subscriber(realm: Realm, name: str, filter: str | None = None) -> SeenBy:
    with Subscriber(realm, TOPIC, as_=name, from_=0) as subscriber:
        got: list[OpenedEvent] = list(subscriber)
    if not got:
        return SeenBy(name, "subscriber", filter=filter)
    shown = {key: value_to_json(value) for key, value in got[0].attributes.items()}
    return SeenBy(name, "subscriber", (), shown, got[0].payload, filter)


def _thief(realm: Realm, words: Mapping[str, bytes]) -> SeenBy:
    """Whoever copies the disk: every file of the realm but private keys, in one piece."""
    root = realm.paths.root
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and not _LOCKED & set(_parts(path, root))]
    held = HeldBytes(f"{len(files)} files of the realm", b"".join(path.read_bytes() for path in files))
    logs = [path for path in files if path.suffix == ".seg" and "frames" in _parts(path, root)]
    frames = max(logs, key=lambda path: path.stat().st_size)
    return _with(words, SeenBy("a thief of the disk", "thief", (held, HeldBytes("the frame log", frames.read_bytes()))))


def _parts(path: Path, root: Path) -> tuple[str, ...]:
    return path.relative_to(root).parts


def _with(words: Mapping[str, bytes], party: SeenBy) -> SeenBy:
    """The same party, with what a search of its bytes finds."""
    found = [name for name, word in words.items() if any(word in held.data for held in party.held)]
    return replace(party, found=found)
