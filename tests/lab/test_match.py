"""`sealcast match` against brute force: a direct one written here, which shares nothing with the product, and the
reference evaluator. Every pair went through keys, sealing, Spark and opening on its way."""

from __future__ import annotations

import fcntl
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sealcast.errors import Bug, FilterRejected, Misuse, Rejected, SchemaRejected
from sealcast.filters.check import check
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.lab import match as lab
from sealcast.lab import match_input, match_outcome, scratch
from sealcast.lab.match import MatchOutcome, match
from sealcast.lab.match_input import Asked, GivenEvent, Inputs, read
from sealcast.model import Event, Schema
from tests.clients.pump import pump
from tests.effort import seeds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Truth = bool | None
#: What a filter says of an event, by the test's own lights.
Says = Callable[[dict[str, Any]], Truth]

# --- three-valued logic, written out once more --------------------------------------------------------------


def both(a: Truth, b: Truth) -> Truth:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def opposite(a: Truth) -> Truth:
    return None if a is None else not a


def either(a: Truth, b: Truth) -> Truth:
    return opposite(both(opposite(a), opposite(b)))


# --- random schemas, values and filters ---------------------------------------------------------------------

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
WORDS = ["a", "ab", "abc", "b", "Zürich", "it's", "100%", "_x", "ナ", ""]


class World:
    """A random schema, and what can be said over it: each filter as a text and as a function."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        kinds = [self.random.choice(["int", "float", "decimal", "string", "bool", "timestamp"]) for _ in range(4)]
        self.kind = {f"{kind[0]}{number}": kind for number, kind in enumerate([*kinds, "int", "string"])}
        self.schema = Schema.from_json({"attributes": [self._attribute(n, k) for n, k in self.kind.items()]})

    def _attribute(self, name: str, kind: str) -> dict[str, object]:
        domain: dict[str, dict[str, object]] = {
            "int": {"min": -20, "max": 20},
            "float": {"min": -10, "max": 10},
            "decimal": {"min": "-5", "max": "5", "step": "0.05"},
            "string": {"max_length": 12},
            "timestamp": {"step": 1000},
        }
        return {"name": name, "type": kind, **domain.get(kind, {})}

    def value(self, kind: str) -> Any:
        r = self.random
        match kind:
            case "int":
                return r.randint(-20, 20)
            case "float":
                return r.choice([r.uniform(-10, 10), float(r.randint(-10, 10)), 0.1 + 0.2])
            case "decimal":
                return Decimal(r.randint(-100, 100) * 5).scaleb(-2)
            case "string":
                return r.choice(WORDS)
            case "bool":
                return r.random() < 0.5
            case _:
                return EPOCH + timedelta(seconds=r.randint(0, 50))

    def event(self) -> dict[str, Any]:
        return {name: self.value(kind) for name, kind in self.kind.items() if self.random.random() < 0.85}

    def condition(self, depth: int = 0) -> tuple[str, Says]:
        choice = self.random.random()
        if depth < 3 and choice < 0.45:
            (left, a), (right, b) = self.condition(depth + 1), self.condition(depth + 1)
            if choice < 0.25:
                return f"({left} AND {right})", lambda e: both(a(e), b(e))
            return f"({left} OR {right})", lambda e: either(a(e), b(e))
        if depth < 3 and choice < 0.55:
            text, inner = self.condition(depth + 1)
            return f"NOT ({text})", lambda e: opposite(inner(e))
        return self.leaf()

    def leaf(self) -> tuple[str, Says]:
        name = self.random.choice(list(self.kind))
        kind, choice = self.kind[name], self.random.random()
        if choice < 0.1:
            negated = self.random.random() < 0.5
            return f"{name} IS {'NOT ' if negated else ''}NULL", lambda e: (e.get(name) is None) is not negated
        if kind == "bool":
            return name, lambda e: e.get(name)
        if choice < 0.25 and kind == "string":
            prefix = self.random.choice(["a", "ab", "Z", "it"])
            return f"{name} LIKE '{prefix}%'", lambda e: None if e.get(name) is None else e[name].startswith(prefix)
        if choice < 0.45:
            wanted = [self.value(kind) for _ in range(3)]
            listed = ", ".join(map(literal, wanted))
            return f"{name} IN ({listed})", lambda e: None if e.get(name) is None else e[name] in wanted
        if choice < 0.65 and kind != "string":
            low, high = sorted([self.value(kind), self.value(kind)])
            text = f"{name} BETWEEN {literal(low)} AND {literal(high)}"
            return text, lambda e: None if e.get(name) is None else low <= e[name] <= high
        if choice < 0.75 and kind == "int":
            factor, bound = self.random.randint(-3, 3), self.random.randint(-30, 30)
            return (
                f"{name} * {factor} + 1 > {bound}",
                lambda e: None if e.get(name) is None else e[name] * factor + 1 > bound,
            )
        return self.comparison(name, self.value(kind))

    def comparison(self, name: str, bound: Any) -> tuple[str, Says]:
        operators: dict[str, Callable[[Any], bool]] = {
            "=": lambda v: bool(v == bound),
            "<>": lambda v: bool(v != bound),
            "<": lambda v: bool(v < bound),
            "<=": lambda v: bool(v <= bound),
            ">": lambda v: bool(v > bound),
            ">=": lambda v: bool(v >= bound),
        }
        sign = self.random.choice(list(operators))
        says = operators[sign]
        return f"{name} {sign} {literal(bound)}", lambda e: None if e.get(name) is None else says(e[name])


def literal(value: Any) -> str:
    match value:
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            return f"TIMESTAMP '{value.isoformat().replace('+00:00', 'Z')}'"
        case _:
            return str(value)


def plain(event: dict[str, Any]) -> dict[str, Any]:
    """As JSON would carry it: decimals now as texts, now as numbers; timestamps as texts."""
    shown: dict[str, Any] = {}
    for number, (name, value) in enumerate(event.items()):
        match value:
            case Decimal():
                shown[name] = str(value) if number % 2 else value
            case datetime():
                shown[name] = value.isoformat()
            case _:
                shown[name] = value
    return shown


def pairs(outcome: MatchOutcome) -> set[tuple[object, object]]:
    table = outcome.pairs()
    found = list(zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True))
    assert len(set(found)) == len(found), "a pair came twice"
    return set(found)


# --- agreement ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(range(4), daily=1))
def test_match_agrees_with_brute_force(spark: SparkSession, seed: int) -> None:
    world = World(seed)
    asked = [world.condition() for _ in range(120)]
    happened = [world.event() for _ in range(250)]
    inputs = Inputs(
        world.schema,
        tuple(Asked(number, text) for number, (text, _) in enumerate(asked)),
        tuple(GivenEvent(f"e{number}", Event(plain(event))) for number, event in enumerate(happened)),
    )
    outcome = match(inputs, spark=spark)
    expected = {
        (f"e{e}", s) for e, event in enumerate(happened) for s, (_, says) in enumerate(asked) if says(event) is True
    }
    assert pairs(outcome) == expected
    assert outcome.refused == () and len(expected) > 1000
    # The product's own reference says the same: it is the yardstick of everything else that evaluates filters.
    conditions = [check(parse(text), world.schema).condition for text, _ in asked]
    values = [world.schema.parse(given.event.attributes) for given in inputs.events]
    said = {(f"e{e}", s) for e, v in enumerate(values) for s, c in enumerate(conditions) if evaluate(c, v) is True}
    assert said == expected
    fanout = [sum(e == f"e{number}" for e, _ in expected) for number in range(len(happened))]
    summary = outcome.summary()
    assert summary["pairs"] == len(expected)
    assert summary["matched_events"] == sum(n > 0 for n in fanout)
    assert summary["max_fanout"] == max(fanout)


def test_ten_thousand_events_and_a_thousand_subscriptions(spark: SparkSession) -> None:
    rng = np.random.default_rng(7)
    schema = Schema.from_json(
        {
            "attributes": [
                {"name": "symbol", "type": "string", "max_length": 8},
                {"name": "price", "type": "decimal", "min": 0, "max": 1000, "step": "0.01"},
                {"name": "size", "type": "int", "min": 0, "max": 100_000},
            ]
        }
    )
    symbol, cents, size = (
        rng.integers(0, 40, 10_000),
        rng.integers(0, 100_001, 10_000),
        rng.integers(0, 100_001, 10_000),
    )
    has_size = rng.random(10_000) < 0.9
    asked_symbol, low, least = rng.integers(0, 40, 1_000), rng.integers(0, 900, 1_000), rng.integers(0, 100_000, 1_000)
    texts = [
        f"symbol = 'S{s}' AND price BETWEEN {low_} AND {low_ + 90}.5"
        if n % 3
        else f"size >= {least_} AND symbol = 'S{s}'"
        for n, (s, low_, least_) in enumerate(zip(asked_symbol, low, least, strict=True))
    ]
    events = [
        Event({"symbol": f"S{s}", "price": f"{c // 100}.{c % 100:02}", **({"size": int(z)} if h else {})})
        for s, c, z, h in zip(symbol, cents, size, has_size, strict=True)
    ]
    inputs = Inputs(
        schema,
        tuple(Asked(n, text) for n, text in enumerate(texts)),
        tuple(GivenEvent(n, event) for n, event in enumerate(events)),
    )
    outcome = match(inputs, spark=spark)
    same = symbol[:, None] == asked_symbol[None, :]
    priced = (cents[:, None] >= low * 100) & (cents[:, None] <= low * 100 + 9050)
    large = has_size[:, None] & (size[:, None] >= least)
    truth = same & np.where(np.arange(1_000) % 3 != 0, priced, large)
    event, subscription = np.nonzero(truth)
    assert event.size > 30_000
    assert np.array_equal(outcome.event, event) and np.array_equal(outcome.subscription, subscription)


def test_events_off_the_schema_are_named_and_the_rest_goes_on(spark: SparkSession) -> None:
    schema = Schema.from_json({"attributes": [{"name": "n", "type": "int", "min": 0, "max": 9, "step": 3}]})
    given = [
        ("in", {"n": 3}),
        ("over", {"n": 12}),
        ("off", {"n": 4}),
        ("type", {"n": "3"}),
        ("name", {"m": 3}),
        ("null", {}),
    ]
    inputs = Inputs(schema, (Asked("all", "n >= 0"),), tuple(GivenEvent(i, Event(a)) for i, a in given))
    outcome = match(inputs, spark=spark)
    assert pairs(outcome) == {("in", "all")}
    assert [(r.id, r.attribute) for r in outcome.refused] == [("over", "n"), ("off", "n"), ("type", "n"), ("name", "m")]
    assert outcome.summary()["rejected"] == 4 and outcome.summary()["events"] == 6


def test_nothing_matches_nothing(spark: SparkSession) -> None:
    schema = Schema.from_json({"attributes": [{"name": "n", "type": "int"}]})
    event, subscription = (GivenEvent(1, Event({"n": 1})),), (Asked(1, "n = 2"),)
    for inputs in (Inputs(schema, subscription, event), Inputs(schema, (), event), Inputs(schema, subscription, ())):
        summary = match(inputs, spark=spark).summary()
        assert (summary["pairs"], summary["matched_events"], summary["max_fanout"]) == (0, 0, 0)


def test_a_payload_is_matched_too(spark: SparkSession) -> None:
    schema = Schema.from_json({"attributes": [{"name": "n", "type": "int"}]})
    events = (GivenEvent(1, Event({}, b"<a><b>7</b></a>")), GivenEvent(2, Event({}, b"<a><b>8</b></a>")))
    outcome = match(Inputs(schema, (Asked("x", "xpath:/a/b = 7"),), events), spark=spark)
    assert pairs(outcome) == {(1, "x")}


# --- a pair counts only if it was opened --------------------------------------------------------------------


def test_what_does_not_open_does_not_count(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that spoils one wrapped key: the run must fail, not report the pair, nor silently leave it out."""

    def spoiled(spark: SparkSession, realm: Any) -> None:
        pump(realm, lab.TOPIC, lambda piece: replace(piece, wraps=bytes([piece.wraps[0] ^ 1]) + bytes(piece.wraps[1:])))

    monkeypatch.setattr(lab, "_deliver", spoiled)
    schema = Schema.from_json({"attributes": [{"name": "n", "type": "int"}]})
    inputs = Inputs(schema, (Asked(1, "n > 0"), Asked(2, "n > 0")), (GivenEvent(1, Event({"n": 1})),))
    with pytest.raises(Bug, match="1 deliveries did not open"):
        match(inputs, spark=spark)


def test_what_was_not_delivered_does_not_count(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs come from mailboxes that were opened, not from the matching: without deliveries there are none."""
    monkeypatch.setattr(lab, "_deliver", lambda spark, realm: None)
    schema = Schema.from_json({"attributes": [{"name": "n", "type": "int"}]})
    inputs = Inputs(schema, (Asked(1, "n > 0"),), (GivenEvent(1, Event({"n": 1})),))
    assert match(inputs, spark=spark).event.size == 0


def test_a_run_in_several_jobs_is_the_same(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "MAX_DELIVERIES_PER_JOB", 40)
    schema = Schema.from_json({"attributes": [{"name": "n", "type": "int"}]})
    asked = tuple(Asked(s, f"n >= {s}") for s in range(4))
    outcome = match(Inputs(schema, asked, tuple(GivenEvent(e, Event({"n": e % 5})) for e in range(25))), spark=spark)
    assert pairs(outcome) == {(e, s) for e in range(25) for s in range(4) if e % 5 >= s}


# --- the realm of a run -------------------------------------------------------------------------------------


def abandoned() -> set[Path]:
    """Realms of runs that are over. Those of other runs on this machine are held by a lock."""
    left: set[Path] = set()
    for root in (path for parent in ("/dev/shm", "/tmp") for path in Path(parent).glob("sealcast-scratch-*")):
        with suppress(OSError), (root / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            left.add(root)
    return left


def test_the_realm_is_private_and_goes_away() -> None:
    with pytest.raises(KeyError), scratch.realm(1 << 20) as realm:
        root = realm.paths.root.parent
        assert root.stat().st_mode & 0o777 == 0o700
        raise KeyError
    assert not root.exists()


def test_what_a_killed_run_left_is_removed_and_what_lives_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "place", lambda need: tmp_path)
    dead = tmp_path / "sealcast-scratch-dead"
    dead.mkdir()
    (dead / "lock").touch()
    with scratch.realm(0) as first:
        assert not dead.exists()
        with scratch.realm(0) as second:
            assert first.paths.root.exists() and second.paths.root.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_realm_too_large_for_memory_goes_to_disk() -> None:
    assert scratch.place(1 << 60) != Path("/dev/shm")


# --- what is read -------------------------------------------------------------------------------------------

SCHEMA = {"attributes": [{"name": "price", "type": "decimal", "min": 0, "max": 100, "step": 0.01}]}


def files(
    tmp: Path, subscriptions: str, events: str = '{"id": 1, "attributes": {}}', schema: object = SCHEMA
) -> list[Path]:
    made = []
    for name, text in (("schema.json", json.dumps(schema)), ("subs.jsonl", subscriptions), ("events.jsonl", events)):
        (tmp / name).write_text(text)
        made.append(tmp / name)
    return made


BAD_SUBSCRIPTIONS = {
    '{"id": 1, "filter": "price = "}': "subs.jsonl:1: subscription 1, at character",
    '{"id": 1, "filter": "true"}\n\n{"id": "x", "filter": "prize > 1"}': "subs.jsonl:3: subscription 'x', at character",
    '{"id": 1, "filter": "price > \'a\'"}': "subs.jsonl:1: subscription 1, at character 8",
    '{"id": 1, "filter"': "subs.jsonl:1: not JSON",
    "[1]": "subs.jsonl:1: a line is a JSON object",
    '{"id": 1}': "subs.jsonl:1: subscription 1 has no filter",
    '{"filter": "true"}': "subs.jsonl:1: a subscription needs an id",
    '{"id": true, "filter": "true"}': "subs.jsonl:1: a subscription needs an id",
    '{"id": 1.5, "filter": "true"}': "subs.jsonl:1: a subscription needs an id",
    '{"id": 1, "filter": "true"}\n{"id": 1, "filter": "true"}': "subs.jsonl:2: subscription id 1 was given before",
    '{"id": 1, "filter": "true"}\n{"id": "1", "filter": "true"}': "subs.jsonl:2: subscription id '1' was given before",
}
BAD_EVENTS = {
    '{"id": 1, "attributes": {"price": NaN}}': "events.jsonl:1: not JSON: NaN is no number",
    '{"id": 1}': "events.jsonl:1: event 1 has no attributes",
    '{"id": 1, "attributes": {}, "payload_base64": "?"}': "events.jsonl:1: event 1: payload_base64 is not base64",
    "[" * 100_000: "events.jsonl:1: not JSON",
}


@pytest.mark.parametrize(("text", "words"), BAD_SUBSCRIPTIONS.items())
def test_a_bad_subscription_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Rejected) as refused:
        read(*files(tmp_path, text))
    assert words in refused.value.message


def test_a_bad_filter_keeps_kind_place_and_suggestion(tmp_path: Path) -> None:
    with pytest.raises(FilterRejected) as refused:
        read(*files(tmp_path, '{"id": 1, "filter": "prise > 1"}'))
    assert (refused.value.kind, refused.value.at) == ("name", 0)
    assert refused.value.hint == "did you mean price?"


@pytest.mark.parametrize(("text", "words"), BAD_EVENTS.items())
def test_a_bad_event_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Rejected) as refused:
        read(*files(tmp_path, '{"id": 1, "filter": "true"}', text))
    assert words in refused.value.message


@pytest.mark.parametrize("schema", [{}, {"attributes": []}, {"attributes": [{"name": "a", "type": "number"}]}, [1]])
def test_a_bad_schema_is_named(tmp_path: Path, schema: object) -> None:
    with pytest.raises(SchemaRejected, match="schema.json"):
        read(*files(tmp_path, '{"id": 1, "filter": "true"}', schema=schema))


def test_numbers_stay_exact(tmp_path: Path) -> None:
    inputs = read(*files(tmp_path, '{"id": 1, "filter": "price = 0.1"}', '{"id": 1, "attributes": {"price": 0.10}}'))
    assert inputs.events[0].event.attributes == {"price": Decimal("0.10")}


def test_a_filter_that_can_never_match_earns_a_warning(tmp_path: Path) -> None:
    inputs = read(*files(tmp_path, '{"id": "never", "filter": "price > 200"}\n{"id": 2, "filter": "price > 20"}'))
    (warning,) = inputs.warnings
    assert "subs.jsonl:1: subscription 'never': no event can match" in warning


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_input, "MAX_LINE_BYTES", 100)
    with pytest.raises(Rejected, match="at most 100 bytes"):
        read(*files(tmp_path, '{"id": 1, "filter": "' + " " * 100 + 'true"}'))


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        ((1, 2), pa.int64()),
        (("a", "b"), pa.string()),
        ((1, "b"), pa.string()),
        ((1, 2**63), pa.string()),
        ((), pa.string()),
    ],
)
def test_ids_keep_their_type(ids: tuple[object, ...], kind: pa.DataType) -> None:
    column = match_outcome._column(list(ids))  # type: ignore[arg-type]
    assert column.type == kind
    assert column.to_pylist() == [id if kind == pa.int64() else str(id) for id in ids]


def test_an_unknown_protection_is_refused_with_those_there_are() -> None:
    with pytest.raises(Misuse, match="protection is one of endpoint, .*layered.*, not 'rot13'"):
        lab.protection_named("rot13")


# --- the command --------------------------------------------------------------------------------------------


@pytest.fixture
def workload(tmp_path: Path) -> Iterator[tuple[list[str], set[tuple[int, str]]]]:
    world = World(42)
    asked = [world.condition() for _ in range(30)]
    happened = [world.event() for _ in range(60)]
    paths = {name: tmp_path / name for name in ("schema", "subscriptions", "events")}
    paths["schema"].write_text(json.dumps(world.schema.to_json()))
    lines = [json.dumps({"id": f"s{n}", "filter": text}) for n, (text, _) in enumerate(asked)]
    paths["subscriptions"].write_text("\n".join(lines))
    lines = [json.dumps({"id": n, "attributes": plain(event)}, default=float) for n, event in enumerate(happened)]
    paths["events"].write_text("\n".join([*lines, '{"id": 999, "attributes": {"nosuch": 1}}']) + "\n")
    truth = {
        (e, f"s{s}") for e, event in enumerate(happened) for s, (_, says) in enumerate(asked) if says(event) is True
    }
    yield [f"--{name}={path}" for name, path in paths.items()], truth


def test_the_command_itself(workload: tuple[list[str], set[tuple[int, str]]], tmp_path: Path) -> None:
    options, truth = workload
    before = abandoned()
    run = subprocess.run(
        [Path(sys.executable).with_name("sealcast"), "match", *options, "--out", str(tmp_path / "out"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    document = json.loads(run.stdout)
    assert document["pairs"] == len(truth) and document["events"] == 61 and document["rejected"] == 1
    assert document["protection"] == "endpoint" and set(document["seconds"]) >= {"publish", "deliver", "open"}
    table = pq.read_table(tmp_path / "out" / "pairs.parquet")
    assert table.schema == pa.schema([("event", pa.int64()), ("subscription", pa.string())])
    assert set(zip(*(column.to_pylist() for column in table.columns), strict=True)) == truth
    # Nothing but our own words on stderr: the event that was refused, and its attribute.
    assert [line for line in run.stderr.splitlines() if not line.startswith("warning:")] == [
        line for line in run.stderr.splitlines() if "event 999 refused: attribute 'nosuch'" in line
    ]
    assert abandoned() <= before
