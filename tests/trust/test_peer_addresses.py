"""Where peers are reached: said by each of itself, and by nobody else; an old address is never put back."""

from __future__ import annotations

import pytest

from sealcast.errors import Misuse, Rejected
from sealcast.trust.deployment import Realm
from sealcast.trust.keys import peer_addresses
from sealcast.trust.keys.peer_addresses import PeerAddress, PeerAddressReason, PeerAddressRejected, StatedAddress
from sealcast.trust.realm.changes import AnnouncePeer
from sealcast.trust.realm.stored import from_json, to_json
from sealcast.wire import cbor

DOOR = "0123456789abcdef" * 2
AT = PeerAddress("127.0.0.1", 7000, DOOR)


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    made = Realm.create(tmp_path_factory.mktemp("addresses") / "realm")
    made.enrol_many(["alice", "bob", "carol"])
    made.revoke_entity("carol")
    return made


def signed(
    realm: Realm, by: str, about: str, address: PeerAddress = AT, sequence: int = 1, *, serves: bool = False
) -> bytes:
    stated = StatedAddress(address, serves, sequence)
    return peer_addresses.announce(realm.identity(by).signer, realm.id, about, stated)


def judged(realm: Realm, announcement: bytes, name: str) -> StatedAddress:
    state = realm.state()
    return peer_addresses.judge(announcement, realm.id, state.entity(name), realm.trust(), state.revoked, realm.clock())


def test_an_address_is_what_its_owner_said_last(realm: Realm) -> None:
    there = PeerAddress("::1", 7001, DOOR)
    for sequence, address in enumerate((AT, there), 1):
        change = AnnouncePeer("alice", signed(realm, "alice", "alice", address, sequence), sequence)
        assert from_json(change.kind, to_json(change)) == change
        realm.registry.apply(change)
    found = realm.state().peers["alice"]
    assert judged(realm, found.announcement, "alice") == (there, False, 2) and not found.serves
    assert (str(AT), str(there)) == ("127.0.0.1:7000", "[::1]:7001")


def test_an_old_address_is_not_put_back(realm: Realm) -> None:
    realm.registry.apply(AnnouncePeer("bob", signed(realm, "bob", "bob", sequence=5), 5))
    for sequence in (4, 5):
        with pytest.raises(Misuse, match="does not follow 5"):
            realm.registry.apply(AnnouncePeer("bob", signed(realm, "bob", "bob", sequence=sequence), sequence))
    for sequence, serves in ((6, False), (5, True)):
        said = AnnouncePeer("bob", signed(realm, "bob", "bob", sequence=sequence, serves=not serves), 6, serves)
        with pytest.raises(Rejected, match="does not say what is said of it"):
            realm.registry.apply(said)


def statement(realm: Realm, *fields: object) -> bytes:
    return realm.identity("alice").signer.sign(b"x") + cbor.encode(list(fields))


def test_nobody_announces_for_somebody_else(realm: Realm) -> None:
    other = bytes(16)
    cases = {
        PeerAddressReason.SIGNATURE: signed(realm, "bob", "alice"),
        PeerAddressReason.HOLDER: signed(realm, "bob", "bob"),
        PeerAddressReason.REALM: peer_addresses.announce(
            realm.identity("alice").signer, other, "alice", StatedAddress(AT, False, 9)
        ),
        PeerAddressReason.FORM: b"nonsense",
    }
    for reason, announcement in cases.items():
        with pytest.raises(PeerAddressRejected) as refused:
            realm.registry.apply(AnnouncePeer("alice", announcement, 9))
        assert refused.value.reason is reason


@pytest.mark.parametrize(
    "fields",
    [
        (),
        ("127.0.0.1", 7000, DOOR, 1),
        ("127.0.0.1", 7000, DOOR, 1, 1),
        ("", 7000, DOOR, False, 1),
        ("a" * 254, 7000, DOOR, False, 1),
        ("h\x00st", 7000, DOOR, False, 1),
        ("bücher", 7000, DOOR, False, 1),
        ("127.0.0.1", 0, DOOR, False, 1),
        ("127.0.0.1", 65_536, DOOR, False, 1),
        ("127.0.0.1", True, DOOR, False, 1),
        ("127.0.0.1", 7000, DOOR.upper(), False, 1),
        ("127.0.0.1", 7000, DOOR[1:], False, 1),
        ("127.0.0.1", 7000, DOOR, False, -1),
        ("127.0.0.1", 7000, DOOR, False, True),
        ("127.0.0.1", 7000, DOOR, False, 1, 1),
    ],
)
def test_an_address_is_host_port_door_and_sequence(realm: Realm, fields: tuple[object, ...]) -> None:
    with pytest.raises(PeerAddressRejected) as refused:
        judged(realm, statement(realm, realm.id, "alice", *fields), "alice")
    assert refused.value.reason is PeerAddressReason.FORM


def test_who_was_revoked_has_no_address(realm: Realm) -> None:
    with pytest.raises(PeerAddressRejected) as refused:
        judged(realm, signed(realm, "carol", "carol"), "carol")
    assert refused.value.reason is PeerAddressReason.REVOKED
    with pytest.raises(Rejected, match="was revoked"):
        realm.registry.apply(AnnouncePeer("carol", signed(realm, "carol", "carol"), 1))


def test_peers_are_entities(realm: Realm) -> None:
    with pytest.raises(Misuse, match="peers are entities"):
        realm.registry.apply(AnnouncePeer("broker", b"x", 1))
    with pytest.raises(Misuse, match="1 to 704 bytes"):
        realm.registry.apply(AnnouncePeer("alice", bytes(705), 9))
