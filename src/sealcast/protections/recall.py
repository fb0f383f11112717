"""recall: a span of the past for one reader, sealed once more; also for one who was not there, or asked for less.

    ledger records of the span --> frames, admitted as they were then --> the reader's filter --> sealed for it alone

Who may read is decided now: the right to subscribe, at this moment, and its template joined to the filter. Whoever had
the right once and lost it gets nothing, whatever was sealed for it then. What there is to read was decided then: frames
that admission refused stay refused, by the checks of their batch's version.

How a filter is matched is for the topic's protection to say (`past`). What matches is sealed in one way on all topics:
under the reader's own pair key of the present epoch. A position under it carries the very message it always did,
whatever was sealed under it before. Where publishers seal events for readers, that message is their envelope, which no
broker opens. It is not handed on bare, because the keys of its epoch may have been stolen since: after a compromise
nothing may lie there that such keys open.

What was given to whom is noted (log/replays.py), before anybody can open it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sealcast.broker.admit import admit
from sealcast.broker.deliver import deliver
from sealcast.broker.gate import Gate
from sealcast.broker.history import believe
from sealcast.broker.rulings import received_of, rule_frames
from sealcast.errors import Misuse
from sealcast.filters import bits
from sealcast.filters.readers import may_open
from sealcast.groupkeys.naive import Naive
from sealcast.log.entry import Entry, PieceRef
from sealcast.log.ledger import Committed
from sealcast.log.replays import READER_SLOT, Replayed, Replays
from sealcast.model.stages import Admitted, Grouped, GroupSealed, Ruled
from sealcast.protections.endpoint.seal import seal
from sealcast.protections.endpoint.sealer import EndpointSealer, sealer_of
from sealcast.protections.frame_steps import MatchingStep
from sealcast.protections.past import AskedPast, Bools
from sealcast.protections.port import AsksOf
from sealcast.trust.keys.filter_texts import noted
from sealcast.trust.realm.changes import Right
from sealcast.wire import sealed as wire

Ints = NDArray[np.int64]
#: Events of one replay, unless told: it ends with the batch in which it has so many.
MAX_EVENTS: Final = 100_000


class Recalled(NamedTuple):
    """One replay, and what its reader should know of it."""

    replayed: Replayed
    #: Where to go on, if the replay ended before its span did.
    next_us: int | None
    #: Epochs of the span whose events the reader cannot open, so that it was handed none of them.
    closed_epochs: list[int]


def recall(
    topic: MatchingStep, reader: str, asks: AsksOf, from_us: int, to_us: int, most: int = MAX_EVENTS
) -> Recalled:
    """Seals for `reader`, and notes, what was committed from `from_us` until before `to_us` and fits what it asks. With
    `most` events it ends, after a whole batch, so that whoever goes on at `next_us` misses nothing and gets none
    twice."""
    if to_us <= from_us:
        raise Misuse("a span of time ends after it begins")
    if most < 1:
        raise Misuse(f"a replay is of one event or more, not of {most}")
    state, now = topic.realm.state(), topic.realm.clock()
    about, broker = state.topic(topic.name.topic), topic.realm.broker(topic.name.broker)
    state.require(Right.SUBSCRIBE, about.name, reader, now)
    template = state.terms_of(about.name, reader)[Right.SUBSCRIBE].template
    asked = AskedPast(about, reader, asks)
    matching, sealer = topic.past(state, asked, template), sealer_of(state, about, broker, lambda slot: reader)
    replays, refs = Replays(topic.journal, topic.journal_key), list[PieceRef]()
    batches, given, before_us, next_us = _Batches(topic, from_us, to_us), 0, 0, None
    for committed in batches.records():
        if given >= most and committed.time_us > before_us:
            next_us = committed.time_us
            break
        before_us = committed.time_us
        for gate, admitted in batches.admitted(committed.entry):
            events = np.flatnonzero(matching.true(gate, admitted) & _open_to(reader, admitted))
            if events.size:
                piece = deliver(_sealed(admitted, events, sealer), about.id, about.epoch, state.version)
                staged = replays.pieces.stage(piece.partition, piece.first_offset, piece.end_offset, wire.encode(piece))
                refs.append(PieceRef.of(staged, piece))
                given += events.size
    end_us = to_us if next_us is None else next_us
    filter = asked.noted(lambda text: noted(state, about.name, broker, reader, text))
    done = Replayed(reader, filter, template, from_us, end_us, state.version, about.epoch, now, given, tuple(refs))
    replays.add(done)
    replays.close()
    return Recalled(done, next_us, asked.closed_epochs)


def _open_to(reader: str, admitted: Admitted) -> Bools:
    """Which events their publishers did not keep from the reader."""
    refused = [index for index, readers in admitted.readers.items() if not may_open(readers, reader)]
    return ~np.isin(admitted.frame_index, refused)


def _sealed(admitted: Admitted, events: Ints, sealer: EndpointSealer) -> GroupSealed:
    """For the reader alone."""
    alone = bits.pack(np.zeros(1, np.int64), np.full(1, READER_SLOT), 1, READER_SLOT + 1)
    return seal(Grouped(admitted, alone, events, np.zeros(events.size, np.int64)), Naive(), sealer)


class _Batches:
    """What was admitted in a span, batch by batch: decided again, with the windows that the batches before left."""

    def __init__(self, topic: MatchingStep, from_us: int, to_us: int) -> None:
        self._topic, self._log, self._history = topic, topic.frames, topic.history()
        self._span = range(topic.ledger.index_at(from_us), topic.ledger.index_at(to_us))
        self._windows = self._history.windows(self._span.start)

    def records(self) -> Iterator[Committed]:
        return map(self._topic.ledger.at, self._span)

    def admitted(self, entry: Entry) -> Iterator[tuple[Gate, Admitted]]:
        """The pieces of the next batch, each with what it was admitted by."""
        topic, log, gate = self._topic, self._log, self._topic.gate(entry.version)
        spans = [(p, max(begin, log.partition(p).start()), stop) for p, begin, stop in entry.start.ranges(entry.end)]
        kept = {p: (begin, stop) for p, begin, stop in spans if begin < stop}
        waiting, settled = [(p, *span) for p, span in kept.items()], entry.end.settled_us
        codes = rule_frames(self._windows, log, waiting, gate, entry.arrival, settled)
        for ref in entry.own:
            begun, _ = kept.get(ref.partition, (ref.end, ref.end))
            since = max(ref.first, begun)
            if since >= ref.end:
                continue  # retention has removed these frames: nobody can be given them any more
            mine = codes[ref.partition][since - begun : ref.end - begun]
            if not self._history.knows(entry.start.settled_us):
                mine = believe(mine, since, wire.parse(topic.pieces.read(ref.name, ref.digest)))
            records = list(log.partition(ref.partition).read(since, ref.end))
            yield gate, admit(Ruled(received_of(ref.partition, records, entry.arrival), mine), gate)
