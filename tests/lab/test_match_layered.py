"""`match` under a protection whose brokers cannot read, against brute force: one that shares nothing with the product,
the reference evaluator, and `match` under `endpoint`. The steps are those that Spark runs; most worlds drive them by
hand, one goes through Spark itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle

from sealcast.errors import Bug, FilterRejected, Misuse, Rejected, SealcastError
from sealcast.filters.check import check
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.lab import match as lab
from sealcast.lab import prove, scratch
from sealcast.lab.match import match, protection_named
from sealcast.lab.match_input import Asked, GivenEvent, Inputs, read
from sealcast.model import Event, Schema
from sealcast.model.protection import Layered, Payload
from sealcast.primitives.curve import CURVE
from sealcast.protections.layered.agreement import layers_for
from sealcast.protections.layered.route import RoutingNode
from sealcast.protections.layered.tree import Tree, TreeId
from sealcast.protections.port import DEFAULT_KEY_MEMORY, Inbox, Reader, client_side
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.layer_keys import agreement_keys, own_identity
from sealcast.wire.hops import HopPiece
from tests.cli.shell import sealcast
from tests.clients.layered_pump import pump
from tests.lab.test_match import Says, World, abandoned, pairs, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tamper = Callable[[HopPiece], HopPiece]


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
                lab.remarks([Asked(0, text)], self.schema, Layered())
            except FilterRejected as error:
                assert error.kind in ("inexpressible", "limit") and error.hint
            else:
                found.append((text, says))
        return found


def inputs_of(world: World, asked: Sequence[tuple[str, Says]], happened: Sequence[dict[str, Any]]) -> Inputs:
    return Inputs(
        world.schema,
        tuple(Asked(number, text) for number, (text, _) in enumerate(asked)),
        tuple(GivenEvent(number, Event(plain(event))) for number, event in enumerate(happened)),
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
    """Runs without Spark: the same steps of the same brokers, one after the other, and the same opening."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tamper: Tamper = lambda piece: piece
        monkeypatch.setattr(lab, "_session", lambda: None)
        monkeypatch.setattr(lab, "_deliver", lambda spark, realm: pump(realm, lab.TOPIC, self.tamper))
        monkeypatch.setattr(prove, "open_all", self.open_all)

    def open_all(self, spark: None, realm: str, topic: str, subscribers: Sequence[str]) -> prove.OpenedSample:
        return prove.opened(prove.open_some(prove.SettledRealm(realm), topic, dict(enumerate(subscribers))))

    def pairs(self, inputs: Inputs, layers: int) -> set[Any]:
        return pairs(match(inputs, Layered(layers)))


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> Driven:
    return Driven(monkeypatch)


# --- agreement ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "layers", "fan_out"), [(1, 2, 2), (2, 3, 2), (3, 2, 1), (5, 5, 1)])
def test_the_steps_agree_with_brute_force(
    driven: Driven, monkeypatch: pytest.MonkeyPatch, seed: int, layers: int, fan_out: int
) -> None:
    monkeypatch.setattr(lab, "FAN_OUT", fan_out)
    world = Labelled(seed)
    asked, happened = world.expressible(30), [world.event() for _ in range(12)]
    inputs = inputs_of(world, asked, happened)
    expected = truth(inputs, asked, happened)
    assert driven.pairs(inputs, layers) == expected and len(expected) > 50


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 160))
def test_the_steps_agree_with_brute_force_for_long(driven: Driven, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(lab, "FAN_OUT", 1 + seed % 2)
    world = Labelled(seed)
    asked, happened = world.expressible(60), [world.event() for _ in range(40)]
    inputs = inputs_of(world, asked, happened)
    assert driven.pairs(inputs, 2 + seed % 4) == truth(inputs, asked, happened)


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
        tuple(GivenEvent(id, Event(values)) for id, values in given),  # type: ignore[arg-type]
    )
    outcome = match(inputs, protection_named("layered"), spark=spark)
    assert pairs(outcome) == {
        *((e, "all") for e in ("three", "nothing", "nine")),
        *((e, s) for e in ("three", "nine") for s in ("some", "same", "either", "absent?")),
        ("nine", "not"),
    }
    assert [(r.id, r.attribute) for r in outcome.refused] == [("over", "n"), ("off", "n"), ("type", "n"), ("name", "m")]
    summary = outcome.summary()
    assert summary["rejected"] == 4 and summary["events"] == 7 and summary["protection"] == "layered"
    assert set(summary["seconds"]) == set(lab.STAGES)  # type: ignore[call-overload]
    assert abandoned() <= before
    # The others say the same, row by row, and refuse the same events in the same words.
    for name in ("endpoint", "payload", "searchable"):
        other = match(inputs, protection_named(name), spark=spark)
        assert other.pairs().equals(outcome.pairs()) and other.refused == outcome.refused
        assert other.summary()["protection"] == name


@pytest.mark.parametrize("name", ["payload", "searchable"])
def test_other_protections_agree_with_brute_force_through_spark(spark: SparkSession, name: str) -> None:
    world = Labelled(7)
    asked, happened = world.expressible(40), [world.event() for _ in range(60)]
    inputs = inputs_of(world, asked, happened)
    expected = truth(inputs, asked, happened)
    assert pairs(match(inputs, protection_named(name), spark=spark)) == expected and len(expected) > 300


def test_without_events_or_subscriptions_nothing_is_even_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(scratch, "realm")
    schema = Schema.from_json({"attributes": [{"name": "n", "type": "int"}]})
    events = GivenEvent(1, Event({"n": 1})), GivenEvent(2, Event({"n": "one"}))
    for inputs in (Inputs(schema, (Asked(1, "n = 2"),), ()), Inputs(schema, (), events)):
        outcome = match(inputs, Layered())
        assert outcome.event.size == 0 and [r.id for r in outcome.refused] == [2] * bool(inputs.events)


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
        match(read(*paths), Layered())
    assert f"{paths[1]}:2: subscription 'other', at character" in refused.value.message
    assert "labels express" in (refused.value.hint or "")
    options = [f"--{name}={path}" for name, path in zip(("schema", "subscriptions", "events"), paths, strict=True)]
    told = sealcast("match", *options, "--protection", "layered")
    assert told.code == 1 and "subscription 'other'" in told.err


@pytest.mark.parametrize("text", ["xpath:/a/b = 7", "hush > 0"])
def test_what_brokers_do_not_see_is_refused_by_name(text: str) -> None:
    schema = Schema.from_json({"attributes": [{"name": "n", "type": "int"}, {"name": "hush", "type": "int"}]})
    asked = Asked("fine", "n > 0", "file:1"), Asked("other", text, "file:2")
    inputs = Inputs(schema, asked, (GivenEvent(1, Event({"n": 1})),))
    with pytest.raises(FilterRejected, match="file:2: subscription 'other'.*brokers.* do not see"):
        match(inputs, Payload(sealed_attributes=("hush",)))


def test_a_filter_of_values_that_the_domain_lacks_earns_a_warning(driven: Driven) -> None:
    schema = Schema.from_json({"attributes": [{"name": "n", "type": "int", "min": 0, "max": 9, "step": 3}]})
    asked = Asked("x", "n BETWEEN 4 AND 5", "file:1"), Asked("y", "n = 3", "file:2"), Asked("z", "n = 4", "file:3")
    outcome = match(Inputs(schema, asked, (GivenEvent(1, Event({"n": 3})),)), Layered())
    assert pairs(outcome) == {(1, "y")}
    # Of a filter that is known never to match, whatever protects the topic, its author was told when it was read.
    assert outcome.warnings == ("file:1: subscription 'x': no value of the domain can match",)
    assert check(parse("n = 4"), schema).warnings


@pytest.mark.parametrize(("protection", "layers"), [("layered", 1), ("layered", 17), ("endpoint", 2)])
def test_layers_that_there_cannot_be(protection: str, layers: int) -> None:
    with pytest.raises((Misuse, Rejected), match="layers"):
        protection_named(protection, layers)
    assert protection_named("layered", 16) == Layered(16)


# --- what must not pass ---------------------------------------------------------------------------------------------

SMALL = Inputs(
    Schema.from_json({"attributes": [{"name": "n", "type": "int", "min": 0, "max": 7}]}),
    tuple(Asked(s, f"n >= {s}") for s in range(4)),
    tuple(GivenEvent(e, Event({"n": e})) for e in range(8)),
)


def nearest(broker: RoutingNode, path: tuple[str, ...]) -> str:
    """A wrong rule: the layer of the next node instead of the last one's."""
    return path[0]


def everything(broker: RoutingNode, token: Any) -> bytes:
    """A broker that peels and does not put back on."""
    return CURVE.encode(token)


@pytest.mark.parametrize(("rule", "wrong"), [("relay_key", nearest), ("put_on", everything)])
def test_a_wrong_rule_is_noticed(
    driven: Driven, monkeypatch: pytest.MonkeyPatch, rule: str, wrong: Callable[..., Any]
) -> None:
    truth = {(e, s) for e in range(8) for s in range(4) if e >= s}
    assert driven.pairs(SMALL, 2) == truth
    monkeypatch.setattr(RoutingNode, rule, wrong)
    try:
        found = driven.pairs(SMALL, 2)
    except SealcastError:
        return
    assert found != truth


def test_a_spoiled_delivery_is_an_error_and_no_missing_pair(driven: Driven) -> None:
    def spoil(piece: HopPiece) -> HopPiece:
        return replace(piece, bodies=bytes([piece.bodies[0] ^ 1]) + bytes(piece.bodies[1:]))

    driven.tamper = lambda piece: spoil(piece) if piece.node == "match-node-2" else piece
    with pytest.raises(Bug, match="1 deliveries did not open for whom they were sealed"):
        match(SMALL, Layered())


def test_what_was_not_delivered_does_not_count(driven: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "_deliver", lambda spark, realm: None)
    assert match(SMALL, Layered()).event.size == 0


# --- keys stay where they are ---------------------------------------------------------------------------------------


@pytest.fixture
def delivered(driven: Driven, tmp_path: Path) -> Realm:
    """A run's realm, right before everyone opens what it was sent."""
    realm = Realm.create(tmp_path / "realm")
    with ExitStack() as held:
        publishers = [held.enter_context(publisher) for publisher in lab._populate(realm, SMALL, Layered())]
        wanted = [(f"s{n}", asked.filter, None) for n, asked in enumerate(SMALL.subscriptions)]
        client_side(Layered()).subscribe_many(realm, lab.TOPIC, wanted)
        lab._publish(publishers, SMALL.events, range(len(SMALL.events)), lab._Published())
    pump(realm, lab.TOPIC)
    return realm


def inboxes(realm: Realm, held: ExitStack) -> Iterator[Inbox]:
    for number in range(len(SMALL.subscriptions)):
        reader = Reader(realm, lab.TOPIC, f"s{number}", None, None, DEFAULT_KEY_MEMORY)
        yield held.enter_context(closing(client_side(Layered()).inbox(reader)))


def test_what_was_sent_to_one_subscriber_opens_for_no_other(delivered: Realm) -> None:
    tried = 0
    with ExitStack() as held:
        everyone = list(inboxes(delivered, held))
        for inbox in everyone:
            for found in inbox.mail.parts():
                assert not inbox.open(found).refused
                for other in everyone:
                    if other is not inbox:
                        assert len(other.open(found).refused) == len(found.part)
                        tried += len(found.part)
    assert tried > 60


def test_no_key_is_in_what_spark_ships(delivered: Realm) -> None:
    root, names = str(delivered.paths.root), [f"s{n}" for n in range(4)]
    assert prove.opened(prove.open_some(delivered, lab.TOPIC, dict(enumerate(names)))).place.size
    shipped = cloudpickle.dumps(prove._opening(root, lab.TOPIC, names, 2))
    assert root.encode() in shipped
    files = [path for path in delivered.paths.root.rglob("*.key") if path.is_file()]
    assert len(files) > 20 and len({path.read_bytes() for path in files}) == len(files)
    for path in files:
        assert path.read_bytes() not in shipped and path.stat().st_mode & 0o077 == 0
    with ExitStack() as held, pytest.raises(Misuse):
        cloudpickle.dumps(next(inboxes(delivered, held)))


def test_pairs_agree_only_up_to_r_hops(delivered: Realm) -> None:
    state = delivered.state()
    (publisher,) = state.publishers_of(lab.TOPIC)
    tree = Tree(publisher, state.overlay(lab.TOPIC).parents_for(publisher), 2)
    id = TreeId(publisher, state.topic(lab.TOPIC).epoch, 0)
    layers = {
        name: layers_for(
            agreement_keys(delivered, own_identity(delivered, state, name), state, lab.TOPIC), tree, id, CURVE
        )
        for name in (publisher, *tree.names)
    }
    assert set(layers) == {publisher, "match-node-1", "match-node-2", "s0", "s1", "s2", "s3"}
    for descendant, ancestor in tree.pairs():
        assert layers[descendant].key(ancestor).packed == layers[ancestor].key(descendant).packed
    with pytest.raises(SealcastError):
        layers[publisher].key("s0")  # no secret from end to end


def test_a_run_leaves_nothing(driven: Driven, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(scratch, "place", lambda need: tmp_path)
    seen: list[int] = []

    def fail(spark: None, realm: Realm) -> None:
        seen.append(realm.paths.root.parent.stat().st_mode & 0o777)
        raise KeyError

    monkeypatch.setattr(lab, "_deliver", fail)
    with pytest.raises(KeyError):
        match(SMALL, Layered())
    assert seen == [0o700] and list(tmp_path.iterdir()) == []
