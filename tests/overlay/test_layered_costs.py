"""What a layered topic's brokers compute for others is bounded: by tokens, by the schema, and by who reads below."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import combinations, islice
from pathlib import Path

import pytest

from sealcast.clients.publisher import Publisher
from sealcast.control.budgets import Allowance
from sealcast.errors import Busy, FilterRejected
from sealcast.filters.labels import Conjunction, LabelFilter
from sealcast.log import post_log as posting
from sealcast.log.post_log import PostLog
from sealcast.model import Event, Schema
from sealcast.model.protection import Layered
from sealcast.protections.layered import admit as admission
from sealcast.protections.layered.client import CLIENT
from sealcast.protections.layered.filters import intake as taking_in
from sealcast.protections.layered.filters.checks import Doorkeeper, PostReason
from sealcast.protections.layered.filters.keeper import TableKeeper
from sealcast.protections.layered.filters.posts import Numbered, signed_posts
from sealcast.protections.layered.filters.queue import PostQueue, WaitingPost
from sealcast.protections.layered.filters.turns import TurnDraft
from sealcast.protections.layered.messages import FilterMessage, arranged
from sealcast.protections.layered.publish import TreePublisher
from sealcast.trust.deployment import Realm
from sealcast.wire import limits
from tests.clients.layered_pump import pump
from tests.overlay.filters_world import LABELS, Realms, World, post, quick_realms, wants

#: What topics had before slots and readers were bounded.
LOOSE = dict(Layered.before)


@pytest.fixture(scope="module")
def realms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realms]:
    with quick_realms(tmp_path_factory.mktemp("costs")) as made:
        yield made


@pytest.fixture
def world(realms: Realms) -> Iterator[World]:
    made = realms.world(2, [None, 0], [1, 1])
    yield made
    made.close()


# --- what posts cost ------------------------------------------------------------------------------------------------


def powers(world: World, broker: str) -> int:
    """Powers that a broker has computed for filters."""
    tables = world.keepers[broker]._tables
    return 0 if tables is None else sum(each.layers.powers for each in tables._brokers.values())


def waiting(world: World, broker: str) -> dict[str, int]:
    with PostLog(world.realm.paths.topic(world.topic, broker).filter_posts) as log:
        return log.held()


def dear(world: World, tokens: int, path: tuple[str, ...], *, slot: int = 250, remove: bool = False) -> FilterMessage:
    """A filter of so many tokens that its broker has to peel."""
    group = world.group
    made = [group.encode(group.random()) for _ in range(tokens)]
    return FilterMessage(arranged(made[at : at + slot] for at in range(0, tokens, slot)), path, remove)


@pytest.mark.parametrize("bounded", [True, False])
def test_a_post_that_takes_a_broker_seconds_is_refused_before_a_power_is_computed(
    realms: Realms, bounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the defaults of a topic. Where a post may be as long as its bytes allow, all of it is computed."""
    with monkeypatch.context() as hostile:
        hostile.setattr(limits, "MAX_POST_TOKENS", 1 << 20)
        world = realms.world(2, [None, 0], [1, 1], **({} if bounded else LOOSE))
        (tree,) = world.trees()
        filters = [dear(world, 4_500, ("s0",)), dear(world, 4_500, ("s0",))]
        post(world.realm, world.topic, world.identity("s0"), "b1", tree, filters, world.token("s0"))
        if not bounded:
            world.keepers["b1"].turn()
    world.subscribe("s1", wants([[0]]))
    world.keepers["b1"].turn()
    if bounded:
        assert world.refused() == {str(PostReason.FORM): 1}
        assert powers(world, "b1") == 2, "one token of somebody else, taken off and put on"
    else:
        assert powers(world, "b1") >= 18_000
    world.close()


@pytest.mark.parametrize("charged", ["sender", "broker", "nobody"])
def test_each_sender_has_one_account_at_the_defaults(
    world: World, charged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six posts of 8,000 tokens: five overdraw what a sender may use, and the sixth waits. A broker has as much for
    each of the two who read below it."""
    if charged == "nobody":
        monkeypatch.setattr(taking_in, "tokens_of", lambda filters: 0)
    (tree,), sender = world.trees(), "b1" if charged == "broker" else "s0"
    home, token = ("b0", b"") if charged == "broker" else ("b1", world.token("s0"))
    ends = dear(world, 8_000, ("b1", "s0") if charged == "broker" else ("s0",), remove=True)
    for _ in range(10 if charged == "broker" else 6):
        post(world.realm, world.topic, world.identity(sender), home, tree, [ends], token)
    world.settle()
    assert waiting(world, home) == {"sender": {"s0": 1}, "broker": {"b1": 1}, "nobody": {}}[charged]
    world.subscribe("s1", wants([[0]]))
    world.settle()
    assert len(world.rows("b1")) == 1, "the other one has an account of its own"


@pytest.mark.parametrize("accounts", ["a sender", "a sender and tree"])
def test_more_trees_are_no_more_accounts(realms: Realms, accounts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two posts of three tokens in each of two trees, by somebody who may use seven at once."""
    world = realms.world(2, [None, 0], [1, 1], publishers=2)
    world.keepers["b1"].close()
    world.keepers["b1"] = TableKeeper(world.realm, world.topic, "b1", allowance=Allowance(per_second=1, burst=7))
    if accounts != "a sender":
        budgets, turns = world.keepers["b1"]._intake._budgets, iter(range(100))
        spend = type(budgets).spend
        monkeypatch.setattr(type(budgets), "ready", lambda self, key, now: True)
        monkeypatch.setattr(type(budgets), "spend", lambda self, key, now, cost: spend(self, f"{next(turns)}", now))
    for three in islice(combinations(range(len(LABELS)), 3), 2):
        world.subscribe("s0", wants([list(three)]))
    world.settle()
    assert waiting(world, "b1") == ({"s0": 1} if accounts == "a sender" else {})
    assert not world.refused()
    world.close()


@pytest.mark.parametrize("first", ["quota", "powers"])
def test_what_is_over_the_quota_is_not_peeled(realms: Realms, first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if first == "powers":
        check, row = TurnDraft._check_quota, TurnDraft._row
        monkeypatch.setattr(TurnDraft, "_check_quota", lambda self, *about: None)

        def late(self: TurnDraft, tree, broker, stream, wanted):  # type: ignore[no-untyped-def]
            made = row(self, tree, broker, stream, wanted)
            check(self, tree, stream, wanted)
            return made

        monkeypatch.setattr(TurnDraft, "_row", late)
    world = realms.world(2, [None, 0], [1, 1], reader_labels=3)
    world.say("s0", [(wants([[i]]), False) for i in range(6)])
    world.keepers["b1"].turn()
    assert world.refused() == {str(PostReason.QUOTA): 3}
    assert powers(world, "b1") == (6 if first == "quota" else 9), "three taken off and put on; or six, and three put on"
    world.close()


# --- whose turn it is -----------------------------------------------------------------------------------------------


def in_log_order(queue: PostQueue) -> tuple[str, WaitingPost] | None:
    heads = {sender: posts[0] for sender, posts in queue._waiting.items()}
    return min(heads.items(), key=lambda each: each[1].offset, default=None)


@pytest.mark.parametrize("order", ["turns", "log"])
def test_one_senders_posts_do_not_make_another_wait(world: World, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred posts before one of somebody else. A turn of the keeper takes eight."""
    for name in ("intake", "turns"):
        monkeypatch.setattr(f"sealcast.protections.layered.filters.{name}.TURN_BYTES", 1)
    if order == "log":
        monkeypatch.setattr(PostQueue, "next", in_log_order)
    for _ in range(100):
        world.subscribe("s0", wants([[0]]))
    world.subscribe("s1", wants([[1], [2]]))
    world.keepers["b1"].turn()
    assert len(world.rows("b1")) == (2 if order == "turns" else 1)
    world.settle()
    assert len(world.rows("b1")) == 2
    assert not world.refused()


def test_junk_and_forged_posts_are_gone_after_one_look(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is as full as it may be, and a post of the flooder's own waits at its beginning."""
    directory, (tree,) = world.realm.paths.topic(world.topic, "b1").filter_posts, world.trees()
    world.keepers["b1"].close()
    world.keepers["b1"] = TableKeeper(world.realm, world.topic, "b1", allowance=Allowance(per_second=1, burst=3))
    for _ in range(2):
        world.subscribe("s0", wants([[0], [1], [2]]))
    about = world.realm.state().topic(world.topic).id
    forged = signed_posts(about, world.identity("s1"), "b1", Numbered(tree, [], 1 << 60), world.token("s1"))[0]
    flood = [b"noise", forged[:-1], forged.replace(b"sealcast-post", b"sealcast-tsop")] * 20
    with PostLog(directory, max_waiting=62) as log:
        log.append(flood)
        with pytest.raises(Busy):
            log.append([b"one more"])
        world.keepers["b1"].turn()
        log.append([b"one more"])
    world.restart("b1")
    world.subscribe("s1", wants([[3]]))
    world.settle()
    assert world.refused() == {str(PostReason.FORM): 61}, "each is counted once, whoever looked how often"
    assert len(world.rows("b1")) == 2
    # Who has its share of posts waiting has to wait; the others have not.
    monkeypatch.setattr(posting, "MAX_SHARE", 1)
    with PostLog(directory) as log:
        log.take(log.end(), {"s0": 1})
    with pytest.raises(Busy, match="'s0' wait"):
        world.subscribe("s0", wants([[1]]))
    world.subscribe("s1", wants([[4]]))


# --- what a guess costs ---------------------------------------------------------------------------------------------


def bit_coded(symbols: int) -> LabelFilter:
    """Rows that tell which of so many symbols an event has: for each bit of its number, those that have it."""
    bits = (symbols - 1).bit_length()
    lists = [sorted(f"symbol {n}".encode() for n in range(symbols) if n >> bit & 1) for bit in range(bits)]
    return LabelFilter(tuple(Conjunction((tuple(each),)) for each in lists))


@pytest.mark.parametrize("capped", [True, False])
def test_one_post_does_not_ask_a_dictionary(realms: Realms, capped: bool) -> None:
    """Ten lists tell which of 1,024 symbols an event has, by a client that does not ask whether it may."""
    world = realms.world(2, [None, 0], [1, 1], **({} if capped else LOOSE))
    world.say("s0", [(bit_coded(1_024), False)])
    world.settle()
    assert len(world.rows("b1")) == (0 if capped else 10)
    assert world.refused() == ({str(PostReason.QUOTA): 10} if capped else {})
    # Lists of the length that is allowed tell less each; and a reader has only so many labels in all.
    world.say("s1", [(bit_coded(512), False), (bit_coded(256), False), (bit_coded(510), False)])
    world.settle()
    held = sum(len(slot) for slots in world.rows("b1") for slot in slots)  # type: ignore[attr-defined]
    assert held <= Layered().reader_labels if capped else held > 2 * Layered().reader_labels
    world.close()


def test_a_client_says_which_filters_no_broker_takes(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "realm")
    realm = Realm(tmp_path / "realm")
    realm.create_topic("few", SCHEMA, protection=Layered(2, slot_labels=4, reader_labels=6), nodes=2, access="members")
    values = ", ".join(str(4 * n) for n in range(5))
    with pytest.raises(FilterRejected, match="5 labels in this filter, and 4 are allowed"):
        CLIENT.vet(f"price IN ({values})", realm.state().topic("few"))
    with CLIENT.interests(realm, "few", "alice") as alice:
        with pytest.raises(FilterRejected, match="5 labels in this filter, and 4 are allowed"):
            alice.add(f"price IN ({values})")
        alice.add("price IN (0, 4, 8)")
        alice.add("price IN (12, 16, 20)")
        with pytest.raises(FilterRejected, match="7 labels, and a reader of 'few' may have 6"):
            alice.add("price = 9")


def rows_of_nobody(world: World, count: int) -> list[FilterMessage]:
    """Filters that a broker invents, in the name of somebody who reads below it."""
    group = world.group
    return [FilterMessage(((group.encode(group.random()),),), ("b1", "s0")) for _ in range(count)]


@pytest.mark.parametrize("bounded", [True, False])
def test_a_broker_has_rows_for_those_who_read_below_it_and_no_more(
    realms: Realms, bounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = realms.world(2, [None, 0], [1, 1], reader_labels=3)
    if not bounded:
        monkeypatch.setattr(Doorkeeper, "readers_below", lambda self, broker, generation: 1 << 40)
    (tree,) = world.trees()
    post(world.realm, world.topic, world.identity("b1"), "b0", tree, rows_of_nobody(world, 10))
    world.settle()
    assert len(world.rows("b0")) == (6 if bounded else 10), "two read below it"
    assert world.refused() == ({str(PostReason.QUOTA): 4} if bounded else {})
    world.close()


# --- events ---------------------------------------------------------------------------------------------------------

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 255}]})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    realm = Realm.create(tmp_path_factory.mktemp("events") / "realm")
    realm.create_topic("quotes", SCHEMA, protection=Layered(2), nodes=2, access="members")
    realm.enrol_many(["nyse", "alice"])
    return realm.paths.root


@pytest.mark.parametrize("attack", ["tokens", "entries"])
def test_an_event_that_costs_more_than_its_schema_allows_is_refused_unpeeled(
    made: Path, tmp_path: Path, attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made, tmp_path / "realm")
    realm, inner = Realm(tmp_path / "realm"), TreePublisher.encrypt_notification

    def dear(self: TreePublisher, labels, payload, event=None, *, pad_to=0):  # type: ignore[no-untyped-def]
        if attack == "tokens":
            return inner(self, labels, payload, event, pad_to=100)
        return {
            child: type(each)(each.event, each.entries * 50, each.body)
            for child, each in inner(self, labels, payload, event).items()
        }

    def publish() -> None:
        with Publisher(realm, "quotes", "nyse") as out:
            out.publish_one(Event({"price": 1}))

    with monkeypatch.context() as hostile:
        hostile.setattr(TreePublisher, "encrypt_notification", dear)
        publish()
    counts = pump(realm, "quotes")
    assert (counts["admitted"], counts["rejected_event"]) == (0, 1)
    with monkeypatch.context() as hostile:
        hostile.setattr(TreePublisher, "encrypt_notification", dear)
        publish()
    publish()
    with monkeypatch.context() as weak:
        weak.setattr(admission, "_check_cost", lambda *given: None)
        assert pump(realm, "quotes")["admitted"] == 2
