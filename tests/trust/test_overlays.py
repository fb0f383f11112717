"""Overlays: what may stand where, against a second opinion that walks; what a generation is; who serves what."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import Corrupt, Misuse, NotFound, ParameterRejected, Rejected, SealcastError
from sealcast.model import Schema
from sealcast.model import protection as protections
from sealcast.model.protection import Endpoint, Layered
from sealcast.primitives import modular
from sealcast.primitives.algebra import group_named
from sealcast.primitives.curve import CURVE
from sealcast.protections.layered import tree as trees
from sealcast.protections.layered.tree import Tree
from sealcast.trust.certificates.roles import Role
from sealcast.trust.deployment import Realm
from sealcast.trust.realm import changes, stored
from sealcast.trust.realm.changes import (
    AddSubscription,
    AnnounceLayerKey,
    Change,
    CreateTopic,
    EnrolEntity,
    Grant,
    PlaceNode,
    PlaceSubscriber,
    RemoveNode,
    RevokeEntity,
    Right,
    RotateTopic,
)
from sealcast.trust.realm.machine import EMPTY, Fold, RealmState, apply, apply_all
from sealcast.trust.realm.overlays import MAX_BROKER_DEPTH, Overlay
from tests.effort import examples

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 100}]})
BROKERS = [f"b{i}" for i in range(6)]
READERS = ["s0", "s1", "s2"]
T = "deals"


def holder(name: str, role: Role = Role.ENTITY) -> EnrolEntity:
    return EnrolEntity(name, bytes(32), bytes(32), (role,))


def created(name: str = T, **options: object) -> CreateTopic:
    return CreateTopic(name, bytes(16), SCHEMA, protection=Layered(**options))  # type: ignore[arg-type]


BARE = apply_all(
    EMPTY,
    [
        *(holder(name, Role.BROKER) for name in BROKERS),
        *(holder(name) for name in READERS),
        created(),
        CreateTopic("plain", bytes(16), SCHEMA),
        # A broker is no member: it reads where it was named.
        *(Grant(T, name, (Right.SUBSCRIBE,)) for name in BROKERS[:3]),
    ],
)


# --- what may stand where -----------------------------------------------------------------------------

MOVES = st.one_of(
    st.builds(PlaceNode, st.just(T), st.sampled_from(BROKERS), st.sampled_from([None, *BROKERS])),
    st.builds(RemoveNode, st.just(T), st.sampled_from(BROKERS)),
    st.builds(PlaceSubscriber, st.just(T), st.sampled_from(READERS + BROKERS[:3]), st.sampled_from(BROKERS)),
)


class Walker:
    """The second opinion: a parent for everyone, and long walks."""

    def __init__(self) -> None:
        self.above: dict[str, str | None] = {}
        self.at: dict[str, str] = {}

    def way(self, name: str) -> list[str]:
        step = self.above.get(name) if name in self.above else self.at.get(name)
        return [] if step is None else [step, *self.way(step)]

    def allows(self, change: Change) -> bool:
        match change:
            case PlaceNode(broker=broker, under=under):
                if under is None:
                    return broker not in self.at and self.above.get(broker, "") is not None
                moves = self.above.get(broker, "") != under
                return under in self.above and moves and broker != under and broker not in self.way(under)
            case RemoveNode(broker=broker):
                orphans = (
                    [n for n, up in self.above.items() if up == broker] if self.above.get(broker, "") is None else []
                )
                return broker in self.above and not any(n in self.at for n in orphans)
            case PlaceSubscriber(subscriber=who, broker=broker):
                own = self.above.get(who, broker) == broker
                return broker in self.above and own and self.at.get(who) != broker and who != broker
        raise AssertionError(change)

    def follow(self, change: Change) -> None:
        match change:
            case PlaceNode(broker=broker, under=under):
                self.above[broker] = under
                if broker in self.at:
                    assert under is not None
                    self.at[broker] = under
            case RemoveNode(broker=broker):
                up = self.above.pop(broker)
                self.at.pop(broker, None)
                self.above = {n: up if p == broker else p for n, p in self.above.items()}
                self.at = {n: up if p == broker else p for n, p in self.at.items() if p != broker or up is not None}  # type: ignore[misc]
            case PlaceSubscriber(subscriber=who, broker=broker):
                self.at[who] = broker


@examples(37, soak=150)
@given(st.lists(MOVES, max_size=25))
def test_the_rules_agree_with_walking_and_a_generation_begins_when_anybodys_way_changes(moves: list[Change]) -> None:
    walker, fold = Walker(), Fold(BARE)
    for change in moves:
        before = fold.state().overlay(T)
        allowed = walker.allows(change)
        try:
            fold.apply(stored.from_json(change.kind, stored.to_json(change)))
        except SealcastError:
            assert not allowed, change
            assert fold.state().overlay(T) == before, "a refusal changes nothing"
            continue
        assert allowed, change
        ways = {name: before.path_up(name) for name in (*before.parents, *before.places)}
        walker.follow(change)
        after = fold.state().overlay(T)
        assert (dict(after.parents), dict(after.places)) == (walker.above, walker.at)
        moved = [
            n for n, way in ways.items() if n in before.places and (n not in after.places or after.path_up(n) != way)
        ]
        fresh = (
            isinstance(change, PlaceNode) and change.broker not in before.parents and change.broker not in before.places
        )
        fresh |= isinstance(change, PlaceSubscriber) and change.subscriber not in before.places
        assert after.generation - before.generation in ((0,) if fresh else (0, 1))
        assert not moved or after.generation == before.generation + 1, "rows hang on where these stood"
        check_forest(after)


def check_forest(overlay: Overlay) -> None:
    """Every publisher's tree is one, and everyone's way in it is its way in the forest."""
    for publisher in ("p", "s0"):
        tree = Tree(publisher, overlay.parents_for(publisher), 2)
        assert set(tree.names) == {*overlay.parents, *overlay.places} - {publisher}
        for name in tree.names:
            assert tree.ancestors(name) == (*overlay.path_up(name), publisher)
            assert overlay.depth(name) == tree.depth(name)
    assert sorted(overlay.downwards()) == sorted(overlay.parents)
    for name in overlay.parents:
        assert set(overlay.below(name)) == {
            n for n in (*overlay.parents, *overlay.places) if overlay.path_up(n)[:1] == (name,)
        }
    leaves = [n for n in overlay.parents if n not in overlay.parents.values()]
    for layers in (2, 3, 5):
        free, hops = overlay.homes_free(layers), {n: overlay.depth(n) + 1 for n in leaves}
        deepest = max(hops.values(), default=0)
        assert sorted(free) == sorted(n for n in leaves if hops[n] >= min(layers, deepest))
        loads = [sum(at == n for at in overlay.places.values()) for n in free]
        assert loads == sorted(loads), "the least loaded first"


BASE = apply_all(
    BARE,
    [PlaceNode(T, "b0"), PlaceNode(T, "b1", "b0"), PlaceNode(T, "b2", "b1"), PlaceSubscriber(T, "s0", "b2")],
)

REFUSED: list[tuple[Change, type[SealcastError], str]] = [
    (PlaceNode("plain", "b0"), Misuse, "topic 'plain' has no overlay: its protection is 'endpoint'"),
    (PlaceNode(T, "s0"), Misuse, "'s0' is no broker"),
    (PlaceNode(T, "b9"), NotFound, "there is no entity 'b9'"),
    (PlaceNode(T, "b3", "b4"), NotFound, "'b4' is no broker of topic 'deals'"),
    (PlaceNode(T, "b0", "b2"), Misuse, "cannot stand below 'b2', which stands below it"),
    (PlaceNode(T, "b0", "b0"), Misuse, "cannot stand below 'b0'"),
    (PlaceNode(T, "b0"), Misuse, "is a root of topic 'deals' already"),
    (PlaceNode(T, "b1", "b0"), Misuse, "is below 'b0' of topic 'deals' already"),
    (RemoveNode(T, "b3"), NotFound, "'b3' is no broker of topic 'deals'"),
    (PlaceSubscriber(T, "s0", "b2"), Misuse, "'s0' is at broker 'b2' already"),
    (PlaceSubscriber(T, "s1", "b3"), NotFound, "'b3' is no broker of topic 'deals'"),
    (PlaceSubscriber(T, "b0", "b1"), Misuse, "broker 'b0' subscribes, and a root cannot"),
    (PlaceSubscriber(T, "b2", "b0"), Misuse, "broker 'b2' stands below 'b1', and reads there"),
    (PlaceSubscriber(T, "b3", "b0"), Rejected, "'b3' may not subscribe on topic 'deals'"),
    (PlaceSubscriber("plain", "s0", "b0"), Misuse, "has no overlay"),
    (AnnounceLayerKey("plain", 1, "s0", b"x"), Misuse, "has no overlay"),
    (AnnounceLayerKey(T, 2, "s0", b"x"), Misuse, "is in epoch 1, not 2"),
    (AnnounceLayerKey(T, 1, "s0", b""), Misuse, "1 to 512 bytes, not 0"),
    (AnnounceLayerKey(T, 1, "s0", bytes(513)), Misuse, "not 513"),
    (AnnounceLayerKey(T, 1, "b3", b"x"), Rejected, "'b3' has no part in topic 'deals'"),
    (AnnounceLayerKey(T, 1, "b0", b"x", True), Rejected, "'b0' may not publish"),
    (AddSubscription("f", T, "s0", "price > 1"), Misuse, "its filters are encrypted"),
]


@pytest.mark.parametrize(("change", "error", "words"), REFUSED, ids=lambda v: v if isinstance(v, str) else None)
def test_refused_with_words(change: Change, error: type[SealcastError], words: str) -> None:
    fold = Fold(BASE)
    with pytest.raises(error) as refusal:
        fold.apply(change)
    assert type(refusal.value) is error and words in refusal.value.message
    assert fold.state() == BASE, "a refusal changes nothing"


def test_the_revoked_stand_nowhere_new_and_announce_nothing() -> None:
    gone = apply_all(BASE, [RevokeEntity("b1"), RevokeEntity("s1"), RevokeEntity("b3")])
    for change in (
        PlaceNode(T, "b3"),
        PlaceNode(T, "b4", "b1"),
        PlaceSubscriber(T, "s1", "b0"),
        AnnounceLayerKey(T, 1, "s1", b"x"),
    ):
        with pytest.raises(Rejected, match="was revoked"):
            apply(gone, change)
    assert apply(gone, RemoveNode(T, "b1")).overlay(T).parents == {"b0": None, "b2": "b0"}


def test_a_broker_that_reads_moves_as_a_reader_too_and_is_never_a_root() -> None:
    reading = apply_all(BASE, [PlaceSubscriber(T, "b2", "b1"), PlaceNode(T, "b3")])
    moved = apply(reading, PlaceNode(T, "b2", "b3"))
    assert moved.overlay(T).places["b2"] == "b3" and moved.overlay(T).generation == 1
    with pytest.raises(Misuse, match="'b2' subscribes, and a root cannot"):
        apply(reading, PlaceNode(T, "b2"))
    with pytest.raises(Misuse, match="'b2' subscribes, and a root cannot"):
        apply(apply(moved, PlaceNode(T, "b1", "b3")), RemoveNode(T, "b3"))


def test_depth_is_bounded_also_for_what_hangs_below() -> None:
    names = [f"n{i}" for i in range(MAX_BROKER_DEPTH + 2)]
    fold = Fold(BARE)
    for i, name in enumerate(names):
        fold.apply(holder(name, Role.BROKER))
        if i < MAX_BROKER_DEPTH:
            fold.apply(PlaceNode(T, name, names[i - 1] if i else None))
    with pytest.raises(Misuse, match="at most 62 deep"):
        fold.apply(PlaceNode(T, names[-1], names[MAX_BROKER_DEPTH - 1]))
    fold.apply(PlaceNode(T, names[-1]))
    with pytest.raises(Misuse, match="at most 62 deep"):
        fold.apply(PlaceNode(T, names[0], names[-1]))
    fold.apply(PlaceSubscriber(T, "s0", names[MAX_BROKER_DEPTH - 1]))
    assert Tree("p", fold.state().overlay(T).parents_for("p")).depth("s0") == MAX_BROKER_DEPTH + 1


# --- announcements ------------------------------------------------------------------------------------


def test_who_publishes_says_so_with_the_key_it_announced_and_epochs_begin_without() -> None:
    first = apply_all(BASE, [AnnounceLayerKey(T, 1, "s0", b"key"), AnnounceLayerKey(T, 1, "b1", b"node")])
    assert first.publishers_of(T) == [] and first.layer_key(T, 1, "s0") == b"key"
    both = apply(first, AnnounceLayerKey(T, 1, "s0", b"key", True))
    assert both.publishers_of(T) == ["s0"]
    for again in (AnnounceLayerKey(T, 1, "s0", b"key", True), AnnounceLayerKey(T, 1, "s0", b"key")):
        with pytest.raises(Misuse, match="has announced its key"):
            apply(both, again)
    with pytest.raises(Misuse, match="has announced its key"):
        apply(first, AnnounceLayerKey(T, 1, "s0", b"another key", True))
    rotated = apply(both, RotateTopic(T, 2, 5))
    assert rotated.publishers_of(T) == [] and rotated.layer_key(T, 2, "s0") is None
    assert rotated.publishers_of(T, 1) == ["s0"] and rotated.layer_key(T, 1, "s0") == b"key"
    assert apply(both, changes.Revoke(T, "s0", (Right.PUBLISH,))).publishers_of(T) == []
    with pytest.raises(Misuse, match="'b1' routes topic"):
        apply(apply(BASE, Grant(T, "b1", (Right.PUBLISH,))), AnnounceLayerKey(T, 1, "b1", b"x", True))


# --- layering, and what is stored -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "made",
    [
        created(layers=5, group="modp-3072"),
        PlaceNode(T, "b0", None, 7),
        PlaceNode(T, "b1", "b0"),
        RemoveNode(T, "b0", 9),
        PlaceSubscriber(T, "s0", "b0"),
        AnnounceLayerKey(T, 3, "s0", b"\x00\xff", True),
    ],
)
def test_changes_are_read_as_they_were_written(made: Change) -> None:
    assert stored.from_json(made.kind, stored.to_json(made)) == made


def test_what_earlier_releases_stored_is_read() -> None:
    """They wrote the protection's name and, from some release on, `layering` beside it."""
    body = stored.to_json(CreateTopic("t", bytes(16), SCHEMA))
    assert body["protection"] == "endpoint", "as ever"
    assert stored.from_json("create-topic", body | {"layering": None}) == CreateTopic("t", bytes(16), SCHEMA)
    earlier = body | {"protection": "layered", "layering": {"layers": 3, "group": "modp-2048", "padded": True}}
    made = CreateTopic("t", bytes(16), SCHEMA, protection=Layered(3, "modp-2048", True, **Layered.before))
    assert stored.from_json("create-topic", earlier) == made


@pytest.mark.parametrize(
    "protection",
    ["rot13", None, 7, {}, {"name": "rot13"}, {"name": "endpoint", "layers": 2}, {"name": "layered", "layers": 1}],
)
def test_a_stored_protection_that_is_none_is_refused(protection: object) -> None:
    """An unknown one is never treated as another."""
    body = stored.to_json(CreateTopic("t", bytes(16), SCHEMA))
    with pytest.raises(Corrupt):
        stored.from_json("create-topic", body | {"protection": protection})


def test_settings_belong_to_their_protection() -> None:
    assert protections.protection_of("endpoint") == Endpoint()
    with pytest.raises(Misuse, match="one of endpoint, .*layered.*, not 'rot13'"):
        protections.protection_of("rot13")
    with pytest.raises(Misuse, match="'endpoint' has no setting 'layers'"):
        protections.protection_of("endpoint", {"layers": 2})
    for made in (Endpoint(), Layered(3), Layered(padded=True)):
        assert protections.from_json(protections.to_json(made)) == made


@pytest.mark.parametrize(
    "options", [{"layers": 1}, {"layers": 17}, {"layers": True}, {"layers": "2"}, {"group": "p256"}]
)
def test_layers_that_cannot_be(options: dict[str, object]) -> None:
    with pytest.raises(ParameterRejected):
        Layered(**options)  # type: ignore[arg-type]


def test_the_bounds_are_the_schemes() -> None:
    assert (protections.MIN_LAYERS, protections.MAX_LAYERS) == (trees.MIN_LAYERS, trees.MAX_LAYERS)
    assert MAX_BROKER_DEPTH + 1 < trees.MAX_TREE_DEPTH
    assert [group_named(name).name for name in protections.GROUPS] == [CURVE.name, *modular.NAMES]


# --- with keys ------------------------------------------------------------------------------------------


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    made = Realm.create(tmp_path / "market")
    made.enrol_many(["alice", "bob"])
    made.create_topic(T, SCHEMA, protection=Layered(), access="members")
    return made


def serving(state: RealmState, topic: str) -> list[str]:
    epoch = state.topic(topic).epoch
    return [b for b in state.brokers() if state.topic_key(topic, epoch, b) is not None]


def test_roots_and_nobody_else_are_handed_the_topics_key_and_nodes_no_other_topics(realm: Realm) -> None:
    assert serving(realm.state(), T) == [f"{T}-node-1"]
    realm.create_topic("plain", SCHEMA, access="members")
    assert serving(realm.state(), "plain") == ["broker"], "brokers that cannot read this read nothing else unasked"
    realm.place_node(T, "paris")
    realm.place_node(T, f"{T}-node-1", under="paris")
    assert serving(realm.state(), T) == [f"{T}-node-1", "paris"], "what was handed out cannot be taken back"
    realm.rotate(T)
    assert serving(realm.state(), T) == ["paris"]
    realm.remove_node(T, "paris")
    assert serving(realm.state(), T) == [f"{T}-node-1", "paris"], "who comes up to the top is handed it"


def test_readers_are_placed_where_there_is_room(realm: Realm) -> None:
    assert [realm.place_subscriber(T, name) for name in ("alice", "bob")] == [f"{T}-node-2", f"{T}-node-3"]
    version = realm.state().version
    assert realm.place_subscriber(T, "alice") == f"{T}-node-2" and realm.state().version == version
    realm.grant(T, f"{T}-node-3", [Right.SUBSCRIBE])
    assert realm.place_subscriber(T, f"{T}-node-3") == f"{T}-node-1", "a broker reads where it stands"
    assert realm.state().overlay(T).generation == 0
    realm.grant(T, f"{T}-node-1", [Right.SUBSCRIBE])
    with pytest.raises(Misuse, match="a root cannot"):
        realm.place_subscriber(T, f"{T}-node-1")
    realm.create_topic("bare", SCHEMA, protection=Layered(), nodes=0, access="members")
    with pytest.raises(Misuse, match="no broker that anyone could stand below"):
        realm.place_subscriber("bare", "alice")
    with pytest.raises(Misuse, match="does not come with brokers of its own"):
        realm.create_topic("odd", SCHEMA, nodes=2, access="members")
    assert "odd" not in realm.state().topics
