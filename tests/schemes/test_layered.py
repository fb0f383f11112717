"""Routing by brokers that cannot read, against the plaintext truth; and rules changed, which the same test sees."""

from __future__ import annotations

from random import Random

import pytest

from sealcast.errors import CannotOpen, Misuse, Rejected
from sealcast.lab.shikfa.net import Net, only
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import Element, Exponent, Group
from sealcast.primitives.modular import group14
from sealcast.protections.layered.messages import FilterMessage, Notification
from sealcast.protections.layered.route import RoutingNode
from sealcast.protections.layered.table import Conjunction as TableConjunction
from sealcast.protections.layered.table import RoutingTable, Row
from sealcast.protections.layered.tree import Path, Tree, TreePlace
from sealcast.wire.notifications import LayeredEntry
from tests.schemes.layered_net import LABELS, TOY, VanishingNet, random_filter, random_tree, wrong_deliveries

F, OTHER = only(b"f"), only(b"other")
FIG1 = {"B4": "P", "B3": "B4", "B1": "B3", "B2": "B3", "S1": "B1", "S2": "B1", "S3": "B2", "S4": "B2", "S5": "B2"}


def trees(first: int, last: int, events: int, group: Group = TOY, kind: type[Net] = Net) -> tuple[int, int]:
    published = wrong = 0
    for seed in range(first, last):
        random = Random(seed)
        net = kind(random_tree(random), group, random)
        done, bad = wrong_deliveries(net, random, events)
        published, wrong = published + done, wrong + bad
    return published, wrong


def test_deliveries_are_the_truth() -> None:
    assert trees(0, 100, 25) == (2500, 0)


def test_deliveries_are_the_truth_on_the_curve() -> None:
    assert trees(500, 504, 10, CURVE) == (40, 0)


@pytest.mark.soak
def test_deliveries_are_the_truth_on_500_trees() -> None:
    assert trees(0, 500, 42) == (21_000, 0)


# --- three rules changed ----------------------------------------------------------------------------------------------


class Sets(RoutingTable):
    """Paths as a set: one unsubscription ends two subscriptions."""

    def _count(self, row: Row, path: Path, by: int) -> None:
        super()._count(row, path, by if by < 0 or path not in row.paths else 0)

    def remove(self, slots: TableConjunction, path: Path, count: int = 1) -> bool:
        try:
            return super().remove(slots, path, count)
        except Rejected:
            return False  # a set does not mind


class NothingNearTheRoot(RoutingNode):
    """Where there is no r-th ancestor, no layer: the paper defines r = 2 only."""

    def put_on(self, token: Element) -> bytes:
        if len(self.place.chain) < self.place.layers:
            return self.layers.group.encode(token)
        return super().put_on(token)


class ShortPaths(RoutingNode):
    """One hop less is remembered than there are layers."""

    def extended(self, path: Path) -> Path:
        return super().extended(path)[:-1] or super().extended(path)


class NearestKey(RoutingNode):
    """The layer of the next hop instead of the r-th."""

    def relay_key(self, path: Path) -> str:
        return path[0]


@pytest.mark.parametrize("mutated", [Sets, NothingNearTheRoot, ShortPaths, NearestKey])
def test_a_changed_rule_is_seen(mutated: type) -> None:
    part = "tables" if issubclass(mutated, RoutingTable) else "routing"
    published, wrong = trees(0, 12, 25, kind=type("Mutated", (Net,), {part: mutated}))
    assert published == 300 and wrong > 10


# --- coming and going -------------------------------------------------------------------------------------------------


def fig1(group: Group = TOY, layers: int = 2) -> Net:
    return Net(Tree("P", FIG1, layers), group, Random(1))


@pytest.mark.parametrize("group", [TOY, CURVE, group14()], ids=lambda g: g.name)
def test_the_papers_network(group: Group) -> None:
    net = fig1(group)
    for name in ("S1", "S2", "S3", "S4"):
        net.subscribe(name, F)
    net.subscribe("S5", OTHER)
    assert net.publish(frozenset({b"f"}), b"x").got == {"S1", "S2", "S3", "S4"}
    assert net.publish(frozenset({b"other"}), b"y").got == {"S5"}
    net.unsubscribe("S2", F)
    assert net.publish(frozenset({b"f"}), b"z").got == {"S1", "S3", "S4"}
    # B3's table as Table 2 has it; B4's is aggregated.
    assert sorted(len(row.paths) for row in net.brokers["B3"].table.rows()) == [1, 1, 2]
    assert sorted(len(row.paths) for row in net.brokers["B4"].table.rows()) == [1, 2]


def test_when_all_is_ended_tables_are_empty() -> None:
    for seed in range(10):
        random = Random(seed)
        net = Net(random_tree(random), TOY, random)
        wrong_deliveries(net, random, 15)
        ending = [(name, f) for name, filters in net.wanted.items() for f in filters.elements()]
        random.shuffle(ending)
        for name, wanted in ending:
            net.unsubscribe(name, wanted)
        assert not any(len(broker.table) for broker in net.brokers.values())


def test_nodes_come_and_vanish() -> None:
    for seed in range(8):
        random = Random(seed)
        net = VanishingNet(random_tree(random), TOY, random)
        for step in range(30):
            leaves = [n for n in net.tree.names if not net.tree.children(n) and net.tree.depth(n) >= 2]
            if random.random() < 0.35 and len(leaves) > 1:
                net.vanish(random.choice(leaves))
            else:
                net.join(f"new{step}", random.choice(net.tree.names))
                net.subscribe(f"new{step}", random_filter(random))
            labels = frozenset(random.sample(LABELS, 3))
            assert net.publish(labels, b"x").got == net.truth(labels)


def test_several_publishers_have_trees_of_their_own() -> None:
    one = Net(Tree("P", FIG1), TOY, Random(1))
    flipped = {"B1": "Q", "B2": "Q", "B3": "B1", "B4": "B2", "S1": "B3", "S2": "B4"}
    other = Net(Tree("Q", flipped), TOY, Random(2))
    one.subscribe("S1", F)
    other.subscribe("S2", F)
    assert one.publish(frozenset({b"f"}), b"x").got == {"S1"}
    assert other.publish(frozenset({b"f"}), b"x").got == {"S2"}


def test_one_message_for_a_child_and_nothing_for_nobody() -> None:
    net = fig1()
    assert net.publish(frozenset({b"f"}), b"x").got == set()
    net.subscribe("S1", F)
    assert net.brokers["B4"].on_notification(net.publisher.encrypt_notification({b"other"}, b"x")["B4"]) == {}


# --- caches -----------------------------------------------------------------------------------------------------------


def test_what_was_peeled_is_not_peeled_again() -> None:
    net = fig1()
    net.subscribe("S1", F)
    net.publisher.retarget(net.tree.targets(frozenset()))
    layers = net.brokers["B4"].layers
    net.brokers["B4"].on_notification(net.publisher.encrypt_notification({b"f", b"g"}, b"x")["B4"])
    before = layers.powers
    net.brokers["B4"].on_notification(net.publisher.encrypt_notification({b"f", b"g"}, b"y")["B4"])
    assert layers.powers == before + 1  # the fresh payload key


# --- lies and misuse --------------------------------------------------------------------------------------------------


def test_what_is_no_element_is_refused_before_anything_else() -> None:
    net = fig1(CURVE)
    for bad in (b"", bytes(33), b"\2" + bytes(32), b"\0"):
        with pytest.raises(Rejected, match="secp256k1"):
            net.brokers["B1"].on_filter("S1", FilterMessage(((bad,),), ("S1",)))
        with pytest.raises(Rejected, match="secp256k1"):
            net.brokers["B1"].on_notification(Notification(b"e", (LayeredEntry((bad,), bad),), b""))
    assert len(net.brokers["B1"].table) == 0


def test_paths_of_others() -> None:
    net, token = fig1(), TOY.encode(TOY.hash(b"f"))
    for sender, path in (("S1", ("S2",)), ("S1", ("S1", "S2", "S3")), ("S9", ("S9",)), ("S3", ("S3",))):
        with pytest.raises(Rejected):
            net.brokers["B1"].on_filter(sender, FilterMessage(((token,),), path))
    with pytest.raises(Rejected, match="no such subscription"):
        net.brokers["B1"].on_filter("S1", FilterMessage(((token,),), ("S1",), remove=True))


def test_empty_means_invalid() -> None:
    for slots in ((), ((),), ((b"x",), ())):
        with pytest.raises(Rejected):
            FilterMessage(slots, ("S1",))
    with pytest.raises(Rejected):
        Notification(b"e", (), b"")
    with pytest.raises(Misuse):
        fig1().publisher.encrypt_notification(frozenset(), b"x")


def test_right_below_the_publisher_nobody_subscribes() -> None:
    with pytest.raises(Misuse, match="right below the publisher"):
        fig1().subscribe("B4", F)


@pytest.mark.parametrize(
    ("chain", "layers"), [((), 2), (("A",), 2), (("A", "B", "C"), 2), (("S", "P"), 2), (("P",), 1), (("P",), 99)]
)
def test_places_that_cannot_be(chain: Path, layers: int) -> None:
    with pytest.raises(Misuse):
        TreePlace("S", chain, "P", layers)


def test_trees_that_cannot_be() -> None:
    with pytest.raises(Misuse, match="not connected"):
        Tree("P", {"A": "B", "B": "A"})
    tree = Tree("P", {"A": "P", "B": "A"})
    for change in (lambda: tree.join("A", "P"), lambda: tree.join("C", "Z")):
        with pytest.raises(Misuse):
            change()


def test_another_subscribers_notification_does_not_open() -> None:
    net = fig1()
    net.subscribe("S1", F)
    net.publisher.retarget(net.tree.targets(frozenset()))
    message = net.publisher.encrypt_notification({b"f"}, b"secret")["B4"]
    for name in ("B4", "B3", "B1"):
        child = {"B4": "B3", "B3": "B1", "B1": "S1"}[name]
        message = net.brokers[name].on_notification(message)[child]
    assert net.opener("S1").open(message) == b"secret"
    for other in ("S2", "S3", "B1"):
        with pytest.raises(CannotOpen):
            net.opener(other).open(message)
    altered = Notification(message.event, message.entries, message.body[:-1] + bytes([message.body[-1] ^ 1]))
    with pytest.raises(CannotOpen):
        net.opener("S1").open(altered)


def test_a_planted_identity_would_match_everywhere() -> None:
    """Without the check, a row of the identity is hit by an event of it under any key: a mark on every link."""
    identity = Element((1).to_bytes(TOY.wire_bytes, "big"))
    key = Exponent(12345, TOY.order)
    assert TOY.power(identity, key) == identity  # what a broker without the check would compute
    with pytest.raises(Rejected):
        TOY.decode(identity)
