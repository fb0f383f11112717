"""Which records of a ledger are due: their sealed events are older than the topic keeps them, or there are too many.

    first_left    the records before it were emptied
    records_due   those that are to be

Whoever keeps a ledger removes what is due (`pipeline.retention`). Whoever takes from one can tell by the same rule that
it will be removed, and say how far it is (`OpenStep.tell`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from sealcast.log.ledger import LedgerReader
from sealcast.trust.realm.parameters import NO_LIMIT
from sealcast.trust.realm.topics import Topic


def records_due(topic: Topic, ledger: LedgerReader, now_us: int, begin: int = 0) -> range:
    """The records of a ledger, from `begin` on, whose sealed events are to be removed: those that are too old, and then
    the oldest until the others are few enough. What was removed before is among them, and costs nothing again."""
    end, kept_us, most = ledger.end(), topic.pieces_kept_us, topic.parameters.pieces_kept_bytes
    old = begin
    if kept_us is not None:
        old = bisect_right(range(end), now_us - kept_us, lo=begin, key=lambda at: ledger.at(at).entry.end.time_us)
    size, first = 0, end
    while most < NO_LIMIT and first > old:
        size += size_of(ledger, first - 1)
        if size > most:
            return range(begin, first)
        first -= 1
    return range(begin, old)


def first_left(ledger: LedgerReader) -> int:
    """The first record that was not emptied. They are from the oldest on."""
    return bisect_left(range(ledger.end()), True, key=lambda index: not ledger.at(index).is_emptied)


def size_of(ledger: LedgerReader, index: int) -> int:
    """The bytes of a record's pieces; none where its events were removed."""
    committed = ledger.at(index)
    return 0 if committed.is_emptied else sum(ref.size for ref in committed.entry.pieces)
