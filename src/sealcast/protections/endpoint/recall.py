"""recall: a span of the past for one reader, sealed once more; also for one who was not there, or asked for less.

    ledger records of the span --> frames, admitted as they were then --> the reader's filter --> sealed for it alone

Who may read is decided now: the right to subscribe, at this moment, and its template joined to the filter. Whoever had
the right once and lost it gets nothing, whatever was sealed for it then. What there is to read was decided then: frames
that admission refused stay refused, by the checks of their batch's version.

The reader's own pair key of the present epoch seals each event. A position under it carries the very message it always
did, whatever was sealed under it before. What was given to whom is noted (log/replays.py), before anybody can open it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sealcast.broker.admit import admit
from sealcast.broker.context import gate_at
from sealcast.broker.deliver import deliver
from sealcast.broker.history import believe
from sealcast.broker.rulings import received_of, rule_frames
from sealcast.broker.tables import condition
from sealcast.errors import Misuse
from sealcast.filters import bits
from sealcast.filters.readers import may_open
from sealcast.filters.vector.evaluator import Evaluator
from sealcast.groupkeys.naive import Naive
from sealcast.log.entry import PieceRef
from sealcast.log.replays import READER_SLOT, Replayed, Replays
from sealcast.model.stages import Admitted, Grouped, Ruled
from sealcast.protections.endpoint.seal import seal
from sealcast.protections.endpoint.sealer import sealer_of
from sealcast.protections.frame_steps import FramesStep
from sealcast.trust.realm.changes import Right
from sealcast.wire import sealed as wire


def recall(topic: FramesStep, reader: str, filter: str, from_us: int, to_us: int) -> Replayed:
    """Seals for `reader`, and notes, what was committed from `from_us` until before `to_us` and fits the filter."""
    if to_us <= from_us:
        raise Misuse("a span of time ends after it begins")
    state, now = topic.realm.state(), topic.realm.clock()
    about, broker = state.topic(topic.name.topic), topic.realm.broker(topic.name.broker)
    state.require(Right.SUBSCRIBE, about.name, reader, now)
    template = state.terms_of(about.name, reader)[Right.SUBSCRIBE].template
    wanted = condition(filter, template, about.schema)
    sealer = sealer_of(state, about, broker, lambda slot: reader)
    replays, refs = Replays(topic.paths.root, topic.journal_key), list[PieceRef]()
    for admitted in _admitted(topic, from_us, to_us):
        true = Evaluator(admitted.columns, about.schema, admitted.payloads()).true(wanted)
        refused = [index for index, readers in admitted.readers.items() if not may_open(readers, reader)]
        events = np.flatnonzero(true & ~np.isin(admitted.frame_index, refused))
        if events.size:
            group_of = np.zeros(events.size, np.int64)
            alone = bits.pack(np.zeros(1, np.int64), np.full(1, READER_SLOT), 1, READER_SLOT + 1)
            grouped = Grouped(admitted, alone, events, group_of)
            piece = deliver(seal(grouped, Naive(), sealer), about.id, about.epoch, state.version)
            staged = replays.pieces.stage(piece.partition, piece.first_offset, piece.end_offset, wire.encode(piece))
            refs.append(PieceRef.of(staged, piece))
    count = sum(ref.events for ref in refs)
    done = Replayed(reader, filter, template, from_us, to_us, state.version, about.epoch, now, count, tuple(refs))
    replays.add(done)
    replays.close()
    return done


def _admitted(topic: FramesStep, from_us: int, to_us: int) -> Iterator[Admitted]:
    """What was admitted in the span, piece by piece: decided again, with the windows that the batches before left."""
    ledger, log, history = topic.ledger, topic.frames, topic.history()
    first, end = ledger.index_at(from_us), ledger.index_at(to_us)
    windows, broker = history.windows(first), topic.realm.broker(topic.name.broker)
    for index in range(first, end):
        entry = ledger.at(index).entry
        state = topic.realm.state(entry.version)
        gate = gate_at(state, state.topic(topic.name.topic), broker)
        spans = [(p, max(begin, log.partition(p).start()), stop) for p, begin, stop in entry.start.ranges(entry.end)]
        kept = {p: (begin, stop) for p, begin, stop in spans if begin < stop}
        codes = rule_frames(windows, log, [(p, *span) for p, span in kept.items()], gate, entry.end.settled_us)
        for ref in entry.pieces:
            begun, _ = kept.get(ref.partition, (ref.end, ref.end))
            since = max(ref.first, begun)
            if since >= ref.end:
                continue  # retention has removed these frames: nobody can be given them any more
            mine = codes[ref.partition][since - begun : ref.end - begun]
            if not history.knows(entry.start.settled_us):
                mine = believe(mine, since, wire.parse(topic.pieces.read(ref.name, ref.digest)))
            records = list(log.partition(ref.partition).read(since, ref.end))
            yield admit(Ruled(received_of(ref.partition, records), mine), gate)
