"""A realm on disk: how it is made and found, and what an administrator's acts leave behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sealcast.errors import Corrupt, FilterRejected, Misuse, NotFound, Rejected
from sealcast.model import Schema
from sealcast.trust import layout
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.changes import Right

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 100}]})


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    return Realm.create(tmp_path / "market")


def test_a_new_realm_keeps_its_secrets_to_itself(realm: Realm) -> None:
    for path in (realm.paths.secrets, realm.paths.entities):
        assert path.stat().st_mode & 0o777 == 0o700
    assert realm.paths.broker_key.stat().st_mode & 0o777 == 0o600
    assert realm.name == "market"
    assert Realm(realm.paths.root).id == realm.id


def test_init_takes_an_empty_directory_and_no_other(tmp_path: Path, realm: Realm) -> None:
    (tmp_path / "empty").mkdir()
    Realm.create(tmp_path / "empty", "another name")
    assert Realm(tmp_path / "empty").name == "another name"
    with pytest.raises(Misuse, match="is a realm already"):
        Realm.create(realm.paths.root)
    with pytest.raises(Misuse, match="exists and is not empty"):
        Realm.create(tmp_path)


def test_how_a_realm_is_found(realm: Realm, tmp_path: Path) -> None:
    deep = realm.paths.root / "a" / "b"
    deep.mkdir(parents=True)
    assert layout.find(None, {}, deep).root == realm.paths.root
    assert layout.find(realm.paths.root, {"SEALCAST_REALM": "/nowhere"}, tmp_path).root == realm.paths.root
    assert layout.find(None, {"SEALCAST_REALM": str(realm.paths.root)}, tmp_path).root == realm.paths.root
    with pytest.raises(NotFound, match="no realm here") as refusal:
        layout.find(None, {}, tmp_path)
    assert refusal.value.hint is not None and "sealcast init DIR" in refusal.value.hint
    assert f"there is one in {realm.paths.root.name}: cd {realm.paths.root.name}" in refusal.value.hint
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match="no realm here") as refusal:
        layout.find(None, {}, tmp_path / "empty")
    assert refusal.value.hint is not None and "there is one" not in refusal.value.hint
    with pytest.raises(NotFound, match="is no realm"):
        layout.find(tmp_path, {}, deep)
    realm.paths.mark.write_text('{"format": 1, "name":')
    with pytest.raises(Corrupt, match=r"realm\.json"):
        Realm(realm.paths.root)
    realm.paths.mark.write_text('{"format": 3, "name": "x", "id": "00"}')
    with pytest.raises(Misuse, match="of format 3; this release knows format 2"):
        Realm(realm.paths.root)
    realm.paths.mark.write_text('{"format": 1, "name": "x", "id": "00"}')
    with pytest.raises(Misuse, match="from before certificates and tokens") as old:
        Realm(realm.paths.root)
    assert old.value.hint is not None and "make a new realm (sealcast init)" in old.value.hint


@pytest.mark.parametrize("topic_first", [True, False])
def test_members_get_their_keys_whoever_comes_first(realm: Realm, topic_first: bool) -> None:
    acts = [lambda: realm.create_topic("quotes", SCHEMA, access="members"), lambda: realm.enrol("alice")]
    for act in acts if topic_first else reversed(acts):
        act()
    state = realm.state()
    own = realm.identity("alice").pair_key(state, "quotes")
    assert own == realm.broker().topic_keys(state, state.topic("quotes")).pair_key("alice")


def test_a_granted_topic_hands_out_keys_with_rights_only(realm: Realm) -> None:
    realm.enrol_many(["alice", "bob"])
    realm.create_topic("orders", SCHEMA, access="granted")
    assert realm.state().pair_key("orders", 1, "alice") is None
    state = realm.grant("orders", "alice", [Right.SUBSCRIBE])
    assert state.pair_key("orders", 1, "alice") is not None
    assert state.pair_key("orders", 1, "bob") is None
    assert realm.grant("orders", "alice", [Right.SUBSCRIBE]).version == state.version, "granting twice is granting once"
    assert realm.revoke("orders", "bob").version == state.version, "nothing to take away"
    gone = realm.revoke("orders", "alice")
    assert not gone.may_subscribe("orders", "alice")


def test_enrolment_cut_short_is_taken_up_again(realm: Realm) -> None:
    from sealcast.trust.keys.identity import Identity

    left_behind = Identity.generate("alice")
    left_behind.save(realm.paths.entity_key("alice"))
    assert realm.enrol("alice").verify_key == bytes(left_behind.signer.verify_key)


def test_enrol_all_or_none(realm: Realm) -> None:
    realm.enrol("alice")
    with pytest.raises(Misuse, match="'alice' is enrolled already"):
        realm.enrol_many(["bob", "alice"])
    with pytest.raises(Misuse, match="'carol' is enrolled already"):
        realm.enrol_many(["carol", "carol"])
    with pytest.raises(Misuse, match="is no entity name"):
        realm.enrol("../escape")
    assert {e.name for e in realm.state().entities.values() if e.member} == {"alice"}
    assert not (realm.paths.root / "escape.key").exists()


def test_subscriptions_get_ids_that_are_free(realm: Realm) -> None:
    realm.create_topic("quotes", SCHEMA, access="members")
    realm.enrol_many(["alice", "bob"])
    assert realm.subscribe("quotes", "alice", "price > 1").id == "alice-1"
    wanted = [("alice", "price > 2", None), ("bob", "price > 2", "alice-3"), ("alice", "price > 3", None)]
    assert [s.id for s in realm.subscribe_many("quotes", wanted)] == ["alice-2", "alice-3", "alice-4"]
    realm.unsubscribe("alice-4", "alice-1")
    assert realm.subscribe("quotes", "alice", "price > 1").id == "alice-5", "ids are never given twice"


def test_a_bad_filter_adds_nothing(realm: Realm) -> None:
    realm.create_topic("quotes", SCHEMA, access="members")
    realm.enrol("alice")
    before = realm.registry.version()
    with pytest.raises(FilterRejected) as refusal:
        realm.subscribe_many("quotes", [("alice", "price > 1", None), ("alice", "prise > 1", None)])
    assert refusal.value.at == 0
    assert realm.registry.version() == before
    assert realm.remarks("quotes", "price > 1") == []
    assert len(realm.remarks("quotes", "price > 100")) == 1, "no price is above the maximum"


def test_administration_needs_secrets_and_reading_does_not(realm: Realm, tmp_path: Path) -> None:
    realm.create_topic("quotes", SCHEMA, access="members")
    os.rename(realm.paths.secrets, tmp_path / "elsewhere")
    here = Realm(realm.paths.root)
    assert here.state().topic("quotes").name == "quotes"
    with pytest.raises(NotFound, match="there is no authority in"):
        here.enrol("alice")
    realm.paths.secrets.mkdir()
    os.rename(tmp_path / "elsewhere" / "authority", realm.paths.authority)
    with pytest.raises(NotFound, match="the administrator's key is not here"):
        here.enrol("alice")
    assert not here.paths.entity_key("alice").exists()
    with pytest.raises(NotFound):
        here.state().entity("alice")


def test_a_revoked_entity_gets_nothing_new(realm: Realm) -> None:
    realm.enrol("mallory")
    realm.revoke_entity("mallory")
    realm.create_topic("quotes", SCHEMA, access="members")
    assert realm.state().pair_key("quotes", 1, "mallory") is None
    with pytest.raises(Rejected, match="was revoked"):
        realm.subscribe("quotes", "mallory", "price > 1")
    with pytest.raises(Rejected, match="it gets no rights"):
        realm.grant("quotes", "mallory")
