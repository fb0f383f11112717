"""Key files and pair keys: only their owner reads them, and only their owner opens what was sealed to it."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from sealcast.errors import CannotOpen, Corrupt, Misuse, NotFound, Rejected
from sealcast.model import Schema
from sealcast.trust.broker import BrokerSecrets
from sealcast.trust.changes import Access, CreateTopic, PublishPairKey
from sealcast.trust.identity import Identity
from sealcast.trust.realm import EMPTY, RealmState, apply_all

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int"}]})


def realm(*identities: Identity) -> RealmState:
    topics = [CreateTopic(n, n.encode().ljust(16), SCHEMA, access=Access.MEMBERS) for n in ("one", "two")]
    return apply_all(EMPTY, [*(i.enrolment() for i in identities), *topics])


def test_round_trip(tmp_path: Path) -> None:
    identity, path = Identity.generate("alice"), tmp_path / "alice.key"
    identity.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Identity.load(path, "alice").enrolment() == identity.enrolment()
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
    for handle in (identity, BrokerSecrets.generate()):
        with pytest.raises(Misuse, match="cannot be pickled"):
            pickle.dumps(handle)


def test_broker_secrets_survive_their_file(tmp_path: Path) -> None:
    broker = BrokerSecrets.generate()
    broker.save(tmp_path / "secrets" / "broker.key")
    again = BrokerSecrets.load(tmp_path / "secrets" / "broker.key")
    assert again.pair_key(bytes(16), 1, "alice") == broker.pair_key(bytes(16), 1, "alice")
    assert again.journal_key(bytes(16)) == broker.journal_key(bytes(16))
    assert again.topic_secret(bytes(16), 3) == broker.topic_secret(bytes(16), 3)


def test_every_pair_key_is_another() -> None:
    broker = BrokerSecrets.generate()
    keys = [
        broker.pair_key(t, e, n).reveal()
        for t in (bytes(16), b"\1" * 16)
        for e in (1, 2, 256)
        for n in ("alice", "bob", "alic")
    ]
    keys += [broker.topic_secret(bytes(16), 1).reveal(), broker.journal_key(bytes(16)).reveal(), broker.master.reveal()]
    assert len(set(keys)) == len(keys)


def test_only_the_owner_opens_its_pair_key_and_only_in_its_place() -> None:
    alice, bob, broker = Identity.generate("alice"), Identity.generate("bob"), BrokerSecrets.generate()
    state = realm(alice, bob)
    issued = broker.issue_pair_key(state.topic("one"), state.entity("alice"))
    good = apply_all(state, [issued])
    assert alice.pair_key(good, "one") == broker.pair_key(state.topic("one").id, 1, "alice")
    # Somebody else's keys, the same bytes for another topic, and for another entity: none opens.
    impostor = Identity("alice", bob.signer, bob.kem)
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
