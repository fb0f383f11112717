"""What a layered topic's brokers compute for others is bounded: by tokens, by the schema, and by who reads below."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import combinations, islice
from pathlib import Path

import pytest

from sealcast.clients.publisher import Publisher
from sealcast.control.budgets import Allowance
from sealcast.model import Event, Schema
from sealcast.model.protection import Layered
from sealcast.protections.layered import admit as admission
from sealcast.protections.layered.filters import keeper as keeping
from sealcast.protections.layered.filters.checks import Doorkeeper, PostReason
from sealcast.protections.layered.filters.keeper import TableKeeper
from sealcast.protections.layered.messages import FilterMessage
from sealcast.protections.layered.publish import TreePublisher
from sealcast.trust.deployment import Realm
from tests.clients.layered_pump import pump
from tests.overlay.filters_world import LABELS, Realms, World, post, quick_realms, wants


@pytest.fixture(scope="module")
def realms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realms]:
    with quick_realms(tmp_path_factory.mktemp("costs")) as made:
        yield made


@pytest.fixture
def world(realms: Realms) -> Iterator[World]:
    made = realms.world(2, [None, 0], [1, 1])
    yield made
    made.close()


# --- posts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("charged", ["tokens", "posts"])
def test_posts_are_charged_by_their_tokens_before_a_power_is_computed(
    world: World, charged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four posts of three tokens each, by somebody who may have seven at once."""
    if charged == "posts":
        monkeypatch.setattr(keeping, "tokens_of", lambda filters: 1)
    world.keepers["b1"].close()
    world.keepers["b1"] = TableKeeper(world.realm, world.topic, "b1", allowance=Allowance(per_second=1, burst=7))
    for three in islice(combinations(range(len(LABELS)), 3), 4):
        world.subscribe("s0", wants([list(three)]))
    world.subscribe("s1", wants([[0]]))
    world.settle()
    assert world.refused() == ({} if charged == "posts" else {str(PostReason.BUDGET): 1})
    assert len(world.rows("b1")) == (5 if charged == "posts" else 4), "the other one has a budget of its own"


def rows_of_nobody(world: World, count: int) -> list[FilterMessage]:
    """Filters that a broker invents, in the name of somebody who reads below it."""
    group = world.group
    return [FilterMessage(((group.encode(group.random()),),), ("b1", "s0")) for _ in range(count)]


@pytest.mark.parametrize("bounded", [True, False])
def test_a_broker_has_rows_for_those_who_read_below_it_and_no_more(
    world: World, bounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sealcast.protections.layered.filters.turns.MAX_BYTES_EACH", 3 * world.group.wire_bytes)
    if not bounded:
        monkeypatch.setattr(Doorkeeper, "readers_below", lambda self, broker, generation: 1 << 40)
    (tree,) = world.trees()
    post(world.realm, world.topic, world.identity("b1"), "b0", tree, rows_of_nobody(world, 10))
    world.settle()
    assert len(world.rows("b0")) == (6 if bounded else 10), "two read below it"
    assert world.refused() == ({str(PostReason.QUOTA): 4} if bounded else {})


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
