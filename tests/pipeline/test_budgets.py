"""One member against everybody else: filters within all single limits that ask for more work than there is."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sealcast.broker import budgets
from sealcast.broker.budgets import share, suspended
from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import FilterRejected
from sealcast.filters.index import ChangedIndex, Index
from sealcast.filters.index.changed import NEW
from sealcast.filters.parse import parse
from sealcast.filters.vector.evaluator import Evaluator
from sealcast.filters.work import Measure
from sealcast.log import suspended as notes
from sealcast.model import Event, Schema
from sealcast.model.event import Position
from sealcast.protections.endpoint.audit import EndpointAudit
from sealcast.protections.endpoint.witness import WITNESS
from sealcast.protections.frame_steps import MatchingStep
from sealcast.protections.port import client_side
from sealcast.protections.recall import recall
from sealcast.protections.steps import StepName
from sealcast.trust.deployment import Realm
from tests.cli.shell import sealcast
from tests.clients.pump import pump
from tests.filters.worlds import Maker

TOPIC = "notes"
SCHEMA = Schema.from_json({"attributes": [{"name": "note", "type": "string"}, {"name": "n", "type": "int"}]})
#: Within every limit of one filter, and dear on what is published here.
REGEX = "regex:note=([ab]{0,30}){30}c"
XPATH = "xpath://*[translate(., 'bbbbbbbbbbbbbbbbbbbbbbbb', '') = 'x']"
#: As many bytes as an event may have in a text, of which no pattern likes any.
NOTE = "ab" * 16_000
PAYLOAD = b"<r>" + b"<a>" * 40 + b"a" * 20_000 + b"</a>" * 40 + b"</r>"
EVENTS = 8


class World:
    """mallory has many filters, ann one that is cheap; both want everything."""

    def __init__(self, root: Path) -> None:
        self.realm = Realm.create(root / "realm")
        self.realm.create_topic(TOPIC, SCHEMA, access="members")
        self.realm.enrol_many(["pub", "ann", "mallory"])
        self.realm.subscribe_many(TOPIC, [("ann", "n >= 0 AND note LIKE '%a%'", "ann-1")])

    def attack(self, *filters: str) -> None:
        self.realm.subscribe_many(TOPIC, [("mallory", text, f"mallory-{i}") for i, text in enumerate(filters)])

    def publish(self, events: int = EVENTS) -> None:
        with Publisher(self.realm, TOPIC, "pub") as publisher:
            for n in range(events):
                publisher.publish([Event({"n": n, "note": NOTE[n:]}, PAYLOAD)])

    def got(self, name: str) -> int:
        with Subscriber(self.realm, TOPIC, name) as subscriber:
            found = subscriber.poll(100)
            subscriber.ack()
            return len(found)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# --- the attack -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dear", [REGEX, XPATH])
def test_one_members_filters_do_not_stall_a_topic(world: World, dear: str) -> None:
    world.attack(*(f"{dear}{' ' * i}" if dear is XPATH else f"{dear}{i}" for i in range(40)), "n < 3")
    world.publish()
    before = time.process_time()
    counts = pump(world.realm, TOPIC)
    assert time.process_time() - before < 5, "asked in full, they take minutes"
    assert counts["suspended"] > 30
    assert world.got("ann") == EVENTS, "everybody else is served"
    assert world.got("mallory") >= 3, "what is cheap of her own is served, too"
    assert EndpointAudit(world.realm, TOPIC).run().ok


@pytest.mark.parametrize(
    "dear", [[REGEX], [XPATH.replace("'x'", f"'x{i}'") for i in range(40)]], ids=["regex", "xpath"]
)
def test_without_budgets_they_do(world: World, dear: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One or some of them, on three events, take longer than a piece with thousands of events."""
    monkeypatch.setattr(budgets, "EACH_PIECE", 1 << 60)
    monkeypatch.setattr(budgets, "TOPIC_PIECE", 1 << 60)
    world.attack(*dear)
    world.publish(3)
    before = time.process_time()
    assert "suspended" not in pump(world.realm, TOPIC)
    assert time.process_time() - before > 0.5


@pytest.mark.parametrize("dear", [REGEX, XPATH])
def test_a_replay_asks_for_no_more_than_a_subscription(
    world: World, dear: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter over the past is asked by the broker, too, on every event of the span. Nothing of it is done if it is
    too dear; without the budget all of it is."""
    world.publish()
    pump(world.realm, TOPIC)
    step = MatchingStep.of(StepName(str(world.realm.paths.root), TOPIC, "broker"))

    def replayed(text: str) -> int:
        asks = client_side(step.about.protection).asks_of_past(world.realm, TOPIC, "mallory", text)
        return recall(step, "mallory", asks, 0, 1 << 60).replayed.events

    asked = list[object]()
    true = Evaluator.true
    monkeypatch.setattr(Evaluator, "true", lambda self, wanted: asked.append(wanted) or true(self, wanted))
    with pytest.raises(FilterRejected, match="units of work"):
        replayed(dear)
    assert not asked
    assert replayed("n < 3") == 3
    monkeypatch.setattr(budgets, "EACH_PIECE", 1 << 60)
    asked.clear()
    replayed(dear)
    assert asked


def test_owners_and_operators_are_told(world: World) -> None:
    world.attack(REGEX, "n < 3")
    world.publish()
    pump(world.realm, TOPIC)
    (status,) = WITNESS.status(world.realm, TOPIC)
    (told,) = status.document["suspended"]
    assert (told["subscription"], told["subscriber"], told["pieces"]) == ("mallory-0", "mallory", 1)
    assert any(name == "SUSPENDED" for name, _ in status.rows)
    why = WITNESS.why(world.realm, TOPIC, Position(0, 5, 0), "mallory")
    assert why.verdict == "not-matched"
    assert WITNESS.why(world.realm, TOPIC, Position(0, 1, 0), "mallory").verdict == "delivered"


def test_commands_tell_the_owner(world: World) -> None:
    world.attack(REGEX, "n < 3")
    world.publish()
    pump(world.realm, TOPIC)
    root = world.realm.paths.root
    listed = sealcast("subscription", "list", "--realm", root, "--json").document["subscriptions"]
    assert {each["id"]: "suspended" in each for each in listed} == {
        "ann-1": False,
        "mallory-0": True,
        "mallory-1": False,
    }
    for command in (["subscription", "list"], ["sub", TOPIC, "--as", "mallory"]):
        told = sealcast(*command, "--realm", root)
        assert told.code == 0 and "'mallory-0' was suspended for 1 pieces" in told.err
    assert "suspended" not in sealcast("sub", TOPIC, "--as", "ann", "--realm", root).err


def test_why_says_that_a_filter_was_suspended(world: World) -> None:
    world.attack("n >= 0 AND NOT REGEX('([ab]{0,30}){30}c', note)")
    world.publish()
    pump(world.realm, TOPIC)
    why = WITNESS.why(world.realm, TOPIC, Position(0, 5, 0), "mallory")
    assert why.verdict == "suspended" and "more work than they may" in why.because


def test_a_broker_that_lies_about_budgets_is_found_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.publish()
    with monkeypatch.context() as lying:
        lying.setattr(budgets, "EACH_PIECE", 1)
        lying.setattr(budgets, "EACH_EVENT", 1)
        assert pump(world.realm, TOPIC)["suspended"] == 1, "ann's, for nothing"
    report = EndpointAudit(world.realm, TOPIC).run()
    assert not report.ok
    assert any("suspended 1 subscriptions, and should 0" in str(problem) for problem in report.problems)


# --- the same again -----------------------------------------------------------------------------------------


def test_work_is_the_same_in_every_index() -> None:
    """Whatever else is in the table, however it came to be, and however often it is asked."""
    for seed in range(12):
        filters = Maker(seed).world(80, 60)
        conditions, columns, payloads = filters.conditions, filters.columns, filters.payloads
        whole = Index.build(conditions, filters.schema)
        measured = whole.work(columns, Measure(columns, payloads))
        assert measured.any()
        assert np.array_equal(whole.work(columns, Measure(columns, payloads)), measured)
        for number in range(0, 80, 7):
            alone = Index.build(conditions[number : number + 1], filters.schema)
            assert alone.work(columns, Measure(columns, payloads))[0] == measured[number]
        base = Index.build(conditions[:60][::-1], filters.schema)
        origin = np.concatenate((np.arange(59, 9, -1), np.full(20, NEW)))
        changed = ChangedIndex.build(base, origin, conditions[60:])
        expected = np.concatenate((measured[:50], measured[60:]))
        assert np.array_equal(changed.work(columns, Measure(columns, payloads)), expected)
        most = changed.most_work(Measure(columns, payloads), columns.num_rows)
        assert (most >= expected).all(), "the bound is one"


def test_whoever_is_not_asked_changes_nothing_for_others() -> None:
    for seed in range(6):
        filters = Maker(seed).world(80, 60)
        index = Index.build(filters.conditions, filters.schema)
        found = index.match(filters.columns, filters.payloads)
        unasked = np.random.default_rng(seed).random(80) < 0.5
        rest = index.match(filters.columns, filters.payloads, unasked)
        kept = np.packbits(~unasked, bitorder="little").tobytes().ljust(8 * found.shape[1], b"\0")
        mask = np.frombuffer(kept, np.uint64)
        assert np.array_equal(found & mask, rest & mask)


# --- shares -------------------------------------------------------------------------------------------------


def test_shares_are_even_and_nobody_pays_for_what_others_want() -> None:
    rng = random.Random(3)
    for _ in range(300):
        total = np.array([rng.choice((0, 5, 50, 500, 10**6)) for _ in range(rng.randint(1, 12))], np.int64)
        each, together = rng.choice((100, 1000)), rng.choice((50, 400, 10**7))
        level = share(total, each, together)
        assert level <= each
        used = int(np.minimum(total, level).sum())
        assert used <= together or level == each
        if level < each:
            assert used > together - total.size, "all of it is shared out, but for what cannot be divided"


def test_a_subscribers_dearest_filters_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "EACH_PIECE", 100)
    monkeypatch.setattr(budgets, "EACH_EVENT", 1)
    demand = np.array([90, 5, 101, 4, 60, 50], np.int64)
    owners = np.array([0, 0, 0, 0, 1, 2], np.int64)
    assert suspended(demand, owners, 1).tolist() == [False, False, True, False, False, False]
    monkeypatch.setattr(budgets, "TOPIC_PIECE", 150)
    monkeypatch.setattr(budgets, "TOPIC_EVENT", 1)
    assert suspended(demand, owners, 1).tolist() == [True, False, True, False, True, False]
    assert not suspended(np.zeros(0, np.int64), np.zeros(0, np.int64), 1).size


# --- units --------------------------------------------------------------------------------------------------


def test_a_unit_is_a_few_nanoseconds_at_the_worst() -> None:
    """Adversarial patterns on adversarial texts: none takes much longer than its units say."""
    schema = Schema.from_json({"attributes": [{"name": "s", "type": "string"}]})
    text, flat = "ab" * 8_000, b"<r>" + b"<a>aaaaaaaa</a>" * 500 + b"</r>"
    deep = b"<r>" + b"<a>" * 50 + b"a" * 4_000 + b"</a>" * 50 + b"</r>"
    needle = "a" * 60 + "b"
    cases: list[tuple[str, bytes]] = [
        ("regex:s=([ab]{0,30}){30}c", b""),
        ("regex:s=a[ab]{500}c", b""),
        ("regex:s=(a|b)*a(a|b){11}c", b""),
        (f"s LIKE '%{'_' * 900}c%'", b""),
        (f"s LIKE '%{'a_' * 400}c%'", b""),
        (f"s LIKE '%{'a%' * 400}c'", b""),
        *((f"xpath:{text}", payload) for payload in (flat, deep) for text in (
            f"//*[contains(., '{needle}')]",
            f"//*[substring-before(., '{needle}') = 'x']",
            f"//*[translate(., '{'b' * 60}', '') = 'x']",
            "contains(., concat(substring(., 1, 900), 'b'))",
            "//*[. = //*[2]]",
            "//*[following::zz]",
            "//*[//*[//zz]]",
            "count(//*//*//*) = 0",
            "//*[string-length(.) = 0]",
        )),
    ]  # fmt: skip
    for text_of, payload in cases:
        condition = parse(text_of, schema)
        columns = pa.record_batch({"s": pa.array([text])})
        index = Index.build([condition], schema)
        units = int(index.work(columns, Measure(columns, [payload]))[0])
        index.match(columns, [payload])  # compiled
        fresh = Index.build([condition], schema)
        before = time.process_time()
        fresh.match(columns, [payload])
        spent = time.process_time() - before
        assert spent < 0.01 + 50e-9 * units, f"{text_of[:60]}: {units} units took {spent:.3f} s"


def test_compiled_patterns_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    from sealcast.filters.remembered import Remembered

    made = Counter[int]()

    def make(number: int) -> bytes:
        made[number] += 1
        return bytes(number)

    cache: Remembered[int, bytes] = Remembered(make, lambda number, value: number, 1_000)
    for number in (400, 500, 400, 300):  # 500 was asked least recently
        cache(number)
    assert cache.bytes == 700 and len(cache) == 2
    assert [cache(n) for n in (400, 500)] and made == Counter({400: 1, 500: 2, 300: 1})
    assert cache(5_000) and cache.bytes <= 1_000, "what is too large is made, and not kept"


def test_texts_that_never_come_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    from sealcast.filters.vector import asked

    monkeypatch.setattr(asked, "MAX_TEXT_BYTES", 10_000)
    lexicon = asked.Lexicon()
    for batch in range(50):
        texts = [f"{batch}-{i}" + "x" * 1_000 for i in range(5)]
        numbers = lexicon.numbers(texts)
        assert lexicon.ask(parse("s LIKE '%x%'"), lambda text: "x" in text, numbers).tolist() == [asked.TRUE] * 5
    assert sum(map(len, lexicon._texts)) <= 20_000


def test_notes_forget_who_is_gone_and_survive_nonsense(tmp_path: Path) -> None:
    notes.add(tmp_path, {"a": 1, "b": 2}, 5, {"a", "b"})
    notes.add(tmp_path, {"a": 1}, 9, {"a"})
    assert notes.notes(tmp_path) == {"a": notes.SuspensionNote(2, 5, 9)}
    for raw in (b"", b"[]", b"{", b'{"a": [1, 2]}', b'{"a": [1, 2, "x"]}', b"[" * 100_000):
        (tmp_path / "suspended.json").write_bytes(raw)
        assert notes.notes(tmp_path) == {}
