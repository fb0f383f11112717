"""reseal: what was delivered under the keys of an earlier epoch, sealed again under those of the present one.

    a piece of the ledger + its frames --> the same piece, for those who may still read --> a note on its record

After a compromise the keys of the epoch before may be in wrong hands. What subscribers have not fetched yet still lies
there under those keys: it is sealed again, and the pieces before are removed (paper 004, section 5.3 (c): missed
messages go by the new key). Nothing is decided again: who was to get which event stands in the piece, in its order, and
stays; only who may not read now gets nothing any more. So no event comes twice and none is lost (log/reseals.py).

Subscribers are served each under their own pair key: a resealed piece needs no key from another piece, whatever its
reader has read before. Ciphertexts are functions of position, epoch and keys (keys.py), so a job that
is run again, or runs twice at once, makes the same bytes.

The broker's own keys do it. For the part of a broker that was itself compromised, and so was handed no key of the new
epoch, the administrator gives a way to the topic's present keys (`Resealing.keys`): no broker-side code knows one.

The messages come from the frame log. Where frames were removed, they come from the piece itself: brokers open what they
sealed. What they could not open, because publishers sealed it for readers, is carried on as it is, inside.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sealcast.broker.deliver import deliver
from sealcast.broker.gate import Gate
from sealcast.errors import Corrupt, NotFound, Unavailable
from sealcast.filters import bits
from sealcast.groupkeys.naive import Naive
from sealcast.log.cursor import Cursor, CursorFile
from sealcast.log.entry import PieceRef
from sealcast.log.ledger import Committed, Ledger
from sealcast.log.reseals import Removal, Resealed
from sealcast.model.stages import Admitted, FrameProof, Grouped
from sealcast.pipeline.failures import explained
from sealcast.primitives import merkle
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.secrets import Secret
from sealcast.protections.endpoint.refs import PieceKeys
from sealcast.protections.endpoint.seal import seal
from sealcast.protections.endpoint.sealer import EndpointSealer, sealer_with
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.steps import StepName
from sealcast.protections.withdrawing import remove_superseded
from sealcast.protections.witness.places import Delivered
from sealcast.trust.keys.topic_keys import TopicKeys
from sealcast.trust.realm.changes import RotateTopic
from sealcast.trust.realm.machine import Topic
from sealcast.wire import frame
from sealcast.wire import sealed as wire
from sealcast.wire.sealed import TOPIC, SealedPiece

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Ints = NDArray[np.int64]
#: The present keys of a topic, in the realm of that directory.
KeysOf = Callable[[str, Topic], TopicKeys]
#: Pieces whose resealing is committed together are those of one record; tries, should somebody collect them meanwhile.
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class Resealing:
    """What is to be sealed again: pieces of a topic by record and number, under the realm as of then."""

    topic: str
    version: int
    time_us: int
    epoch: int
    places: tuple[tuple[int, int], ...]
    why: str
    #: A module's function, which a plan names and does not carry.
    keys: KeysOf | None = None
    #: The publisher whose events are left out, for good.
    without: str = ""


@dataclass(slots=True)
class Done:
    """What became of it."""

    topic: str
    epoch: int
    records: int = 0
    pieces: int = 0
    deliveries: int = 0
    #: Pieces that stay as they were: their frames are no longer kept, and their broker cannot open them.
    kept: int = 0
    #: Files that nobody can open any more.
    removed: int = 0


# --- what is to be sealed again -----------------------------------------------------------------------


def wanted(
    topic: FramesStep,
    why: str,
    leaked: Iterable[str] | None = None,
    keys: KeysOf | None = None,
    epoch: int | None = None,
) -> Resealing:
    """The pieces of epochs before the present one, or before `epoch`, from the first on that one of `leaked` could
    open, or that somebody who may still read has not acknowledged; without `leaked` (whose keys open everything: a
    center's, say), all of them."""
    state, now = topic.realm.state(), topic.realm.clock()
    about = state.topic(topic.name.topic)
    slots = state.slots_of(about.name)
    missing = {slots[n]: _cursor(topic, n, slots[n]) for n in slots if state.may_subscribe(about.name, n, now)}
    theirs = None if leaked is None else [slots[name] for name in leaked if name in slots]
    rotations = [
        v for v, _, c in topic.realm.registry.changes() if isinstance(c, RotateTopic) and c.topic == about.name
    ]
    places: list[tuple[int, int]] = []
    for committed in topic.ledger.entries():
        if _epoch_of(committed, rotations) >= (about.epoch if epoch is None else epoch):
            continue
        if not any(ref.events for ref in committed.entry.pieces):
            continue  # there is nothing in it, or nothing left
        for number, ref in enumerate(committed.entry.pieces):
            here = Cursor(committed.index, number)
            # All after the first: keys that came with one piece are used in later ones, and it will be gone.
            if places or theirs is None or any(map(ref.concerns, theirs)) or _is_missed(ref, here, missing):
                places.append((committed.index, number))
    return Resealing(about.name, state.version, now, about.epoch, tuple(places), why, keys)


def _epoch_of(committed: Committed, rotations: list[int]) -> int:
    """The epoch that a record's pieces are sealed in; of those that were resealed in part, the earlier one."""
    sealed_in = 1 + bisect_right(rotations, committed.entry.version)
    return sealed_in if committed.resealed is None else max(sealed_in, committed.resealed.epoch)


def _is_missed(ref: PieceRef, here: Cursor, missing: Mapping[int, Cursor]) -> bool:
    """Whether it holds something that a reader's cursor has not passed, as far as the ledger tells."""
    return any((at.entry, at.piece) <= (here.entry, here.piece) and ref.concerns(slot) for slot, at in missing.items())


def _cursor(topic: FramesStep, name: str, slot: int) -> Cursor:
    try:
        return CursorFile(topic.paths.cursors, name, slot).load().cursor
    except Corrupt:
        return Cursor()  # its reader will be told; for us it has read nothing


def settled(topic: FramesStep) -> tuple[int, ...]:
    """How far each partition's frames are needed by nobody: whatever the ledger made of them lies in pieces that this
    broker can open, and so seal again, without them."""
    ends = tuple[int, ...]()
    for committed in topic.ledger.entries():
        pieces = (topic.parse(topic.pieces.read(ref.name, ref.digest)) for ref in committed.entry.pieces)
        if not all(map(topic.stands_alone, pieces)):
            break
        ends = committed.entry.end.partitions
    return ends


# --- one piece ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bench:
    """What resealing needs to know at one version: rights, and keys of all epochs."""

    gate: Gate
    sealer: EndpointSealer
    #: By slot: who may read.
    allowed: NDArray[np.bool_]
    #: What a piece that this broker made was sealed with; NotFound where it was not handed the keys.
    sealer_then: Callable[[SealedPiece], EndpointSealer]


@lru_cache(2)
def bench(topic: FramesStep, version: int, time_us: int, keys: KeysOf | None = None) -> Bench:
    gate = topic.gate(version)
    state, about = gate.state, gate.topic
    names = list(state.slots_of(about.name))
    allowed = np.zeros(len(names), np.bool_)
    allowed[list(state.authorised_slots(about.name, time_us))] = True
    ours, part = _present_keys(topic, gate, keys), topic.name.broker
    incarnation = state.incarnation(about.name, part)

    def sealer_then(piece: SealedPiece) -> EndpointSealer:
        keys, then = (
            topic.secrets.topic_keys(state, about, piece.epoch),
            state.incarnation(about.name, part, piece.version),
        )
        return sealer_with(about, keys, part, then, names.__getitem__)

    return Bench(gate, sealer_with(about, ours, part, incarnation, names.__getitem__), allowed, sealer_then)


def _present_keys(topic: FramesStep, gate: Gate, keys: KeysOf | None) -> TopicKeys:
    """What the broker was handed; for one that was handed nothing, what the administrator gives."""
    try:
        return topic.secrets.topic_keys(gate.state, gate.topic)
    except NotFound:
        if keys is None:
            raise
        return keys(topic.name.realm, gate.topic)


def resealed(piece: SealedPiece, messages: list[bytes], at: Bench, without: str = "") -> SealedPiece:
    """The piece under the present epoch's keys: the same events in the same order, for those who may still read;
    `without` those of one publisher, if it is named."""
    before = Delivered.of(piece)
    stays = at.allowed[before.slot] if before.slot.size else np.empty(0, np.bool_)
    if without:
        theirs = np.array([publisher_of(proof) == without for proof in piece.frames], np.bool_)
        stays = stays & ~theirs[np.asarray(piece.frame_index, np.int64)[before.event]]
    words = bits.pack(before.event[stays], before.slot[stays], len(messages), at.allowed.size)
    taken = np.flatnonzero(words.any(axis=1))
    groups, group_of = bits.unique_rows(words[taken])
    offsets = np.array([proof.offset for proof in piece.frames], np.int64)
    frame_index = np.asarray(piece.frame_index, np.int64)
    admitted = Admitted(
        partition=piece.partition,
        first_offset=piece.first_offset,
        end_offset=piece.end_offset,
        frames=piece.frames,
        frame_index=frame_index,
        offset=offsets[frame_index],
        row=np.asarray(piece.row, np.int64),
        messages=messages,
        # Nothing is matched again: nobody looks at what is in the events.
        columns=pa.RecordBatch.from_arrays([], []),
        payload_start=np.zeros(len(messages), np.int64),
        rejections=tuple(piece.rejected),
    )
    sealed = seal(Grouped(admitted, groups, taken, group_of), Naive(), at.sealer)
    made = deliver(sealed, at.gate.topic.id, at.gate.topic.epoch, at.gate.state.version)
    # Who counted the batch counted its admission, too. A late piece has counted none of it.
    return replace(made, counts={**made.counts, **{name: piece.counts.get(name, 0) for name in ("frames", "admitted")}})


def publisher_of(proof: FrameProof) -> str:
    """Who signed a frame that events of a piece came in."""
    return frame.parse_signed(proof.signed).header.publisher


def _messages(piece: SealedPiece, frames: Mapping[int, bytes], at: Bench) -> list[bytes]:
    """The very bytes that were published, of every event of the piece."""
    by_frame = [_opened(proof, frames[proof.offset], at) for proof in piece.frames]
    rows = zip(np.asarray(piece.frame_index).tolist(), np.asarray(piece.row).tolist(), strict=True)
    return [by_frame[index][row] for index, row in rows]


def _unsealed(piece: SealedPiece, sealer: EndpointSealer) -> list[bytes] | None:
    """The messages that a broker sealed, out of the piece itself; None if it holds one that no broker opens."""
    nonces, keys, found = piece.nonces(), PieceKeys(piece, sealer), list[bytes]()
    content = sealer.content_keys(nonces)
    for event, (nonce, use) in enumerate(zip(nonces, piece.use_start.tolist(), strict=False)):
        if piece.wrapped[event]:
            key = SealingKey(Secret(content[event]), sealer.associated_data, sealer.key_bits)
        elif piece.key_kind[int(piece.uses[use])] == TOPIC:
            return None
        elif (ref := keys.held_by(int(piece.uses[use]), piece.readers(use))) is not None:
            key = sealer.body_key(ref)
        else:
            return None
        found.append(key.open(nonce, piece.commitment(event), piece.body(event)))
    return found


def _opened(proof: FrameProof, data: bytes, at: Bench) -> list[bytes]:
    received = frame.parse(data)
    header = received.header
    key = at.gate.frame_key(header.publisher, header.epoch, header.boot)
    body = key.open(received.nonce, received.commitment, received.ciphertext, received.body_aad)
    messages = frame.decode_body(frame.bare_body(body).body, header.count)
    if received.signed != proof.signed or merkle.build(merkle.hash_messages(messages)) != proof.nodes:
        raise Corrupt(
            f"frame {proof.offset} is not the one that was delivered", hint="restore the frame log from a copy"
        )
    return messages


@dataclass(frozen=True, slots=True)
class Made:
    """A piece that was staged, if one was; and how many deliveries it has no more, by slot."""

    ref: PieceRef | None = None
    withdrawn: Mapping[int, int] = field(default_factory=dict)


_UNTOUCHED: Final = Made()


# --- the job --------------------------------------------------------------------------------------------


def run(
    topic: FramesStep,
    want: Resealing,
    spark: SparkSession | None = None,
    told: Callable[[int], None] = lambda pieces: None,
) -> Done:
    """Seals again, and lets the new pieces take the old ones' places, record by record; the old ones are removed.

    With Spark it is one job over all pieces. Killed at any moment, some records are done and the others are not:
    `wanted` then finds what is left.
    """
    done = Done(want.topic, want.epoch)
    by_record: dict[int, dict[int, Made]] = {}
    expected = Counter(record for record, _ in want.places)
    for record, number, made in _in_spark(spark, topic.name, want) if spark is not None else _here(topic, want):
        by_record.setdefault(record, {})[number] = made
        told(1)
        if len(by_record[record]) == expected[record]:
            _commit(topic, want, record, by_record.pop(record), done)
    done.removed = remove_superseded(topic)
    return done


def _commit(topic: FramesStep, want: Resealing, record: int, made: Mapping[int, Made], done: Done) -> None:
    ledger: Ledger = topic.ledger
    for _ in range(_TRIES):
        known = ledger.at(record)
        refs = tuple(made.get(n, _UNTOUCHED).ref or ref for n, ref in enumerate(known.entry.pieces))
        gone = Counter(dict(known.resealed.withdrawn) if known.resealed is not None else {})
        for each in made.values():
            gone.update(each.withdrawn)
        before = None if known.resealed is None else known.resealed.removal
        removal = Removal.FORGOTTEN if want.without else before
        note = Resealed(
            record,
            known.tag,
            want.version,
            want.time_us,
            want.epoch,
            refs,
            want.why,
            tuple(sorted(gone.items())),
            removal,
        )
        try:
            ledger.reseal(note, topic.pieces)
        except Unavailable:
            made = {number: _reseal(topic, want, record, number) for number in made}
            continue
        fresh = [each.ref for each in made.values() if each.ref is not None]
        done.records += bool(fresh)
        done.pieces += len(fresh)
        done.kept += len(made) - len(fresh)
        done.deliveries += sum(ref.deliveries for ref in fresh)
        return
    raise Unavailable(f"pieces of topic {want.topic!r} are removed as fast as they are made", hint="try again")


def _here(topic: FramesStep, want: Resealing) -> Iterator[tuple[int, int, Made]]:
    for record, number in want.places:
        yield record, number, _reseal(topic, want, record, number)


def _reseal(topic: FramesStep, want: Resealing, record: int, number: int) -> Made:
    """One piece, staged; nothing when its frames are no longer kept, and nobody here can open it."""
    ref = topic.ledger.at(record).entry.pieces[number]
    piece = wire.parse(topic.pieces.read(ref.name, ref.digest))
    log = topic.frames.partition(ref.partition)
    needed, at = [proof.offset for proof in piece.frames], bench(topic, want.version, want.time_us, want.keys)
    if needed and needed[0] < log.start():
        try:
            messages = _unsealed(piece, at.sealer_then(piece))
        except NotFound:
            messages = None
        if messages is None:
            return _UNTOUCHED
    else:
        records = log.read(needed[0], needed[-1] + 1) if needed else ()
        messages = _messages(piece, {r.offset: r.data for r in records if r.offset in set(needed)}, at)
    made = resealed(piece, messages, at, want.without)
    staged = topic.pieces.stage(ref.partition, ref.first, ref.end, wire.encode(made))
    return Made(PieceRef.of(staged, made), dict(_received(piece) - _received(made)))


def _received(piece: SealedPiece) -> Counter[int]:
    return Counter(Delivered.of(piece).slot.tolist())


def _in_spark(spark: SparkSession, name: StepName, want: Resealing) -> Iterator[tuple[int, int, Made]]:
    tasks = max(1, min(len(want.places), 4 * spark.sparkContext.defaultParallelism))
    about = replace(want, places=())  # a task needs the places that are its own
    with explained():
        job = spark.sparkContext.parallelize(want.places, tasks)
        made = job.map(lambda place: (*place, _reseal(FramesStep.of(name), about, *place))).collect()
    yield from sorted(made, key=itemgetter(0, 1))
