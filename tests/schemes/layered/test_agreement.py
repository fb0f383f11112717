"""Keys of a tree out of pairs: the right ones, the same on both sides, and nobody else's."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import Misuse, Rejected
from sealcast.filters.labels import Conjunction, LabelFilter
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import CachedHashes
from sealcast.primitives.secrets import Secret
from sealcast.primitives.x25519 import AgreementKey
from sealcast.protections.layered.agreement import exponents_for, layers_for
from sealcast.protections.layered.open import Opener
from sealcast.protections.layered.publish import TreePublisher
from sealcast.protections.layered.route import RoutingNode
from sealcast.protections.layered.subscribe import FilterEncrypter
from sealcast.protections.layered.tree import Tree, TreeId

TOPIC = bytes(16)


@dataclass
class Keys:
    """A participant with a key of its own, and the public keys of the others."""

    name: str
    own: AgreementKey
    others: dict[str, bytes]
    epoch: int = 1
    topic_id: bytes = TOPIC

    def pair(self, peer: str) -> Secret | None:
        public = self.others.get(peer)
        return None if public is None else self.own.agreed(public, *sorted((self.name.encode(), peer.encode())))


def everyone(tree: Tree, silent: frozenset[str] = frozenset()) -> dict[str, Keys]:
    own = {name: AgreementKey.generate() for name in (tree.publisher, *tree.names)}
    publics = {name: key.public for name, key in own.items() if name not in silent}
    return {name: Keys(name, key, publics) for name, key in own.items()}


@st.composite
def some_trees(draw: st.DrawFn) -> Tree:
    size = draw(st.integers(1, 9))
    parents = {f"n{i}": draw(st.sampled_from(["P", *(f"n{j}" for j in range(i))])) for i in range(size)}
    return Tree("P", parents, draw(st.integers(2, 4)))


@settings(max_examples=60, deadline=None)
@given(some_trees())
def test_both_ends_of_every_pair_have_its_key_and_nobody_has_anything_else(tree: Tree) -> None:
    id, keys = TreeId("P", 1, 0), everyone(tree)
    derived = {name: exponents_for(keys[name], tree, id, CURVE) for name in keys}
    pairs = set(tree.pairs())
    for name, own in derived.items():
        assert set(own) == {other for pair in pairs if name in pair for other in pair if other != name}
    numbers = [derived[a][b].reveal() for a, b in pairs]
    assert numbers == [derived[b][a].reveal() for a, b in pairs]
    assert len(set(numbers)) == len(pairs), "no two pairs share a key"


def test_each_tree_has_keys_of_its_own() -> None:
    parents = {"root": "P", "leaf": "root"}
    tree = Tree("P", parents)
    keys = everyone(tree)
    ids = [TreeId("P", 1, 0), TreeId("P", 1, 1)]
    other = Keys("root", keys["root"].own, keys["root"].others, topic_id=b"another topic id")
    found = [exponents_for(keys["root"], tree, id, CURVE)["leaf"].reveal() for id in ids]
    found += [exponents_for(other, tree, ids[0], CURVE)["leaf"].reveal()]
    # Another publisher over the same brokers: the two below it share another key in its tree.
    second = Tree("Q", {"root": "Q", "leaf": "root"})
    found += [exponents_for(keys["root"], second, TreeId("Q", 1, 0), CURVE)["leaf"].reveal()]
    assert len(set(found)) == len(found)
    domains = {
        TreeId(p, e, g).domain(t) for p in "PQ" for e in (1, 2) for g in (1, 2) for t in (TOPIC, bytes(15) + b"1")
    }
    assert len(domains) == 16


def test_keys_and_tree_belong_together() -> None:
    tree = Tree("P", {"root": "P"})
    keys = everyone(tree)["root"]
    for id in (TreeId("Q", 1, 0), TreeId("P", 2, 0)):
        with pytest.raises(Misuse, match="not of TreeId"):
            layers_for(keys, tree, id, CURVE)


def test_who_announced_nothing_is_left_out_and_said_so_when_it_is_needed() -> None:
    tree = Tree("P", {"root": "P", "leaf": "root"})
    layers = layers_for(everyone(tree, frozenset({"leaf"}))["root"], tree, TreeId("P", 1, 0), CURVE)
    layers.key("P")
    with pytest.raises(Rejected, match="no key is shared with 'leaf'"):
        layers.key("leaf")


def test_an_event_goes_all_the_way_by_agreed_keys() -> None:
    tree = Tree("P", {"b1": "P", "b2": "b1", "b3": "b2", "S": "b3"}, 3)
    id, keys = TreeId("P", 1, 0), everyone(tree)
    domain = id.domain(TOPIC)
    layers = {name: layers_for(own, tree, id, CURVE) for name, own in keys.items()}
    reader = FilterEncrypter(tree.place("S"), layers["S"], CachedHashes(CURVE, domain))
    wanted = LabelFilter((Conjunction(((b"price 7",),)),))
    brokers = {name: RoutingNode(tree.place(name), layers[name]) for name in ("b3", "b2", "b1")}
    upwards, sender = reader.encrypt_filter(wanted), "S"
    for name, broker in brokers.items():
        upwards, sender = [m for message in upwards for m in broker.on_filter(sender, message)], name
    publisher = TreePublisher(layers["P"], CachedHashes(CURVE, domain), tree.targets(frozenset({"S"})), domain)
    for label, reaches in ((b"price 7", True), (b"price 8", False)):
        at, message = "b1", publisher.encrypt_notification([label], b"payload").get("b1")
        while message is not None and at in brokers:
            onwards = brokers[at].on_notification(message)
            at, message = next(iter(onwards.items()), (at, None))
        assert (message is not None) == reaches
        if message is not None:
            assert at == "S" and Opener(tree.place("S"), layers["S"], domain).open(message) == b"payload"
