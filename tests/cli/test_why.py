"""sealcast why: for every way an event can end, the reason that is really it."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sealcast.clients.publisher import Publisher
from sealcast.log.embedded import EmbeddedTopic
from sealcast.model import Event
from sealcast.primitives.secrets import Secret
from sealcast.protections.frames import FrameSealer
from sealcast.trust.deployment import Realm
from sealcast.wire.records import RecordCodec
from sealcast.wire.sealed import SealedPiece
from tests.cli.shell import sealcast
from tests.clients.pump import pump
from tests.wire.mailboxes import of_deliveries


def why(event: str, who: str) -> dict[str, object]:
    result = sealcast("why", event, who, "--json")
    assert result.code == 0, result.err
    document: dict[str, object] = result.document
    return document


def publish(home: Path, *attributes: dict[str, object]) -> list[str]:
    with Publisher(Realm(home), "quotes", as_="nyse") as publisher:
        return [str(p) for p in publisher.publish([Event(a) for a in attributes])]


# --- every event of the fixture, for both subscribers: what the filters say by hand ---------------------------


@pytest.mark.parametrize(
    ("row", "alice", "bob", "sealed"),
    [
        (0, "delivered", "delivered", {"mode": "content key", "encryptions": 2, "readers": 2}),
        (1, "not-matched", "delivered", {"mode": "direct", "encryptions": 1, "readers": 1}),
        (2, "delivered", "not-matched", {"mode": "direct", "encryptions": 1, "readers": 1}),
        (3, "not-matched", "not-matched", None),
    ],
)
def test_what_became_of_each_event(delivered: Path, row: int, alice: str, bob: str, sealed: object) -> None:
    for who, verdict in (("alice", alice), ("bob", bob)):
        answer = why(f"quotes/0/0/{row}", who)
        assert (answer["verdict"], answer["sealed"]) == (verdict, sealed)
        assert (answer["publisher"], answer["sequence"], answer["authorised"]) == ("nyse", row, True)
        batch = answer["batch"]
        assert isinstance(batch, dict) and batch["record"] == 0 and batch["version"] == Realm(delivered).state().version


def test_the_filter_is_taken_apart(delivered: Path) -> None:
    missed = why("0/0/1", "alice")
    assert missed["subscriptions"] == [
        {
            "id": "alice-1",
            "filter": "price > 100",
            "result": False,
            "decided_by": [{"text": "price > 100", "at": 0, "end": 11, "result": False}],
        }
    ]
    absent = why("0/0/3", "bob")["subscriptions"]
    assert isinstance(absent, list) and absent[0]["result"] is None  # unknown: there is no symbol
    told = sealcast("why", "0/0/1", "alice").out
    assert "not matched: no filter of alice is true of it" in told
    assert "price > 100   (price is 99" in told


def test_for_people_it_says_everything(delivered: Path) -> None:
    told = sealcast("why", "0/0/0", "bob").out
    for words in (
        "event quotes/0/0/0, bob: delivered: bob-1 matched, and bob may read",
        "by nyse",
        "record 0 of the ledger",
        "yes: it passed every check",
        "a key of its own, wrapped for each reader: 2 encryptions, 2 readers",
    ):
        assert words in told


def test_not_yet_processed(delivered: Path) -> None:
    (event,) = publish(delivered, {"symbol": "IBM"})
    answer = why(event, "bob")
    assert (answer["verdict"], answer["batch"]) == ("waiting", None)
    assert "sealcast run" in sealcast("why", event, "bob").err


def test_without_the_right_to_read(delivered: Path) -> None:
    assert sealcast("revoke", "quotes", "bob", "subscribe").code == 0
    (event,) = publish(delivered, {"symbol": "IBM"})
    pump(Realm(delivered), "quotes")
    answer = why(event, "bob")
    assert (answer["verdict"], answer["authorised"]) == ("not-authorised", False)
    assert "bob-1 matched, but bob had no right" in str(answer["because"])
    # What counts is the version of the batch, not that of today, in both directions.
    assert why("0/0/0", "bob")["verdict"] == "delivered"
    assert sealcast("grant", "quotes", "bob", "subscribe").code == 0
    assert why(event, "bob")["verdict"] == "not-authorised"


def test_a_revoked_subscriber(delivered: Path) -> None:
    assert sealcast("entity", "revoke", "bob").code == 0
    (event,) = publish(delivered, {"symbol": "IBM"})
    pump(Realm(delivered), "quotes")
    assert "bob was revoked, at version" in str(why(event, "bob")["because"])


def test_subscribed_too_late_or_no_longer(delivered: Path) -> None:
    sealcast("entity", "enrol", "carol")
    sealcast("subscription", "add", "quotes", "--as", "carol", "--filter", "symbol = 'IBM'")
    answer = why("0/0/0", "carol")
    assert answer["verdict"] == "not-subscribed"
    assert answer["other_times"] == [f"carol-1 was added later, at version {Realm(delivered).state().version}"]
    sealcast("subscription", "remove", "bob-1")
    (event,) = publish(delivered, {"symbol": "IBM"})
    pump(Realm(delivered), "quotes")
    gone = why(event, "bob")
    assert gone["verdict"] == "not-subscribed"
    assert any("bob-1 had been removed" in str(text) for text in gone["other_times"])  # type: ignore[union-attr]


def test_a_refused_frame_names_the_check(delivered: Path) -> None:
    realm = Realm(delivered)
    about, identity = realm.state().topic("quotes"), realm.identity("nyse")
    codec = RecordCodec(about.schema)
    token = realm.token("quotes", "nyse")
    stranger = FrameSealer(codec, about.id, about.epoch, "nyse", Secret.random(), identity.signer, token=token)
    values = [about.schema.parse({"symbol": "IBM"})]
    frame = stranger.seal(values, [b""], ["text/plain"], time.time_ns() // 1000)
    log = EmbeddedTopic(realm.paths.topic("quotes").frames_root).partition(0)
    (sealed_for_another,) = log.append([frame])
    (rubbish,) = log.append([b"rubbish"])
    pump(realm, "quotes")
    answer = why(f"0/{sealed_for_another}/0", "bob")
    assert answer["verdict"] == "refused"
    assert isinstance(answer["refused"], dict) and (answer["refused"]["check"], answer["refused"]["reason"]) == (
        18,
        "seal",
    )
    assert why(f"0/{rubbish}/0", "bob")["refused"]["check"] == 1  # type: ignore[index]


def test_a_single_refused_event(delivered: Path) -> None:
    """A publisher that does not check its events: the broker does, and says which check and which attribute."""
    realm = Realm(delivered)
    state = realm.state()
    about, identity = state.topic("quotes"), realm.identity("nyse")
    codec = RecordCodec(about.schema)
    pair, token = identity.pair_key(state, "quotes"), realm.token("quotes", "nyse")
    sealer = FrameSealer(codec, about.id, about.epoch, "nyse", pair, identity.signer, token=token)
    good, bad = about.schema.parse({"symbol": "IBM"}), {**about.schema.parse({"symbol": "IBM"}), "volume": -1}
    frame = sealer.seal([good, bad], [b"", b""], ["text/plain"] * 2, time.time_ns() // 1000)
    (offset,) = EmbeddedTopic(realm.paths.topic("quotes").frames_root).partition(0).append([frame])
    pump(realm, "quotes")
    assert why(f"0/{offset}/0", "bob")["verdict"] == "delivered"
    refused = why(f"0/{offset}/1", "bob")
    assert refused["refused"]["check"] == 20 and "volume" in str(refused["because"])  # type: ignore[index]


def test_a_broker_that_withholds_an_event_is_told_apart_from_a_filter(home: Path) -> None:
    def withhold(piece: SealedPiece) -> SealedPiece:
        return replace(piece, **of_deliveries([], piece.use_start))

    sealcast("subscription", "add", "quotes", "--as", "bob", "--filter", "symbol = 'IBM'")
    (event,) = publish(home, {"symbol": "IBM"})
    pump(Realm(home), "quotes", withhold)
    answer = why(event, "bob")
    assert answer["verdict"] == "wrong" and "not delivered" in str(answer["because"])
    assert "sealcast check" in sealcast("why", event, "bob").err


# --- questions that make no sense ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "who", "words"),
    [
        ("0/0/4", "bob", "has events 0 to 3, not 4"),
        ("0/9/0", "bob", "no event 0/9/0"),
        ("7/0/0", "bob", "partitions 0 to 0"),
        ("quotes/0/0", "bob", "partition/offset/row"),
        ("nosuch/0/0/0", "bob", "no topic 'nosuch'"),
        ("0/0/0", "nobody", "no entity 'nobody'"),
    ],
)
def test_refused_questions(delivered: Path, event: str, who: str, words: str) -> None:
    result = sealcast("why", event, who)
    assert result.code == 1 and words in result.err


def test_with_two_topics_one_must_be_named(delivered: Path) -> None:
    assert sealcast("topic", "create", "other", "--schema", "schema.json", "--access", "members").code == 0
    assert "2 topics" in sealcast("why", "0/0/0", "bob").err
    assert sealcast("why", "0/0/0", "bob", "--topic", "quotes").code == 0
    assert sealcast("why", "quotes/0/0/0", "bob").code == 0
    assert sealcast("why", "quotes/0/0/0", "bob", "--topic", "other").code == 1


def test_without_the_brokers_secrets_it_says_so(delivered: Path) -> None:
    os.rename(delivered / "secrets" / "broker.key", delivered / "elsewhere")
    result = sealcast("why", "0/0/0", "bob")
    assert result.code == 1 and "broker's secrets are not here" in result.err
