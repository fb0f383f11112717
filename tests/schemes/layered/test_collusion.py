"""Coalitions against the claims, cell by cell: every kind by name, then every set of nodes that there is; and a
coalition that knows nothing of how many layers there are or where, and tries every product of its keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import combinations, pairwise
from random import Random

import pytest

from sealcast.lab.curious.collusion import LABELS, UNWANTED, CollusionWorld, coalitions, drill, measured
from sealcast.lab.curious.pooling import Observer, Pool, Wiretap
from sealcast.lab.experiments import find
from sealcast.lab.shikfa.net import Net, only
from sealcast.primitives.curve import CURVE
from sealcast.protections.layered.exposure import (
    CLAIMS,
    Exposure,
    Members,
    Reach,
    Rule,
    layers_left,
    way,
)
from sealcast.protections.layered.tree import Tree
from tests.schemes.layered_net import TOY


def opens(tree: Tree, members: Collection[str], subscriber: str) -> bool:
    """Whether any coalition at all opens the subscriber's filters by its keys. No fewer than r do that without the
    publisher; brokers that are not in a row may, too, if one of them has each layer's key."""
    return any(
        all(not set(pair).isdisjoint(members) for pair in layers_left(tree, subscriber, broker))
        for broker in way(tree, subscriber)
        if broker in members
    )


def reads_everything(tree: Tree, members: Collection[str], subscribers: Collection[str]) -> bool:
    """Whether any coalition at all opens every event, wanted or not: as the publisher does; or with everyone on the way
    from a root down to one of those for whom the publisher encrypts, whose keys are all that is on it."""
    return tree.publisher in members or any(
        all(name in members for name in target) for target in tree.targets(frozenset(subscribers))
    )


def mismatches(world: CollusionWorld, random: Random) -> list[str]:
    return [
        f"{kind} {tap.members} after {subscriber}: claimed {claimed}, found {found}"
        for kind, tap, subscriber in drill(world, random)
        if (claimed := CLAIMS[kind].rule(world.tree, tap.members, subscriber))
        != (found := measured(world, tap, subscriber))
    ]


@pytest.mark.parametrize("layers", [2, 3, 4, 5])
def test_claims_are_what_is_found(layers: int) -> None:
    for seed in range(100 * layers, 100 * layers + 3):
        random = Random(seed)
        assert mismatches(CollusionWorld(random, layers, TOY), random) == []


def test_the_drill_runs_as_an_experiment() -> None:
    report = find("shikfa/collusion").run(True, lambda done, total: None)
    assert report.agrees and {row["coalition"] for row in report.rows} == CLAIMS.keys()
    assert {row["layers"] for row in report.rows} == {2, 3, 4, 5}


def changed(kind: str, **cells: object) -> Rule:
    return lambda tree, members, name: CLAIMS[kind].rule(tree, members, name)._replace(**cells)  # type: ignore[arg-type]


def fewer_suffice(tree: Tree, members: Members, subscriber: str) -> Exposure:
    return Exposure(True, False, True, Reach.PASSING)


WRONG = {
    "r consecutive nodes are needed, and the publisher is none": (
        "publisher+root",
        changed("publisher+root", keys=False),
    ),
    "a publisher opens any broker's table": ("publisher+broker", changed("publisher+broker", keys=True)),
    "events tell nothing": ("publisher+broker", changed("publisher+broker", events=False)),
    "r - 1 are enough": ("r-1 brokers", fewer_suffice),
    "r are not enough": ("r brokers", changed("r brokers", keys=False)),
    "r brokers open all, wherever they are": ("r brokers", changed("r brokers", payloads=Reach.ALL)),
    "asking tells nothing": ("broker+subscriber", changed("broker+subscriber", asking=False)),
    "asking tells everything": ("broker+subscriber", changed("broker+subscriber", asking=True)),
    "a subscriber brings its own alone": ("broker+subscriber", changed("broker+subscriber", payloads=Reach.OWN)),
    "a root that reroutes reads no more": (
        "active root+subscriber",
        lambda tree, members, name: CLAIMS["broker+subscriber"].rule(tree, members, name),
    ),
    "it does so through anyone": ("active root+subscriber", changed("active root+subscriber", payloads=Reach.ALL)),
    "a broker may subscribe and learn nothing": ("subscribing broker", changed("subscribing broker", events=False)),
    "all brokers open everything": ("all brokers", changed("all brokers", keys=True)),
}


@pytest.fixture(scope="module")
def tried() -> list[tuple[str, CollusionWorld, Wiretap, str, Exposure]]:
    worlds = [CollusionWorld(Random(seed), 2 + seed % 2, TOY) for seed in range(8)]
    cases = [(w, *case) for seed, w in enumerate(worlds) for case in drill(w, Random(seed))]
    return [(kind, world, tap, name, measured(world, tap, name)) for world, kind, tap, name in cases]


@pytest.mark.parametrize("claim", WRONG)
def test_a_claim_too_high_or_too_low_is_found(
    claim: str, tried: list[tuple[str, CollusionWorld, Wiretap, str, Exposure]]
) -> None:
    kind, rule = WRONG[claim]
    wrong = [rule(w.tree, tap.members, name) != found for k, w, tap, name, found in tried if k == kind]
    assert any(wrong)


def test_every_cell_is_met_by_some_case() -> None:
    """Where a claim depends on where the coalition stands, the drill has both."""
    met: Counter[tuple[str, str, object]] = Counter()
    for seed in range(24):
        random = Random(seed)
        world = CollusionWorld(random, 2 + seed % 3, TOY)
        for subscriber in world.leaves[:2]:
            for kind, tap in coalitions(world, subscriber):
                claimed: Exposure = CLAIMS[kind].rule(world.tree, tap.members, subscriber)
                met.update((kind, cell, value) for cell, value in claimed._asdict().items())
    both = {
        ("publisher+root", "keys"),
        ("publisher+broker", "events"),
        ("broker+subscriber", "asking"),
        ("broker+subscriber", "events"),
        ("subscribing broker", "events"),
        ("all brokers", "keys"),
    }
    assert all(met[kind, cell, True] and met[kind, cell, False] for kind, cell in both)
    assert met["r brokers", "payloads", Reach.PASSING] and met["r brokers", "payloads", Reach.ALL]
    for kind in ("broker+subscriber", "active root+subscriber"):
        assert met[kind, "payloads", Reach.OWN] and met[kind, "payloads", Reach.ALL]


# --- every set of nodes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_every_coalition_there_is(seed: int) -> None:
    """By keys, for each of the sets of nodes: as the formula of layers says. Without the publisher, no fewer than r."""
    random = Random(seed)
    world = CollusionWorld(random, 2 + seed % 3, TOY)
    subscriber = world.leaves[0]
    label, tree = world.labels[subscriber], world.tree
    nodes = [name for name in ("P", *tree.names) if name != subscriber]
    smallest: dict[bool, int] = {}
    for count in range(1, 5):
        for members in combinations(nodes, count):
            pool = Pool(world.net, world.observer, Wiretap(members))
            found = label in pool.filters(subscriber)
            assert found == opens(tree, members, subscriber), members
            if count < 4:
                assert pool.events() == readable(world, members), members
            if found:
                smallest.setdefault("P" in members, count)
    assert smallest.get(True) == 2  # the publisher and its child
    if tree.depth(subscriber) > tree.layers and tree.layers <= 4:
        assert smallest[False] == tree.layers
    if tree.depth(subscriber) <= tree.layers:
        assert False not in smallest  # the layer that is shared with the publisher stays on


def readable(world: CollusionWorld, members: tuple[str, ...]) -> set[bytes]:
    """The events that a coalition should be able to read: all; or those of whom it got, or opened the filter."""
    if reads_everything(world.tree, members, world.labels):
        return set(world.net.events)
    theirs = [name for name in world.labels if name in members or opens(world.tree, members, name)]
    return {event for event, about in world.net.events.items() if not about.got.isdisjoint(theirs)}


def test_brokers_that_are_not_in_a_row() -> None:
    """r = 3: of the two layers left at v_4, one end each of v_2 - v_5 and v_3 - v_6: v_2, v_4 and v_6 will do."""
    line = ["S", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "P"]
    tree = Tree("P", dict(pairwise(line)), 3)
    assert layers_left(tree, "S", "v4") == {("v2", "v5"), ("v3", "v6")}
    assert opens(tree, ("v2", "v4", "v6"), "S") and not opens(tree, ("v2", "v4", "v7"), "S")
    assert not any(opens(tree, pair, "S") for pair in combinations(line[1:-1], 2))


# --- a coalition without an observer ----------------------------------------------------------------------------------


def by_force(net: Net, members: tuple[str, ...], tokens: set[bytes]) -> set[bytes]:
    """Labels, by every product of at most r of the pooled keys put on every label."""
    keys, found = list(net.pooled(members).values()), set()
    for count in range(1, net.tree.layers + 1):
        for chosen in combinations(keys, count):
            exponent = chosen[0]
            for key in chosen[1:]:
                exponent = exponent * key
            for label in (*LABELS, UNWANTED):
                if net.group.encode(net.group.power(net.hashes(label), exponent)) in tokens:
                    found.add(label)
    return found


@pytest.mark.parametrize("layers", [2, 3])
def test_trying_every_product_opens_no_more(layers: int) -> None:
    """On a line of brokers, without knowing which layers are where."""
    line = ["S0", *(f"B{i}" for i in range(layers + 1)), "P"]
    tree = Tree("P", dict(pairwise(line)), layers)
    net = Net(tree, TOY, Random(layers))
    net.subscribe("S0", only(b"oil"))
    nodes = line[1:]
    for count in (1, 2, 3):
        for members in combinations(nodes, count):
            tap = Wiretap(members)
            tokens = {t for sent, m in net.filters() if tap.sees(sent) for slot in m.slots for t in slot}
            assert (by_force(net, members, tokens) == {b"oil"}) == opens(tree, members, "S0"), members


def test_a_dictionary_needs_keys() -> None:
    """On the curve: subscribers open their own rows, the r nodes in a row everything, one node or none nothing."""
    net = Net(Tree("P", {"A": "P", "B": "A", "C": "B", "S0": "C", "S1": "C"}, 2), CURVE, Random(1))
    net.subscribe("S0", only(b"oil"))
    observer = Observer(net, LABELS)
    can = {("S0",): True, ("B", "C"): True, ("A", "B"): True, ("A", "P"): True}
    cannot = [("A",), ("B",), ("C",), ("P",), ("S1",), ("A", "C"), ("C", "P"), ("B", "P"), ("C", "S1"), ("A", "S1"), ()]
    for members in can:
        assert Pool(net, observer, Wiretap(members)).filters("S0") == {b"oil"}, members
    for members in cannot:
        assert Pool(net, observer, Wiretap(members)).filters("S0") == set(), members
    assert way(net.tree, "S0") == ("C", "B", "A")
