"""The vectorised evaluator says of every event what the reference says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.filters.worlds import Maker, columns_of, unpacked

from sealcast.errors import Misuse
from sealcast.filters import tree, vector
from sealcast.filters.evaluate import evaluate
from sealcast.filters.vector import evaluator
from sealcast.model.schema import Attribute, Schema, Type


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**40))
def test_agrees_with_the_reference_on_all_rows_and_on_some(seed: int) -> None:
    maker = Maker(seed)
    world = maker.world(conditions=12, events=25)
    expected = world.expected()
    some = np.array(sorted(maker.random.sample(range(25), 11)))
    for i, condition in enumerate(world.conditions):
        whole = vector.evaluate(condition, world.columns, world.schema, payloads=world.payloads)
        assert whole.tolist() == expected[:, i].tolist(), condition
        part = vector.evaluate(condition, world.columns, world.schema, some, world.payloads)
        assert part.tolist() == expected[some, i].tolist(), condition
        few = vector.evaluate(condition, world.columns, world.schema, some[: evaluator.FEW_ROWS], world.payloads)
        assert few.tolist() == expected[some[: evaluator.FEW_ROWS], i].tolist(), condition
