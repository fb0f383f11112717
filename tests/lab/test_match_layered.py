"""`match --protection layered` against brute force: one that shares nothing with the product, and the reference
evaluator. The kernels are those that Spark runs; most worlds drive them by hand, one goes through Spark itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle

from sealcast.clients.publisher import admissible
from sealcast.errors import Bug, CannotOpen, FilterRejected, Misuse, SealcastError
from sealcast.filters.check import check
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.lab import scratch
from sealcast.lab.layered import nodes as rooms
from sealcast.lab.layered import pieces, run, stages
from sealcast.lab.layered.network import PUBLISHER, Network
from sealcast.lab.layered.nodes import GROUP, Nodes
from sealcast.lab.match import check_protection, match
from sealcast.lab.match_input import Asked, Given, Inputs, read
from sealcast.model import Event, Schema
from sealcast.protections.layered.messages import Entry, Notification
from sealcast.protections.layered.route import Broker
from sealcast.protections.layered.tree import Path as Hops
from tests.cli.shell import sealcast
from tests.lab.test_match import Says, World, abandoned, pairs, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Labelled(World):
    """Filters that labels can express, endings and beginnings with endings among them."""

    def leaf(self) -> tuple[str, Says]:
        texts = [name for name, kind in self.kind.items() if kind == "string"]
        if self.random.random() < 0.1:
            name, ending = self.random.choice(texts), self.random.choice(["b", "bc", "ch", "s", "x"])
            start = self.random.choice(["", "a", "Z"])
            return (
                f"{name} LIKE '{start}%{ending}'",
                lambda e: (
                    None
                    if e.get(name) is None
                    else len(e[name]) >= len(start + ending) and e[name].startswith(start) and e[name].endswith(ending)
                ),
            )
        return super().leaf()

    def expressible(self, count: int) -> list[tuple[str, Says]]:
        found: list[tuple[str, Says]] = []
        while len(found) < count:
            text, says = self.condition()
            try:
                run.in_labels([Asked(0, text)], self.schema)
            except FilterRejected as error:
                assert error.kind in ("inexpressible", "limit") and error.hint
            else:
                found.append((text, says))
        return found


def inputs_of(world: World, asked: Sequence[tuple[str, Says]], happened: Sequence[dict[str, Any]]) -> Inputs:
    return Inputs(
        world.schema,
        tuple(Asked(number, text) for number, (text, _) in enumerate(asked)),
        tuple(Given(number, Event(plain(event))) for number, event in enumerate(happened)),
    )


def truth(inputs: Inputs, asked: Sequence[tuple[str, Says]], happened: Sequence[dict[str, Any]]) -> set[object]:
    """What the test says, which is what the reference evaluator says."""
    expected = {(e, s) for e, event in enumerate(happened) for s, (_, says) in enumerate(asked) if says(event) is True}
    conditions = [check(parse(one.filter), inputs.schema).condition for one in inputs.subscriptions]
    values = [inputs.schema.parse(given.event.attributes) for given in inputs.events]
    assert {
        (e, s) for e, v in enumerate(values) for s, c in enumerate(conditions) if evaluate(c, v) is True
    } == expected
    return set(expected)


class Driven:
    """A run without Spark: the same kernels on the same batches, one after the other."""

    def __init__(self, root: Path, inputs: Inputs, layers: int) -> None:
        self.network = Network(layers, len(inputs.subscriptions))
        self.nodes = Nodes(root, self.network)
        self.nodes.create(run.in_labels(inputs.subscriptions, inputs.schema).filters)
        events = [(n, admissible(inputs.schema, given.event)) for n, given in enumerate(inputs.events)]
        self.files = run._put(self.nodes, events, inputs.schema)
        self.schema = inputs.schema.to_json()

    def subscribe(self) -> None:
        sent = pa.Table.from_batches(list(stages._subscribe(self.get)(numbers(self.network.subscribers))))
        for level in reversed(self.network.levels):
            parts = [sent.filter(pc.equal(sent["node"], name)) for name in level]
            sent = pa.concat_tables([stages._build(self.get)(part) for part in parts if part.num_rows])
        assert not sent.num_rows, "the publisher got a filter"

    def deliver(self) -> list[pa.RecordBatch]:
        arrived = list(stages._publish(self.get, self.schema)(numbers(self.files)))
        for _ in self.network.levels:
            arrived = list(stages._hop(self.get)(iter(arrived)))
        return arrived

    def open(self, arrived: list[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches(list(stages._open(self.get)(iter(arrived))), schema=stages._OPENED)

    def get(self) -> Nodes:
        return self.nodes


def numbers(count: int) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"id": list(range(count))})])


def driven(root: Path, inputs: Inputs, layers: int) -> set[object]:
    one = Driven(root, inputs, layers)
    one.subscribe()
    opened = one.open(one.deliver())
    assert not sum(opened["unopened"].to_pylist())
    found = [
        pair
        for row in opened.to_pylist()
        for pair in zip(*(memoryview(row[name]).cast("q").tolist() for name in ("places", "subscribers")), strict=True)
    ]
    assert len(set(found)) == len(found), "a pair came twice"
    return set(found)


# --- agreement ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "layers"), [(1, 2), (2, 3), (3, 2), (5, 5)])
def test_the_kernels_agree_with_brute_force(tmp_path: Path, seed: int, layers: int) -> None:
    world = Labelled(seed)
    asked, happened = world.expressible(30), [world.event() for _ in range(12)]
    inputs = inputs_of(world, asked, happened)
    expected = truth(inputs, asked, happened)
    assert driven(tmp_path, inputs, layers) == expected and len(expected) > 50


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 160))
def test_the_kernels_agree_with_brute_force_for_long(tmp_path: Path, seed: int) -> None:
    world = Labelled(seed)
    asked, happened = world.expressible(60), [world.event() for _ in range(40)]
    inputs = inputs_of(world, asked, happened)
    assert driven(tmp_path, inputs, 2 + seed % 4) == truth(inputs, asked, happened)


def test_through_spark_with_everything_that_may_stand_in_the_files(spark: SparkSession) -> None:
    schema = Schema.from_json(
        {
            "attributes": [
                {"name": "n", "type": "int", "min": 0, "max": 9, "step": 3},
                {"name": "s", "type": "string"},
                {"name": "d", "type": "decimal", "min": "-1", "max": "1", "step": "0.05"},
            ]
        }
    )
    given: list[tuple[object, dict[str, object]]] = [
        ("three", {"n": 3, "s": "abc", "d": "0.05"}),
        ("nothing", {}),
        ("over", {"n": 12}),
        ("off", {"n": 4}),
        ("type", {"n": "3"}),
        ("name", {"m": 3}),
        ("nine", {"n": 9, "s": "", "d": -1}),
    ]
    asked = {
        "all": "TRUE",
        "some": "n >= 0",
        "either": "n = 3 OR s LIKE '%c' OR d < -0.5",
        "not": "NOT (n = 3)",
        "same": "n >= 0",
        "never": "n = 4",
        "no": "FALSE",
        "absent?": "n = 3 OR NOT (n = 3)",
    }
    before = abandoned()
    inputs = Inputs(
        schema,
        tuple(Asked(id, text) for id, text in asked.items()),
        tuple(Given(id, Event(values)) for id, values in given),  # type: ignore[arg-type]
    )
    outcome = match(inputs, "layered", spark=spark)
    assert pairs(outcome) == {
        *((e, "all") for e in ("three", "nothing", "nine")),
        *((e, s) for e in ("three", "nine") for s in ("some", "same", "either", "absent?")),
        ("nine", "not"),
    }
    # The same events are refused, in the same words, as `endpoint` refuses.
    assert [(r.id, r.attribute) for r in outcome.refused] == [("over", "n"), ("off", "n"), ("type", "n"), ("name", "m")]
    summary = outcome.summary()
    assert summary["rejected"] == 4 and summary["events"] == 7 and summary["protection"] == "layered"
    assert set(summary["seconds"]) == set(run.STAGES)  # type: ignore[call-overload]
    assert abandoned() <= before
    check_protection("layered", 16)


def test_without_events_or_subscriptions_nothing_is_even_started() -> None:
    schema = Schema.from_json({"attributes": [{"name": "n", "type": "int"}]})
    for inputs in (Inputs(schema, (Asked(1, "n = 2"),), ()), Inputs(schema, (), (Given(1, Event({"n": 1})),))):
        assert match(inputs, "layered").event.size == 0


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["n IS NULL", "n * 2 > 3", "s LIKE '%a%'", "xpath:/a/b = 7", "n = m"])
def test_what_labels_cannot_express_is_refused_by_name(tmp_path: Path, text: str) -> None:
    attributes = [{"name": "n", "type": "int"}, {"name": "m", "type": "int"}, {"name": "s", "type": "string"}]
    paths = [tmp_path / name for name in ("schema", "subscriptions", "events")]
    paths[0].write_text(json.dumps({"attributes": attributes}))
    lines = [{"id": "fine", "filter": "n > 0"}, {"id": "other", "filter": text}]
    paths[1].write_text("\n".join(map(json.dumps, lines)))
    paths[2].write_text('{"id": 1, "attributes": {}}')
    with pytest.raises(FilterRejected) as refused:
        match(read(*paths), "layered")
    assert f"{paths[1]}:2: subscription 'other', at character" in refused.value.message
    assert "labels express" in (refused.value.hint or "")
    options = [f"--{name}={path}" for name, path in zip(("schema", "subscriptions", "events"), paths, strict=True)]
    told = sealcast("match", *options, "--protection", "layered")
    assert told.code == 1 and "subscription 'other'" in told.err


def test_a_filter_of_values_that_the_domain_lacks_earns_a_warning() -> None:
    schema = Schema.from_json({"attributes": [{"name": "n", "type": "int", "min": 0, "max": 9, "step": 3}]})
    found = run.in_labels([Asked("x", "n = 4", "file:1"), Asked("y", "n = 3", "file:2")], schema)
    assert not found.filters[0].conjunctions and found.filters[1].conjunctions
    warned = [*found.warnings, *(w.message for w in check(parse("n = 4"), schema).warnings)]
    assert len(warned) == 1


@pytest.mark.parametrize(("protection", "layers"), [("layered", 1), ("layered", 17), ("endpoint", 2)])
def test_layers_that_there_cannot_be(protection: str, layers: int) -> None:
    with pytest.raises(Misuse):
        check_protection(protection, layers)


# --- what must not pass ---------------------------------------------------------------------------------------------

SMALL = Inputs(
    Schema.from_json({"attributes": [{"name": "n", "type": "int", "min": 0, "max": 7}]}),
    tuple(Asked(s, f"n >= {s}") for s in range(4)),
    tuple(Given(e, Event({"n": e})) for e in range(8)),
)


class Nearest(Broker):
    """A wrong rule: the layer of the next node instead of the last one's."""

    def relay_key(self, path: Hops) -> str:
        return path[0]


class Everything(Broker):
    """A broker that peels and does not put back on."""

    def put_on(self, token: Any) -> bytes:
        return GROUP.encode(token)


@pytest.mark.parametrize("wrong", [Nearest, Everything])
def test_a_wrong_rule_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: type[Broker]) -> None:
    monkeypatch.setattr(rooms, "Broker", wrong)
    try:
        found = driven(tmp_path, SMALL, 2)
    except (AssertionError, SealcastError):
        return
    assert found != {(e, s) for e in range(8) for s in range(4) if e >= s}


def test_what_was_sent_to_one_subscriber_opens_for_no_other(tmp_path: Path) -> None:
    one = Driven(tmp_path, SMALL, 2)
    one.subscribe()
    rows = [row for batch in one.deliver() for row in batch.to_pylist()]
    tried = 0
    for name, _, message in (m for row in rows for m in pieces.messages(row, GROUP.wire_bytes)):
        assert one.nodes.opener(name).open(message)
        for other in (f"s{n}" for n in range(4) if f"s{n}" != name):
            with pytest.raises(CannotOpen):
                one.nodes.opener(other).open(message)
            tried += 1
    assert tried > 60


def test_a_spoiled_delivery_is_an_error_and_no_missing_pair(tmp_path: Path) -> None:
    one = Driven(tmp_path, SMALL, 2)
    one.subscribe()
    batch = one.deliver()[0]
    row = batch.to_pylist()[0]
    row["bodies"] = bytes([row["bodies"][0] ^ 1]) + row["bodies"][1:]
    opened = one.open([pa.RecordBatch.from_pylist([row], schema=pieces.COLUMNS)])
    assert sum(opened["unopened"].to_pylist()) == 1

    class Spoiled:
        def open(self, arrived: object) -> pa.Table:
            return opened

    with pytest.raises(Bug, match="1 deliveries did not open"):
        run._opened(Spoiled(), None)  # type: ignore[arg-type]


# --- keys stay where they are ---------------------------------------------------------------------------------------


def test_no_key_is_in_what_spark_ships(tmp_path: Path) -> None:
    one = Driven(tmp_path, SMALL, 3)
    one.subscribe()
    one.deliver()  # this process has become everybody
    root, layers, count = str(tmp_path), 3, 4
    get = stages.Stages(None, root, layers, count, 1)._nodes()  # type: ignore[arg-type]
    kernels = (stages._subscribe(get), stages._build(get), stages._publish(get, one.schema), stages._hop(get))
    shipped = b"".join(cloudpickle.dumps(kernel) for kernel in (*kernels, stages._open(get)))
    assert root.encode() in shipped
    for path in (tmp_path / "keys").iterdir():
        assert path.read_bytes() not in shipped and path.stat().st_mode & 0o077 == 0
    with pytest.raises(Misuse):
        cloudpickle.dumps(one.nodes.broker("b0").layers)


def test_each_has_its_own_key_and_pairs_agree_only_up_to_r_hops(tmp_path: Path) -> None:
    one = Driven(tmp_path, SMALL, 2)
    keys = {path.name: path.read_bytes() for path in (tmp_path / "keys").iterdir()}
    assert set(keys) == {PUBLISHER, "b0", "b1", "b2", "b3", "s0", "s1", "s2", "s3"} and len(set(keys.values())) == 9
    layers = {name: one.nodes._layers(name) for name in keys}
    for descendant, ancestor in one.network.tree.pairs():
        assert layers[descendant].key(ancestor).packed == layers[ancestor].key(descendant).packed
    with pytest.raises(SealcastError):
        layers[PUBLISHER].key("s0")  # no secret from end to end
    with pytest.raises(SealcastError):
        layers["b0"].key("s0")


def test_a_run_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(scratch, "place", lambda need: tmp_path)
    with pytest.raises(KeyError), scratch.directory(0) as root:
        Driven(root, SMALL, 2)
        assert root.stat().st_mode & 0o777 == 0o700
        raise KeyError
    assert list(tmp_path.iterdir()) == []


# --- pieces ---------------------------------------------------------------------------------------------------------


def test_a_piece_says_what_was_put_in() -> None:
    entry = [Entry((bytes([n]) * 33, bytes([n + 1]) * 33), bytes([n]) * 33, n % 2 == 0) for n in range(5)]
    sent = [
        ("x", 7, Notification(b"e" * 16, (entry[0], entry[1]), b"body")),
        ("y", 7, Notification(b"e" * 16, (entry[2],), b"body")),
        ("x", 3, Notification(b"f" * 16, (Entry((), b"k" * 33, True), entry[4]), b"")),
    ]
    writer = pieces.Writer("node", 1)
    for one in sent:
        writer.add(*one)
    (row,) = pieces.batch({"node": writer}).to_pylist()
    assert list(pieces.messages(row, 33)) == sent
    assert len(row["bodies"]) == 4 and len(row["tokens"]) == 33 * 6
    row["entry_sizes"] = row["entry_sizes"][:-4]
    with pytest.raises(SealcastError):
        list(pieces.messages(row, 33))
