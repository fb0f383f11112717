"""Everyone receives by a hybrid key, except who was enrolled before: what that hides, and that both live together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import CannotOpen, CertificateRejected, Corrupt
from sealcast.model import Event, Schema
from sealcast.primitives import hpke, hybrid, kem
from sealcast.primitives.hpke import KemKey
from sealcast.primitives.hybrid import HybridKey
from sealcast.primitives.secrets import Secret
from sealcast.trust.certificates import profile
from sealcast.trust.certificates.roles import Role
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.topic_keys import PAIR_KEY_INFO, place
from tests.clients.pump import pump
from tests.trust.certified import keys
from tests.wire import another_client as theirs

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int"}]})
VECTORS = Path(__file__).parents[1] / "vectors" / "handed-keys.json"


@pytest.fixture
def realm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Realm:
    """Of whom `old` and `elder` were enrolled by an earlier release, and all others by this one."""
    made = Realm.create(tmp_path / "realm")
    made.create_topic("quotes", SCHEMA, access="members")
    made.enrol_many(["new", "newer"])
    with monkeypatch.context() as earlier:
        earlier.setattr("sealcast.trust.keys.identity.HybridKey", KemKey)
        made.enrol_many(["old", "elder"])
    return made


def test_new_entities_are_hybrid_and_those_from_before_stay_as_they_are(realm: Realm) -> None:
    sizes = {name: len(entity.kem_public) for name, entity in realm.state().entities.items()}
    assert sizes.pop("old") == sizes.pop("elder") == hpke.PUBLIC_BYTES
    assert set(sizes.values()) == {hybrid.PUBLIC_BYTES} and {"broker", "center", "new"} <= set(sizes)
    assert isinstance(realm.identity("new").kem, HybridKey) and isinstance(realm.identity("old").kem, KemKey)
    assert len(realm.state().entity("new").certificate) < 2_000


def test_both_kinds_publish_and_read_side_by_side(realm: Realm) -> None:
    for reader in ("new", "old"):
        realm.subscribe("quotes", reader, "price > 1")
    for publisher in ("newer", "elder"):
        Publisher(realm, "quotes", as_=publisher).publish([Event({"price": 5}, publisher.encode())])
    pump(realm, "quotes")
    for reader in ("new", "old"):
        with Subscriber(realm, "quotes", as_=reader) as subscriber:
            assert sorted(event.payload for event in subscriber.poll()) == [b"elder", b"newer"]


def test_who_breaks_x25519_one_day_opens_nothing_of_a_copied_registry(realm: Realm) -> None:
    """The thief has the registry, and the X25519 private key that belongs to a certificate: what a quantum computer
    would compute from the public one. On an entity of an earlier release, the weaker variant, that is enough."""
    state = realm.state()
    topic = state.topic("quotes")

    def stolen(name: str) -> bytes:
        broken, sealed = realm.identity(name).kem.curve, state.pair_key("quotes", topic.epoch, name)
        assert sealed is not None
        assert broken.public == kem.curve_half(state.entity(name).kem_public)
        at = place(topic.id, topic.epoch, name)
        for attempt in (sealed, sealed[1088:], sealed[1088:1120] + sealed[1120:]):
            try:
                return broken.open(attempt, PAIR_KEY_INFO, at)
            except CannotOpen:
                continue
        raise CannotOpen(name)

    assert stolen("old")[:32] == realm.identity("old").pair_key(state, "quotes").reveal()
    with pytest.raises(CannotOpen):
        stolen("new")


def test_key_files_of_both_kinds(realm: Realm, tmp_path: Path) -> None:
    for name, field in (("new", "hybrid_private"), ("old", "x25519_private")):
        fields = realm.identity(name).fields()
        assert field in fields and len(fields) == 4
        assert Identity.from_fields(fields, tmp_path).kem.public == realm.identity(name).kem.public
    both = realm.identity("new").fields() | realm.identity("old").fields()
    for bad in (both, {k: v for k, v in both.items() if not k.endswith("private")}):
        with pytest.raises(Corrupt):
            Identity.from_fields(bad, tmp_path)


# --- certificates -----------------------------------------------------------------------------------


def test_the_extension_is_written_in_one_way(realm: Realm) -> None:
    given = keys("alice")
    public = HybridKey(Secret(bytes(32))).public
    for receiving in (given.kem_public, public):
        written = profile.encode_extension([Role.ENTITY], given.verify_key, receiving)
        assert profile.decode_extension(written) == ({Role.ENTITY}, given.verify_key, receiving)
    body = written[4:]
    assert written[:2] == b"\x04\x82" and int.from_bytes(written[2:4], "big") == len(body)
    short = profile.encode_extension([Role.ENTITY], given.verify_key, given.kem_public)
    others = (
        b"\x04\x83\x00" + written[2:],
        written + b"\0",
        written[:-1],
        b"\x04\x82\x00" + short[1:],
        b"\x04\x81" + short[1:],
        b"\x05" + written[1:],
        b"\x04\x80" + body,
        b"",
        b"\x04",
        b"\x04\x82",
    )
    for bad in others:
        with pytest.raises(CertificateRejected) as refusal:
            profile.decode_extension(bad)
        assert refusal.value.reason == profile.CertificateReason.PROFILE


def test_receiving_keys_that_nothing_can_be_sealed_to_are_refused() -> None:
    given, public = keys("alice"), HybridKey(Secret(bytes(32))).public
    profile.check_keys(False, given.verify_key, public)
    out_of_range = b"\xff" * 1184 + public[1184:]
    for bad in (public[:-1], public + b"\0", public[:1184] + bytes(32), out_of_range, bytes(1216), b""):
        with pytest.raises(CertificateRejected) as refusal:
            profile.check_keys(False, given.verify_key, bad)
        assert refusal.value.reason == profile.CertificateReason.KEYS


# --- vectors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", json.loads(VECTORS.read_text()), ids=lambda case: case["name"])
def test_handed_keys_of_the_vectors_open_here_and_elsewhere(case: dict[str, str]) -> None:
    raw = {name: bytes.fromhex(case[name]) for name in ("private", "public", "topic", "sealed", "plain")}
    epoch, entity = int(case["epoch"]), case["entity"]
    own = (HybridKey if len(raw["public"]) == hybrid.PUBLIC_BYTES else KemKey)(Secret(raw["private"]))
    assert own.public == raw["public"]
    at = place(raw["topic"], epoch, entity)
    if case["name"].startswith("refused"):
        with pytest.raises(CannotOpen):
            own.open(raw["sealed"], PAIR_KEY_INFO, at)
        return
    assert own.open(raw["sealed"], PAIR_KEY_INFO, at) == raw["plain"]
    if isinstance(own, HybridKey):
        assert theirs.receive_pair_key(raw["private"], raw["sealed"], raw["topic"], epoch, entity) == raw["plain"]
