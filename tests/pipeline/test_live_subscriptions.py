"""Who gets what may change while the pipeline runs: it counts from the next micro-batch on, and never backwards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sealcast.clients.publisher import Publisher
from sealcast.errors import Rejected
from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.entry import Entry
from sealcast.log.ledger import LedgerReader
from sealcast.pipeline.run import Pipeline, start
from sealcast.trust.realm.parameters import KeyParameters
from tests.pipeline.field import PUBLISHERS, TOPIC, Field, Said, by_publisher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Live:
    """A running pipeline, and what was published in each round of a story."""

    def __init__(self, field: Field, pipeline: Pipeline) -> None:
        self.field = field
        self.pipeline = pipeline
        self.rounds: list[dict[str, list[Said]]] = []

    def publish(self) -> None:
        """One more round, delivered when this returns."""
        before = {name: len(events) for name, events in self.field.said.items()}
        self.field.publish_round()
        said = {name: events[before[name] :] for name, events in self.field.said.items()}
        self.rounds.append(
            {name: [(e.attributes["number"], e.payload) for e in events] for name, events in said.items()}  # type: ignore[misc]
        )
        self.delivered()

    def delivered(self) -> None:
        self.pipeline.wait(lambda: bool(e := self.entries()) and sum(e[-1].end.partitions) == self.field.frames())

    def entries(self) -> list[Entry]:
        with LedgerReader(self.field.paths.ledger) as ledger:
            return [committed.entry for committed in ledger.entries()]

    def mailbox(self, subscriber: str) -> dict[str, list[Said]]:
        return by_publisher(self.field.read(subscriber))

    def of_rounds(self, *numbers: int) -> dict[str, list[Said]]:
        return {name: [said for n in numbers for said in self.rounds[n][name]] for name in PUBLISHERS}


@pytest.fixture
def live(spark: SparkSession, tmp_path: Path) -> Iterator[Live]:
    field = Field(tmp_path / "realm")
    with start(field.realm, [TOPIC], spark=spark) as pipeline:
        yield Live(field, pipeline)
    versions = [entry.version for entry in Live(field, pipeline).entries()]
    assert versions == sorted(versions), "what was once in force is not taken back"
    report = field.audit()
    assert report.ok, report.problems
    field.close()


def test_a_new_subscription_gets_what_comes_after_it_and_nothing_from_before(live: Live) -> None:
    live.publish()
    live.field.realm.enrol("late")
    live.field.realm.subscribe(TOPIC, "late", "price >= 0")
    version = live.field.realm.registry.version()
    live.publish()
    assert live.mailbox("late") == live.of_rounds(1)
    assert live.mailbox("all") == live.of_rounds(0, 1)
    assert [entry.version >= version for entry in live.entries()][-1]
    assert live.entries()[0].version < version


def test_a_subscription_that_is_removed_gets_no_more_and_keeps_what_it_has(live: Live) -> None:
    live.publish()
    live.field.realm.unsubscribe("all-1")
    live.publish()
    assert live.mailbox("all") == live.of_rounds(0)
    live.field.realm.subscribe(TOPIC, "all", "price >= 0")
    live.publish()
    assert live.mailbox("all") == live.of_rounds(0, 2), "what came in between is not made up for"


def test_a_second_filter_of_the_same_subscriber_delivers_no_event_twice(live: Live) -> None:
    live.field.realm.subscribe(TOPIC, "all", "number >= 0")
    live.publish()
    assert live.mailbox("all") == live.of_rounds(0)


def test_a_subscriber_without_the_right_gets_nothing_sealed_until_it_has_it_again(live: Live) -> None:
    live.publish()
    live.field.realm.revoke(TOPIC, "all")
    live.publish()
    with pytest.raises(Rejected):
        live.mailbox("all")  # reading obeys the rights of now, also for what came before
    slot = live.field.realm.state().slot_of(TOPIC, "all")
    assert slot is not None
    assert not any(piece.concerns(slot) for piece in live.entries()[-1].pieces)
    live.field.realm.grant(TOPIC, "all")
    live.publish()
    assert live.mailbox("all") == live.of_rounds(0, 2)


def test_a_revoked_publisher_is_refused_also_with_frames_that_it_sealed_before(live: Live) -> None:
    live.publish()
    with Publisher(live.field.realm, TOPIC, "ben") as ben:
        frames, partition = ben.seal([live.field.event("ben", 10_000 + n) for n in range(5)]), ben.partition
    live.field.realm.revoke_entity("ben")
    with EmbeddedTopic(live.field.paths.frames_root) as log:
        log.partition(partition).append(frames)
    live.delivered()
    assert live.mailbox("all") == live.of_rounds(0), "and what it said before can still be read and verified"
    assert live.entries()[-1].counts["rejected_revoked"] == 5


def test_a_revoked_subscriber_gets_nothing_sealed_from_the_next_batch_on(live: Live) -> None:
    live.publish()
    slot = live.field.realm.state().slot_of(TOPIC, "all")
    assert slot is not None and live.entries()[-1].pieces[0].concerns(slot)
    live.field.realm.revoke_entity("all")
    live.publish()
    assert not any(piece.concerns(slot) for piece in live.entries()[-1].pieces)


def test_a_new_version_without_events_is_no_batch(live: Live) -> None:
    live.publish()
    before = len(live.entries())
    live.field.realm.enrol("idle")
    live.publish()
    assert len(live.entries()) > before
    assert all(entry.counts.get("frames") for entry in live.entries()), "every batch has frames"


def test_a_token_that_ends_stops_its_subscription_while_the_stream_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Nobody tells the pipeline: no version changes, and the next micro-batch has nothing for anyone."""
    lifetime = 6
    field = Field(tmp_path / "realm", parameters=KeyParameters(token_lifetime_s=lifetime, max_skew_s=lifetime - 1))
    ends = max(c.expires_us for c in field.realm.state().credentials_of(TOPIC).values())
    with start(field.realm, [TOPIC], spark=spark) as pipeline:
        live = Live(field, pipeline)
        live.publish()
        version = field.realm.registry.version()
        time.sleep(max(0, ends / 1e6 - time.time()))
        live.publish()
        assert field.realm.registry.version() == version
        # On a busy machine a renewed token can end before its micro-batch: then it is renewed again.
        for _ in range(5):
            field.realm.renew_subscriptions(TOPIC, at_half_life=False)
            live.publish()
            served = [sum(ref.deliveries for ref in entry.pieces) for entry in live.entries()]
            if served[-1]:
                break
        ended = [entry.end.time_us >= ends and entry.version == version for entry in live.entries()]
    assert any(ended) and not any(n for n, over in zip(served, ended, strict=True) if over)
    assert served[-1] > 0
    report = field.audit()
    assert report.ok, report.problems
    field.close()
