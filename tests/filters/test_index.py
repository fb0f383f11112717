"""The index finds exactly the subscriptions whose filters are true: against the reference, one pair at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.filters.worlds import Maker, unpacked

from sealcast.filters.index import Index, plan

#: Every way of finding boxes must find the same: what the plan would never choose for so few is forced on it.
PLANS = {
    "as planned": {},
    "blocks": {"SMALL_WORDS": 0, "DENSE_MATCHES": 1e9, "MAX_LOAD": 0},
    "own blocks": {"SMALL_WORDS": 0, "DENSE_MATCHES": 1e9, "MAX_LOAD": 0, "_OWN_BLOCKS": 1},
    "lists": {"SMALL_WORDS": 0, "DENSE_MATCHES": 1e9, "MAX_LOAD": 10**6, "_OWN_BLOCKS": 1},
    "some dense": {"SMALL_WORDS": 0, "DENSE_MATCHES": 5.0, "_OWN_BLOCKS": 2},
}


@pytest.mark.parametrize("chosen", PLANS)
@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**40))
def test_agrees_with_the_reference(chosen: str, seed: int) -> None:
    world = Maker(seed).world(conditions=90, events=20)
    with pytest.MonkeyPatch.context() as patched:
        for name, value in PLANS[chosen].items():
            patched.setattr(plan, name, value)
        index = Index.build(world.conditions, world.schema)
    found = unpacked(index.match(world.columns, world.payloads), len(world.conditions))
    events, subscriptions = index.pairs(world.columns, world.payloads)
    assert np.array_equal(np.stack([events, subscriptions], axis=1), np.argwhere(found))
    wrong = np.argwhere(found != world.expected())
    assert not wrong.size, (world.events[wrong[0][0]], world.conditions[wrong[0][1]])
