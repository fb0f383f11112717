"""Agreement keys: who can derive what from whose files, what is refused and why, how keys come and go with epochs."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations, permutations
from pathlib import Path

import pytest

from sealcast.errors import Corrupt, Misuse, NotFound, Rejected
from sealcast.model import Schema
from sealcast.model.protection import Layered
from sealcast.primitives import kdf
from sealcast.primitives.curve import CURVE
from sealcast.primitives.secrets import Secret
from sealcast.primitives.x25519 import AgreementKey
from sealcast.protections.layered.agreement import exponents_for, layers_for
from sealcast.protections.layered.layers import shared_exponent
from sealcast.protections.layered.tree import Tree, TreeId
from sealcast.trust.certificates.authority import LIFETIME_US
from sealcast.trust.deployment import Realm
from sealcast.trust.keys import layer_announcements
from sealcast.trust.keys.layer_announcements import About, LayerKeyReason, LayerKeyRejected
from sealcast.trust.keys.layer_keys import (
    LayerKeyring,
    agreement_keys,
    key_file,
    overlay_of,
    own_identity,
    participants,
    spent,
)
from sealcast.trust.realm.changes import AnnounceLayerKey
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import LayerKey
from sealcast.trust.registry import now_us

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 100}]})
SECOND = 1_000_000
T = "deals"
ROOT, LEFT, RIGHT = (f"{T}-node-{i}" for i in (1, 2, 3))


class Clock:
    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Publisher, a root, two brokers below it, a reader at each."""
    directory = tmp_path_factory.mktemp("layers") / "market"
    realm = Realm.create(directory)
    realm.enrol_many(["nyse", "alice", "bob", "carol"])
    realm.create_topic(T, SCHEMA, protection=Layered(2), access="members")
    realm.create_topic("other", SCHEMA, protection=Layered(), nodes=1, access="members")
    for name in ("alice", "bob"):
        realm.place_subscriber(T, name)
    LayerKeyring(realm, realm.identity("nyse")).ensure(T, publishes=True)
    realm.announce_layer_keys()
    return directory


@pytest.fixture
def clock() -> Clock:
    return Clock(now_us())


@pytest.fixture
def realm(made: Path, tmp_path: Path, clock: Clock) -> Realm:
    shutil.copytree(made, tmp_path / "market")
    return Realm(tmp_path / "market", clock=clock)


def keyring(realm: Realm, name: str) -> LayerKeyring:
    return LayerKeyring(realm, own_identity(realm, realm.state(), name))


def tree_of(state: RealmState, publisher: str = "nyse") -> tuple[Tree, TreeId]:
    overlay, about = state.overlay(T), state.topic(T)
    assert isinstance(about.protection, Layered)
    tree = Tree(publisher, overlay.parents_for(publisher), about.protection.layers)
    return tree, TreeId(publisher, about.epoch, overlay.generation)


def numbers(
    realm: Realm,
    name: str,
    state: RealmState | None = None,
    *,
    former: bool = False,
    stood: tuple[Tree, TreeId] | None = None,
) -> dict[str, int]:
    """What one participant derives, as numbers, in the tree of now or in the one where all `stood`."""
    state = realm.state() if state is None else state
    tree, id = tree_of(state) if stood is None else stood
    keys = agreement_keys(realm, own_identity(realm, state, name), state, T, former=former)
    derived = exponents_for(keys, tree, id, CURVE)
    return {other: exponent.reveal() for other, exponent in derived.items()}


def alone(realm: Realm, name: str) -> Realm:
    """The realm on the machine of one participant: everything public, and no key file but its own."""
    kept = key_file(realm, realm.state(), name)
    for path in [*realm.paths.secrets.rglob("*"), *realm.paths.entities.rglob("*")]:
        if path.is_file() and path != kept and kept.with_suffix(".layers") not in path.parents:
            path.unlink()
    return realm


# --- who derives what ---------------------------------------------------------------------------------


def test_both_ends_derive_the_same_and_pairs_reach_no_further_than_the_layers(realm: Realm) -> None:
    everyone = {name: numbers(realm, name) for name in participants(realm.state(), T)}
    tree, _ = tree_of(realm.state())
    assert {(a, b) for a, own in everyone.items() for b in own if tree.depth(a) > tree.depth(b)} == set(tree.pairs())
    assert all(everyone[a][b] == everyone[b][a] for a, b in tree.pairs())
    assert len({everyone[a][b] for a, b in tree.pairs()}) == len(set(tree.pairs()))
    assert "nyse" not in everyone["alice"] and "alice" not in everyone["nyse"], "nothing from end to end"


def attempts(own: AgreementKey, symmetric: Iterable[Secret], state: RealmState, realm_id: bytes) -> set[int]:
    """Everything that someone with these secrets and the whole registry could try, by the derivations of the product:
    every public key that was announced, for every two names in every order."""
    (tree, id), topic = tree_of(state), state.topic(T)
    domain, epoch, group = id.domain(topic.id), topic.epoch.to_bytes(8, "big"), CURVE
    names = ["nyse", *tree.names]
    publics = {name: state.layer_key(T, topic.epoch, name) for name in names}
    found = set[int]()
    for a, b in combinations(sorted(name.encode() for name in names), 2):
        context = (b"layer pair", realm_id, topic.id, epoch, a, b)
        pairs = [own.agreed(public[-32:], *context) for public in publics.values() if public is not None]
        pairs += [kdf.derive(secret, *context) for secret in symmetric]
        for pair in pairs:
            for below, above in permutations((a.decode(), b.decode())):
                found.add(shared_exponent(pair, group, domain, below, above).reveal())
    return found


def test_attack_a_roots_file_and_all_that_is_public_do_not_give_what_two_others_share(realm: Realm) -> None:
    state = realm.state()
    topic = state.topic(T)
    truth = {(a, b): numbers(realm, a)[b] for a, b in tree_of(state)[0].pairs()}
    broker, own = realm.broker(ROOT), keyring(realm, ROOT).own(state, T, 1)
    # All that is in its file, and the topic's key, which it was handed as a root, with every pair key that follows.
    topic_keys = broker.topic_keys(state, topic)
    symmetric = [
        topic_keys._key,
        topic_keys.pair_key("nyse"),
        topic_keys.content_root(ROOT),
        broker.identity.kem.private,
    ]
    tried = attempts(own, symmetric, state, realm.id)
    assert {pair for pair, number in truth.items() if number in tried} == {pair for pair in truth if ROOT in pair}

    # Were pairs derived from the topic's key, as they might have been, the same attempts would give all of them.
    names, epoch = sorted((LEFT.encode(), b"nyse")), topic.epoch.to_bytes(8, "big")
    weak = kdf.derive(topic_keys._key, b"layer pair", realm.id, topic.id, epoch, *names)
    domain = tree_of(state)[1].domain(topic.id)
    assert shared_exponent(weak, CURVE, domain, LEFT, "nyse").reveal() in tried


@pytest.mark.parametrize("name", [ROOT, LEFT, "alice", "nyse"])
def test_a_machine_with_one_key_file_derives_that_ones_keys_alone(realm: Realm, name: str) -> None:
    truth = numbers(realm, name)
    others = [other for other in participants(realm.state(), T) if other != name]
    here = alone(realm, name)
    assert numbers(here, name) == truth
    for other in others:
        with pytest.raises(NotFound):
            numbers(here, other)
    files = list(here.paths.root.rglob("*.key"))
    assert {p.name for p in files} == {key_file(here, here.state(), name).name, "1.key"}


def test_the_file_is_sealed_private_and_of_one_topic_and_epoch(realm: Realm) -> None:
    state, ring = realm.state(), keyring(realm, "alice")
    path = realm.paths.layer_keys(realm.paths.entity_key("alice"), state.topic(T).id) / "1.key"
    private = ring.own(state, T, 1).private.reveal()
    assert private not in path.read_bytes() and private.hex().encode() not in path.read_bytes()
    assert path.stat().st_mode & 0o077 == 0
    shutil.copy2(path, path.with_name("2.key"))
    with pytest.raises(Corrupt, match="another agreement key"):
        ring.own(state, T, 2)
    bobs = realm.paths.layer_keys(realm.paths.entity_key("bob"), state.topic(T).id) / "1.key"
    shutil.copy2(path, bobs)
    with pytest.raises(Corrupt, match="another agreement key"):
        keyring(realm, "bob").own(state, T, 1)


def test_a_key_is_made_once_and_whatever_was_cut_short_goes_on(realm: Realm) -> None:
    ring = keyring(realm, "alice")
    version = realm.state().version
    assert not ring.ensure(T) and realm.state().version == version
    assert ring.ensure(T, publishes=True) and realm.state().publishers_of(T) == ["nyse", "alice"]
    assert not ring.ensure(T, publishes=True) and not ring.ensure(T)
    carol = keyring(realm, "carol")
    (cut_short,) = carol.missing(realm.state(), T)
    assert realm.state().layer_key(T, 1, "carol") is None
    assert carol.ensure(T) and realm.state().layer_key(T, 1, "carol") == cut_short.announcement
    # Announced, and the file is lost: nobody makes another one under the same epoch.
    shutil.rmtree(realm.paths.entity_key("carol").with_suffix(".layers"))
    with pytest.raises(NotFound, match="epoch 1, is not here"):
        carol.ensure(T, publishes=True)
    realm.rotate(T)
    assert carol.ensure(T, publishes=True)
    realm.create_topic("plain", SCHEMA, access="members")
    with pytest.raises(Misuse, match="is not layered"):
        carol.ensure("plain")
    with pytest.raises(Rejected, match="has no part in"):
        keyring(realm, f"{T}-node-1").ensure("other")


# --- what is refused ------------------------------------------------------------------------------------


def forged(realm: Realm, case: str) -> AnnounceLayerKey:
    """An announcement of carol's for the topic, but."""
    state, carol, alice = realm.state(), realm.identity("carol"), realm.identity("alice")
    about = About(realm.id, state.topic(T).id, 1, "carol")
    public = AgreementKey.generate().public
    match case:
        case "realm":
            made = layer_announcements.announce(carol.signer, replace(about, realm_id=bytes(16)), public)
        case "topic":
            made = layer_announcements.announce(carol.signer, replace(about, topic_id=state.topic("other").id), public)
        case "epoch":
            made = layer_announcements.announce(carol.signer, replace(about, epoch=2), public)
        case "holder":
            made = state.layer_key(T, 1, "alice") or b""
        case "key":
            made = layer_announcements.announce(carol.signer, about, (1).to_bytes(32, "little"))
        case "signature by another":
            made = layer_announcements.announce(alice.signer, about, public)
        case "signature bit":
            whole = bytearray(layer_announcements.announce(carol.signer, about, public))
            whole[5] ^= 1
            made = bytes(whole)
        case "form short":
            made = bytes(64)
        case "form other":
            made = bytes(64) + b"\x83\x01\x02\x03"
        case "form long":
            made = layer_announcements.announce(carol.signer, about, public) + b"\x00"
        case _:
            made = layer_announcements.announce(carol.signer, about, public)
    return AnnounceLayerKey(T, 1, "carol", made)


FORGED = ["realm", "topic", "epoch", "holder", "key", "signature by another", "signature bit"]
FORGED += ["form short", "form other", "form long"]


def test_what_is_forged_swapped_or_carried_over_is_refused_with_its_reason_when_stored_and_when_used(
    realm: Realm,
) -> None:
    state, version = realm.state(), realm.state().version
    for case in FORGED:
        bad, reason = forged(realm, case), LayerKeyReason(case.split()[0])
        with pytest.raises(LayerKeyRejected) as refusal:
            realm.registry.apply(bad)
        assert refusal.value.reason is reason and refusal.value.as_json()["reason"] == str(reason), case
        # A registry that was altered: whoever uses the key verifies it again.
        found = state.topics[T]
        altered = replace(found, layer_keys={**found.layer_keys, (1, "carol"): LayerKey(bad.announcement)})
        keys = agreement_keys(realm, realm.identity("alice"), replace(state, topics={**state.topics, T: altered}), T)
        assert keys.pair("carol") is None and keys.refused == {"carol": reason}, case
    assert realm.state().version == version
    realm.registry.apply(forged(realm, "nothing"))
    assert agreement_keys(realm, realm.identity("alice"), realm.state(), T).pair("carol") is not None


def test_every_bit_of_an_announcement_counts(realm: Realm) -> None:
    state = realm.state()
    who, about = state.entity("alice"), About(realm.id, state.topic(T).id, 1, "alice")
    good = state.layer_key(T, 1, "alice") or b""
    at = realm.clock()
    assert layer_announcements.judge(good, about, who, realm.trust(), state.revoked, at) == good[-32:]
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(LayerKeyRejected):
            layer_announcements.judge(bytes(bad), about, who, realm.trust(), state.revoked, at)


def test_who_was_revoked_shares_keys_with_nobody_from_then_on(realm: Realm) -> None:
    before, stood = numbers(realm, LEFT), tree_of(realm.state())
    realm.revoke_entity("alice")
    state = realm.state()
    keys = agreement_keys(realm, own_identity(realm, state, LEFT), state, T)
    assert keys.pair("alice") is None and keys.refused == {"alice": LayerKeyReason.REVOKED}
    assert "alice" not in state.overlay(T).places
    others = {name: number for name, number in before.items() if name != "alice"}
    assert numbers(realm, LEFT) == numbers(realm, LEFT, stood=stood) == others
    assert numbers(realm, LEFT, former=True, stood=stood) == before, "for taking its filters out again"
    with pytest.raises(Rejected, match="was revoked"):
        keyring(realm, "alice").ensure(T, publishes=True)


def test_whose_certificate_ended_shares_keys_again_once_it_has_another(realm: Realm, clock: Clock) -> None:
    before = numbers(realm, "alice")
    clock.now += LIFETIME_US + SECOND
    state = realm.state()
    keys = agreement_keys(realm, realm.identity("alice"), state, T)
    assert keys.pair(LEFT) is None and keys.refused == {LEFT: LayerKeyReason.CERTIFICATE}
    assert numbers(realm, "alice", former=True) == before
    with pytest.raises(LayerKeyRejected) as refusal:
        keyring(realm, "carol").ensure(T)
    assert refusal.value.reason is LayerKeyReason.CERTIFICATE and "entity renew carol" in (refusal.value.hint or "")
    realm.renew_due()
    assert numbers(realm, "alice") == before


# --- epochs and generations -----------------------------------------------------------------------------


def test_a_new_epoch_has_keys_without_any_relation_and_old_ones_go_when_nothing_needs_them(
    realm: Realm, clock: Clock
) -> None:
    first, old = numbers(realm, LEFT), keyring(realm, LEFT).own(realm.state(), T, 1).public
    limits = realm.state().topic(T).parameters
    realm.rotate(T)
    state = realm.state()
    assert state.publishers_of(T) == ["nyse"], "whoever published is announced as a publisher again"
    second = numbers(realm, LEFT)
    assert set(second) == set(first) and not set(second.values()) & set(first.values())
    assert keyring(realm, LEFT).own(state, T, 2).public != old
    # Frames of the last epoch are taken in its grace, and are on their way for a while.
    clock.now += (limits.grace_s + limits.stale_after_s) * SECOND
    assert realm.maintain().forgotten == {} and spent(state.topic(T), clock.now) == 1
    assert keyring(realm, LEFT).own(state, T, 1).public == old
    clock.now += SECOND
    assert realm.maintain().forgotten == {T: 4}, "three brokers and the publisher"
    assert spent(state.topic(T), clock.now) == 2
    for name in (ROOT, LEFT, RIGHT, "nyse"):
        with pytest.raises(NotFound, match="epoch 1, is not here"):
            keyring(realm, name).own(state, T, 1)
    assert keyring(realm, "alice").epochs(state, state.topic(T)) == [1, 2], "a reader's are its own to forget"
    assert keyring(realm, "alice").forget(T, before=9) == [1], "never the present one"
    assert numbers(realm, "alice").keys() == {LEFT, ROOT}
    assert not realm.maintain()


def test_upkeep_announces_for_those_whose_files_are_here(realm: Realm) -> None:
    away = key_file(realm, realm.state(), RIGHT)
    away.rename(away.with_suffix(".elsewhere"))
    realm.rotate(T)
    state = realm.state()
    lacking = [name for name in participants(state, T) if state.layer_key(T, 2, name) is None]
    assert lacking == [RIGHT]
    assert not realm.maintain(), "nothing that can be done here is left to do"
    assert RIGHT not in numbers(realm, ROOT), "nobody shares a key with who has not announced one"
    away.with_suffix(".elsewhere").rename(away)
    assert realm.maintain().announced == {T: 1}
    assert RIGHT in numbers(realm, ROOT)


def test_many_keys_at_once_are_made_together_and_those_that_are_there_stay(realm: Realm) -> None:
    names = [f"r{i}" for i in range(12)]
    realm.enrol_many(names)
    for name in names:
        realm.place_subscriber(T, name)
    state = realm.state()
    (first,) = keyring(realm, "r3").missing(state, T)
    assert realm.announce_layer_keys() == {T: 12}
    state = realm.state()
    assert state.layer_key(T, 1, "r3") == first.announcement
    publics = {(state.layer_key(T, 1, name) or b"")[-32:] for name in names}
    assert publics == {keyring(realm, name).own(state, T, 1).public for name in names} and len(publics) == 12
    assert realm.announce_layer_keys() == {}


def test_a_generation_has_other_keys_of_the_same_agreement_and_stays_known(realm: Realm) -> None:
    state = realm.state()
    before, tree = numbers(realm, "bob"), tree_of(state)[0]
    realm.place_node(T, RIGHT, under=LEFT)
    after = realm.state()
    assert after.overlay(T).generation == 1 and after.layer_key(T, 1, "bob") == state.layer_key(T, 1, "bob")
    moved = numbers(realm, "bob")
    assert set(moved) == {RIGHT, LEFT} and moved[RIGHT] != before[RIGHT]
    ended = after.generation_ended(T, 0)
    assert ended is not None and ended.at_us == realm.clock() and after.generation_ended(T, 1) is None
    old = overlay_of(realm, after, T, 0)
    assert old == state.overlay(T) and overlay_of(realm, after, T, 1) == after.overlay(T)
    again = layers_for(
        agreement_keys(realm, realm.identity("bob"), after, T),
        Tree("nyse", old.parents_for("nyse")),
        TreeId("nyse", 1, 0),
        CURVE,
    )
    assert {name: again.key(name).reveal() for name in tree.ancestors("bob")[:2]} == before
