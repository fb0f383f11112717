"""Posts that must have no effect, each with its own reason; and rows that end because their sender's time is over."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sealcast.control.budgets import Allowance
from sealcast.log.post_log import PostLog
from sealcast.primitives.sign import SigningKey
from sealcast.protections.layered.filters.checks import PostReason
from sealcast.protections.layered.filters.keeper import TableKeeper
from sealcast.protections.layered.filters.posting import PARTS
from sealcast.protections.layered.filters.posts import Numbered, signed_posts
from sealcast.protections.layered.messages import FilterMessage
from sealcast.protections.layered.table import RoutingTable
from sealcast.protections.layered.tree import TreeId
from sealcast.trust.keys.identity import Identity
from sealcast.trust.realm.changes import Right
from tests.overlay.filters_world import EVENTS, SHAPE, Realms, World, check, post, quick_realms, refused, told_by, wants


@pytest.fixture(scope="module")
def realms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realms]:
    with quick_realms(tmp_path_factory.mktemp("posts")) as made:
        yield made


@pytest.fixture
def world(realms: Realms) -> Iterator[World]:
    made = realms.world(2, **SHAPE)
    yield made
    made.close()


# --- posts that must have no effect -------------------------------------------------------------------


class Bent:
    """Ways to write a post that is not to be taken, by what it changes in an honest one to broker b3 by reader s0."""

    def __init__(self, world: World) -> None:
        self.world, self.id = world, world.trees()[0]
        self.alice, self.token = world.identity("s0"), world.token("s0")
        self.wanted = world.encrypted("s0", wants([[0]]), self.id)
        self._passed_on = 0

    def made(
        self,
        *,
        topic: bytes | None = None,
        sender: Any = None,
        receiver: str = "b3",
        tree: TreeId | None = None,
        filters: list[FilterMessage] | None = None,
        number: int | None = None,
        fresh: bool = False,
        token: bytes | None = None,
    ) -> bytes:
        number = time.time_ns() // 1000 if number is None else number
        (data,) = signed_posts(
            topic or self.world.realm.state().topic(self.world.topic).id,
            sender or self.alice,
            receiver,
            Numbered(tree or self.id, self.wanted if filters is None else filters, number, fresh),
            self.token if token is None else token,
        )
        return data

    def impostor(self, name: str) -> Identity:
        real = self.world.identity(name)
        return Identity(name, SigningKey.generate(), real.kem, real.key)

    def with_a_newcomer(self, name: str) -> Bent:
        """Who has a place, and has not announced a key yet."""
        self.world.realm.place_subscriber(self.world.topic, name, "b3")
        return self

    def passed_on(self, *path: str, remove: bool = False) -> dict[str, Any]:
        """As broker b3 would send it to b1."""
        filters = [FilterMessage(self.wanted[0].slots, path, remove)]
        self._passed_on += 1
        return {
            "sender": self.world.identity("b3"),
            "receiver": "b1",
            "filters": filters,
            "token": b"",
            "number": PARTS + self._passed_on,
        }


NO_POINT = FilterMessage(((b"\x02" + b"\xff" * 32,),), ("s0",))
BENT: dict[PostReason, list[Any]] = {
    PostReason.FORM: [lambda b: b"noise", lambda b: b.made()[:-1]],
    PostReason.TOPIC: [lambda b: b.made(topic=bytes(16))],
    PostReason.RECEIVER: [lambda b: b.made(receiver="b1")],
    PostReason.SENDER: [
        lambda b: b.made(sender=b.world.identity("s1")),  # reads elsewhere
        lambda b: b.made(sender=b.world.identity("p0")),
        lambda b: b.made(token=b""),  # no broker
        lambda b: b.made(sender=b.world.identity("b1"), token=b""),  # stands above
    ],
    PostReason.SIGNATURE: [lambda b: b.made(sender=b.impostor("s0"))],
    PostReason.EPOCH: [lambda b: b.made(tree=b.id._replace(epoch=2)), lambda b: b.made(tree=b.id._replace(epoch=0))],
    PostReason.GENERATION: [lambda b: b.made(tree=b.id._replace(generation=1))],
    PostReason.TREE: [
        lambda b: b.made(tree=b.id._replace(publisher="p1")),  # has not announced itself
        lambda b: b.made(tree=b.id._replace(publisher="s0")),
        lambda b: b.made(tree=b.id._replace(publisher="nobody")),
    ],
    PostReason.TOKEN: [
        lambda b: b.made(token=b"no token"),
        lambda b: b.made(token=b.world.token("s1")),
        lambda b: b.made(token=b.world.token("s0", b.world.realm.clock() - 86_400_000_000)),  # just over
    ],
    PostReason.PATH: [lambda b: b.made(filters=[FilterMessage(b.wanted[0].slots, ("s0", "s1"))])],
    PostReason.ELEMENT: [lambda b: b.made(filters=[NO_POINT])],
    PostReason.UNKNOWN: [lambda b: b.made(filters=b.world.encrypted("s0", wants([[5]]), b.id, remove=True))],
}
BENT_BY_BROKERS: dict[PostReason, list[Any]] = {
    PostReason.SENDER: [lambda b: b.made(**{**b.passed_on("b3", "s0"), "token": b.world.token("s1")})],
    PostReason.FRESH: [lambda b: b.made(**b.passed_on("b3", "s0"), fresh=True)],
    PostReason.PATH: [
        lambda b: b.made(**b.passed_on("b3")),  # a broker that would read without a token
        lambda b: b.made(**b.passed_on("b2", "s2")),
        lambda b: b.made(**b.passed_on("b3", "b2")),
        lambda b: b.made(**b.passed_on("b3", "s1")),  # reads elsewhere
        lambda b: b.made(**b.passed_on("b3", "b3x")),
        lambda b: b.made(**b.passed_on("b3", "s0", "s1")),
    ],
    PostReason.KEYS: [lambda b: b.with_a_newcomer("s4").made(**b.passed_on("b3", "s4"))],
    PostReason.UNKNOWN: [lambda b: b.made(**b.passed_on("b3", "s0", remove=True))],
}


def slipped_in(world: World, broker: str, data: bytes) -> None:
    """Into the log itself: who can write there needs no client of ours."""
    with PostLog(world.realm.paths.topic(world.topic, broker).filter_posts) as log:
        log.append([data])


@pytest.mark.parametrize(
    ("broker", "reason"), [*(("b3", reason) for reason in BENT), *(("b1", reason) for reason in BENT_BY_BROKERS)]
)
def test_a_bent_post_has_no_effect_and_its_own_reason(realms: Realms, broker: str, reason: PostReason) -> None:
    world = realms.world(2, **SHAPE)
    try:
        world.subscribe("s0", wants([[1]]))
        world.settle()
        before = {name: world.rows(name) for name in world.brokers}
        makers = (BENT if broker == "b3" else BENT_BY_BROKERS)[reason]
        bent = Bent(world)
        for number, make in enumerate(makers):
            slipped_in(world, broker, make(bent))
            world.settle()
            assert refused(world.keepers[broker]) == {str(reason): number + 1}
        assert {name: world.rows(name) for name in world.brokers} == before
        told = told_by(world.keepers[broker])[1]
        assert [each.reason for each in told] == [str(reason)] * len(makers)
        # Honest ones are taken after that.
        world.subscribe("s0", wants([[2]]))
        world.settle()
        check(world, EVENTS[:4])
    finally:
        world.close()


def test_copies_and_replays_have_no_effect(world: World) -> None:
    bent = Bent(world)
    first, second = bent.made(number=10), bent.made(number=11, filters=[replaced(bent.wanted[0], remove=True)])
    for data in (first, first, second, first, second):
        slipped_in(world, "b3", data)
        world.settle()
    assert told_by(world.keepers["b3"])[0][PostReason.SEEN] == 3
    assert not world.refused()
    assert not any(world.rows(name) for name in world.brokers)
    # The same bytes at another broker: it is not theirs, there or above.
    slipped_in(world, "b1", first)
    slipped_in(world, "b2", first)
    world.settle()
    assert world.refused() == {str(PostReason.RECEIVER): 2}


def replaced(message: FilterMessage, *, remove: bool) -> FilterMessage:
    return FilterMessage(message.slots, message.path, remove)


def test_who_was_refused_is_not_taken_later_from_a_copy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A post that came too early for its token stays refused when its time has come."""
    bent = Bent(world)
    early = bent.made(token=world.token("s0", world.realm.clock() + 3_600_000_000), number=5)
    slipped_in(world, "b3", early)
    world.settle()
    assert world.refused() == {str(PostReason.TOKEN): 1}
    later(world, monkeypatch, seconds=3_700)
    slipped_in(world, "b3", early)
    world.settle()
    assert told_by(world.keepers["b3"])[0][PostReason.SEEN] == 1
    assert not world.rows("b3")


def test_one_bad_filter_does_not_take_the_others_with_it(world: World) -> None:
    bent = Bent(world)
    good = world.encrypted("s0", wants([[0]], [[1]]), bent.id)
    slipped_in(world, "b3", bent.made(filters=[good[0], NO_POINT, good[1], replaced(bent.wanted[0], remove=True)]))
    world.settle()
    assert world.refused() == {str(PostReason.ELEMENT): 1}
    assert len(world.rows("b3")) == len(world.rows("b0")) == 1


def test_a_budget_is_each_senders_own(realms: Realms, monkeypatch: pytest.MonkeyPatch) -> None:
    world = realms.world(2, [None, 0], [1, 1])
    try:
        world.keepers["b1"].close()
        world.keepers["b1"] = TableKeeper(world.realm, world.topic, "b1", allowance=Allowance(per_second=1, burst=3))
        for i in range(5):
            world.subscribe("s0", wants([[i]]))
        world.subscribe("s1", wants([[0]]))
        world.settle()
        assert len(world.rows("b1")) == 4, "two of the first one's wait"
        later(world, monkeypatch, seconds=60)
        world.settle()
        assert len(world.rows("b1")) == 6
        assert not world.refused()
    finally:
        world.close()


def test_nobody_fills_a_table(realms: Realms) -> None:
    world = realms.world(2, **SHAPE, reader_labels=3)
    world.say("s0", [(wants([[i]]), False) for i in range(5)])
    world.settle()
    assert world.refused() == {str(PostReason.QUOTA): 2}
    world.say("s0", [(wants([[0]]), True), (wants([[5]]), False)])
    world.settle()
    assert world.refused() == {str(PostReason.QUOTA): 2}
    assert len(world.rows("b3")) == 3
    world.close()


def test_whatever_one_has_ends_in_records_of_bounded_size(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("intake", "turns"):
        monkeypatch.setattr(f"sealcast.protections.layered.filters.{name}.TURN_BYTES", 100)
    many = [wants([[i], [j]]) for i in range(4) for j in range(i)]
    for each in many:
        world.subscribe("s0", each)
    world.settle()
    check(world, EVENTS[:8])
    before = world.keepers["b3"].version()
    world.start_over("s0", many[:2])
    world.settle()
    check(world, EVENTS[:8])
    between = world.keepers["b3"].version()
    assert between >= before + 4, "six rows of two tokens, two rows a record, and what it says anew"
    world.start_over("s0", many)
    world.settle()
    world.realm.revoke(world.topic, "s0", [Right.SUBSCRIBE])
    world.settle()
    assert world.keepers["b3"].version() >= between + 4
    assert not any(world.rows(name) for name in world.brokers)
    assert not world.refused()


def test_a_full_table_takes_nothing_new(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RoutingTable.__init__, "__defaults__", (2,))
    world.say("s0", [(wants([[i]]), False) for i in range(3)])
    world.say("s0", [(wants([[0]]), False)])
    world.settle()
    assert world.refused() == {str(PostReason.ROWS): 1}
    assert sorted(n for paths in world.rows("b3").values() for n in paths.values()) == [1, 2]


def test_the_document_lists_the_checks_in_their_order() -> None:
    text = (Path(__file__).parents[2] / "docs" / "routing-tables.md").read_text()
    assert re.findall(r"^\| \d+ \| `([a-z]+)` \|", text, re.MULTILINE) == list(map(str, PostReason))


# --- whose time is over -------------------------------------------------------------------------------


def later(world: World, monkeypatch: pytest.MonkeyPatch, *, seconds: int) -> None:
    """For everyone's clock, and the log's."""
    before = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: before() + seconds * 1_000_000_000)
    monkeypatch.setattr(world.realm, "clock", lambda: time.time_ns() // 1000)


def test_a_token_that_ended_ends_its_rows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.subscribe("s0", wants([[0]]))
    world.subscribe("s2", wants([[0]]))
    world.settle()
    versions = {name: world.keepers[name].version() for name in world.brokers}
    world.settle()
    assert versions == {name: world.keepers[name].version() for name in world.brokers}, "nothing moved, nothing written"
    later(world, monkeypatch, seconds=80_000)
    world.say("s2", [])  # a newer token, in time
    later(world, monkeypatch, seconds=10_000)
    world.settle()
    world.wanted["s0"].clear()
    check(world, EVENTS[:2])
    assert not world.rows("b3")
    assert not world.refused()
    # Back with a new token: it says everything again, and is counted once.
    world.subscribe("s0", wants([[0]]))
    world.settle()
    world.unsubscribe("s0", wants([[0]]))
    world.settle()
    assert not world.rows("b3")
    check(world, EVENTS[:2])


def test_every_token_has_its_own_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.subscribe("s0", wants([[0]]))
    world.settle()
    id, now = world.trees()[0], world.realm.clock()
    short = world.token("s0", now - 82_800_000_000), world.token("s2", now - 82_800_000_000)
    for name, home, token in (("s0", "b3", short[0]), ("s2", "b2", short[1])):
        messages = world.encrypted(name, wants([[1]]), id)
        post(world.realm, world.topic, world.identity(name), home, id, messages, token)
    world.settle()
    assert len(world.rows("b2")) == 1
    later(world, monkeypatch, seconds=7_200)
    world.settle()
    assert not world.rows("b2")
    assert len(world.rows("b3")) == 2, "the later end of two counts"


def test_a_keeper_that_comes_late_judges_by_when_posts_came(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.subscribe("s0", wants([[0]]))
    world.settle()
    later(world, monkeypatch, seconds=80_000)
    world.subscribe("s0", wants([[1]]))  # in time, with a newer token
    later(world, monkeypatch, seconds=80_000)
    world.settle()
    check(world, EVENTS[:3])
    # And one that comes after its token's end has lost what it had, however late the keeper is.
    later(world, monkeypatch, seconds=90_000)
    world.subscribe("s0", wants([[2]]))
    world.settle()
    world.wanted["s0"] = Counter([wants([[2]])])
    check(world, EVENTS[:4])


def test_a_right_that_was_taken_away_ends_rows_at_once(world: World) -> None:
    world.subscribe("s0", wants([[0]]))
    world.subscribe("s1", wants([[0]]))
    world.settle()
    kept = Bent(world).made()  # of somebody who may not get a token any more, and kept an old one
    world.realm.revoke(world.topic, "s0", [Right.SUBSCRIBE])
    world.settle()
    world.wanted["s0"].clear()
    check(world, EVENTS[:2])
    slipped_in(world, "b3", kept)
    world.settle()
    assert world.refused() == {str(PostReason.RIGHT): 1}


def test_a_revoked_reader_is_gone_from_all_tables(realms: Realms) -> None:
    world = realms.world(3, [None, 0, 1, 2], [3, 3])
    try:
        realm, name = world.realm, f"mallory-{world.topic}"
        realm.enrol(name)
        realm.place_subscriber(world.topic, name, "b3")
        world.announce()
        world.wanted[name] = Counter()
        world.subscribe(name, wants([[0], [1]]))
        world.subscribe("s0", wants([[0]]))
        world.settle()
        assert [len(world.rows(b)) for b in world.brokers] == [2, 2, 2, 2]
        copy = signed_posts(
            realm.state().topic(world.topic).id,
            world.identity(name),
            "b3",
            Numbered(world.trees()[0], world.encrypted(name, wants([[2]]), world.trees()[0]), 1 << 60),
            world.token(name),
        )[0]
        realm.revoke_entity(name)
        slipped_in(world, "b3", copy)
        world.settle()
        assert [len(world.rows(b)) for b in world.brokers] == [1, 1, 1, 1]
        assert world.refused() == {str(PostReason.CERTIFICATE): 1}
    finally:
        world.close()


def test_a_broker_that_reads_is_one_of_its_parents_readers(realms: Realms) -> None:
    world = realms.world(2, [None, 0, 1], [2])
    try:
        world.realm.grant(world.topic, "b1", [Right.SUBSCRIBE])
        world.realm.place_subscriber(world.topic, "b1")
        world.wanted["b1"] = Counter()
        world.subscribe("s0", wants([[0]]))
        world.subscribe("b1", wants([[0]]))
        world.subscribe("b1", wants([[1]]))
        world.settle()
        check(world, EVENTS[:4])
        world.unsubscribe("b1", wants([[1]]))
        world.settle()
        check(world, EVENTS[:4])
        # Its reading ends, its routing goes on.
        world.realm.revoke(world.topic, "b1", [Right.SUBSCRIBE])
        world.settle()
        world.wanted["b1"].clear()
        check(world, EVENTS[:4])
        assert not world.refused()
    finally:
        world.close()


def test_moves_begin_new_trees_and_old_ones_end_in_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.subscribe("s0", wants([[0]]))
    world.settle()
    old, at = world.trees()[0], world.keepers["b3"].version()
    world.realm.place_subscriber(world.topic, "s0", "b2")
    assert world.trees()[0] != old
    world.settle()
    assert world.rows("b3", old), "what is on its way is still routed"
    world.say("s0", [(wants([[0]]), False)])
    world.settle()
    check(world, EVENTS[:2])
    later(world, monkeypatch, seconds=90_000)
    world.settle()
    tables = world.tables("b3")
    assert old not in tables.at(tables.version())
    assert len(tables.at(at)[old].table) == 1, "an earlier version is what it was"
    assert not world.refused()


def test_an_epoch_that_is_over_takes_its_trees_with_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.subscribe("s0", wants([[0]]))
    world.settle()
    old = world.trees()[0]
    world.realm.rotate(world.topic)
    world.announce()
    world.say("s0", [(wants([[0]]), False)])
    world.settle()
    assert len(world.rows("b0", old)) == len(world.rows("b0")) == 1
    check(world, EVENTS[:2])
    later(world, monkeypatch, seconds=90_000)
    world.say("s0", [(wants([[0]]), False)], fresh=True)
    world.settle()
    assert not world.rows("b0", old)
    assert not world.refused()
    check(world, EVENTS[:2])
