"""A log that nobody empties is not filled without end."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast.clients import publisher as module
from sealcast.clients.publisher import Publisher
from sealcast.errors import Busy, Unavailable
from sealcast.model import Event, Schema
from sealcast.trust.deployment import Realm
from tests.clients.pump import pump

EVENT = Event({"price": 1})


@pytest.fixture
def realm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Realm:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0)
    made = Realm.create(tmp_path / "realm")
    made.create_topic("t", Schema.from_json({"attributes": [{"name": "price", "type": "int"}]}), access="members")
    made.enrol_many(["ann", "ben"])
    return made


def test_a_publisher_is_asked_to_wait_until_the_pipeline_has_caught_up(realm: Realm) -> None:
    with Publisher(realm, "t", "ann", max_waiting=3) as ann:
        for waiting in range(3):
            assert ann.waiting() == waiting
            ann.publish_one(EVENT)
        with pytest.raises(Busy, match="3 frames waiting") as refused:
            ann.publish_one(EVENT)
        assert isinstance(refused.value, Unavailable) and "sealcast run" in (refused.value.hint or "")
        with pytest.raises(Busy):
            ann.publish_admissible([EVENT])
        assert ann.waiting() == 3, "nothing was published"
        assert pump(realm, "t")["admitted"] == 3
        ann.publish_one(EVENT)
        assert ann.waiting() == 1


def test_what_was_refused_for_room_is_no_replay_when_it_comes_again(realm: Realm) -> None:
    with Publisher(realm, "t", "ann", max_waiting=1) as ann:
        ann.publish_one(EVENT)
        with pytest.raises(Busy):
            ann.publish_one(EVENT)
        pump(realm, "t")
        ann.publish_one(EVENT)
    counts = pump(realm, "t")
    assert (counts["admitted"], counts.get("rejected_replay", 0)) == (1, 0)


def test_looking_is_rare(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 3600.0)
    with Publisher(realm, "t", "ann", max_waiting=1) as ann:
        for _ in range(3):
            ann.publish_one(EVENT)  # looked once, at the first
