"""The joint space of all numbers against brute force, and what it costs beside separate ones (paper 003, 4.1)."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import FilterRejected, Misuse
from sealcast.filters.evaluate import evaluate
from sealcast.model.schema import Attribute, Schema, Type, Value
from sealcast.protections.attribute.credentials import EventSpace
from sealcast.protections.attribute.joint import JointSpace
from sealcast.protections.attribute.spaces import NumberSpace
from tests.effort import examples
from tests.protections.attribute.asked import SCHEMA, Asker, condition


def plane(*counts: int) -> Schema:
    return Schema(tuple(Attribute(f"x{i}", Type.INT, min=0, max=n - 1) for i, n in enumerate(counts)))


def joint_of(schema: Schema) -> JointSpace:
    found = EventSpace(schema, joint=True).joint
    assert found is not None
    return found


def points(schema: Schema) -> list[dict[str, Value]]:
    """Every event, absent values included."""
    domains = [[*range(int(str(a.max)) + 1), None] for a in schema.attributes]
    return [dict(zip(schema.names, point, strict=True)) for point in product(*domains)]


# --- agreement ------------------------------------------------------------------------------------------------------


@examples(40, soak=200)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(0, 2**32))
def test_boxes_agree_with_brute_force(counts: list[int], seed: int) -> None:
    schema, random = plane(*counts), Random(seed)
    space = joint_of(schema)
    box = []
    for n in counts:
        held = sorted(random.sample(range(n), random.randint(1, n)))
        ranges: list[tuple[int, int]] = []
        for place in held:
            if ranges and ranges[-1][1] == place - 1:
                ranges[-1] = ranges[-1][0], place
            else:
                ranges.append((place, place))
        box.append(None if random.random() < 0.2 else ranges)
    labels = set(space.cover(box))
    for event in points(schema):
        inside = all(
            ranges is None or (value is not None and any(low <= int(str(value)) <= high for low, high in ranges))
            for ranges, value in zip(box, event.values(), strict=True)
        )
        assert sum(label in labels for label in space.labels(event)) == inside, (box, event)


@examples(25, soak=100)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=3), st.data())
def test_a_box_takes_as_few_subspaces_as_can_be(counts: list[int], data: st.DataObject) -> None:
    schema = plane(*counts)
    space = joint_of(schema)
    box = []
    for n in counts:
        low = data.draw(st.integers(0, n - 1))
        box.append([(low, data.draw(st.integers(low, n - 1)))])
    paths = [space.labels(event) for event in points(schema)]
    wanted = set(space.cover(box))
    inside = {path[-1] for path in paths if wanted.intersection(path)}

    def fewest(label: bytes) -> int:
        below = {path[-1] for path in paths if label in path}
        if not below & inside:
            return 0
        return 1 if below <= inside else sum(map(fewest, space.children(label)))

    assert len(wanted) == fewest(space.root)


def test_filters_agree_with_brute_force_in_joint_space() -> None:
    """Strings keep spaces of their own beside the joint one."""
    asker, space = Asker(7), EventSpace(SCHEMA, joint=True)
    assert list(space.spaces) == ["[joint]", "ward", "ward[ending]", "note", "note[ending]"]
    events = [asker.event() for _ in range(60)]
    labels = [space.event(event) for event in events]
    for _ in range(120):
        text = asker.filter()
        asked = condition(text)
        wanted = space.subscriptions(asked)
        for event, has in zip(events, labels, strict=True):
            assert any(space.matches(each, has) for each in wanted) is (evaluate(asked, event) is True), (text, event)
            space.verify(event, {name: found[0] or b"" for name, found in has.items()}, "the root")


def test_the_papers_figure() -> None:
    """Two attributes, halved in turn: a half of one and the lower half of the other's halves are two subspaces."""
    schema = plane(3, 3)  # the fourth place is for the absent
    space = joint_of(schema)
    assert space.turns == (0, 1, 0, 1)
    names = [(space.position(label), label[-1]) for label in space.cover([[(0, 1)], [(0, 0)]])]
    assert names == [(4, 0b0000), (4, 0b0010)]
    assert len(space.labels({"x0": 0, "x1": 1})) == 5


# --- labels of others, and limits -----------------------------------------------------------------------------------


def test_what_is_no_subspace_is_refused() -> None:
    space = joint_of(plane(3, 3))
    good = space.cover([[(0, 0)], None])[0]
    assert space.path(good)[0] == space.root and space.path(good)[-1] == good
    deep = good[:3] + b"\x05" + bytes(16)
    for wrong in (b"", good[:-1], good + b"\0", deep, good[:3] + b"\x01" + bytes(15) + b"\x02", b"\0\0Y" + good[3:]):
        assert space.position(wrong) == -1 and space.path(wrong) == () and space.children(wrong) == ()


def test_a_space_of_more_bits_than_the_scheme_may_have_is_refused() -> None:
    wide = Schema((Attribute("a", Type.INT), Attribute("b", Type.INT)))
    with pytest.raises(Misuse, match="takes 130 bits, and 127 are allowed") as refused:
        EventSpace(wide, joint=True)
    assert refused.value.hint is not None and "coarser steps" in refused.value.hint
    assert EventSpace(wide).positions == 130  # apart they are fine: 65 each


def test_a_box_with_a_large_surface_is_refused() -> None:
    schema = plane(2**20, 2**20, 2**20)
    with pytest.raises(FilterRejected, match="more than 4096 labels") as refused:
        EventSpace(schema, joint=True).subscriptions(
            condition(" AND ".join(f"x{i} BETWEEN 12345 AND 987654" for i in range(3)), schema)
        )
    assert refused.value.kind == "limit"


def test_without_numbers_there_is_no_joint_space() -> None:
    assert EventSpace(Schema((Attribute("s", Type.STRING),)), joint=True).joint is None


# --- what each form costs -------------------------------------------------------------------------------------------


def test_apart_attributes_take_the_sum_and_together_the_surface() -> None:
    """Why the paper gives up its first form: with every attribute more, labels multiply."""
    apart, together = [], []
    for d in (1, 2, 3):
        schema = plane(*[31] * d)
        asked = condition(" AND ".join(f"x{i} BETWEEN 5 AND 20" for i in range(d)), schema)
        apart.append(EventSpace(schema).counts(asked))
        together.append(EventSpace(schema, joint=True).counts(asked))
    assert [each.labels for each in apart] == [5, 10, 15]
    assert together[0].labels == apart[0].labels
    assert together[1].labels > 4 * apart[1].labels and together[2].labels > 10 * together[1].labels
    # What it saves is spaces, and so pairings; an event has nearly as many labels.
    assert [each.positions for each in together] == [6, 11, 16]
    assert [each.positions for each in apart] == [6, 12, 18]


def test_numbers_of_any_type_have_places_in_the_joint_space() -> None:
    joint = JointSpace((NumberSpace(SCHEMA.by_name["urgent"]), NumberSpace(SCHEMA.by_name["temperature"])))
    assert joint.attributes == ("urgent", "temperature")
    assert len({joint.labels({"urgent": u})[-1] for u in (True, False, None)}) == 3
