"""Forgetting: events become unreadable for good, because their sealed bytes and the keys of their epochs are destroyed.

    rotate    a new epoch begins; what stays readable will be under its keys
    remove    batches that are forgotten whole: their pieces are emptied (`protections.withdrawing`)
    reseal    everything else of earlier epochs, without the events of a publisher who is forgotten (`pipeline.reseal`)
    frames    all that were committed are removed: they hold the same events, for brokers
    keys      the registry says that nobody needs the epochs before; centers and brokers destroy what opens them
    attack    every key that was on this disk before tries everything that lies there now

Where no broker can seal anything again, events are taken out of the pieces instead, and what stays is left as it is
(`taking_out`): then the attack is on what was forgotten, by the ids of its events.

What is exact, and what is rounded up: a publisher's events are taken out one by one. A span of time is rounded to whole
batches, by when they were committed. Frames go to the end of the log. Keys go by whole epochs, which is why all that is
to stay is sealed again first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from sealcast.errors import Misuse, NotFound, Rejected, Unavailable
from sealcast.lab import taking_out
from sealcast.lab.theft.loot import Loot, steal
from sealcast.lab.theft.reads import Reads
from sealcast.lab.theft.tries import Tries
from sealcast.log.driver_lock import runs_already
from sealcast.log.reseals import Removal
from sealcast.overlay import routing
from sealcast.pipeline import reseal
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.steps import StepName
from sealcast.protections.withdrawing import Withdrawn, withdraw
from sealcast.trust.admin import topics
from sealcast.trust.admin.compromise import center_keys
from sealcast.trust.admin.deletion import Lasting, lasting
from sealcast.trust.admin.maintenance import forget_epochs
from sealcast.trust.admin.overlays import forget_layer_keys
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.receiving import ReceivingKeys
from sealcast.trust.keys.topic_keys import TopicKeys
from sealcast.trust.realm.changes import ForgetEpochs
from sealcast.trust.realm.topics import Topic
from sealcast.wire import sealed


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What is to be forgotten of a topic: all of it, one publisher's events, or those committed in a span of time."""

    topic: str
    publisher: str = ""
    from_us: int = 0
    #: Not included; None: until now.
    until_us: int | None = None

    def includes(self, time_us: int) -> bool:
        return self.from_us <= time_us and (self.until_us is None or time_us < self.until_us)

    @property
    def is_everything(self) -> bool:
        return not self.publisher and not self.from_us and self.until_us is None

    @property
    def why(self) -> str:
        return f"events of {self.publisher} were forgotten" if self.publisher else "its events were forgotten"


@dataclass(slots=True)
class Forgetting:
    """What was forgotten, or would be."""

    wanted: Forgotten
    #: Batches and deliveries that are forgotten; of a publisher, its deliveries in these batches.
    batches: int = 0
    deliveries: int = 0
    #: Pieces that stay, sealed again under the new epoch; and those that nobody here could seal again.
    resealed: int = 0
    kept: int = 0
    frames: int = 0
    #: The first epoch whose keys are kept.
    epoch: int = 0
    version: int | None = None
    #: Where events are taken out of pieces: their ids. Else everything of earlier epochs is gone or sealed again.
    ids: frozenset[bytes] | None = None
    #: What all keys from before open now, by whose they were. Nothing, when it is over.
    attack: dict[str, Reads] = field(default_factory=dict)
    left: Lasting = field(default_factory=Lasting)

    @property
    def over(self) -> bool:
        """Whether no key from before opens anything that lies here."""
        return not self.kept and not any(each.opened or each.frames or each.queued for each in self.attack.values())


def preview(realm: Realm, wanted: Forgotten) -> Forgetting:
    """What `forget` would do, without doing any of it."""
    about = _check(realm, wanted)
    found = Forgetting(wanted, epoch=about.epoch + 1, left=lasting(realm, realm.state(), wanted.topic))
    if taking_out.takes_out(about):
        ids, found.batches = taking_out.chosen(realm, wanted)
        found.ids = frozenset(ids)
        found.deliveries = taking_out.take_out(realm, wanted.topic, ids, wanted.why, dry_run=True).deliveries
    for step in _steps(realm, wanted.topic):
        for record in _records(step, wanted) if found.ids is None else ():
            count = _deliveries(step, record, wanted.publisher)
            found.batches += count > 0 or not wanted.publisher
            found.deliveries += count
        with realm.frames(wanted.topic, step.name.broker, read_only=True) as log:
            found.frames += sum(log.partition(p).end() - log.partition(p).start() for p in range(log.partitions))
    return found


def forget(realm: Realm, wanted: Forgotten) -> Forgetting:
    """Does all of it. Killed at any moment, it is finished by doing it again: what was removed stays so."""
    found = preview(realm, wanted)
    name = wanted.topic
    thieves = list(_thieves(realm, name))
    topics.announce_receiving_keys(realm)
    found.epoch = realm.rotate(name).epoch
    found.resealed = found.kept = found.frames = 0
    if found.ids is not None:
        taking_out.take_out(realm, name, set(found.ids), wanted.why)
    for step in _steps(realm, name):
        if found.ids is None:
            _take_out(step, wanted, found)
        found.frames += _drop_frames(realm, step)
    _forget_keys(realm, name, found)
    only = None if wanted.is_everything else found.ids
    found.attack = {loot.name: Tries(realm, loot, only).reads(name) for loot in thieves}
    found.left = replace(lasting(realm, realm.state(), name), center_until_us=_given_until(realm, name))
    return found


# --- what is to be done -----------------------------------------------------------------------------------


def _check(realm: Realm, wanted: Forgotten) -> Topic:
    state = realm.state()
    about = state.topic(wanted.topic)
    if wanted.publisher:
        state.entity(wanted.publisher)
    if about.protection.peers:
        raise Misuse(
            f"events of topic {wanted.topic!r} lie with its publishers and readers, and with peers that passed them "
            "on: nobody can see to it that all of them forget",
            hint=f"end the topic: sealcast topic delete {wanted.topic}",
        )
    if taking_out.takes_out(about):
        taking_out.check(realm, wanted.topic)
    for broker in state.serving(wanted.topic):
        if not realm.paths.broker_key_of(broker).exists():
            raise Misuse(
                f"broker {broker!r} serves topic {wanted.topic!r} on another machine, and what lies there would stay",
                hint=f"move its readers and take it out first: sealcast broker leave {broker}",
            )
    for step in _steps(realm, wanted.topic):
        if (taken := runs_already(step.paths.ledger)) is not None:
            raise taken
        _refuse_waiting(realm, step)
    return about


def _refuse_waiting(realm: Realm, step: FramesStep) -> None:
    """Frames that no batch has taken are sealed in epochs whose keys are about to go."""
    topic, last = step.name.topic, step.ledger.last()
    with realm.frames(topic, step.name.broker, read_only=True) as log:
        ends = [log.partition(p).end() for p in range(log.partitions)]
    reached = [0] * len(ends) if last is None else [last.entry.reached(p) for p in range(len(ends))]
    waiting = sum(max(0, end - done) for end, done in zip(ends, reached, strict=True))
    if waiting:
        raise Rejected(
            f"{waiting} frames of topic {topic!r} wait at broker {step.name.broker!r}, and would be lost with the keys",
            hint="let the pipeline take them first: sealcast run --once",
        )
    for link, since in routing.links(realm.state(), step.name.broker, [topic]).items():
        if routing.waiting(realm, link, since):
            raise Rejected(
                f"broker {link.destination!r} has not been sent all frames of topic {topic!r} yet",
                hint="let the pipeline forward them first: sealcast run --once",
            )


def _steps(realm: Realm, topic: str) -> Iterator[FramesStep]:
    """The topic at each broker that has something of it here."""
    state = realm.state()
    for broker in state.brokers():
        has = (topic, broker) in state.journals or realm.paths.topic(topic, broker).ledger.is_dir()
        if has and realm.paths.broker_key_of(broker).exists():
            yield FramesStep.of(StepName(str(realm.paths.root), topic, broker))


def _records(step: FramesStep, wanted: Forgotten) -> list[int]:
    return [each.index for each in step.ledger.entries() if wanted.includes(each.entry.end.time_us)]


def _deliveries(step: FramesStep, record: int, publisher: str) -> int:
    """How many deliveries of a record there are to forget."""
    pieces = step.ledger.at(record).entry.pieces
    if not publisher:
        return sum(ref.deliveries for ref in pieces)
    return sum(_of_publisher(sealed.parse(step.pieces.read(ref.name, ref.digest)), publisher) for ref in pieces)


def _of_publisher(piece: sealed.SealedPiece, publisher: str) -> int:
    if not len(piece):
        return 0
    theirs = np.array([reseal.publisher_of(proof) == publisher for proof in piece.frames], np.bool_)
    sizes = np.asarray(piece.mailboxes.sizes)[np.asarray(piece.group_of, np.int64)]
    return int(sizes[theirs[np.asarray(piece.frame_index, np.int64)]].sum())


# --- doing it ---------------------------------------------------------------------------------------------


def _take_out(step: FramesStep, wanted: Forgotten, found: Forgetting) -> None:
    """Removes what is forgotten at one broker, and seals again what stays."""
    records = _records(step, wanted)
    if wanted.publisher:
        state = step.realm.state()
        places = [(record, number) for record in records for number in range(len(step.ledger.at(record).entry.pieces))]
        epoch = state.topic(wanted.topic).epoch
        time_us = step.realm.clock()
        want = reseal.Resealing(
            wanted.topic, state.version, time_us, epoch, tuple(places), wanted.why, center_keys, wanted.publisher
        )
        _count(reseal.run(step, want), found)
    else:
        done: Withdrawn = withdraw(step, records, wanted.why, Removal.FORGOTTEN)
        found.deliveries = max(found.deliveries, done.deliveries)
    _count(reseal.run(step, reseal.wanted(step, "keys of its epoch were forgotten", None, center_keys)), found)


def _count(done: reseal.Done, found: Forgetting) -> None:
    found.resealed += done.pieces
    found.kept += done.kept


def _drop_frames(realm: Realm, step: FramesStep) -> int:
    """Removes every frame that a batch took; how many."""
    removed = 0
    with realm.frames(step.name.topic, step.name.broker) as log:
        last = step.ledger.last()
        for number in range(log.partitions if last is not None else 0):
            part, end = log.partition(number), last.entry.reached(number) if last is not None else 0
            start = part.start()
            part.cut(end)
            removed += part.drop(end) - start
    return removed


def _forget_keys(realm: Realm, topic: str, found: Forgetting) -> None:
    """Destroys the keys of epochs before the present one, unless something lies there that nobody could seal again."""
    if found.kept:
        return
    state = realm.registry.transact(lambda _: [ForgetEpochs(topic, found.epoch)])
    found.version = state.version
    forget_epochs(realm)
    forget_layer_keys(realm, [topic])
    for broker in state.serving(topic):
        keys = ReceivingKeys(realm.paths.broker_key_of(broker), broker)
        keys.forget(state, topic, before=found.epoch)


def _given_until(realm: Realm, topic: str) -> int | None:
    """Until when the topic's center can make keys of the epochs that were forgotten; None if it cannot now."""
    about = realm.state().topic(topic)
    with suppress(NotFound, Unavailable):
        center = realm.center(about.center)
        if about.forgotten_before > 1 and center.has(about, about.forgotten_before - 1):
            return center.gives_until(about)
    return None


# --- the attack -------------------------------------------------------------------------------------------


def _thieves(realm: Realm, topic: str) -> Iterator[Loot]:
    """All keys of the topic that are on this disk, by whose they are."""
    state = realm.state()
    readers = state.slots_of(topic)
    who = [*state.serving(topic), state.topic(topic).center, *readers, *state.overlay(topic).parents]
    who += [name for _, name in (*state.topic_state(topic).pair_keys, *state.topic_state(topic).layer_keys)]
    for name in dict.fromkeys(who):
        with suppress(NotFound, Unavailable):  # not here, or under a lock that is not at hand
            yield _held(steal(realm, name, tokens=False), state.topic(topic).epoch, topic)


def _held(loot: Loot, epochs: int, topic: str) -> Loot:
    """Loot whose topic keys were made while they could be: what is forgotten later does not help."""
    if topic in loot.topic_keys:
        made, derive = dict[int, TopicKeys](), loot.topic_keys[topic]
        for epoch in range(1, epochs + 1):
            with suppress(NotFound, Misuse):
                made[epoch] = derive(epoch)

        def known(epoch: int) -> TopicKeys:
            if epoch not in made:
                raise NotFound(f"no key of epoch {epoch} was taken")
            return made[epoch]

        loot.topic_keys[topic] = known
    return loot
