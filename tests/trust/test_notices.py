"""Word of a compromise: what it brings to who reads it, and that it can be forged without harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast.model import Schema
from sealcast.trust import notices
from sealcast.trust.admin.compromise import respond
from sealcast.trust.control import ControlPlane
from sealcast.trust.deployment import Realm
from sealcast.trust.notices import Notice
from sealcast.wire import cbor

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 100}]})


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    realm = Realm.create(tmp_path / "market")
    realm.enrol_many(["alice", "mallory", "mike"])
    realm.create_topic("quotes", SCHEMA)
    return realm


def test_who_was_away_learns_it_from_one_notice(realm: Realm) -> None:
    before = realm.state()
    respond(realm, "mallory")
    respond(realm, "mike")
    after = realm.state()
    with ControlPlane(realm.paths.root) as plane:
        found = [notice for _, notice in notices.read(plane, realm.id, 0)]
    assert [notice.epochs[after.topic("quotes").id.hex()] for notice in found] == [2, 3]
    known = before.revoked
    for notice in found:
        known = notices.heed(known, notice, realm.trust())
    assert known == after.revoked
    assert notices.heed(known, found[0], realm.trust()) == known, "twice is once"
    assert notices.heed(before.revoked, found[1], realm.trust()) == before.revoked, "one is missing: see the registry"


def test_a_forged_notice_changes_nothing(realm: Realm) -> None:
    before = realm.state().revoked
    respond(realm, "mallory")
    with ControlPlane(realm.paths.root) as plane:
        ((_, real),) = notices.read(plane, realm.id, 0)
        altered = bytearray(real.lists[0])
        altered[-1] ^= 1
        where = notices.topic_of(realm.id)
        for junk in (b"\xff", cbor.encode({1: 2}), cbor.encode({1: [3], 2: {}, 3: 4}), b"x" * 100):
            plane.post(where, junk)
        plane.post(where, Notice((bytes(altered),), {}, 9).to_bytes())
        plane.post(where, Notice((b"no list",), {}, 9).to_bytes())
        found = [notice for _, notice in notices.read(plane, realm.id, 1)]
    assert len(found) == 2
    for notice in found:
        assert notices.heed(before, notice, realm.trust()) == before
    assert notices.heed(before, real, realm.trust()) == realm.state().revoked


def test_doing_it_again_is_no_news(realm: Realm) -> None:
    respond(realm, "mallory")
    respond(realm, "mallory")
    with ControlPlane(realm.paths.root) as plane:
        assert len(notices.read(plane, realm.id, 0)) == 1


def test_there_is_always_room_for_one_more(realm: Realm) -> None:
    state = realm.state()
    with ControlPlane(realm.paths.root, max_queue=notices.KEPT * 8) as plane:
        for _ in range(3 * notices.KEPT):
            notices.post(plane, realm.id, state, ["quotes"], 0)
        assert plane.queued(notices.topic_of(realm.id)) <= notices.KEPT + 1
