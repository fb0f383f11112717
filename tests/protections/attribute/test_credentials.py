"""Credentials against brute force, and what must not be possible with them (spec A.3)."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import CannotOpen, EventRejected, FilterRejected, Misuse
from sealcast.filters.evaluate import evaluate
from sealcast.filters.labels import StringPlan, naming
from sealcast.model.schema import Attribute, Schema, Type, Value
from sealcast.protections.attribute.credentials import EventSpace
from sealcast.protections.attribute.spaces import MAX_POSITIONS, TextSpace
from tests.effort import examples, seeds
from tests.filters.worlds import Maker
from tests.protections.attribute.asked import SCHEMA, WARDS, Asker, condition

SPACE = EventSpace(SCHEMA)
SMALL = Schema((Attribute("x", Type.INT, min=0, max=15), Attribute("y", Type.INT, min=0, max=15)))


def opens(space: EventSpace, text: str, values: Mapping[str, Value]) -> bool:
    """Whether somebody with this filter opens an event."""
    event = space.event(values)
    wanted = space.subscriptions(condition(text, space.schema))
    return any(space.matches(each, event) for each in wanted)


# --- agreement ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(range(5), daily=1))
def test_credentials_agree_with_brute_force_on_100_000_pairs(seed: int) -> None:
    asker = Asker(seed)
    events = [asker.event() for _ in range(100)]
    labels = [SPACE.event(event) for event in events]
    pairs = found = 0
    while pairs < 20_000:
        text = asker.filter()
        asked = condition(text)
        wanted = SPACE.subscriptions(asked)
        for event, has in zip(events, labels, strict=True):
            expected = evaluate(asked, event) is True
            assert any(SPACE.matches(each, has) for each in wanted) is expected, (text, event)
            pairs, found = pairs + 1, found + expected
    assert 0.1 < found / pairs < 0.9  # both happen


@examples(37, soak=150)
@given(st.integers(0, 2**32))
def test_credentials_agree_with_brute_force_in_any_world(seed: int) -> None:
    world = Maker(seed).world(conditions=6, events=12)
    space = EventSpace(world.schema)
    labels = [space.event(event) for event in world.events]
    for asked in world.conditions:
        try:
            wanted = space.subscriptions(asked)
        except FilterRejected:
            continue
        for event, payload, has in zip(world.events, world.payloads, labels, strict=True):
            expected = evaluate(asked, event, payload) is True
            assert any(space.matches(each, has) for each in wanted) is expected


def test_a_beginning_and_an_ending_of_one_string() -> None:
    text = "ward LIKE 'a%' AND ward LIKE '%12'"
    (wanted,) = SPACE.subscriptions(condition(text))
    assert wanted["ward"] == (naming.subtree("ward", (7, 1)),)
    assert wanted["ward[ending]"] == (naming.suffix("ward", "12"),)
    assert [ward for ward in WARDS if opens(SPACE, text, {"ward": ward})] == ["a12"]


# --- what an event shows --------------------------------------------------------------------------------------------


def test_every_event_has_as_many_positions() -> None:
    asker = Asker(0)
    events = [{}, *(asker.event() for _ in range(200)), {"note": "y" * 65_535}, {"note": "\U0010ffff" * 100}]
    for event in events:
        found = SPACE.event(event)
        assert {name: len(labels) for name, labels in found.items()} == {
            name: space.positions for name, space in SPACE.spaces.items()
        }
        for name, labels in found.items():
            assert labels[0] == SPACE.spaces[name].root
            there = [label for label in labels if label is not None]
            assert len(set(there)) == len(there)
            assert all(SPACE.position(name, label) == at for at, label in enumerate(labels) if label is not None)


def test_an_absent_value_has_its_root_alone() -> None:
    for name, labels in SPACE.event({}).items():
        assert labels == (SPACE.spaces[name].root, *[None] * (SPACE.spaces[name].positions - 1))


def test_the_papers_example_of_an_event() -> None:
    """Section 4.1: the event 0010 is enclosed by 0010, 001, 00, 0 and the empty name, which is five subspaces."""
    (labels, _) = EventSpace(SMALL).event({"x": 0b0010, "y": 0}).values()
    assert labels == (naming.root("x"), *(naming.block("x", b, 0b0010 >> (4 - b)) for b in range(1, 5)))


@pytest.mark.parametrize("deep", [0, 1, 5, 32, 64])
@pytest.mark.parametrize("longest", [None, 1, 3, 64, 65_535])
def test_no_space_has_more_positions_than_the_scheme_may_have(deep: int, longest: int | None) -> None:
    """F7: what profile A hides rests on far fewer labels of an attribute than the hash has bits."""
    schema = Schema((Attribute("s", Type.STRING, max_length=longest), Attribute("f", Type.FLOAT)))
    space = EventSpace(schema, StringPlan(deep, deep))
    assert all(2 <= each.positions <= MAX_POSITIONS == 128 for each in space.spaces.values())
    for text in ("", "a", "é" * 3, "\U0010ffff" * 70):
        event = space.event({"s": text[:longest], "f": 1.5})
        assert [len(labels) for labels in event.values()] == [each.positions for each in space.spaces.values()]


@pytest.mark.parametrize(
    ("attribute", "positions"),
    [
        ({"type": "int", "min": 0, "max": 255}, [9]),
        ({"type": "int"}, [65]),
        ({"type": "bool"}, [2]),
        ({"type": "string", "max_length": 6}, [31, 7]),
        ({"type": "string"}, [68, 33]),
    ],
)
def test_events_have_as_many_labels_as_the_documents_say(attribute: dict[str, object], positions: list[int]) -> None:
    space = EventSpace(Schema.from_json({"attributes": [{"name": "x", **attribute}]}))
    assert [each.positions for each in space.spaces.values()] == positions


# --- what a filter may not do ---------------------------------------------------------------------------------------


def test_what_is_not_asked_for_has_the_root_of_its_own_space() -> None:
    (wanted,) = SPACE.subscriptions(condition("pulse > 100"))
    assert {name: labels for name, labels in wanted.items() if name != "pulse"} == {
        name: (space.root,) for name, space in SPACE.spaces.items() if name != "pulse"
    }
    # A root of one attribute is no label of another: nobody steps over a constraint with it.
    for name in SPACE.spaces:
        others = [space.root for other, space in SPACE.spaces.items() if not other.startswith(name.partition("[")[0])]
        for root in others:
            with pytest.raises(Misuse, match="no event"):
                SPACE.position(name, root)


def test_or_makes_subscriptions_that_do_not_mix() -> None:
    """Section 4.3's example: what matches half of one subscription and half of another matches neither."""
    text = "(x BETWEEN 1 AND 2 AND y = 3) OR (x BETWEEN 8 AND 9 AND y = 12)"
    space = EventSpace(SMALL)
    assert len(space.subscriptions(condition(text, SMALL))) == 2
    assert opens(space, text, {"x": 1, "y": 3}) and opens(space, text, {"x": 9, "y": 12})
    assert not opens(space, text, {"x": 1, "y": 12}) and not opens(space, text, {"x": 9, "y": 3})


def test_alternatives_of_one_attribute_are_one_subscription() -> None:
    assert len(SPACE.subscriptions(condition("pulse IN (30, 99, 120) AND (ward = 'a1' OR ward LIKE 'b%')"))) == 1


def test_a_filter_that_no_event_matches_needs_no_keys() -> None:
    assert SPACE.subscriptions(condition("pulse > 100 AND pulse < 50")) == ()
    # The attribute holds twelve characters at the most.
    assert SPACE.subscriptions(condition(f"ward LIKE '{'z' * 13}%'")) == ()
    assert SPACE.subscriptions(condition(f"ward = '{'z' * 13}'")) == ()
    assert opens(SPACE, f"ward >= '{'x' * 12}yy' OR urgent", {"ward": "y"})


@pytest.mark.parametrize("text", ["ward LIKE 'ÄÄÄÄÄ%'", "ward > 'ÄÄÄÄÄ'", f"note < '{'Ä' * 10}'"])
def test_what_lies_deeper_than_events_go_is_refused_by_name(text: str) -> None:
    with pytest.raises(FilterRejected, match="more of a text than events have labels for") as refused:
        SPACE.subscriptions(condition(text))
    assert refused.value.kind == "limit" and text.partition(" ")[0] in refused.value.message
    assert "14 characters in ASCII or 4 in other scripts" in refused.value.message or text.startswith("note")
    assert refused.value.hint == "texts can be compared with = and IN at any length"


def test_equality_needs_no_depth() -> None:
    long = "Ä" * 12
    assert opens(SPACE, f"ward = '{long}'", {"ward": long}) and not opens(SPACE, f"ward = '{long}'", {"ward": "Ä" * 11})
    note = "\U0001f600" * 500
    assert opens(SPACE, f"note IN ('{note}', 'a')", {"note": note})


# --- what publishers may publish ------------------------------------------------------------------------------------


def test_a_publisher_signs_with_the_label_that_its_value_lies_below() -> None:
    may = SPACE.advertisement(condition("ward LIKE 'a%' AND pulse BETWEEN 40 AND 180"))
    event = {**SCHEMA.parse({}), "ward": "a12", "pulse": 100}
    used = SPACE.signing(may, SPACE.event(event))
    assert used["ward"] == naming.subtree("ward", (7, 1)) and used["note"] == naming.root("note")
    SPACE.verify(event, used, "the publisher's credential")
    with pytest.raises(EventRejected, match="may not publish an event with this value of 'ward'") as refused:
        SPACE.signing(may, SPACE.event({**event, "ward": "b1"}))
    assert refused.value.attribute == "ward"


def test_a_publisher_of_everything() -> None:
    assert SPACE.advertisement(condition("TRUE")) == SPACE.everything
    SPACE.verify({}, SPACE.signing(SPACE.everything, SPACE.event({})), "it")


@pytest.mark.parametrize(
    "text", ["ward = 'a' AND pulse = 30 OR ward = 'b' AND pulse = 31", "pulse < 50 AND pulse > 60"]
)
def test_keys_of_a_publisher_are_for_one_conjunction(text: str) -> None:
    with pytest.raises(FilterRejected, match="may publish"):
        SPACE.advertisement(condition(text))


def test_a_value_inside_that_its_label_does_not_cover_is_refused() -> None:
    """The ciphertexts are for ward a1, the message inside says b1."""
    honest = {**SCHEMA.parse({}), "ward": "a1", "pulse": 99, "temperature": Decimal("37.5")}
    (wanted,) = SPACE.subscriptions(condition("ward = 'a1' AND pulse < 100"))
    used = SPACE.signing(wanted, SPACE.event(honest))
    SPACE.verify(honest, used, "the subscription")
    for lie in ({"ward": "b1"}, {"ward": None}, {"pulse": 100}, {"pulse": None}):
        with pytest.raises(CannotOpen, match=f"the subscription does not cover the value of '{next(iter(lie))}'"):
            SPACE.verify({**honest, **lie}, used, "the subscription")


def test_signed_labels_must_be_for_all_spaces_and_no_others() -> None:
    used = {name: space.root for name, space in SPACE.spaces.items()}
    for wrong in ({**used, "more": b"R"}, {name: label for name, label in used.items() if name != "ward"}, {}):
        with pytest.raises(CannotOpen, match="not for the attributes"):
            SPACE.verify({}, wrong, "the signature")
    with pytest.raises(CannotOpen, match="does not cover"):
        SPACE.verify({}, {**used, "ward": b"nonsense"}, "the signature")


# --- labels of others -----------------------------------------------------------------------------------------------

HOSTILE = [
    ("pulse", b""),
    ("pulse", naming.block("pulse", 9, 0)),  # deeper than the domain
    ("pulse", naming.block("pulse", 0, 0)),
    ("pulse", naming.block("pulse", 2, 4)),  # more than two bits
    ("pulse", naming.block("pulse", 2, 1) + b"\0"),
    ("pulse", naming.block("temperature", 2, 1)),
    ("ward", naming.block("ward", 2, 1)),
    ("ward", naming.suffix("ward", "a")),
    ("ward", naming.subtree("ward", (10,))),
    ("ward", naming.subtree("ward", (0,))),  # the end of a text is the text's own label
    ("ward", naming.subtree("ward", (7, 1, 0))),
    ("ward", naming.subtree("ward", (7, 16))),
    ("ward", naming.subtree("ward", (9, 15))),  # beyond Unicode
    ("ward", naming.subtree("ward", (7, 1) * 15)),
    ("ward", naming.head("ward") + b"T" + bytes(1000)),
    ("ward", naming.head("ward") + b"E\xff"),
    ("ward[ending]", naming.suffix("ward", "")),
    ("ward[ending]", naming.suffix("ward", "x" * 13)),
    ("ward[ending]", naming.head("ward") + b"S\xff"),
    ("nobody", naming.root("nobody")),
]


@pytest.mark.parametrize(("space", "label"), HOSTILE)
def test_what_is_no_label_is_refused(space: str, label: bytes) -> None:
    with pytest.raises(Misuse):
        SPACE.position(space, label)
    with pytest.raises(Misuse):
        SPACE.checked({**SPACE.everything, space: (label,)})
    if space in SPACE.spaces:
        assert SPACE.spaces[space].path(label) == () and SPACE.spaces[space].children(label) == ()


def test_labels_are_stated_once_and_for_every_space() -> None:
    assert SPACE.checked(SPACE.everything) == SPACE.everything
    root = naming.root("ward")
    for wrong in ({}, {**SPACE.everything, "ward": ()}, {**SPACE.everything, "ward": (root, root)}):
        with pytest.raises(Misuse):
            SPACE.checked(wrong)


def test_a_path_is_what_holds_a_label() -> None:
    """Whoever has a label of the path has every event that has the label."""
    asker = Asker(1)
    events = [SPACE.event(asker.event()) for _ in range(100)]
    for name, space in SPACE.spaces.items():
        for label in {label for event in events for label in event[name] if label is not None}:
            path = space.path(label)
            assert path[0] == space.root and path[-1] == label and len(path) <= space.positions
            for above in path:
                assert all(above in event[name] for event in events if label in event[name])


def test_children_hold_what_their_label_holds() -> None:
    """For peers that split a credential among parents: nothing is lost, nothing is won, nothing comes twice."""
    asker = Asker(2)
    events = [SPACE.event(asker.event()) for _ in range(100)]
    split = 0
    for name, space in SPACE.spaces.items():
        for label in {label for event in events for label in event[name] if label is not None}:
            children = space.children(label)
            assert len(set(children)) == len(children)
            for child in children:
                assert label in space.path(child)
            if children:
                split += 1
                for event in events:
                    assert sum(child in event[name] for child in children) == (label in event[name])
    assert split > 50
    ward = SPACE.spaces["ward"]
    assert isinstance(ward, TextSpace) and not ward.children(naming.subtree("ward", (7, 1) * 14))
