"""Nothing is believed because it stands in the registry: attacks by whoever writes its rows, with and without a key."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from sealcast.broker.context import gate_at
from sealcast.clients.publisher import Publisher
from sealcast.errors import CannotOpen, Corrupt, Misuse, Rejected
from sealcast.model import Event, Schema
from sealcast.model.rejection import Reason
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey
from sealcast.protections.verify import publishers_keys
from sealcast.trust import handles, history
from sealcast.trust.admin.entities import enrolment
from sealcast.trust.certificates.appointment import AppointmentRejected, appointed
from sealcast.trust.certificates.authority import Authority, CertificateWanted
from sealcast.trust.certificates.roles import Role
from sealcast.trust.deployment import Realm
from sealcast.trust.handles import BrokerRealm, EntityRealm
from sealcast.trust.keys import peer_addresses
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.peer_addresses import StatedAddress
from sealcast.trust.keys.topic_keys import TopicKeys
from sealcast.trust.realm.authors import ADMINISTRATOR, MAY_STATE
from sealcast.trust.realm.changes import (
    AddSubscription,
    AnnouncePeer,
    AppointAdministrator,
    Change,
    CreateTopic,
    Grant,
    RevokeEntity,
    Right,
    RotateTopic,
)
from sealcast.trust.registry import Registry
from sealcast.trust.statements import Author
from sealcast.wire import frame
from tests.cli.shell import sealcast
from tests.clients.pump import pump
from tests.trust import forging
from tests.trust.places import ServerPlace
from tests.trust.postgres import PASSWORD, Server

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int"}]})
TOPIC = "quotes"
KNOWN_TO_THIEF = Secret(b"k" * 32)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    realm = Realm.create(tmp_path_factory.mktemp("believed") / "realm")
    realm.enrol_many(["nyse", "alice", "mallory"])
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.subscribe(TOPIC, "alice", "price > 0")
    return realm.paths.root


@pytest.fixture
def realm(made: Path, tmp_path: Path) -> Iterator[Realm]:
    yield Realm(shutil.copytree(made, tmp_path / "realm"))


def believing(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> Realm:
    """The weakened variant: a realm that believes what stands there."""
    monkeypatch.setattr(handles, "Judge", lambda id, root: None)
    opened = Realm(realm.paths.root)
    monkeypatch.undo()
    return opened


def fresh(realm: Realm) -> Realm:
    return Realm(realm.paths.root)


def refused(realm: Realm, reason: str, words: str) -> None:
    with pytest.raises(Corrupt, match=rf"not believed \({reason}\): .*{words}") as refusal:
        fresh(realm).state()
    assert refusal.value.hint is not None


# --- (a) keys that no center made -------------------------------------------------------------------


def own_keys(realm: Realm) -> list[Change]:
    """A new epoch with keys that a thief knows."""
    state = realm.state()
    about = state.topic(TOPIC)
    keys = TopicKeys(about.id, about.epoch + 1, KNOWN_TO_THIEF)
    entities = [state.entity(name) for name in ("nyse", "alice")]
    return [
        RotateTopic(TOPIC, about.epoch + 1, about.epoch_starts[-1]),
        keys.for_broker(about, state.entity("broker")),
        *(keys.for_entity(about, who, reads=True) for who in entities),
    ]


def test_keys_that_nobody_signed_are_refused(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    before, thief = realm.state(), TopicKeys(realm.state().topic(TOPIC).id, 2, KNOWN_TO_THIEF)
    forging.insert(realm, *own_keys(realm))
    # Where signatures are not asked for, the thief has the key of the next event.
    weak = believing(realm, monkeypatch)
    with Publisher(weak, TOPIC, "nyse") as publisher:
        publisher.publish([Event({"price": 1}, b"secret")])
    held = weak.identity("nyse").pair_key(weak.state(), TOPIC)
    assert held == thief.pair_key("nyse") and weak.state().topic(TOPIC).epoch == 2
    refused(realm, "unsigned", f"change {before.version + 4} is signed by nobody")


@pytest.mark.parametrize(
    ("author", "words"),
    [
        ("mallory", "for the administrator or 'center' to state, and 'mallory' stated it"),
        ("broker", "for the administrator or 'center' to state, and 'broker' stated it"),
        (ADMINISTRATOR, "for 'center' to state, and the administrator stated it"),
    ],
)
def test_keys_that_somebody_else_signed_are_refused(realm: Realm, author: str, words: str) -> None:
    forging.insert(realm, *own_keys(realm), author=realm.author(author))
    refused(realm, "voice", words)


def test_another_center_takes_no_topic_and_makes_no_keys_for_it(realm: Realm) -> None:
    realm.add_center("rival")
    state, rival = realm.state(), realm.author("rival")
    assert rival is not None
    move = RotateTopic(TOPIC, 2, state.topic(TOPIC).epoch_starts[-1], "rival")
    with pytest.raises(Misuse, match="for the administrator to state"):
        forging.unattended(realm).apply(move, rival)
    forging.insert(realm, move, author=rival)
    refused(realm, "voice", "for the administrator to state, and 'rival' stated it")


def test_a_center_rotates_and_grants_on_its_own_topics(realm: Realm) -> None:
    center = realm.author("center")
    assert center is not None
    start = realm.state().topic(TOPIC).epoch_starts[-1]
    changes = [RotateTopic(TOPIC, 2, start), Grant(TOPIC, "mallory", (Right.PUBLISH,))]
    forging.unattended(realm).apply_many(changes, center)
    assert fresh(realm).state().topic(TOPIC).epoch == 2


def test_nobody_states_a_token_of_its_own(realm: Realm) -> None:
    """Who writes rows around the desk could say of its token what it likes."""
    state, mallory = realm.state(), realm.author("mallory")
    known = next(iter(state.credentials_of(TOPIC).values()))
    own = AddSubscription("m", TOPIC, "mallory", "price > 0", replace(known, token=b"none", expires_us=2**60))
    forging.insert(realm, own, author=mallory)
    refused(realm, "voice", "for the administrator or any broker to state, and 'mallory' stated it")


# --- (b) keys in another's name ---------------------------------------------------------------------


def test_a_swapped_verify_key_is_refused(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    own, last = SigningKey.generate(), realm.state().version
    realm.paths.administrator_key.with_suffix(".head").unlink(missing_ok=True)

    def swap(version: int, kind: str, body: dict[str, Any]) -> None:
        if kind == "enrol-entity" and body["name"] == "nyse":
            body["verify_key"] = bytes(own.verify_key).hex()

    forging.rewrite(realm, swap)
    weak = believing(realm, monkeypatch)
    assert weak.state().entity("nyse").verify_key == bytes(own.verify_key), "who believes it believes the forger"
    # Also then a subscriber goes by the certificate, which names another key.
    with pytest.raises(CannotOpen, match="'nyse' is not believed: .* about another key"):
        publishers_keys(weak.state)("nyse")
    refused(realm, "signature", "were not signed by the administrator")
    assert last == weak.state().version


def test_a_key_without_its_certificate_speaks_for_nobody(realm: Realm) -> None:
    own = Author("nyse", SigningKey.generate())
    announced = peer_addresses.announce(own.signer, realm.id, "nyse", StatedAddress(forging.AT, False, 1))
    forging.insert(realm, AnnouncePeer("nyse", announced, 1), author=own)
    refused(realm, "signature", "not signed by 'nyse'")


def test_who_stole_the_administrators_key_certifies_nobody(realm: Realm) -> None:
    """It can write an enrolment; without the authority's key nobody believes what that entity states or signs."""
    stranger, fake = Authority.generate(realm.id, realm.clock()), Identity.generate("fake")
    wanted = CertificateWanted("fake", fake.public_keys, frozenset({Role.KEY_CENTER}))
    (issued,) = stranger.issue_many([wanted], realm.clock())
    forging.insert(realm, enrolment(issued, Role.KEY_CENTER), author=realm.author(ADMINISTRATOR))
    with pytest.raises(CannotOpen, match="'fake' is not believed"):
        publishers_keys(fresh(realm).state)("fake")
    forging.insert(realm, CreateTopic("trap", bytes(16), SCHEMA, center="fake"), author=fake.author)
    refused(realm, "author", "'fake': .*nobody known here issued it")


def test_who_was_revoked_states_nothing(realm: Realm) -> None:
    announcement = forging.announced(realm, "mallory", 1)
    realm.revoke_entity("nyse")
    forging.insert(realm, announcement, author=realm.author("nyse"))
    refused(realm, "author", "'nyse' was revoked at version")


def test_who_is_nobody_states_nothing(realm: Realm) -> None:
    forging.insert(realm, RevokeEntity("alice"), author=Author("eve", SigningKey.generate()))
    refused(realm, "author", "'eve' is nobody")


def test_a_signature_is_for_one_place_in_one_history(realm: Realm) -> None:
    """Rows with their signatures, carried to another place of the same registry."""
    with closing(sqlite3.connect(realm.paths.registry)) as connection:
        (signed,) = connection.execute("SELECT signed FROM changes ORDER BY version DESC LIMIT 1").fetchone()
    forging.insert(realm, RevokeEntity("alice"))
    with closing(sqlite3.connect(realm.paths.registry)) as connection:
        connection.executescript("; ".join(forging.GUARDS))
        connection.execute(
            "UPDATE changes SET signed = ? WHERE version = (SELECT max(version) FROM changes)", (signed,)
        )
        connection.commit()
    refused(realm, "signature", "was not signed by the administrator")


def test_an_administrator_whom_the_root_did_not_appoint_is_none(realm: Realm) -> None:
    own = Author(ADMINISTRATOR, SigningKey.generate())
    stranger = Authority.generate(realm.id, realm.clock())
    forging.insert(realm, AppointAdministrator(stranger.appoint(bytes(own.signer.verify_key), 2)), author=own)
    refused(realm, "author", "not appointed by the realm's root")


def test_a_replaced_administrator_does_not_come_back(realm: Realm) -> None:
    before, authority = realm.author(ADMINISTRATOR), realm.authority()
    after = Author(ADMINISTRATOR, SigningKey.generate())
    assert before is not None
    realm.registry.apply(AppointAdministrator(authority.appoint(bytes(after.signer.verify_key), 2)), after)
    first = authority.appoint(bytes(before.signer.verify_key), 1)
    assert appointed(authority.root, first).number == 1
    with pytest.raises(Misuse, match="appointment 1 of an administrator does not follow appointment 2"):
        forging.unattended(realm).apply(AppointAdministrator(first), before)
    forging.insert(realm, RevokeEntity("alice"), author=before)
    refused(realm, "signature", "not signed by the administrator")


def test_a_new_key_signs_for_the_administrator(realm: Realm) -> None:
    before = realm.author(ADMINISTRATOR)
    assert before is not None and realm.appoint_administrator() == 2
    after = fresh(realm).author(ADMINISTRATOR)
    assert after is not None and bytes(after.signer.verify_key) != bytes(before.signer.verify_key)
    fresh(realm).enrol("erin")
    # Cut short after it was appointed, and before its file was in place.
    os.replace(realm.paths.administrator_key, realm.paths.secrets / "administrator.new.key")
    assert fresh(realm).appoint_administrator() == 2
    assert "erin" in fresh(realm).state().entities


def test_every_bit_of_an_appointment_counts(realm: Realm) -> None:
    authority = realm.authority()
    whole = authority.appoint(bytes(SigningKey.generate().verify_key))
    for bit in range(0, 8 * len(whole), 7):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(AppointmentRejected):
            appointed(authority.root, bytes(flipped))


# --- (c) an old registry ----------------------------------------------------------------------------


@pytest.fixture
def restored(realm: Realm, tmp_path: Path) -> tuple[Realm, int]:
    """A realm whose registry is from before a publisher was revoked; and the version that it had."""
    with Publisher(realm, TOPIC, "nyse") as publisher:
        publisher.publish([Event({"price": 1}, b"1")])
    shutil.copy(realm.paths.registry, tmp_path / "old")
    realm.broker()
    realm.identity("alice")
    last = realm.revoke_entity("nyse")
    assert realm.revocations().view.number == 1
    for beside in realm.paths.root.glob("registry.sqlite-*"):
        beside.unlink()
    shutil.copy(tmp_path / "old", realm.paths.registry)
    realm.registry._opened = None  # an open file goes on reading what it has in memory
    return realm, last


def test_an_old_registry_is_named(restored: tuple[Realm, int]) -> None:
    realm, last = restored
    refused(realm, "rollback", f"it went back from version {last}, which the administrator saw")
    with pytest.raises(Corrupt, match=f"from version {last}, which this process saw"):
        realm.state()
    broker = BrokerRealm(realm.paths.root)
    broker.broker()
    with pytest.raises(Corrupt, match="which broker 'broker' saw"):
        broker.state()
    with pytest.raises(Corrupt, match="which 'alice' saw"):
        EntityRealm(realm.paths.root).identity("alice")


def test_filler_rows_do_not_help(restored: tuple[Realm, int]) -> None:
    realm, last = restored
    forging.filled(realm, last + 1)
    refused(realm, "fork", f"its version {last} is not the one that the administrator saw")
    with pytest.raises(Corrupt, match=f"version {last} is not the one that this process saw"):
        realm.state()
    with pytest.raises(Corrupt, match="'alice' saw: the history was forked"):
        EntityRealm(realm.paths.root).identity("alice")


def test_a_revoked_publisher_is_not_admitted_where_nobody_kept_a_head(restored: tuple[Realm, int]) -> None:
    realm, last = restored
    forging.filled(realm, last)
    for pin in realm.paths.root.rglob("*.head"):
        pin.unlink()
    opened = BrokerRealm(realm.paths.root)
    state = opened.state()
    assert not state.entity("nyse").revoked, "by the registry alone it may publish again"
    token, now = Realm(realm.paths.root).token(TOPIC, "nyse"), realm.clock()
    said = frame.token_digest(token)
    weak = gate_at(state, state.topic(TOPIC), opened.broker())
    assert weak.refuses_publisher("nyse", token, said, now) is None
    ours = gate_at(opened.state_at("broker", state.version), state.topic(TOPIC), opened.broker())
    refusal = ours.refuses_publisher("nyse", token, said, now)
    assert refusal is not None and refusal.reason is Reason.REVOKED
    assert pump(Realm(realm.paths.root), TOPIC)["rejected_revoked"] == 1


def test_a_registry_that_has_all_lists_decides_by_itself(realm: Realm) -> None:
    before = realm.state().version
    realm.revoke_entity("nyse")
    realm.revocations()
    assert realm.state_at("broker", before).revoked.number == 0, "a batch that is run again decides the same"


# --- the table --------------------------------------------------------------------------------------


def test_every_kind_of_change_has_somebody_who_may_state_it() -> None:
    assert set(MAY_STATE) == set(get_args(Change)) and all(MAY_STATE.values())


def test_who_has_no_key_writes_nothing(realm: Realm) -> None:
    with pytest.raises(Misuse, match="for the administrator to state, and no such key is at hand"):
        EntityRealm(realm.paths.root).registry.apply(RevokeEntity("alice"))
    with pytest.raises(Misuse, match="changes of this registry are signed"):
        Registry(realm.paths.registry).apply(RevokeEntity("alice"))


def test_a_version_inside_a_transaction_is_believed_with_all_of_it(realm: Realm) -> None:
    state = realm.state()
    forging.insert(realm, *own_keys(realm))
    with pytest.raises(Corrupt, match="signed by nobody"):
        fresh(realm).state(state.version + 1)
    assert fresh(realm).state(state.version) == state
    assert fresh(realm).state(2).version == 2


# --- realms from before -----------------------------------------------------------------------------


def test_what_nobody_signed_is_taken_over_once(realm: Realm) -> None:
    for each in realm.paths.root.rglob("*.head"):
        each.unlink()
    realm.paths.administrator_key.unlink()
    forging.rewrite(realm, lambda version, kind, body: body.pop("administrator", None))
    forging.strip(realm)
    with pytest.raises(Misuse, match="nobody signed the changes") as refusal:
        fresh(realm).state()
    assert "sealcast registry migrate" in (refusal.value.hint or "")
    done = sealcast("registry", "migrate", "--realm", realm.paths.root)
    assert done.code == 0 and "the administrator has signed it" in done.out and "believed as they are" in done.err
    assert sealcast("registry", "migrate", "--realm", realm.paths.root).err == ""
    assert TOPIC in fresh(realm).state().topics
    fresh(realm).rotate(TOPIC)
    with pytest.raises(Misuse, match="signed already"):
        fresh(realm).registry.adopt(lambda state: [], Author(ADMINISTRATOR, SigningKey.generate()))
    # Who takes the signatures away does not get it signed again.
    forging.strip(realm)
    with pytest.raises(Misuse, match="somebody removed them"):
        fresh(realm).adopt_registry()


def test_rows_on_a_server_are_believed_no_more_than_those_in_a_file(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    place = ServerPlace(postgres)
    realm = Realm.create(tmp_path / "far", registry=postgres.url(place.schema, password=None))
    realm.enrol("alice")
    version, at_us, chain = place.rows("SELECT version, at_us, chain FROM changes ORDER BY 1")[-1]
    body = '{"name": "alice"}'
    made = history._link(bytes(chain), version + 1, at_us, "revoke-entity", body)
    with postgres.connect(place.schema) as connection:
        values = (version + 1, at_us, "revoke-entity", body, made)
        connection.execute("INSERT INTO changes VALUES (%s, %s, %s, %s, %s)", values)
    refused(realm, "unsigned", f"change {version + 1} is signed by nobody")


def test_a_damaged_head_is_named(realm: Realm) -> None:
    realm.state()
    pin = realm.paths.administrator_key.with_suffix(".head")
    pin.write_text("9 " + "0" * 64 + " 00\n")
    with pytest.raises(Corrupt, match=r"administrator.head is not as it was written"):
        fresh(realm).state()
    pin.write_text("")
    assert fresh(realm).state() == realm.state()


def test_a_revoked_center_keeps_nobody_from_being_enrolled(realm: Realm) -> None:
    realm.add_center("second")
    realm.create_topic("other", SCHEMA, center="second", access="members")
    realm.revoke_entity("second")
    realm.enrol("erin")
    state = fresh(realm).state()
    assert state.pair_key(TOPIC, 1, "erin") is not None and state.pair_key("other", 1, "erin") is None
    with pytest.raises(Rejected, match="'second' was revoked"):
        realm.rotate("other")
    assert not realm.rotate_due(now_us=2**62, topics=["other"])
