"""Padded topics: every event leaves its publisher with as many labels as the schema allows."""

from __future__ import annotations

from random import Random

import pytest

from sealcast.errors import ParameterRejected
from sealcast.filters.labels import Labeller
from sealcast.lab.curious.workload import SCHEMA
from sealcast.lab.shikfa.net import Net
from sealcast.model.protection import Layered, protection_of
from sealcast.model.schema import Attribute, Schema, Type
from sealcast.primitives.curve import CURVE
from sealcast.protections.checked import CheckedEvent, CheckedRows
from sealcast.protections.layered.sealing import NotificationSealer
from sealcast.protections.layered.tree import Tree, TreeId
from sealcast.wire.notifications import parse_entries

EVENTS = [{"symbol": "A", "price": 3}, {"symbol": "LONGER", "price": 60, "lot": 7}, {}]


def sealer(schema: Schema, *, padded: bool, nodes: int = 2) -> NotificationSealer:
    tree = Tree("P", {"A": "P"} | {f"B{i}": "A" for i in range(nodes)}, 2)
    layers = Net(tree, CURVE, Random(1)).layers["P"]
    return NotificationSealer(schema, bytes(16), TreeId("P", 1, 0), layers, tree.targets(frozenset()), padded=padded)


def counts(made: NotificationSealer) -> list[set[int]]:
    """How many tokens the entries of each event have."""
    sealed = made.seal(CheckedRows(SCHEMA, [CheckedEvent(values, b"x", "text/plain") for values in EVENTS]))
    return [{len(set(tokens)) for tokens, _, _ in parse_entries(event.entries["A"])} for event in sealed]


def test_padded_events_have_equally_many_labels() -> None:
    labeller = Labeller(SCHEMA)
    assert counts(sealer(SCHEMA, padded=False)) == [{len(set(labeller.labels(values)))} for values in EVENTS]
    assert counts(sealer(SCHEMA, padded=True)) == [{labeller.most()}] * len(EVENTS)


def test_what_would_not_fit_padded_is_refused_before() -> None:
    texts = Schema(tuple(Attribute(f"s{i}", Type.STRING) for i in range(30)))
    event = CheckedRows(texts, [CheckedEvent({"s0": "short"}, b"", "text/plain")])
    assert not sealer(texts, padded=False, nodes=40).check(event)
    assert "labels for each of 40 places" in sealer(texts, padded=True, nodes=40).check(event)[0].message


def test_a_topic_is_padded_or_not() -> None:
    assert not Layered().padded
    padded = Layered(3, padded=True)
    assert protection_of("layered", padded.to_json()) == padded
    assert protection_of("layered", {"layers": 2, "group": "secp256k1"}) == Layered()
    with pytest.raises(ParameterRejected):
        Layered(padded="yes")  # type: ignore[arg-type]
