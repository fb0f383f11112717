"""A subscription is served while its token and its subscriber's right hold, and within what the token is for."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from sealcast.broker.path import handle
from sealcast.broker.rulings import admitted_before
from sealcast.broker.served import FOR_EVER, ServedInterval, served_intervals
from sealcast.clients.publisher import Publisher
from sealcast.filters import bits
from sealcast.log.embedded import EmbeddedTopic
from sealcast.model import Event, Schema
from sealcast.protections.endpoint.audit import EndpointAudit
from sealcast.protections.endpoint.broker import EndpointStep
from sealcast.protections.steps import StepName
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.parameters import KeyParameters
from tests.clients.pump import pump

TOPIC = "quotes"
SCHEMA = Schema.from_json(
    {"attributes": [{"name": "symbol", "type": "string", "max_length": 8}, {"name": "price", "type": "int"}]}
)
LIFETIME_S = 100
SECOND = 1_000_000


class World:
    """A realm whose clock is the test's."""

    def __init__(self, root: Path) -> None:
        self.now = time.time_ns() // 1000
        self.realm = Realm.create(root / "realm", clock=lambda: self.now)
        parameters = KeyParameters(token_lifetime_s=LIFETIME_S, max_skew_s=10)
        self.realm.create_topic(TOPIC, SCHEMA, parameters=parameters, access="members")
        self.realm.enrol_many(["ann", "ben", "cid"])
        self.realm.subscribe_many(TOPIC, [(name, "price >= 0", f"{name}-1") for name in ("ben", "cid")])

    def interval(self, id: str) -> ServedInterval:
        state = self.realm.state()
        topic = state.topic(TOPIC)
        return dict(served_intervals(state, topic, state.topic_state(TOPIC).subscriptions))[id]

    def readers(self, time_us: int) -> list[str]:
        """Who gets an event of a batch that is pinned to that time, through the pipeline's own kernels."""
        with Publisher(self.realm, TOPIC, "ann") as ann:
            ann.publish([Event({"symbol": "IBM", "price": 3})])
        with EmbeddedTopic(self.realm.paths.topic(TOPIC).frames_root, read_only=True) as log:
            records = list(log.partition(0).read(log.partition(0).end() - 1))
        at = EndpointStep(StepName(str(self.realm.paths.root), TOPIC)).at(self.realm.registry.version(), time_us)
        piece = handle(admitted_before(0, records), at)
        names = list(self.realm.state().slots_of(TOPIC))
        return [names[slot] for slot in piece.slots.tolist()]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_from_its_tokens_beginning_to_its_end(world: World) -> None:
    begun, ends = world.now // SECOND * SECOND, (world.now // SECOND + LIFETIME_S) * SECOND
    found = world.interval("ben-1")
    assert (found.from_us, found.until_us) == (begun - 10 * SECOND, ends), "a clock may be a little behind the center's"
    assert world.readers(world.now) == ["ben", "cid"]
    assert world.readers(ends - 1) == ["ben", "cid"]
    assert world.readers(ends) == []


def test_a_renewed_token_goes_on(world: World) -> None:
    world.now += 60 * SECOND
    assert world.realm.renew_subscriptions(TOPIC) == 2
    assert world.readers(world.now + 90 * SECOND) == ["ben", "cid"]


def test_a_revoked_holder_gets_nothing_from_that_version_on(world: World) -> None:
    before = world.realm.state()
    world.realm.revoke_entity("ben")
    assert world.readers(world.now) == ["cid"]
    found = world.interval("ben-1")
    assert found.until_us <= found.from_us
    assert dict(served_intervals(before, before.topic(TOPIC), before.topic_state(TOPIC).subscriptions))["ben-1"].holds(
        world.now
    )


def test_a_right_that_ends_before_its_token(world: World) -> None:
    ends = (world.now // SECOND + 50) * SECOND
    world.realm.grant(TOPIC, "ben", [Right.SUBSCRIBE], until_us=ends)
    assert world.readers(ends - 1) == ["ben", "cid"]
    assert world.readers(ends) == ["cid"]


def test_tokens_of_a_revoked_center_are_worth_nothing(world: World) -> None:
    state = world.realm.state()
    center = state.topic(TOPIC).center
    serial = state.entity(center).serials[-1]
    revoked = replace(state.revoked, entries={**state.revoked.entries, serial: next(iter([None]))})  # type: ignore[dict-item]
    after = replace(state, revoked=revoked)
    found = dict(served_intervals(after, after.topic(TOPIC), after.topic_state(TOPIC).subscriptions))
    assert all(s.until_us <= s.from_us for s in found.values())


def test_a_realm_without_an_authority_has_no_tokens(world: World) -> None:
    state = world.realm.state()
    bare = replace(state, founding=None, topics={TOPIC: replace(state.topic_state(TOPIC), credentials={})})
    found = dict(served_intervals(bare, bare.topic(TOPIC), bare.topic_state(TOPIC).subscriptions))
    assert {s.until_us for s in found.values()} == {FOR_EVER}
    founded = replace(bare, founding=state.founding)
    found = dict(served_intervals(founded, founded.topic(TOPIC), founded.topic_state(TOPIC).subscriptions))
    assert not any(s.holds(world.now) for s in found.values()), "and in one that has, none without a token is served"


def test_the_filter_counts_within_the_template(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.enrol_many(["ann", "ben"])
    realm.grant(TOPIC, "ben", [Right.SUBSCRIBE], template="symbol=IBM")
    realm.subscribe(TOPIC, "ben", "price > 1")
    with Publisher(realm, TOPIC, "ann") as ann:
        ann.publish([Event({"symbol": s, "price": p}) for s, p in (("IBM", 1), ("IBM", 2), ("ACME", 3))])
    assert pump(realm, TOPIC)["deliveries"] == 1
    # What a token is for can change with the next one.
    realm.grant(TOPIC, "ben", [Right.SUBSCRIBE], template="symbol=ACME")
    realm.renew_subscriptions(TOPIC, at_half_life=False)
    with Publisher(realm, TOPIC, "ann") as ann:
        ann.publish([Event({"symbol": s, "price": 2}) for s in ("IBM", "ACME", "ACME")])
    assert pump(realm, TOPIC)["deliveries"] == 2
    report = EndpointAudit(realm, TOPIC).run()
    assert report.ok, report.problems
    assert EndpointAudit(realm, TOPIC, by_reference=True).run().ok


def test_one_of_two_subscriptions_ends_and_the_other_serves(world: World) -> None:
    world.now += 60 * SECOND
    world.realm.subscribe(TOPIC, "ben", "symbol = 'IBM'", "ben-2")
    late = world.now + 50 * SECOND
    assert not world.interval("ben-1").holds(late) and world.interval("ben-2").holds(late)
    assert world.readers(late) == ["ben"]


def test_masks_are_those_of_the_intervals(world: World) -> None:
    worker = EndpointStep(StepName(str(world.realm.paths.root), TOPIC))
    table = worker.at(world.realm.registry.version()).table
    assert table.served is None
    ended = table.at(int(table.until_us.max()))
    assert ended.served is not None and not ended.served.any() and not ended.authorised.any()
    assert bits.count(table.at(world.now).authorised[None, :]).tolist() == [2]
