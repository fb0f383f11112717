"""Key files and pair keys: only their owner reads them, and only their owner opens what was sealed to it."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from sealcast.errors import CannotOpen, Corrupt, Misuse, NotFound, Rejected
from sealcast.model import Schema
from sealcast.model.protection import Searchable
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import Exponent
from sealcast.primitives.halves import UserPart
from sealcast.primitives.secrets import Secret
from sealcast.trust.certificates.roles import Role
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.centers import CenterSecrets
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.topic_keys import TopicKeys, open_entity_keys
from sealcast.trust.realm.changes import Access, CreateTopic, EnrolEntity, PublishPairKey
from sealcast.trust.realm.machine import EMPTY, Entity, RealmState, Topic, apply_all

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int"}]})


def enrolment(identity: Identity, *roles: Role) -> EnrolEntity:
    """The public half, as a change; without a certificate, which a founded realm asks for."""
    return EnrolEntity(identity.name, bytes(identity.signer.verify_key), identity.kem.public, roles or (Role.ENTITY,))


def realm(
    *identities: Identity, center: CenterSecrets | None = None, broker: BrokerSecrets | None = None
) -> RealmState:
    roles = [] if center is None else [enrolment(center.identity, Role.KEY_CENTER)]
    roles += [] if broker is None else [enrolment(broker.identity, Role.BROKER)]
    manager = "" if center is None else center.name
    topics = [
        CreateTopic(n, n.encode().ljust(16), SCHEMA, access=Access.MEMBERS, center=manager) for n in ("one", "two")
    ]
    return apply_all(EMPTY, [*roles, *(enrolment(i) for i in identities), *topics])


def test_round_trip(tmp_path: Path) -> None:
    identity, path = Identity.generate("alice"), tmp_path / "alice.key"
    identity.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert enrolment(Identity.load(path, "alice")) == enrolment(identity)
    assert os.listdir(tmp_path) == ["alice.key"], "nothing staged is left behind"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777, 0o620])
def test_a_file_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "alice.key"
    Identity.generate("alice").save(path)
    path.chmod(mode)
    with pytest.raises(Rejected, match=f"mode {mode:04o}") as refusal:
        Identity.load(path, "alice")
    assert refusal.value.hint == f"if you are sure they are not: chmod 600 {path}"


def test_keys_are_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "alice.key"
    Identity.generate("alice").save(path)
    before = path.read_bytes()
    with pytest.raises(Misuse, match="never overwritten"):
        Identity.generate("alice").save(path)
    assert path.read_bytes() == before


def test_missing_foreign_and_broken_files(tmp_path: Path) -> None:
    path = tmp_path / "alice.key"
    with pytest.raises(NotFound, match="no keys of entity 'alice'"):
        Identity.load(path, "alice")
    Identity.generate("alice").save(path)
    with pytest.raises(Misuse, match="holds the keys of 'alice', not of 'bob'"):
        Identity.load(path, "bob")
    with pytest.raises(Corrupt, match="is no sealcast broker file"):
        BrokerSecrets.load(path)
    content = path.read_bytes()
    for broken in (b"", b"{}", b"[]", content[:-40], content.replace(b"seed", b"weed"), b"\xff" * 70_000):
        path.write_bytes(broken)
        with pytest.raises(Corrupt):
            Identity.load(path, "alice")


def test_no_message_carries_a_key(tmp_path: Path) -> None:
    identity, path = Identity.generate("alice"), tmp_path / "alice.key"
    identity.save(path)
    secret = identity.signer.seed.reveal().hex()
    path.write_bytes(path.read_bytes().replace(b'"seed"', b'"sead"'))
    with pytest.raises(Corrupt) as refusal:
        Identity.load(path, "alice")
    assert secret not in str(refusal.value) + repr(refusal.value.__cause__) + repr(identity)
    for handle in (identity, BrokerSecrets.generate("broker"), CenterSecrets.generate("center")):
        with pytest.raises(Misuse, match="cannot be pickled"):
            pickle.dumps(handle)


def test_broker_secrets_survive_their_file(tmp_path: Path) -> None:
    broker = BrokerSecrets.generate("broker")
    broker.save(tmp_path / "secrets" / "broker.key")
    again = BrokerSecrets.load(tmp_path / "secrets" / "broker.key")
    assert enrolment(again.identity) == enrolment(broker.identity)
    assert again.journal_key(bytes(16)) == broker.journal_key(bytes(16))


def test_center_secrets_survive_their_file(tmp_path: Path) -> None:
    center = CenterSecrets.generate("center")
    center.save(tmp_path / "center.key")
    again, topic = CenterSecrets.load(tmp_path / "center.key"), realm(center=center).topic("one")
    assert enrolment(again.identity) == enrolment(center.identity)
    assert again.topic_keys(topic, 3).pair_key("alice") == center.topic_keys(topic, 3).pair_key("alice")
    with pytest.raises(Corrupt, match="is no sealcast broker file"):
        BrokerSecrets.load(tmp_path / "center.key")
    with pytest.raises(NotFound, match="key center's secrets are not here"):
        CenterSecrets.load(tmp_path / "nothing.key")


def test_every_key_is_another() -> None:
    center, other = CenterSecrets.generate("center"), CenterSecrets.generate("center")
    state = realm(center=center)
    topic_keys = [c.topic_keys(state.topic(t), e) for c in (center, other) for t in ("one", "two") for e in (1, 2, 256)]
    found = [k.pair_key(n).reveal() for k in topic_keys for n in ("alice", "bob", "alic")]
    found += [k.content_root().reveal() for k in topic_keys]
    broker = BrokerSecrets.generate("broker")
    found += [broker.journal_key(bytes(16)).reveal(), broker.journal_key(b"x" * 16).reveal()]
    assert len(set(found)) == len(found)


def test_a_center_makes_keys_for_its_own_topics_only() -> None:
    topic = realm(center=CenterSecrets.generate("here")).topic("one")
    with pytest.raises(Misuse, match="is managed by center 'here', not by 'there'"):
        CenterSecrets.generate("there").topic_keys(topic)


def test_a_broker_knows_what_it_was_handed_and_nothing_else() -> None:
    center, broker, other = (
        CenterSecrets.generate("center"),
        BrokerSecrets.generate("broker"),
        BrokerSecrets.generate("broker"),
    )
    state = realm(center=center, broker=broker)
    one, two = state.topic("one"), state.topic("two")
    handed = center.topic_keys(one).for_broker(one, state.entity(broker.name))
    good = apply_all(state, [handed])
    ours = broker.topic_keys(good, one)
    assert ours.pair_key("alice") == center.topic_keys(one).pair_key("alice")
    assert ours.content_root() == center.topic_keys(one).content_root()
    with pytest.raises(NotFound, match="was not handed the key of topic 'two' in epoch 1"):
        broker.topic_keys(good, two)
    with pytest.raises(NotFound, match="in epoch 2"):
        broker.topic_keys(good, one, 2)
    # Another broker's keys, and the same bytes for another topic: neither opens.
    with pytest.raises(CannotOpen, match="does not open with its keys"):
        other.topic_keys(good, one)
    with pytest.raises(CannotOpen):
        broker.topic_keys(apply_all(state, [replace(handed, topic="two")]), two)


def test_a_topics_key_is_no_pair_key() -> None:
    """Sealed to the same holder, in the same place: each opens as what it is and as nothing else."""
    center, broker = CenterSecrets.generate("center"), BrokerSecrets.generate("broker")
    state = realm(center=center, broker=broker)
    one, holder = state.topic("one"), state.entity(broker.name)
    keys = center.topic_keys(one)
    topic_key, pair_key = keys.for_broker(one, holder), keys.for_entity(one, holder, reads=True)
    crossed = apply_all(state, [replace(topic_key, sealed=pair_key.sealed), replace(pair_key, sealed=topic_key.sealed)])
    with pytest.raises(CannotOpen):
        broker.topic_keys(crossed, one)
    with pytest.raises(CannotOpen):
        broker.identity.pair_key(crossed, "one")


def test_only_the_owner_opens_its_pair_key_and_only_in_its_place() -> None:
    alice, bob, center = Identity.generate("alice"), Identity.generate("bob"), CenterSecrets.generate("center")
    state = realm(alice, bob, center=center)
    keys = center.topic_keys(state.topic("one"))
    issued = keys.for_entity(state.topic("one"), state.entity("alice"), reads=True)
    good = apply_all(state, [issued])
    assert alice.pair_key(good, "one") == keys.pair_key("alice")
    # Somebody else's keys, the same bytes for another topic, and for another entity: none opens.
    impostor = Identity("alice", bob.signer, bob.kem, bob.key)
    with pytest.raises(CannotOpen, match="does not open with the keys in its file"):
        impostor.pair_key(good, "one")
    moved = apply_all(state, [PublishPairKey("two", 1, "alice", issued.sealed)])
    with pytest.raises(CannotOpen):
        alice.pair_key(moved, "two")
    swapped = apply_all(state, [PublishPairKey("one", 1, "bob", issued.sealed)])
    with pytest.raises(CannotOpen):
        bob.pair_key(swapped, "one")


def test_a_missing_pair_key_says_who_issues_it() -> None:
    alice = Identity.generate("alice")
    with pytest.raises(NotFound) as refusal:
        alice.pair_key(realm(alice), "one")
    assert refusal.value.hint is not None and "sealcast grant one alice" in refusal.value.hint


# --- keys that brokers search with ---------------------------------------------------------------------------------


def searching(epoch: int = 1) -> tuple[Topic, TopicKeys]:
    schema = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 9}]})
    about = Topic("quotes", bytes(16), schema, 1, Searchable(), epoch, Access.MEMBERS)
    return about, TopicKeys(about.id, epoch, Secret(b"t" * 32), Secret(b"c" * 32))


def test_a_users_half_and_the_brokers_are_the_epochs_exponent_and_differ_for_all() -> None:
    about, center = searching()
    broker = TopicKeys(about.id, 1, Secret(b"t" * 32))
    found = {}
    for name in ("ann", "bob"):
        identity = Identity.generate(name)
        who = Entity(name, bytes(identity.signer.verify_key), identity.kem.public)
        sealed = center.for_entity(about, who, reads=False).sealed
        keys = open_entity_keys(identity.kem, sealed, about.id, 1, name)
        assert keys.search is not None and keys.content is not None and not keys.content.reads
        found[name] = (keys.search, broker.search_half(name))
    whole = {(part.half.reveal() + half.reveal()) % CURVE.order for part, half in found.values()}
    assert len(whole) == 1, "the two halves of any user make the same exponent"
    (x,) = whole
    assert len({CURVE.encode(part.public) for part, _ in found.values()}) == 1
    base = CURVE.decode(bytes.fromhex("0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"))
    assert CURVE.encode(found["ann"][0].public) == CURVE.encode(CURVE.power(base, Exponent(x, CURVE.order)))
    assert (
        len({part.half.packed for part, _ in found.values()}) == len({half.packed for _, half in found.values()}) == 2
    )


def test_a_broker_can_make_no_users_part_and_epochs_share_nothing() -> None:
    about, center = searching()
    who = Entity("ann", bytes(32), bytes(32))
    with pytest.raises(Misuse, match="only the center"):
        TopicKeys(about.id, 1, Secret(b"t" * 32)).for_entity(about, who, reads=True)
    _, later = searching(epoch=2)
    assert center.search_half("ann").packed != later.search_half("ann").packed


@pytest.mark.parametrize(
    "bad",
    [b"", bytes(97), b"\x01" * 96, b"\x01" * 98, bytes(32) + b"\x01" * 32 + b"\x02" + b"\x01" * 32, b"\xff" * 97],
)
def test_what_is_no_users_part_is_refused(bad: bytes) -> None:
    with pytest.raises(CannotOpen):
        UserPart.from_bytes(bad)
