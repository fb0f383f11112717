"""What a publisher makes of events on a layered topic: two messages an event, each distinct label encrypted once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from operator import attrgetter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from sealcast.filters.labels import Labeller
from sealcast.model import Schema
from sealcast.model.bounded import bounded
from sealcast.model.schema import Value
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import Exponent
from sealcast.protections.checked import CheckedEvent, CheckedRows
from sealcast.protections.layered.layers import Layers
from sealcast.protections.layered.sealing import NotificationSealer, SealedForRoots, messages
from sealcast.protections.layered.tree import TreeId
from sealcast.wire.notifications import parse_core, parse_entries

SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "symbol", "type": "string"},
            {"name": "price", "type": "decimal", "min": "0", "max": "100", "step": "0.5"},
            *({"name": f"text{n}", "type": "string"} for n in range(6)),
        ]
    }
)
TREE = TreeId("nyse", 3, 7)


def sealer(targets: list[tuple[str, ...]], schema: Schema = SCHEMA) -> NotificationSealer:
    random, names = Random(1), {name for target in targets for name in target}
    keys = {name: Exponent(random.randrange(1, CURVE.order), CURVE.order) for name in sorted(names)}
    return NotificationSealer(schema, bytes(16), TREE, Layers(CURVE, keys), targets)


def parsed(price: int, **texts: str) -> Mapping[str, Value]:
    return SCHEMA.parse({"price": price, **texts})


def test_two_messages_an_event_and_each_label_once() -> None:
    made = sealer([("r1", "b1"), ("r1", "b2"), ("r2", "b3")])
    values = [parsed(n % 3, symbol="ZYMURGY") for n in range(6)]
    given = [CheckedEvent(each, b"payload %d" % n, "text/plain") for n, each in enumerate(values)]
    events = list(made.seal(CheckedRows(SCHEMA, given)))
    first, second = messages(events, "r1"), messages(events, "r2")
    assert first[::2] == second[::2] and len(first) == 12
    for core, mine, theirs in zip(first[::2], first[1::2], second[1::2], strict=True):
        assert parse_core(core).generation == TREE.generation
        assert (len(parse_entries(mine)), len(parse_entries(theirs))) == (2, 1)
    assert len({parse_core(core).event for core in first[::2]}) == 6
    assert not any(word in message for message in (*first, *second) for word in (b"ZYMURGY", b"payload"))
    distinct = {label for v in values for label in Labeller(SCHEMA).labels(v)}
    assert [memo.made for memo in made._publisher._tokens.values()] == [len(distinct)] * 3


def test_an_event_with_more_labels_than_a_message_carries_is_refused_by_name() -> None:
    few, many = sealer([("r1", "b1")]), sealer([("r1", f"b{n}") for n in range(60)])
    wordy = parsed(1, **{f"text{n}": "\U0001f600" * 64 for n in range(6)})
    both = CheckedRows(SCHEMA, [CheckedEvent(values, b"", "text/plain") for values in (wordy, parsed(1))])
    assert few.check(both) == {}
    ((row, refused),) = many.check(both).items()
    assert row == 0 and re.search(r"\d{4} labels for each of 60 places", refused.message)
    assert "shorter texts" in str(refused.hint)
    wide = Schema.from_json({"attributes": [{"name": f"text{n}", "type": "string"} for n in range(16)]})
    full = wide.parse(dict.fromkeys(wide.names, "x" * 65535))
    large = CheckedRows(wide, [CheckedEvent(full, bytes((1 << 20) - 200), "text/plain")])
    assert "too many to be sealed as a whole" in sealer([("r1", "b1")], wide).check(large)[0].message


@given(st.lists(st.integers(1, 60), max_size=30), st.integers(1, 8), st.integers(10, 120))
def test_frames_hold_what_they_may_and_lose_nothing(sizes: list[int], most: int, limit: int) -> None:
    events = [SealedForRoots(bytes(size), {"r1": b"x", "r2": bytes(size)}) for size in sizes]
    found = list(bounded(iter(events), attrgetter("size"), limit, most))
    assert [event for chunk in found for event in chunk] == events
    for chunk in found:
        size = sum(len(message) for message in messages(chunk, "r2"))
        assert len(chunk) == 1 or (len(chunk) <= most and size <= limit)
    for chunk, after in pairwise(found):
        more = sum(event.size for event in (*chunk, after[0]))
        assert len(chunk) == most or more > limit, "as few frames as may be"
