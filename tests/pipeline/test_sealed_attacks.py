"""Topics whose publishers seal for readers: every frame that must not pass is refused for its reason and counted, and
what brokers cannot tell from an honest one is of no use to whoever sent it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sealcast.clients.subscriber import Subscriber
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.lab.attacks import RATES, Attack, Insider
from sealcast.lab.sealed_attacks import sealed_attacks, signed_again, stale
from sealcast.log.embedded import EmbeddedTopic
from sealcast.model import Position, Reason
from sealcast.protections.checked import CheckedEvent, CheckedRows
from sealcast.protections.enveloped.client import EnvelopedWay
from sealcast.protections.port import client_side, witness_side
from sealcast.protections.searchable.keys import user_keys
from sealcast.protections.searchable.scheme import UserKeys
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.machine import Topic
from sealcast.wire.records import RecordCodec
from sealcast.wire.searching import block_size
from tests.clients.pump import pump
from tests.pipeline.field import FILTERS, SCHEMA, TOPIC, Field, by_publisher
from tests.pipeline.hostile import hostile

PROTECTIONS = ("payload", "searchable")
CLEAR = {"number": 1, "price": 7, "symbol": "ACME"}


@pytest.fixture(params=PROTECTIONS)
def field(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Field]:
    field = Field(tmp_path / "realm", partitions=1, parameters=replace(RATES, grace_s=0), protection=request.param)
    yield field
    field.close()


def about(field: Field) -> Topic:
    return field.realm.state().topic(TOPIC)


def search_keys(field: Field, name: str) -> UserKeys | None:
    """None where nobody searches."""
    topic = about(field)
    if not topic.protection.filters_sealed:
        return None
    return user_keys(field.realm.identity(name).topic_keys(field.realm.state(), TOPIC), topic, topic.epoch, name)


def mount(field: Field, frames: Sequence[bytes]) -> None:
    """Straight into the log, past every client, between honest frames."""
    with EmbeddedTopic(field.paths.frames_root) as log:
        for data in frames:
            field.publish_round(2)
            log.partition(0).append([data])
    field.publish_round(2)


def refused(field: Field) -> list[dict[str, object]]:
    return [row for broker in witness_side(about(field).protection).refusals(field.realm, TOPIC) for row in broker]


def unharmed(field: Field) -> None:
    field.check()
    assert field.audit().ok


def test_every_attack_is_refused_for_its_reason_and_harms_nobody(field: Field) -> None:
    before, then = Insider.of(field.realm, TOPIC, "ben"), about(field)
    mounted = hostile(field)
    now, topic, ann = time.time_ns() // 1000, about(field), Insider.of(field.realm, TOPIC, "ann")
    sealed: list[Attack] = [
        *sealed_attacks(topic, ann, CLEAR, now, search_keys(field, "ann")),
        stale(topic, before, then, now),
    ]
    lacking = {Reason.TEMPLATE} if "templates" in topic.protection.lacks else set()
    assert {attack.reason for attack in mounted} == set(Reason) - lacking
    mount(field, [attack.data for attack in (*mounted, *sealed)])
    counts, expected = pump(field.realm, TOPIC), Counter[str]()
    for attack in (*mounted, *sealed):
        expected[f"rejected_{attack.reason}"] += attack.events
    assert {name: count for name, count in counts.items() if name.startswith("rejected_") and count} == expected
    assert counts["admitted"] == sum(map(len, field.said.values()))
    told = Counter((row["reason"], str(row["detail"])) for row in refused(field))
    for attack in sealed:
        assert any(reason == attack.reason and attack.detail in detail for reason, detail in told), attack.story
    unharmed(field)


def test_no_refusal_repeats_what_it_refuses(field: Field) -> None:
    """Reasons are kept in clear, for whoever may see that something was refused."""
    ann, now = Insider.of(field.realm, TOPIC, "ann"), time.time_ns() // 1000
    clear = {**CLEAR, "price": 983, "symbol": "CANARY"}
    mount(field, [a.data for a in sealed_attacks(about(field), ann, clear, now, search_keys(field, "ann"))])
    pump(field.realm, TOPIC)
    told = " ".join(str(row["detail"]) for row in refused(field))
    assert told and "CANARY" not in told and "983" not in told and "in clear" not in told


def honest(field: Field, name: str) -> list[bytes]:
    """An event as its publisher seals it for brokers."""
    state, identity = field.realm.state(), field.realm.identity(name)
    keys = identity.topic_keys(state, TOPIC)
    way = client_side(about(field).protection).way(field.realm, TOPIC, identity, FIRST_BROKER)
    assert isinstance(way, EnvelopedWay) and keys.content is not None
    sealer = way.sealer(about(field), about(field).epoch, keys, keys.content)
    schema = about(field).schema
    return sealer.messages(CheckedRows(schema, [CheckedEvent(schema.parse(CLEAR), b"ben's own", "text/plain")]))


def test_what_another_sealed_is_of_no_use_under_ones_own_name(field: Field) -> None:
    """The frame is admitted: nothing is wrong with it that a broker could see. Trapdoors under another's half match
    nothing, and an envelope under another's key opens for nobody."""
    codec, ann, now = RecordCodec(about(field).schema), Insider.of(field.realm, TOPIC, "ann"), time.time_ns() // 1000
    theirs, own = honest(field, "ben"), honest(field, "ann")
    starts = codec.decode([*theirs, *own]).payload_start.tolist()
    their_payload, own_payload = theirs[0][starts[0] :], own[0][starts[1] :]
    copies = [theirs]
    if about(field).protection.filters_sealed:  # their trapdoors, and an event of its own
        block, envelope = their_payload[: block_size(their_payload)], own_payload[block_size(own_payload) :]
        copies.append([theirs[0][: starts[0]] + block + envelope])
    mount(field, [signed_again(about(field), ann, messages, now) for messages in copies])
    counts = pump(field.realm, TOPIC)
    assert counts["admitted"] == sum(map(len, field.said.values())) + len(copies)
    if about(field).protection.filters_sealed:
        unharmed(field)
        return
    for name in field.filters:
        unopened = list[Position]()
        with Subscriber(
            field.realm, TOPIC, name, from_=0, unopenable=lambda at, _, to=unopened: to.append(at)
        ) as reader:
            assert by_publisher(list(reader)) == field.expected(name), "all that is honest"
        assert len(unopened) == (evaluate(parse(FILTERS[name], SCHEMA), SCHEMA.parse(CLEAR)) is True), name
