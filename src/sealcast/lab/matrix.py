"""Who can read and publish what: tried, not looked up. Before and after a compromise it is the proof that it is over.

Those who have done nothing wrong read as they always do, with the client, some of their mailbox; and publish a frame
that admission is asked about, and that no log ever sees. Whoever is compromised is played by a thief who has taken all
it had while it was good: key file, the keys of all epochs that it was handed, tokens; from a broker the topics' keys,
from a center the secrets that they follow from. The thief obeys nothing: it tries every delivery to its victim in every
file of sealed pieces, the way that the topic's protection opens deliveries (`ClientSide.opens_with`), and every frame
in every log (lab/thief.py); and it publishes with what it took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Final

import numpy as np

from sealcast.broker.admit import admit
from sealcast.broker.authenticate import check_one
from sealcast.broker.context import gate_at
from sealcast.broker.rulings import admitted_before
from sealcast.clients.subscriber import Subscriber
from sealcast.control.wallet import Wallet
from sealcast.errors import CannotOpen, FrameRejected, Misuse, NotFound, Rejected, Unavailable
from sealcast.groupkeys.interface import PairKey
from sealcast.lab import thief
from sealcast.lab.attacks import Insider
from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.port import Record
from sealcast.log.replays import READER_SLOT
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.protections.endpoint.sealer import sealer_with
from sealcast.protections.port import Opens, client_side
from sealcast.trust.certificates.roles import Role
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.topic_keys import EntityKeys, TopicKeys
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.state import RealmState
from sealcast.wire import sealed
from sealcast.wire.sealed import SealedPiece

#: Events that one who did nothing wrong opens of its mailbox, at most.
EVENTS_TRIED: Final = 200
#: How many of those are asked.
OTHERS_TRIED: Final = 20
ADMITTED: Final = "admitted"
NO: Final = "no"

KeysOf = Callable[[int], TopicKeys]


@dataclass(frozen=True, slots=True)
class AccessCell:
    """What one entity can do on one topic."""

    #: Events that it opened, of those that it found for itself.
    opened: int = 0
    tried: int = 0
    #: `admitted`, the reason of the check that refused it, or `no`: it has nothing to try it with.
    publishes: str = NO
    #: Messages that a thief read in frames: what publishers sealed for brokers.
    frames: int = 0

    @property
    def harmless(self) -> bool:
        """Whether a thief can read nothing and publish nothing."""
        return not self.opened and not self.frames and self.publishes != ADMITTED

    def as_json(self) -> dict[str, object]:
        found = asdict(self)
        return found if self.frames else {name: value for name, value in found.items() if name != "frames"}


Matrix = dict[tuple[str, str], AccessCell]


@dataclass(slots=True)
class Loot(Unpicklable):
    """What a thief has of one entity. It stays in this process."""

    name: str
    roles: frozenset[Role]
    identity: Identity
    #: What it was handed, by topic and epoch.
    keys: dict[tuple[str, int], EntityKeys] = field(default_factory=dict)
    tokens: dict[str, bytes] = field(default_factory=dict)
    #: Of brokers and centers: the keys of topics, by topic and epoch.
    topic_keys: dict[str, KeysOf] = field(default_factory=dict)


def steal(realm: Realm, name: str, *, tokens: bool = True) -> Loot:
    """Takes all that a thief gets by copying an entity's files. Raises NotFound when they are not here. It asks the
    topics' key centers for `tokens`, as the entity itself would."""
    state = realm.state()
    who = state.entity(name)
    loot = Loot(name, who.roles, _identity(realm, name, who.roles))
    for topic, found in state.topics.items():
        for epoch in range(1, found.topic.epoch + 1):
            if state.pair_key(topic, epoch, name) is not None:
                loot.keys[topic, epoch] = loot.identity.topic_keys(state, topic, epoch)
        if Role.BROKER in who.roles:
            loot.topic_keys[topic] = partial(realm.broker(name).topic_keys, state, found.topic)
        if Role.KEY_CENTER in who.roles:
            # Who has its secret derives whatever it likes, also for topics and epochs that are not its own.
            loot.topic_keys[topic] = partial(
                realm.center(name).topic_keys, replace(found.topic, center=name, center_since=1)
            )
        if tokens and Role.ENTITY in who.roles and state.may_publish(topic, name, realm.clock()):
            with suppress(Rejected, Unavailable), Wallet(realm, name, identity=loot.identity, keep=False) as wallet:
                loot.tokens[topic] = wallet.get(topic, Right.PUBLISH, state).token
    return loot


def _identity(realm: Realm, name: str, roles: frozenset[Role]) -> Identity:
    if Role.BROKER in roles:
        return realm.broker(name).identity
    if Role.KEY_CENTER in roles:
        return realm.center(name).identity
    return realm.discovery_node(name) if Role.DISCOVERY in roles else realm.identity(name)


def attempts(realm: Realm, others: Iterable[str], topics: Sequence[str], loot: Loot | None) -> Matrix:
    """Lets everybody try to read and publish: the others as themselves, the thief with what it has taken."""
    found: Matrix = {}
    for name in others:
        for topic in topics:
            with suppress(NotFound):  # its keys are not on this machine: nobody can try
                found[name, topic] = _honest(realm, name, topic)
    if loot is not None:
        found.update({(loot.name, topic): _thief(realm, loot, topic) for topic in topics})
    return found


def others(realm: Realm, topics: Sequence[str], but: str, most: int = OTHERS_TRIED) -> list[str]:
    """Chooses who else tries: first those who subscribe, then whoever else may use one of the topics."""
    state, now = realm.state(), realm.clock()
    subscribed = [s.subscriber for topic in topics for s in state.subscriptions_of(topic)]
    entitled = (who.name for topic in topics for who in state.entitled(topic, now))
    found = dict.fromkeys(name for name in (*subscribed, *entitled) if name != but and state.entity(name).member)
    return list(found)[:most]


# --- those who did nothing wrong ----------------------------------------------------------------------


def _honest(realm: Realm, name: str, topic: str) -> AccessCell:
    state, refused = realm.state(), list[object]()
    identity, opened = realm.identity(name), 0
    if state.slot_of(topic, name) is not None and state.may_subscribe(topic, name, realm.clock()):
        with Subscriber(realm, topic, name, from_=0, unopenable=lambda *about: refused.append(about)) as reader:
            opened = len(reader.poll(EVENTS_TRIED))
    loot = Loot(name, frozenset({Role.ENTITY}), identity)
    epoch = state.topic(topic).epoch
    if state.may_publish(topic, name, realm.clock()):
        loot.keys[topic, epoch] = identity.topic_keys(state, topic, epoch)
        with Wallet(realm, name, identity=identity, keep=False) as wallet:
            loot.tokens[topic] = wallet.get(topic, Right.PUBLISH, state).token
    return AccessCell(opened, opened + len(refused), _publish(realm, loot, topic))


# --- the thief ----------------------------------------------------------------------------------------


def _thief(realm: Realm, loot: Loot, topic: str) -> AccessCell:
    opened = tried = 0
    state = realm.state()
    for broker in state.brokers():
        paths = realm.paths.topic(topic, broker)
        if topic in loot.topic_keys:
            good, all_of_them = _open_with_topic_keys(state, loot.topic_keys[topic], topic, broker, paths.pieces)
        else:
            good, all_of_them = _open_own(state, loot, topic, broker, paths.root)
        opened, tried = opened + good, tried + all_of_them
    frames = sum(read.messages for _, _, read in read_frames(realm, loot, topic))
    return AccessCell(opened, tried, _publish(realm, loot, topic), frames)


def read_frames(realm: Realm, loot: Loot, topic: str) -> Iterator[tuple[str, int, thief.FramesRead]]:
    """What a thief reads of every frame log that lies here: broker, partition, and how much there."""
    state = realm.state()
    about = state.topic(topic)

    def pair_of(publisher: str, epoch: int) -> Secret:
        if topic in loot.topic_keys:
            return loot.topic_keys[topic](epoch).pair_key(publisher)
        if publisher != loot.name or (topic, epoch) not in loot.keys:
            raise NotFound(f"no key of {publisher!r} was taken")
        return loot.keys[topic, epoch].pair

    holders = state.brokers() if not about.protection.peers else [loot.name]
    for holder in holders:
        root = realm.paths.topic(topic, holder).frames_root
        if root.is_dir():
            opened = realm.outbox if about.protection.peers else realm.frames
            log: EmbeddedTopic = opened(topic, holder, read_only=True)
            with log:
                for partition in range(log.partitions):
                    yield holder, partition, thief.read(log.partition(partition), about, pair_of)


def _pieces(directory: Path) -> Iterator[SealedPiece]:
    """Every file, named by a ledger or not, the oldest first: keys come with the first event that needs them."""
    for path in sorted(directory.glob("*.piece")) if directory.is_dir() else ():
        with suppress(FrameRejected):
            yield sealed.parse(path.read_bytes())


def _open_own(state: RealmState, loot: Loot, topic: str, broker: str, root: Path) -> tuple[int, int]:
    """What was sealed for the victim, delivered or replayed, with the keys that the thief has of any epoch."""
    slot, opened, tried = state.slot_of(topic, loot.name), 0, 0

    def taken(epoch: int) -> EntityKeys:
        keys = loot.keys.get((topic, epoch))
        if keys is None:
            raise CannotOpen(f"no key of epoch {epoch} was taken")
        return keys

    for directory, place in ((root / "pieces", slot), (root / "replays" / "pieces", READER_SLOT)):
        if place is None:
            continue
        opens = client_side(state.topic(topic).protection).opens_with(state, topic, broker, place, taken)
        for piece in _pieces(directory):
            for event, use in zip(*(rows.tolist() for rows in piece.rows_for(place)), strict=True):
                # What was replayed lies there for everybody: others' attempts fail and are no deliveries of its own.
                good = _opened(opens, piece, event, use)
                opened, tried = opened + good, tried + (good or directory.parent == root)
    return opened, tried


def _open_with_topic_keys(
    state: RealmState, keys_of: KeysOf, topic: str, broker: str, directory: Path
) -> tuple[int, int]:
    """Every event that anybody was sent: as a broker seals it, under the keys of its position or of its one reader; and
    as one of its readers opens it, with the keys that a key center would hand to that reader. (Bodies that are under
    one group's key alone are tried as well, and may not open this way.)"""
    about, names, opened, tried = state.topic(topic), list(state.slots_of(topic)), 0, 0
    side, bits = client_side(about.protection), about.parameters.key_bits

    @cache
    def opens_as(slot: int) -> Opens:
        return side.opens_with(state, topic, broker, slot, lambda epoch: _handed(keys_of, epoch, names[slot]))

    for piece in _pieces(directory):
        tried += len(piece)
        try:
            keys = keys_of(piece.epoch)
        except (NotFound, Misuse, CannotOpen):
            continue
        sealer = sealer_with(about, keys, broker, state.incarnation(topic, broker, piece.version), names.__getitem__)
        nonces = piece.nonces()
        for event, content in enumerate(sealer.content_keys(nonces)):
            slot, use = _a_reader(piece, event)
            if piece.wrapped[event]:
                key = SealingKey(Secret(content), sealer.associated_data, bits)
            else:
                key = sealer.body_key(PairKey(slot))
            opened += _unsealed(key, nonces[event], piece, event) or _opened(opens_as(slot), piece, event, use)
    return opened, tried


def _a_reader(piece: SealedPiece, event: int) -> tuple[int, int]:
    """The slot of the first reader of an event, and the use that it opens the event through."""
    at = int(np.flatnonzero(np.asarray(piece.mailbox_event) == event)[0])
    slot = int(piece.slots[int(np.searchsorted(np.asarray(piece.mailbox_start), at, "right")) - 1])
    events, uses = piece.rows_for(slot)
    return slot, int(uses[events.tolist().index(event)])


def _handed(keys_of: KeysOf, epoch: int, name: str) -> EntityKeys:
    """What a reader of that name was handed in an epoch, made by one who has the topic's keys."""
    try:
        keys = keys_of(epoch)
    except (NotFound, Misuse) as error:
        raise CannotOpen(error.message) from None
    return EntityKeys(keys.pair_key(name), keys.content)


def _opened(opens: Opens, piece: SealedPiece, event: int, use: int) -> bool:
    try:
        opens(piece, event, use)
    except CannotOpen:
        return False
    return True


def _unsealed(key: SealingKey, nonce: bytes, piece: SealedPiece, event: int) -> bool:
    try:
        key.open(nonce, piece.commitment(event), piece.body(event))
    except CannotOpen:
        return False
    return True


# --- publishing ---------------------------------------------------------------------------------------


def _publish(realm: Realm, loot: Loot, topic: str) -> str:
    """Asks admission about a frame of an empty event, signed and sealed with the newest keys that were taken."""
    state = realm.state()
    about, now = state.topic(topic), time.time_ns() // 1000
    epochs = [epoch for where, epoch in loot.keys if where == topic]
    serving = [name for name in state.serving(topic) if realm.paths.broker_key_of(name).exists()]
    if not epochs or not serving:
        return NO
    taken = Insider(loot.name, loot.keys[topic, max(epochs)].pair, loot.identity.signer, loot.tokens.get(topic, b""))
    sealer = taken.sealer(replace(about, epoch=max(epochs)))
    data = sealer.seal([about.schema.parse({})], [b""], ["text/plain"], now)
    gate = gate_at(state, about, realm.broker(serving[0]))
    try:
        check_one(data, now, gate)
    except FrameRejected as refused:
        return str(refused.reason)
    admitted = admit(admitted_before(0, [Record(0, now, data)]), gate)
    return ADMITTED if admitted.messages else str(admitted.rejections[0].reason)


def rows(
    before: Mapping[tuple[str, str], AccessCell], after: Mapping[tuple[str, str], AccessCell]
) -> Iterator[tuple[str, ...]]:
    """The rows of a table for people: entity, topic, and both cells side by side."""
    for entity, topic in dict.fromkeys((*before, *after)):
        was, now = before.get((entity, topic), AccessCell()), after.get((entity, topic), AccessCell())
        reads = (
            f"{cell.opened} of {cell.tried}" + (f", {cell.frames} in frames" if cell.frames else "")
            for cell in (was, now)
        )
        yield entity, topic, *reads, was.publishes, now.publishes
