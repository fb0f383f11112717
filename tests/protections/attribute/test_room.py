"""The attribute protection as its users have it: what the registry knows, and what every command says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sealcast import Realm, Subscriber
from sealcast.errors import CannotOpen, FilterRejected, Misuse, SealcastError
from sealcast.model.event import Position
from sealcast.model.protection import OWN_FILTER, AttributeBased, ParameterRejected
from sealcast.protections.attribute.interests import CredentialInterests
from sealcast.trust.realm.changes import AddSubscription
from sealcast.wire.carried import CarriedEvent
from tests.cli.shell import sealcast
from tests.protections.attribute.ward import SCHEMA, TOPIC, Ward, command

# --- who knows what a filter is -------------------------------------------------------------------------


def test_the_registry_knows_that_a_subscription_exists_and_not_what_it_asks_for(ward: Ward) -> None:
    ward.realm.subscribe(TOPIC, "mallory", "pulse = 177")
    assert {each.filter for each in ward.realm.state().subscriptions_of(TOPIC)} == {OWN_FILTER}
    kept = [path for path in ward.realm.paths.root.rglob("*") if path.is_file()]
    assert not any(b"pulse = 177" in path.read_bytes() for path in kept), "it is sealed wherever it lies"
    with CredentialInterests(ward.realm, TOPIC, "mallory") as interests:
        assert [each.filter for each in interests.filters()] == ["pulse = 177"]
    found = sealcast("subscription", "list", "--json", "--realm", ward.realm.paths.root).document["subscriptions"]
    assert {each["filter"] for each in found} == {None}


def test_a_filter_in_clear_never_gets_into_the_registry(ward: Ward) -> None:
    state = ward.realm.state()
    token = ward.realm.issuer().credential(state, TOPIC, "mallory", ward.realm.clock())
    with pytest.raises(FilterRejected, match="go to its key center alone"):
        ward.realm.registry.apply_many([AddSubscription("mallory-9", TOPIC, "mallory", "pulse = 1", token)])


def test_an_administrator_ends_a_subscription_without_its_owner(ward: Ward) -> None:
    ward.publish([3])
    ward.carry()
    ward.realm.unsubscribe("nurse-1")
    ward.publish([4])
    ward.carry()
    assert ward.got("nurse") == [b"monitor 3"]
    with ward.ring("nurse") as ring:
        assert ring.stamp(1) and not ring.stamp(1, live=True), "what came before can still be read"
    with CredentialInterests(ward.realm, TOPIC, "nurse") as interests:
        assert interests.filters() == []
    ward.realm.subscribe(TOPIC, "nurse", "pulse = 77")
    ward.publish([5, 77])
    ward.carry()
    assert ward.got("nurse") == [b"monitor 3", b"monitor 77"]
    assert command(ward, "check", TOPIC)["ok"]


def test_what_labels_cannot_say_is_refused_before_anybody_is_asked(ward: Ward) -> None:
    before = ward.realm.state().version
    for text in ("pulse IS NULL", "pulse + 1 = 3", "ward = 'A'"):
        with pytest.raises(FilterRejected):
            ward.realm.subscribe(TOPIC, "mallory", text)
    assert ward.realm.state().version == before
    with CredentialInterests(ward.realm, TOPIC, "mallory") as interests:
        assert interests.filters() == []


# --- check, why, explain --------------------------------------------------------------------------------


def test_check_finds_an_event_that_is_missing_from_an_inbox(ward: Ward) -> None:
    ward.publish([1])
    ward.carry()
    shutil.rmtree(ward.realm.paths.topic(TOPIC, "nurse").root)
    found = command(ward, "check", TOPIC, code=1)
    assert found["lost"] == 1 and "is for nurse" in str(found["problems"])
    answer = command(ward, "why", f"{TOPIC}/{ward.realm.state().entity_number('monitor')}/0/0", "nurse")
    assert answer["verdict"] == "wrong"


def test_check_finds_an_account_that_was_rewritten(ward: Ward) -> None:
    ward.publish([1])
    ward.carry()
    sent = ward.realm.paths.topic(TOPIC, "monitor").sent
    (segment,) = sent.ledger.glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[-40] ^= 1
    segment.chmod(0o600)
    segment.write_bytes(data)
    assert command(ward, "check", TOPIC, code=1)["problems"]


def test_check_says_what_it_cannot_judge(ward: Ward) -> None:
    ward.publish([1])
    ward.carry()
    ward.realm.paths.entity_key("nurse").unlink()
    found = command(ward, "check", TOPIC)
    assert "the keys of 'nurse' are not here" in str(found["topics"])


def test_why_says_how_far_an_event_came(ward: Ward) -> None:
    number = ward.realm.state().entity_number("monitor")
    ward.publish([1, 100])
    assert command(ward, "why", f"{TOPIC}/{number}/0/0", "nurse")["verdict"] == "waiting"
    ward.carry()
    ward.realm.subscribe(TOPIC, "mallory", "pulse < 250")
    for row, name, verdict in (
        (0, "nurse", "delivered"),
        (1, "nurse", "not-matched"),
        (0, "mallory", "not-subscribed"),
        (0, "pump", "not-subscribed"),
    ):
        assert command(ward, "why", f"{TOPIC}/{number}/0/{row}", name)["verdict"] == verdict, name
    assert command(ward, "why", f"{TOPIC}/{number}/7/0", "nurse")["verdict"] == "unknown"


def test_explain_says_what_profile_p_gives_away(ward: Ward, tmp_path: Path) -> None:
    anonymous = sealcast("explain", TOPIC, "--realm", ward.realm.paths.root).out
    ward.realm.create_topic("open", SCHEMA, protection=AttributeBased("P"), access="members")
    paper = sealcast("explain", "open", "--realm", ward.realm.paths.root).out
    assert "Profile P gives away the values of events" in paper and "Profile P" not in anonymous
    for text in (anonymous, paper):
        assert "coarser than or equal to" in text and "finer than or equal to" in text and "or neither" in text
        assert "a peer together with one that stands two places below it" in text
        assert "(escrow)" in text and "publishers share the routing key" in text


def test_a_profile_is_a_or_p() -> None:
    for profile in ("", "a", "B", 3):
        with pytest.raises(ParameterRejected, match="a profile is A or P"):
            AttributeBased(profile)  # type: ignore[arg-type]


def test_profile_p_delivers_the_same(tmp_path: Path) -> None:
    paper = Ward(tmp_path / "realm", "P")
    paper.publish([1, 100, 200])
    paper.carry()
    assert (paper.got("nurse"), paper.got("doctor")) == ([b"monitor 1"], [b"monitor 200"])


def test_a_reader_acknowledges_and_goes_on_by_position(ward: Ward) -> None:
    positions = ward.publish([1, 2, 3, 4])
    ward.carry()
    with Subscriber(ward.realm, TOPIC, as_="nurse") as reader:
        reader.poll(max_events=2)
        reader.ack()
        assert reader.lag() == 2
    with Subscriber(ward.realm, TOPIC, as_="nurse", from_=positions[3]) as reader:
        assert [event.position for event in reader] == positions[3:]
    assert isinstance(positions[0], Position)


# --- what else is done on every topic -------------------------------------------------------------------


def test_a_compromised_subscriber_is_out_and_what_lasts_is_said(ward: Ward) -> None:
    ward.publish([1])
    ward.carry()
    found = command(ward, "compromise", "nurse", "--yes", code=1)
    assert (found["lasting"], found["over"], found["unharmed"]) == ([TOPIC], False, True)
    assert ward.realm.state().topic(TOPIC).epoch == 2
    ward.publish([2, 200])
    ward.carry()
    assert ward.got("doctor") == [b"monitor 200"]
    with pytest.raises(SealcastError, match="was revoked"):
        ward.got("nurse")


def test_another_center_takes_over_and_nothing_is_lost(ward: Ward) -> None:
    """The topic's master secret was that of a center that is compromised: the next epoch has another."""
    ward.publish([1])
    ward.carry()
    ward.realm.add_center("second")
    found = command(ward, "compromise", "center", "--yes", "--center", "second", code=1)
    assert found["unharmed"]
    about = ward.realm.state().topic(TOPIC)
    assert (about.center, about.epoch) == ("second", 2)
    ward.publish([2])
    ward.carry()
    assert ward.got("nurse") == [b"monitor 1", b"monitor 2"]
    assert command(ward, "check", TOPIC)["ok"]


def test_audit_says_who_received_how_much(ward: Ward) -> None:
    ward.publish([1, 2, 200])
    ward.carry()
    rows = command(ward, "audit", "--received")["received"]
    assert {(row["entity"], row["deliveries"]) for row in rows} == {("nurse", 2), ("doctor", 1)}  # type: ignore[attr-defined]


def test_a_key_server_elsewhere_answers_over_its_control_topic(ward: Ward, tmp_path: Path) -> None:
    """The center's key file is in another process's realm directory only: `sealcast serve` answers there."""
    from sealcast.control.running import Running
    from sealcast.protections.port import center_rules

    with Running(ward.realm, ["center", "discovery-1", "discovery-2"], center_more=center_rules) as running:
        running.start()
        kinds = {kind for served in running.services if served.center is not None for kind in served.center.kinds}
    assert {"attribute/publishing", "attribute/subscribing", "attribute/ending"} <= kinds


# --- what is faster and tells more ----------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"reuse": True}, {"session": True}, {"reuse": True, "session": True}], ids=str)
def test_shared_headers_and_sessions_deliver_the_same_and_are_explained(
    tmp_path: Path, settings: dict[str, bool]
) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, SCHEMA, protection=AttributeBased(**settings), access="members")
    realm.enrol_many(["monitor", "nurse"])
    realm.subscribe(TOPIC, "nurse", "pulse < 64")
    ward = object.__new__(Ward)
    ward.realm = realm
    ward.publish([1, 1, 100, 2, 1])
    events = ward.outgoing()
    from sealcast.wire.attribute import SealedAttributeEvent

    headers = {SealedAttributeEvent.parse(event.message).header.raw for event in events}
    assert len(headers) == (3 if settings.get("reuse") else 5), "whoever sees two events sees whether labels are equal"
    ward.carry()
    assert ward.got("nurse") == [b"monitor 1", b"monitor 1", b"monitor 2", b"monitor 1"]
    said = sealcast("explain", TOPIC, "--realm", realm.paths.root).out
    assert ("share a header" in said) == bool(settings.get("reuse"))
    assert ("by a session's key" in said) == bool(settings.get("session"))
    assert command(ward, "check", TOPIC)["ok"]


def test_a_filter_that_nothing_matches_refuses_nothing(ward: Ward) -> None:
    ward.realm.subscribe(TOPIC, "mallory", "pulse < 10 AND pulse > 20")
    ward.publish([1])
    assert "rejected_seal" not in ward.carry()
    assert ward.got("mallory") == []


def test_an_event_that_does_not_open_stops_a_reader_there_and_not_before(ward: Ward) -> None:
    """The reader opens some ahead: what is wrong with one of them is said when it is come to."""
    ward.publish([1, 2, 3])
    ward.carry()
    with Subscriber(ward.realm, TOPIC, as_="nurse", from_=0) as reader:
        inner = reader._inbox._opener.open_many  # type: ignore[attr-defined]

        def second_fails(events: list[CarriedEvent]) -> list[object]:
            return [CannotOpen("altered") if at == 1 else each for at, each in enumerate(inner(events))]

        reader._inbox._opener.open_many = second_fails  # type: ignore[attr-defined]
        assert [event.payload for event in reader.poll()] == [b"monitor 1"]
        with pytest.raises(CannotOpen, match="altered"):
            reader.poll()


def test_events_do_not_go_over_mqtt(ward: Ward) -> None:
    from sealcast.mqtt.choice import carrier_for

    for through in (None, "bridge", "broker"):
        with pytest.raises(Misuse, match="do not go over MQTT"):
            carrier_for(ward.realm, TOPIC, "nurse", "broker", through)
