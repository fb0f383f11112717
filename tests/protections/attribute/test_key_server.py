"""The key server of attribute topics: who gets keys, for what, who is cut off, and what an entity keeps of them."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Right
from sealcast.control.center.rules import CenterReason, CenterRejected
from sealcast.errors import CannotOpen, Corrupt, Misuse, SealcastError
from sealcast.model.protection import AttributeBased
from sealcast.protections.attribute.asking import EndSubscribing, WantPublishing, WantSubscribing
from sealcast.protections.attribute.interests import CredentialInterests
from sealcast.protections.attribute.open import AttributeOpener
from sealcast.protections.own_filters import OwnFilter
from sealcast.trust.keys.centers import CenterSecrets
from tests.protections.attribute.ward import SCHEMA, TOPIC, Ward, asked, refused

# --- the key server -------------------------------------------------------------------------------------


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


# --- rights for some events -----------------------------------------------------------------------------


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


def test_nobody_takes_all_of_the_key_servers_time(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    """mallory asks again and again for keys of many labels; others are answered meanwhile."""
    from sealcast.control.budgets import Allowance
    from sealcast.control.center.service import KeyCenter
    from sealcast.control.envelopes import ControlMessage, ProvenMessage
    from sealcast.protections.attribute import center as rooms

    monkeypatch.setattr(rooms, "LABEL_ALLOWANCE", Allowance(per_second=1, burst=8))
    realm, now = ward.realm, ward.realm.clock()
    state, server = realm.state(), KeyCenter(realm, realm.center(), rooms.rules)

    def ask(name: str, text: str) -> str:
        sender = realm.trust(state).verify(state.entity(name).certificate, now, state.revoked, name=name)
        body = WantSubscribing(TOPIC, f"{name}-9", 1, text).to_bytes()
        return server.handle(
            ProvenMessage(sender, ControlMessage.request(WantSubscribing.KIND, body, b"", now)), now
        ).kind

    assert ask("mallory", "pulse > 1 AND pulse < 254") == WantSubscribing.KIND
    with pytest.raises(CenterRejected) as refusal:
        ask("mallory", "pulse > 3 AND pulse < 252")
    assert refusal.value.reason is CenterReason.QUOTA and "ask again in" in str(refusal.value.hint)
    assert ask("nurse", "pulse > 1 AND pulse < 254") == WantSubscribing.KIND
    server.close()


def test_public_parameters_are_kept_once(ward: Ward) -> None:
    for epoch in range(1, 4):
        with ward.ring("nurse") as ring:
            ring.subscribe(next(own_filters(ward, "nurse")), epoch)
        ward.realm.rotate(TOPIC)
    with ward.ring("nurse") as ring:
        found = [next(ring.subscribing(epoch)) for epoch in range(1, 4)]
        kept = list(ring._directory.glob("*.parameters"))
    assert len({each.parameters for each in found}) == len(kept) == 1
    sizes = [path.stat().st_size for path in kept[0].parent.glob("*.subscribing")]
    assert max(sizes) < len(found[0].parameters) / 4
    kept[0].unlink()
    with ward.ring("nurse") as ring, pytest.raises(Corrupt):
        next(ring.subscribing(1))
