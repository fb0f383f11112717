"""How much work the filters of one subscriber may ask for, and those of a topic, and who is suspended for more.

Work is counted before it is done, in units (filters/work.py), from the filters and the events alone. So who is over its
budget is a function of a piece's frames and the pinned table: a batch that is run again suspends the same, and so does
whoever checks it. Budgets are of a piece. A subscription that is suspended gets none of that piece's events, which is
counted and told; everybody else gets theirs. With the next piece it is judged anew.

A subscriber's dearest subscriptions are suspended first, until the others fit. If all together want more than the topic
has, nobody may have more than an equal share; what some do not use is left to the others.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import FilterRejected
from sealcast.filters.index import ChangedIndex, Index
from sealcast.filters.tree import Condition
from sealcast.filters.work import Measure, Work
from sealcast.model.schema import Schema
from sealcast.model.stages import Admitted

#: Units for each event of a piece, and for the smallest piece: of one subscriber, and of all.
EACH_EVENT: Final = 50_000
EACH_PIECE: Final = 200_000_000
TOPIC_EVENT: Final = 1_000_000
TOPIC_PIECE: Final = 4_000_000_000

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def over_budget(index: Index | ChangedIndex, owners: Ints, admitted: Admitted) -> Bools | None:
    """Which subscriptions of an index are suspended for these events; None for none. `owners`: a number for whoever
    each subscription belongs to."""
    if not index.residuals:
        return None
    columns, payloads = admitted.columns, admitted.payloads() if index.reads_payloads else None
    measure, events = Measure(columns, payloads), columns.num_rows
    if fits(index.most_work(measure, events), owners, events):
        return None
    demand = index.work(columns, measure)
    return None if fits(demand, owners, events) else suspended(demand, owners, events)


def fits(demand: Ints, owners: Ints, events: int) -> bool:
    """Whether nobody asks for too much."""
    total = _by_owner(demand, owners)
    each, together = _budgets(events)
    return int(total.max(initial=0)) <= each and int(total.sum()) <= together


def suspended(demand: Ints, owners: Ints, events: int) -> Bools:
    """Which subscriptions are, by what each asks for and whose it is, on so many events."""
    level = share(_by_owner(demand, owners), *_budgets(events))
    order = np.lexsort((np.arange(demand.size), demand, owners))
    running = np.cumsum(demand[order])
    first = np.concatenate((np.ones(min(1, order.size), np.bool_), np.diff(owners[order]) != 0))
    before = np.maximum.accumulate(np.where(first, running - demand[order], 0))
    over = np.zeros(demand.size, np.bool_)
    over[order] = running - before > level
    return over


def _by_owner(demand: Ints, owners: Ints) -> Ints:
    total = np.zeros(int(owners.max(initial=-1)) + 1, np.int64)
    np.add.at(total, owners, demand)
    return total


def _budgets(events: int) -> tuple[int, int]:
    """Returns what one subscriber, and all together, may cost on so many events."""
    return max(EACH_PIECE, EACH_EVENT * events), max(TOPIC_PIECE, TOPIC_EVENT * events)


def check_one(condition: Condition, schema: Schema, admitted: Admitted) -> None:
    """FilterRejected, if one filter asks for more on the events of a piece than one subscriber may. For whoever asks a
    filter on all of them, without an index."""
    work, rows = Work.of(condition, schema), np.arange(admitted.columns.num_rows)
    measure = Measure(admitted.columns, admitted.payloads() if work.xpaths else None)
    asked, most = work.once + int(measure.each(work, rows).sum()), _budgets(rows.size)[0]
    if asked > most:
        raise FilterRejected(
            "limit",
            f"on {rows.size} events of one batch, the filter asks for {asked:,} units of work; {most:,} are allowed",
            hint="ask for less: shorter patterns, no pattern over long texts or payloads",
        )


def share(total: Ints, each: int, all_together: int) -> int:
    """How much one may have, so that nobody has more than `each`, and they have no more than that all together."""
    wanted = np.sort(np.minimum(total, each))
    if int(wanted.sum()) <= all_together:
        return each
    # The k that want least have what they want; the others share the rest, if that is no less than those want.
    had = np.concatenate((np.zeros(1, np.int64), np.cumsum(wanted)))[:-1]
    equal = (all_together - had) // np.arange(wanted.size, 0, -1)
    return int(equal[np.flatnonzero(wanted > equal)[0]])
