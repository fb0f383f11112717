"""`publish(..., readers=PREDICATE)`: a publisher narrows who may open its events, or is told that it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Schema, Subscriber
from sealcast.errors import FilterRejected, Misuse
from sealcast.model.protection import PROTECTIONS
from sealcast.protections.frames import FrameSealer
from tests.cli.shell import sealcast
from tests.clients.pump import pump

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 255}]})
NAMES = ("ward-a", "ward-b", "office")


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    made = Realm.create(tmp_path / "realm")
    made.create_topic("quotes", SCHEMA, access="members")
    made.enrol_many(["nyse", *NAMES])
    for name in NAMES:
        made.subscribe("quotes", name, "price > 10")
    return made


def got(realm: Realm, name: str) -> list[bytes]:
    with Subscriber(realm, "quotes", as_=name, from_=0) as reader:
        return [event.payload for event in reader]


@pytest.mark.parametrize(
    ("readers", "let_in"),
    [
        ("", NAMES),
        ("name LIKE 'ward-%'", NAMES[:2]),
        ("name IN ('office', 'nobody')", NAMES[2:]),
        ("NOT name = 'ward-a'", NAMES[1:]),
        ("name = 'nobody'", ()),
    ],
)
def test_only_those_open_an_event_for_whom_the_predicate_is_true(
    realm: Realm, readers: str, let_in: tuple[str, ...]
) -> None:
    with Publisher(realm, "quotes", as_="nyse") as publisher:
        (position,) = publisher.publish([Event({"price": 20}, b"narrowed")], readers=readers)
        publisher.publish([Event({"price": 30}, b"for all"), Event({"price": 5}, b"for nobody")])
    pump(realm, "quotes")
    for name in NAMES:
        assert got(realm, name) == ([b"narrowed"] if name in let_in else []) + [b"for all"], name
        found = sealcast("why", f"quotes/{position}", name, "--json", "--realm", realm.paths.root).document
        assert found["verdict"] == ("delivered" if name in let_in else "not-authorised"), found
        assert name in let_in or readers in found["because"]
    for options in ((), ("--reference",)):
        done = sealcast("check", "--json", *options, "--realm", realm.paths.root)
        assert done.code == 0, done.out


def test_a_broker_that_forgets_the_predicate_is_found_out(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    with Publisher(realm, "quotes", as_="nyse") as publisher:
        publisher.publish([Event({"price": 20}, b"narrowed")], readers="name = 'office'")
    with monkeypatch.context() as patch:
        patch.setattr("sealcast.broker.group.may_open", lambda readers, name: True)
        pump(realm, "quotes")
    assert got(realm, "ward-a") == [b"narrowed"], "the weaker broker gives it away"
    found = sealcast("check", "--json", "--realm", realm.paths.root).document
    assert not found["ok"] and found["unexpected"] == 2


@pytest.mark.parametrize("readers", ["price > 1", "name =", "xpath://x", "name = 5"])
def test_what_is_no_predicate_over_entities_is_refused_by_the_publisher(realm: Realm, readers: str) -> None:
    with Publisher(realm, "quotes", as_="nyse") as publisher, pytest.raises(FilterRejected):
        publisher.publish([Event({"price": 20}, b"x")], readers=readers)


def test_and_by_the_broker(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    seal = FrameSealer.seal_messages
    monkeypatch.setattr(FrameSealer, "seal_messages", lambda self, m, now, *_: seal(self, m, now, "price > 1"))
    with Publisher(realm, "quotes", as_="nyse") as publisher:
        publisher.publish([Event({"price": 20}, b"x")])
    counts = pump(realm, "quotes")
    assert (counts.get("admitted", 0), counts["rejected_event"]) == (0, 1)


@pytest.mark.parametrize("protection", [name for name, kind in PROTECTIONS.items() if "readers" in kind.lacks])
def test_protections_that_cannot_refuse_by_name(tmp_path: Path, protection: str) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic("quotes", SCHEMA, protection=protection, access="members")
    realm.enrol_many(["nyse", "ann"])
    realm.subscribe("quotes", "ann", "price > 10")
    with (
        Publisher(realm, "quotes", as_="nyse") as publisher,
        pytest.raises(Misuse, match=f"protected by '{protection}'"),
    ):
        publisher.publish([Event({"price": 20}, b"x")], readers="name = 'ann'")
