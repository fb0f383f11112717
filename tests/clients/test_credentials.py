"""An entity's wallet: asked once, kept, renewed in time; what the file says is believed as far as it is true."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sealcast.clients.realm import side_of
from sealcast.clients.subscriber import Subscriber
from sealcast.control import requests as ask
from sealcast.control.keepalive import KeepAlive
from sealcast.control.wallet import Wallet, fill
from sealcast.errors import CannotOpen, NotFound, Rejected, Unavailable
from sealcast.protections.endpoint.client import EndpointInbox
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.centers import CenterSecrets
from sealcast.trust.keys.holder import HolderSecrets
from sealcast.trust.realm.changes import Right
from tests.trust.center_world import SCHEMA, World, served


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.realm.create_topic("quotes", SCHEMA, access="members")
    yield made
    made.close()


def center_away(world: World) -> Path:
    """From now on the center's keys are elsewhere, and nobody answers for it."""
    path = world.realm.paths.center_key("center")
    away = path.with_suffix(".away")
    path.rename(away)
    return away


def file_of(world: World, name: str, right: Right = Right.PUBLISH) -> Path:
    return world.realm.paths.root / "wallets" / name / f"{world.realm.state().topic('quotes').id.hex()}.{right}"


def test_asked_once_and_kept(world: World) -> None:
    first = world.wallet("alice").get("quotes", Right.PUBLISH)
    assert file_of(world, "alice").stat().st_mode & 0o777 == 0o600
    center_away(world)
    again = world.wallet("alice")
    held = again.get("quotes", Right.PUBLISH)
    assert held == first and again._correspondent is None, "nobody was asked"
    state = world.realm.state()
    assert again.pair_key(held) == world.realm.identity("alice").pair_key(state, "quotes")


def test_renewed_at_half_of_its_life(world: World) -> None:
    alice = world.wallet("alice")
    first = alice.get("quotes", Right.PUBLISH)
    world.later(43_199)
    assert alice.get("quotes", Right.PUBLISH) == first
    world.later(2)
    second = alice.get("quotes", Right.PUBLISH)
    assert second.claims.expires_us > first.claims.expires_us
    assert world.wallet("alice").get("quotes", Right.PUBLISH) == second, "and kept"


def test_what_is_held_serves_until_its_end_if_nobody_answers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = world.wallet("alice")
    first = alice.get("quotes", Right.PUBLISH)
    asked = []

    def nobody(*_: object) -> None:
        asked.append(world.now)
        raise Unavailable("no answer")

    monkeypatch.setattr(alice.correspondent, "ask_center", nobody)
    world.later(50_000)
    assert alice.get("quotes", Right.PUBLISH) == first == alice.get("quotes", Right.PUBLISH)
    assert len(asked) == 1, "who does not answer is not asked at every turn"
    world.later(10)
    alice.get("quotes", Right.PUBLISH)
    assert len(asked) == 2
    world.later(86_400)
    with pytest.raises(Unavailable):
        alice.get("quotes", Right.PUBLISH)


def test_a_decision_that_changes_what_the_token_says_makes_it_ask_again(world: World) -> None:
    alice, seen = world.wallet("alice"), set()

    def changed() -> bool:
        token = alice.get("quotes", Right.PUBLISH).token
        known = token in seen
        seen.add(token)
        return not known

    assert changed() and not changed()
    world.realm.rotate("quotes")
    assert changed()
    world.realm.grant("quotes", "alice", template="quotes; price=3")
    assert changed() and not changed()
    world.later(1)
    world.realm.renew("alice")
    assert changed() and not changed()
    world.realm.revoke("quotes", "alice", [Right.PUBLISH])
    with pytest.raises(Rejected, match="may not publish"):
        changed()


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "huge", "another's", "directory"])
def test_a_file_that_is_not_true_is_as_good_as_none(world: World, damage: str) -> None:
    first = world.wallet("alice").get("quotes", Right.PUBLISH)
    path, good = file_of(world, "alice"), file_of(world, "alice").read_bytes()
    match damage:
        case "cut":
            path.write_bytes(good[:-7])
        case "flipped":
            path.write_bytes(bytes([good[0] ^ 1]) + good[1:])
        case "empty":
            path.write_bytes(b"")
        case "huge":
            path.write_bytes(good * 100)
        case "another's":
            world.wallet("bob").get("quotes", Right.PUBLISH)
            shutil.copy(file_of(world, "bob"), path)
        case _:
            path.unlink()
    held = world.wallet("alice").get("quotes", Right.PUBLISH)
    assert held.token != first.token and held.claims.subject == "alice"


def test_a_key_that_was_not_given_is_not_made_up(world: World) -> None:
    alice = world.wallet("alice")
    with pytest.raises(CannotOpen, match="epoch 9"):
        alice.pair_key(alice.get("quotes", Right.PUBLISH), 9)


def test_over_discovery_from_whoever_serves(tmp_path: Path) -> None:
    """No key but the entity's own is used: the center is found, asked, and answers from elsewhere."""
    realm = Realm.create(tmp_path / "market")
    realm.create_topic("quotes", SCHEMA, access="members")
    realm.enrol("alice")
    with served(realm), Wallet(realm, "alice", at_hand=False) as alice:
        held = alice.get("quotes", Right.SUBSCRIBE)
        assert held.claims.subject == "alice"
        made = ask.subscribe(alice, "quotes", "price > 3")
        assert [each.filter for each in side_of(realm, "quotes").listed(realm, "quotes", "alice")] == ["price > 3"]
        assert made.id in realm.state().topics["quotes"].subscriptions
        ask.unsubscribe(alice.correspondent, "broker", [made.id])
    assert not list(realm.state().subscriptions_of("quotes"))


@pytest.mark.parametrize("at_hand", [False, True])
def test_clients_unlock_keys_of_services_only_in_realms_that_say_so(
    tmp_path: Path, at_hand: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    realm = Realm.create(tmp_path / "market", at_hand=at_hand)
    realm.create_topic("quotes", SCHEMA, access="members")
    realm.enrol("alice")
    client, unlocked = threading.get_ident(), set[str]()
    for kind in (CenterSecrets, BrokerSecrets):

        def load(path: Path, kind: type[HolderSecrets] = kind, really: Any = kind.load) -> HolderSecrets:
            if threading.get_ident() == client:
                unlocked.add(kind.__name__)
            loaded: HolderSecrets = really(path)
            return loaded

        monkeypatch.setattr(kind, "load", load)
    with served(realm):  # by another thread, as by another process
        unlocked.clear()
        with Wallet(realm.paths.root, "alice") as alice, Wallet(realm.paths.root, "alice", keep=False) as other:
            assert alice.get("quotes", Right.SUBSCRIBE).claims.subject == "alice"
            ask.subscribe(alice, "quotes", "price > 3")
            fill([other], "quotes", Right.PUBLISH)
    assert unlocked == ({"CenterSecrets", "BrokerSecrets"} if at_hand else set())
    if not at_hand:  # also when nobody else answers
        with Wallet(realm.paths.root, "alice", keep=False) as alone, pytest.raises((NotFound, Unavailable)):
            alone.get("quotes", Right.PUBLISH)
        assert unlocked == set()


def test_a_mark_that_says_nothing_about_it_says_no(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "market")
    mark = json.loads(realm.paths.mark.read_text())
    for said, believed in ((True, True), (False, False), (1, False), ("yes", False), (None, False)):
        realm.paths.mark.write_text(json.dumps(mark | {"at_hand": said}))
        assert Realm(realm.paths.root).at_hand is believed
    del mark["at_hand"]
    realm.paths.mark.write_text(json.dumps(mark))
    assert not Realm(realm.paths.root).at_hand


def test_a_reader_keeps_its_subscriptions_alive(world: World) -> None:
    alice = world.wallet("alice")
    made = ask.subscribe(alice, "quotes", "price > 3")

    def ends() -> int:
        return world.realm.state().credentials_of("quotes")[made.id].expires_us

    first, kept = ends(), KeepAlive(world.realm, "quotes", world.realm.identity("alice"))
    kept.look(world.realm.state())
    kept.wait()
    assert ends() == first
    world.later(43_201)
    with Subscriber(world.realm, "quotes", "alice") as reader:
        reader.poll()
        assert isinstance(reader._inbox, EndpointInbox)
        reader._inbox._alive.wait()
        assert reader.trouble is None and ends() > first
    # Nobody answers: it is tried again a little later, and the reader goes on.
    center_away(world)
    (world.realm.paths.root / "wallets" / "alice").rename(world.realm.paths.root / "gone")
    world.later(50_000)
    kept.look(world.realm.state())
    kept.wait()
    assert isinstance(kept.trouble, NotFound | Unavailable)
