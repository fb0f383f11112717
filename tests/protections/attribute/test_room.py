"""The attribute protection as its users have it: who gets keys, who is cut off, what peers refuse, and what is kept."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Right, Subscriber
from sealcast.control.bodies import Body
from sealcast.control.center.rules import CenterReason
from sealcast.control.service import ServiceRefused
from sealcast.errors import CannotOpen, Corrupt, FilterRejected, Misuse, NotFound, SealcastError
from sealcast.model.event import Position
from sealcast.model.protection import OWN_FILTER, AttributeBased, ParameterRejected
from sealcast.model.rejection import Reason
from sealcast.primitives.sign import SigningKey
from sealcast.protections.attribute.asking import EndSubscribing, WantPublishing, WantSubscribing
from sealcast.protections.attribute.carry import PeerCarrier
from sealcast.protections.attribute.incoming import SubscriberPeer
from sealcast.protections.attribute.interests import CredentialInterests
from sealcast.protections.attribute.open import AttributeOpener, NotOurs
from sealcast.protections.attribute.publish import inside_head, inside_record
from sealcast.protections.frames import FrameSealer
from sealcast.protections.own_filters import OwnFilter
from sealcast.trust.keys.centers import CenterSecrets
from sealcast.trust.realm.changes import AddSubscription
from sealcast.wire import frame
from sealcast.wire.carried import CarriedEvent
from sealcast.wire.records import RecordCodec
from tests.cli.shell import sealcast
from tests.protections.attribute.ward import SCHEMA, TOPIC, Ward


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Ward:
    return Ward(tmp_path_factory.mktemp("ward") / "realm")


@pytest.fixture
def ward(made: Ward, tmp_path: Path) -> Ward:
    return Ward.copied(made, tmp_path / "realm")


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


# --- the key server -------------------------------------------------------------------------------------


def asked(ward: Ward, name: str, body: Body) -> object:
    with ward.ring(name) as ring:
        return ring.wallet.correspondent.ask_center("center", body.KIND, body.to_bytes())


def refused(ward: Ward, name: str, body: Body) -> str:
    with pytest.raises(ServiceRefused) as refusal:
        asked(ward, name, body)
    return str(refusal.value.reason)


def test_the_key_server_refuses_with_a_reason(ward: Ward) -> None:
    realm = ward.realm
    realm.create_topic("plain", SCHEMA, access="members")
    assert refused(ward, "nurse", WantSubscribing("plain", "n-9", 1, "pulse = 1")) == CenterReason.PROTECTION
    for epoch in (0, 2, 99):
        assert refused(ward, "nurse", WantSubscribing(TOPIC, "n-9", epoch, "pulse = 1")) == CenterReason.EPOCH
        assert refused(ward, "nurse", WantPublishing(TOPIC, epoch)) == CenterReason.EPOCH
    for text in ("colour = 'red'", "pulse IS NULL", "pulse <"):
        assert refused(ward, "nurse", WantSubscribing(TOPIC, "n-9", 1, text)) == CenterReason.FORM
    assert refused(ward, "mallory", WantSubscribing(TOPIC, "nurse-1", 1, "pulse = 1")) == CenterReason.SUBSCRIPTION
    assert refused(ward, "mallory", EndSubscribing(TOPIC, ("nurse-1",))) == CenterReason.SUBSCRIPTION
    realm.revoke(TOPIC, "mallory", [Right.SUBSCRIBE])
    assert refused(ward, "mallory", WantSubscribing(TOPIC, "m-1", 2, "pulse = 1")) == CenterReason.RIGHT
    realm.revoke(TOPIC, "mallory", [Right.PUBLISH])
    assert refused(ward, "mallory", WantPublishing(TOPIC, 3)) == CenterReason.RIGHT


def test_two_centers_of_one_secret_issue_keys_that_fit_each_other(ward: Ward) -> None:
    """A replica is a copy of the center's file: what one of them issued a publisher, a reader of the other's opens."""
    about, path = ward.realm.state().topic(TOPIC), ward.realm.paths.center_key("center")
    copied = path.with_name("copy.key")
    shutil.copy(path, copied)
    seeds = [CenterSecrets.load(each).master_seed(about) for each in (path, copied)]
    assert seeds[0] == seeds[1]
    ward.publish([1])
    path.unlink()
    copied.rename(path)
    ward.realm.subscribe(TOPIC, "mallory", "pulse < 8")
    ward.carry()
    assert ward.got("mallory") == [b"monitor 1"]


def test_only_the_topics_own_center_has_its_master_seed(ward: Ward) -> None:
    ward.realm.add_center("other")
    with pytest.raises(Misuse, match="managed by center 'center'"):
        ward.realm.center("other").master_seed(ward.realm.state().topic(TOPIC))


def test_a_challenge_is_answered_before_keys_are_given(tmp_path: Path) -> None:
    from sealcast.trust.realm.parameters import KeyParameters

    realm = Realm.create(tmp_path / "realm")
    parameters = KeyParameters(challenge_every_s=3600)
    realm.create_topic(TOPIC, SCHEMA, protection=AttributeBased(), parameters=parameters, access="members")
    realm.enrol_many(["nurse", "monitor"])
    realm.subscribe(TOPIC, "nurse", "pulse < 64")
    with Publisher(realm, TOPIC, as_="monitor") as publisher:
        publisher.publish([Event({"pulse": 9}, b"9")])


# --- who is cut off, and when ---------------------------------------------------------------------------


def test_who_may_no_longer_subscribe_is_out_at_once(ward: Ward) -> None:
    """The new epoch has begun when the right is gone: keys that were kept open nothing of it."""
    with ward.ring("nurse") as ring:
        kept = list(ring.subscribing(1))
    ward.realm.revoke(TOPIC, "nurse", [Right.SUBSCRIBE])
    assert ward.realm.state().topic(TOPIC).epoch == 2
    ward.publish([5])
    (event,) = ward.outgoing()
    opener = AttributeOpener(ward.realm.state, TOPIC, lambda epoch: kept)
    with pytest.raises(CannotOpen):
        opener.open(event)
    with ward.ring("nurse") as ring, pytest.raises(SealcastError, match="may not subscribe"):
        ring.subscribe(next(iter(own_filters(ward, "nurse"))), 2)


def own_filters(ward: Ward, name: str) -> Iterator[OwnFilter]:
    with CredentialInterests(ward.realm, TOPIC, name) as interests:
        yield from interests.present()


def test_who_may_no_longer_publish_ends_the_epoch_too(ward: Ward) -> None:
    """A publisher holds the routing key of the epoch, which opens the tags of all others."""
    ward.publish([5])
    ward.realm.revoke(TOPIC, "monitor", [Right.PUBLISH])
    assert ward.realm.state().topic(TOPIC).epoch == 2
    ward.carry()
    assert ward.got("nurse") == [], "its log is refused by the registry of now"
    with pytest.raises(SealcastError, match="may not publish"):
        ward.publish([6])


def test_a_right_more_begins_no_epoch(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic(TOPIC, SCHEMA, protection="attribute", access="granted")
    realm.enrol_many(["nurse"])
    realm.grant(TOPIC, "nurse", [Right.SUBSCRIBE])
    realm.grant(TOPIC, "nurse", [Right.PUBLISH])
    assert realm.state().topic(TOPIC).epoch == 1
    realm.revoke(TOPIC, "nurse", [Right.PUBLISH])
    assert realm.state().topic(TOPIC).epoch == 2


def test_epochs_end_by_themselves(tmp_path: Path) -> None:
    now = [1_800_000_000_000_000]
    realm = Realm.create(tmp_path / "realm", clock=lambda: now[0])
    from sealcast.trust.realm.parameters import KeyParameters

    parameters = KeyParameters(key_lifetime_s=3_600, grace_s=60)
    realm.create_topic(TOPIC, SCHEMA, protection="attribute", parameters=parameters, access="members")
    now[0] += 3_599 * 1_000_000
    assert not realm.maintain().rotated
    now[0] += 2_000_000
    assert set(realm.maintain().rotated) == {TOPIC}
    assert realm.state().topic(TOPIC).epoch == 2


def test_a_subscriber_that_was_away_gets_what_was_sealed_before_the_epoch_changed(ward: Ward) -> None:
    ward.publish([1])
    ward.realm.rotate(TOPIC)
    ward.publish([2])
    ward.realm.rotate(TOPIC)
    ward.publish([3])
    ward.carry()
    assert ward.got("nurse") == [b"monitor 1", b"monitor 3"], "of the epoch that it slept through it has no keys"


def test_keys_of_the_epoch_before_are_given_to_who_was_there(ward: Ward) -> None:
    ward.realm.rotate(TOPIC)
    asked(ward, "nurse", WantSubscribing(TOPIC, "nurse-1", 1, "pulse < 64"))
    ward.realm.enrol_many(["newcomer"])
    assert refused(ward, "newcomer", WantSubscribing(TOPIC, "new-1", 1, "pulse < 64")) == CenterReason.EPOCH
    ward.realm.rotate(TOPIC)
    assert refused(ward, "nurse", WantSubscribing(TOPIC, "nurse-1", 1, "pulse < 64")) == CenterReason.EPOCH


# --- what an entity keeps -------------------------------------------------------------------------------


def test_kept_keys_open_for_their_owner_alone_and_say_when_they_were_altered(ward: Ward) -> None:
    with ward.ring("nurse") as ring:
        (held,) = ring.subscribing(1)
        assert held.keys
        with pytest.raises(Misuse, match="pickled"):
            pickle.dumps(ring)
        directory = ring._directory
    (path,) = directory.glob("1.*.subscribing")
    data = path.read_bytes()
    assert held.keys[0] not in data and held.parameters not in data
    other = Path(str(directory).replace("/nurse/", "/mallory/"))
    other.mkdir(parents=True)
    (other / path.name).write_bytes(data)
    with ward.ring("mallory") as ring, pytest.raises(Corrupt, match="does not hold keys of 'mallory'"):
        list(ring.subscribing(1))
    for at in (0, 10, 50, len(data) - 1):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with ward.ring("nurse") as ring, pytest.raises(Corrupt, match="does not hold keys"):
            list(ring.subscribing(1))
    path.rename(path.with_name("2." + path.name.partition(".")[2]))
    with ward.ring("nurse") as ring, pytest.raises(Corrupt, match="does not hold keys"):
        list(ring.subscribing(2))


# --- what peers refuse ----------------------------------------------------------------------------------


def looked_at(ward: Ward, event: CarriedEvent, name: str = "nurse") -> Reason | None:
    """Why the peer of a subscriber refuses an event; None if it takes it."""
    peer = SubscriberPeer(ward.realm, TOPIC, name)
    try:
        found = peer.look_at([event])
    finally:
        peer.close()
    assert len(found.events) + len(found.rejected) == 1
    return found.rejected[0].reason if found.rejected else None


def resigned(ward: Ward, event: CarriedEvent, by: str | None = None, **changes: object) -> CarriedEvent:
    """The event under a header that somebody changed and signed: its publisher, unless told."""
    header = replace(frame.parse_signed(event.signed).header, **changes)  # type: ignore[arg-type]
    signer = ward.realm.identity(by or header.publisher).signer if by != "nobody" else SigningKey.generate()
    return replace(event, signed=frame.encode_signed(header, signer.sign(frame.to_be_signed(header))))


HOUR = 3_600_000_000
ALTERED: dict[Reason, Callable[[Ward, CarriedEvent], CarriedEvent]] = {
    Reason.TOPIC: lambda ward, event: resigned(ward, event, topic=bytes(16)),
    Reason.TOKEN: lambda ward, event: replace(event, token=b""),
    Reason.SIGNATURE: lambda ward, event: resigned(ward, event, by="nobody"),
    Reason.EPOCH: lambda ward, event: resigned(ward, event, epoch=2),
    Reason.TIME: lambda ward, event: resigned(
        ward, event, time=frame.parse_signed(event.signed).header.time + HOUR // 2
    ),
    Reason.SCHEMA: lambda ward, event: resigned(ward, event, schema=bytes(32)),
    Reason.ROOT: lambda ward, event: replace(event, message=event.message[:-1] + bytes([event.message[-1] ^ 1])),
    Reason.PUBLISHER: lambda ward, event: resigned(ward, event, by="mallory", publisher="mallory"),
}


@pytest.mark.parametrize("reason", ALTERED, ids=str)
def test_an_altered_event_is_refused_with_the_reason(ward: Ward, reason: Reason) -> None:
    ward.publish([3, 4])
    first, second = ward.outgoing()
    assert looked_at(ward, first) is None
    assert looked_at(ward, ALTERED[reason](ward, first)) is reason
    assert looked_at(ward, replace(first, position=second.position)) is Reason.ROOT
    assert looked_at(ward, replace(first, path=second.path)) is Reason.ROOT


def test_an_event_of_somebody_who_may_not_publish_now_is_refused(ward: Ward) -> None:
    ward.publish([3])
    (event,) = ward.outgoing()
    ward.realm.revoke(TOPIC, "monitor", [Right.PUBLISH])
    assert looked_at(ward, event) is Reason.RIGHT
    ward.realm.revoke_entity("monitor")
    assert looked_at(ward, event) in (Reason.REVOKED, Reason.PUBLISHER, Reason.TOKEN)


def test_an_event_comes_once_however_often_it_is_carried(ward: Ward) -> None:
    ward.publish([3, 200])
    events = ward.outgoing()
    peer = SubscriberPeer(ward.realm, TOPIC, "nurse")
    for _ in range(2):
        counted = peer.keep(peer.look_at([*events, *events]))
    peer.close()
    assert counted == {"deliveries": 0, "rejected_replay": 2}, "the other one is somebody else's"
    again = SubscriberPeer(ward.realm, TOPIC, "nurse")
    assert not again.look_at(events).events, "it remembers over a restart"
    again.close()
    assert ward.got("nurse") == [b"monitor 3"]


def test_a_ciphertext_of_another_publisher_cannot_be_sent_as_ones_own(ward: Ward) -> None:
    """mallory may publish: it wraps monitor's ciphertext into a frame that it signs itself, with its own token."""
    ward.publish([3])
    (event,) = ward.outgoing()
    about, state = ward.realm.state().topic(TOPIC), ward.realm.state()
    mallory = ward.realm.identity("mallory")
    token = ward.realm.token(TOPIC, "mallory")
    pair = mallory.pair_key(state, TOPIC)
    sealer = FrameSealer(RecordCodec(SCHEMA), about.id, 1, "mallory", pair, mallory.signer, token=token)
    data = sealer.seal_messages([event.message], ward.realm.clock())
    with ward.realm.outbox(TOPIC, "mallory") as log:
        log.partition(0).append([data])
    counted = ward.carry()
    assert counted["rejected_seal"] == 1 and ward.got("nurse") == [b"monitor 3"]
    found = sealcast("rejected", "list", "--json", "--realm", ward.realm.paths.root).document["rejected"]
    assert [(each["reason"], each["broker"]) for each in found] == [("seal", "nurse")]
    assert "somebody else than mallory made this event" in found[0]["detail"]


def test_a_frame_of_another_in_ones_log_goes_nowhere(ward: Ward) -> None:
    ward.publish([3])
    with ward.realm.outbox(TOPIC, "monitor") as log, ward.realm.outbox(TOPIC, "pump") as other:
        (record,) = log.partition(0).read(0, 1)
        other.partition(0).append([record.data])
    counted = ward.carry()
    assert (counted["admitted"], counted["rejected_publisher"]) == (1, 1)
    assert ward.got("nurse") == [b"monitor 3"]


def test_a_message_that_is_no_sealed_event_is_refused_at_its_publishers_peer(ward: Ward) -> None:
    state, about = ward.realm.state(), ward.realm.state().topic(TOPIC)
    pump, token = ward.realm.identity("pump"), ward.realm.token(TOPIC, "pump")
    pair = pump.pair_key(state, TOPIC)
    sealer = FrameSealer(RecordCodec(SCHEMA), about.id, 1, "pump", pair, pump.signer, token=token)
    with ward.realm.outbox(TOPIC, "pump") as log:
        log.partition(0).append([sealer.seal_messages([b"rubbish", b"AH1" + bytes(64)], ward.realm.clock())])
    assert ward.carry()["rejected_event"] == 2


def test_what_is_inside_names_its_publisher_and_its_topic() -> None:
    inside = inside_head(bytes(16), "monitor") + b"record"
    assert inside_record(inside, bytes(16), "monitor") == b"record"
    for topic, name in ((bytes(16), "monito"), (bytes(16), "monitorr"), (b"\1" * 16, "monitor")):
        with pytest.raises(CannotOpen, match="somebody else"):
            inside_record(inside, topic, name)
    for short in (b"", bytes(16), bytes(16) + b"\xff"):
        with pytest.raises(CannotOpen):
            inside_record(short, bytes(16), "monitor")


def test_whoever_has_no_key_that_fits_is_told_so(ward: Ward) -> None:
    ward.publish([100])
    (event,) = ward.outgoing()
    for name in ("nurse", "doctor"):
        with ward.ring(name) as ring, pytest.raises(NotOurs):
            AttributeOpener.of(ward.realm.state, TOPIC, ring).open(event)


def test_pooled_keys_open_no_more_than_each_alone(ward: Ward) -> None:
    """nurse and doctor put all that they have together."""
    ward.publish([100])
    (event,) = ward.outgoing()
    with ward.ring("nurse") as nurse, ward.ring("doctor") as doctor:
        pooled = [*nurse.subscribing(1), *doctor.subscribing(1)]
    with pytest.raises(NotOurs):
        AttributeOpener(ward.realm.state, TOPIC, lambda epoch: pooled).open(event)


# --- crashes --------------------------------------------------------------------------------------------


def test_a_process_that_dies_before_frames_count_as_sent_delivers_nothing_twice(ward: Ward) -> None:
    ward.publish([1, 2, 200])

    class Died(Exception):
        pass

    def dies(topic: str, events: object) -> None:
        raise Died

    with pytest.raises(Died), PeerCarrier(ward.realm, [TOPIC], onward=dies) as carrier:
        carrier.once()
    counted = ward.carry()
    assert (counted["admitted"], counted["rejected_replay"]) == (3, 3), "inboxes had them"
    assert (ward.got("nurse"), ward.got("doctor")) == ([b"monitor 1", b"monitor 2"], [b"monitor 200"])
    assert sealcast("check", TOPIC, "--realm", ward.realm.paths.root).code == 0


def test_the_same_carrier_goes_on_after_a_failure(ward: Ward) -> None:
    ward.publish([1])
    failed = list[int]()

    def once(topic: str, events: object) -> None:
        if not failed:
            failed.append(1)
            raise NotFound("nobody there")

    with PeerCarrier(ward.realm, [TOPIC], onward=once) as carrier:
        with pytest.raises(NotFound):
            carrier.once()
        assert carrier.once()["admitted"] == 1, "its own frames are no replays to it"
    assert ward.got("nurse") == [b"monitor 1"]


def test_two_processes_do_not_run_one_peer(ward: Ward) -> None:
    ward.publish([1])
    with PeerCarrier(ward.realm, [TOPIC]) as carrier:
        carrier.once()
        with pytest.raises(SealcastError, match="is being run by process"):
            ward.carry()


# --- check, why, explain --------------------------------------------------------------------------------


def command(ward: Ward, *arguments: object, code: int = 0) -> dict[str, object]:
    done = sealcast(*arguments, "--json", "--realm", ward.realm.paths.root)
    assert done.code == code, done.err
    return done.document


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
        assert "d k_D parents of one subscriber" in text
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
    found = command(ward, "compromise", "nurse")
    assert (found["lasting"], found["over"], found["unharmed"]) == ([TOPIC], None, True)
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
    found = command(ward, "compromise", "center", "--center", "second")
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


# --- rights for some events -----------------------------------------------------------------------------


def test_a_publishers_keys_are_for_what_its_right_is_for(ward: Ward) -> None:
    ward.realm.grant(TOPIC, "monitor", [Right.PUBLISH], template="pulse=7")
    assert ward.realm.state().topic(TOPIC).epoch == 2, "the keys for every event end with the right to it"
    ward.publish([7])
    with pytest.raises(SealcastError, match="may not publish an event with this value of 'pulse'"):
        ward.publish([8])
    ward.carry()
    assert ward.got("nurse") == [b"monitor 7"]


def test_a_publisher_that_signs_for_another_value_is_found_out(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own software does not keep it: it seals an event for the labels of 7 with 8 inside."""
    from sealcast.protections.attribute.credentials import EventSpace

    ward.realm.grant(TOPIC, "monitor", [Right.PUBLISH], template="pulse=7")
    honest = EventSpace.event
    with monkeypatch.context() as patched:
        patched.setattr(EventSpace, "event", lambda self, values: honest(self, {"pulse": 7}))
        ward.publish([8])
    assert ward.carry()["rejected_seal"] == 1
    assert ward.got("nurse") == []


def test_a_subscribers_keys_are_for_what_its_right_is_for(ward: Ward) -> None:
    ward.realm.grant(TOPIC, "nurse", [Right.SUBSCRIBE], template="pulse=7")
    ward.publish([3, 7])
    ward.carry()
    assert ward.got("nurse") == [b"monitor 7"], "its filter is wider than its right"
    ward.realm.subscribe(TOPIC, "nurse", "pulse = 200")
    ward.publish([200])
    ward.carry()
    assert ward.got("nurse") == [b"monitor 7"]


def test_places_among_peers_are_for_labels_that_ones_right_admits(ward: Ward) -> None:
    from sealcast.filters.labels import naming
    from sealcast.protections.attribute.connecting import WantConnecting

    ward.realm.grant(TOPIC, "nurse", [Right.SUBSCRIBE], template="pulse=7")
    for label in (naming.root("pulse"), naming.block("pulse", 8, 7)):
        asked(ward, "nurse", WantConnecting(TOPIC, 2, (("pulse", label),)))
    beyond = WantConnecting(TOPIC, 2, (("pulse", naming.block("pulse", 8, 8)),))
    assert refused(ward, "nurse", beyond) == CenterReason.RIGHT


def test_an_owner_that_narrows_a_right_ends_the_epoch_too(tmp_path: Path) -> None:
    from sealcast.control import requests as ask
    from sealcast.control.at_hand import services_at_hand
    from sealcast.control.correspondence import Correspondent

    realm = Realm.create(tmp_path / "realm")
    realm.enrol_many(["owner", "monitor"])
    realm.create_topic(TOPIC, SCHEMA, protection="attribute", access="granted", owner="owner")
    with Correspondent(realm, realm.identity("owner"), at_hand=services_at_hand(realm)) as owner:
        ask.authorise(owner, "center", TOPIC, "monitor", [Right.PUBLISH])
        assert realm.state().topic(TOPIC).epoch == 1
        ask.authorise(owner, "center", TOPIC, "monitor", [Right.PUBLISH], template="pulse=7")
    assert realm.state().topic(TOPIC).epoch == 2


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
