"""Rights for some events only, on a topic without brokers: keys are for no others, so nobody has to be asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Right, Schema, Subscriber
from sealcast.errors import EventRejected, Rejected, SealcastError
from sealcast.filters.labels import naming
from sealcast.protections.attribute.carry import carry
from sealcast.protections.attribute.connecting import WantConnecting
from sealcast.protections.attribute.credentials import EventSpace
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.attribute.scheme import PublisherKey, SubscriptionKey
from tests.cli.shell import sealcast

TOPIC = "vitals"
SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "ward", "type": "string", "max_length": 4},
            {"name": "pulse", "type": "int", "min": 0, "max": 255},
        ]
    }
)
EVENTS = [("a", 50), ("a", 150), ("b", 50), ("b", 150)]


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    """`monitor` publishes of every ward, `pump` of ward a alone; `nurse` may read ward a alone, `doctor` everything."""
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, SCHEMA, protection="attribute", access="granted")
    realm.enrol_many(["monitor", "pump", "nurse", "doctor"])
    realm.grant(TOPIC, "monitor", [Right.PUBLISH])
    realm.grant(TOPIC, "pump", [Right.PUBLISH], template="ward=a")
    realm.grant(TOPIC, "nurse", [Right.SUBSCRIBE], template="ward=a")
    realm.grant(TOPIC, "doctor", [Right.SUBSCRIBE])
    return realm


def publish(realm: Realm, who: str, *events: tuple[str, int]) -> None:
    with Publisher(realm, TOPIC, as_=who) as publisher:
        publisher.publish([Event({"ward": ward, "pulse": pulse}) for ward, pulse in events])


def read(realm: Realm, who: str) -> list[tuple[str, int]]:
    with Subscriber(realm, TOPIC, as_=who, from_=0) as subscriber:
        return [(str(event.attributes["ward"]), int(str(event.attributes["pulse"]))) for event in subscriber]


# --- reading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TRUE", [("a", 50), ("a", 150)]),
        ("pulse > 100", [("a", 150)]),
        ("ward = 'b' OR pulse > 100", [("a", 150)]),
        ("ward <> 'a'", []),
    ],
)
def test_a_subscribers_keys_are_for_what_its_right_is_for(
    realm: Realm, text: str, expected: list[tuple[str, int]]
) -> None:
    """Whatever it asks for: the key server issues nothing that would open more."""
    realm.subscribe(TOPIC, "nurse", text)
    realm.subscribe(TOPIC, "doctor", text)
    publish(realm, "monitor", *EVENTS)
    carry(realm, [TOPIC])
    assert read(realm, "nurse") == expected
    assert len(read(realm, "doctor")) == {"TRUE": 4, "pulse > 100": 2, "ward = 'b' OR pulse > 100": 3}.get(text, 2)


def test_no_key_that_was_given_is_for_anything_else(realm: Realm) -> None:
    realm.subscribe(TOPIC, "nurse", "ward = 'b' OR pulse > 100")
    with CredentialRing(realm, TOPIC, realm.identity("nurse")) as ring:
        held = [SubscriptionKey.parse(key) for given in ring.subscribing(1) for key in given.keys]
    assert {one.label for key in held for one in key.credentials if one.attribute == "ward"} == {
        naming.exact("ward", "a")
    }


def test_a_place_among_peers_is_for_what_its_right_is_for(realm: Realm) -> None:
    """Also the keys that open others' requests are for labels within the right, and for no other."""
    realm.subscribe(TOPIC, "nurse", "TRUE")
    with CredentialRing(realm, TOPIC, realm.identity("nurse")) as ring:
        for label in (naming.exact("ward", "b"), naming.subtree("ward", ())):
            asked = WantConnecting(TOPIC, 1, (("ward", label),))
            with pytest.raises(SealcastError, match="no right to such a label"):
                ring.wallet.correspondent.ask_center(realm.state().topic(TOPIC).center, asked.KIND, asked.to_bytes())
        asked = WantConnecting(TOPIC, 1, (("ward", naming.exact("ward", "a")), ("pulse", naming.root("pulse"))))
        reply = ring.wallet.correspondent.ask_center(realm.state().topic(TOPIC).center, asked.KIND, asked.to_bytes())
        assert reply.message.kind == asked.KIND


# --- publishing -----------------------------------------------------------------------------------------------------


def test_a_publisher_seals_what_its_right_is_for_and_nothing_else(realm: Realm) -> None:
    realm.subscribe(TOPIC, "doctor", "TRUE")
    publish(realm, "pump", ("a", 10))
    with pytest.raises(EventRejected, match="may not publish an event with this value of 'ward'") as refused:
        publish(realm, "pump", ("b", 10))
    assert refused.value.attribute == "ward"
    carry(realm, [TOPIC])
    assert read(realm, "doctor") == [("a", 10)]


def test_a_publisher_that_seals_other_events_is_found_out(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """It skips its own checks, seals an event of ward b for those who want that, and signs with its key for ward a."""
    realm.subscribe(TOPIC, "doctor", "ward = 'b'")
    own = naming.exact("ward", "a")
    honest = EventSpace.event

    def lying(self: EventSpace, values: dict[str, object]) -> dict[str, tuple[bytes | None, ...]]:
        labels = dict(honest(self, values))  # type: ignore[arg-type]
        # The signature wants its own credential among the labels: it takes the place of one that nobody asked for.
        labels["ward"] = (*labels["ward"][:-1], own)
        return labels

    with Publisher(realm, TOPIC, as_="pump") as pump:
        with monkeypatch.context() as patched:
            patched.setattr(EventSpace, "event", lying)
            patched.setattr(EventSpace, "signing", lambda self, may, event: {})
            pump.publish([Event({"ward": "b", "pulse": 1})])
        pump.publish([Event({"ward": "a", "pulse": 1})])
    assert carry(realm, [TOPIC])["rejected_seal"] == 1
    assert read(realm, "doctor") == []
    found = sealcast("rejected", "list", "--json", "--realm", realm.paths.root).document["rejected"]
    assert "what pump may publish does not cover the value of 'ward'" in found[0]["detail"]


def test_a_publishers_key_signs_for_its_labels_alone(realm: Realm) -> None:
    publish(realm, "pump", ("a", 10))
    with CredentialRing(realm, TOPIC, realm.identity("pump")) as ring:
        key = PublisherKey.parse(ring.publishing(1).key)
    labels = {one.attribute: one.label for one in key.credentials}
    assert labels == {
        "ward": naming.exact("ward", "a"),
        "ward[ending]": naming.root("ward"),
        "pulse": naming.root("pulse"),
    }


# --- rights that change ---------------------------------------------------------------------------------------------


def test_another_template_is_another_epoch(realm: Realm) -> None:
    """Keys that were given for ward a open nothing of an epoch in which the right is for ward b."""
    realm.subscribe(TOPIC, "nurse", "TRUE")
    publish(realm, "monitor", ("a", 1))
    carry(realm, [TOPIC])
    realm.grant(TOPIC, "nurse", [Right.SUBSCRIBE], template="ward=b")
    assert realm.state().topic(TOPIC).epoch == 2
    publish(realm, "monitor", ("a", 2), ("b", 2))
    carry(realm, [TOPIC])
    assert read(realm, "nurse") == [("a", 1), ("b", 2)]
    realm.grant(TOPIC, "nurse", [Right.SUBSCRIBE], template="ward=b")
    assert realm.state().topic(TOPIC).epoch == 2  # the same once more changes nothing


def test_a_template_that_fits_no_event_gives_no_keys(realm: Realm) -> None:
    realm.grant(TOPIC, "pump", [Right.PUBLISH], template="ward=toolong")
    with pytest.raises(Rejected, match="no event of this schema"):
        publish(realm, "pump", ("a", 1))
