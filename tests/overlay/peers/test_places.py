"""Algorithm 1, rule by rule: who becomes whose parent (paper 003, section 6.3; `placing.py` numbers the rules)."""

from __future__ import annotations

import pytest

from sealcast.overlay.peers import contacts, searching
from sealcast.overlay.peers.port import PeerSettings
from sealcast.wire.peers import Urgency
from tests.overlay.peers.world import children, join_one, one_tree, parent

NARROW = PeerSettings(children=2, overflow=2, root_children=2, root_overflow=64, root_patience_seconds=0)


def test_a_newcomer_is_taken_by_who_covers_it_and_has_room() -> None:
    net = one_tree({"coarse": "0", "fine": "01"}, settings=NARROW)
    assert parent(net, "coarse") == "root"
    # Rule 2 at the root, which has room for two.
    assert parent(net, "fine") == "root"


def test_a_search_that_begins_below_goes_up_to_who_covers_it() -> None:
    net = one_tree({"left": "0"}, settings=NARROW)
    join_one(net, "right", "1", contact="left")
    assert parent(net, "right") == "root"


def test_a_full_peer_passes_the_search_to_its_children() -> None:
    net = one_tree({"left": "0", "right": "1", "below": "01"}, settings=NARROW)
    assert parent(net, "below") == "left"
    join_one(net, "deeper", "0110", contact="right")
    assert parent(net, "deeper") in ("left", "below")


def test_equal_labels_cover_each_other() -> None:
    net = one_tree({"one": "01", "other": "10", "same": "01"}, settings=NARROW)
    assert parent(net, "same") == "one"


def test_a_coarser_newcomer_swaps_places_with_a_child() -> None:
    net = one_tree({"fine": "0001", "other": "1", "coarse": "00"}, settings=NARROW)
    assert parent(net, "coarse") == "root"
    assert parent(net, "fine") == "coarse"
    assert children(net, "root") == {"coarse", "other"}
    assert net.total("swaps") == 1


def test_a_swap_loses_no_event_for_the_one_that_moves() -> None:
    from sealcast.lab.tariq.ideal import ideal_event

    net = one_tree({"fine": "0001", "other": "1"}, settings=NARROW)
    net.add("publisher")
    net.join("publisher")
    net.subscriber("coarse", [{"a": ("00",)}])
    net.join("coarse", ["root"])
    events = [ideal_event("publisher", n, {"a": "00011111"}) for n in range(100)]
    for n, event in enumerate(events):
        net.at(net.now + n * 0.02, lambda event=event: net.publish("publisher", event))
    net.run(net.now + 30)
    assert parent(net, "fine") == "coarse"
    assert len(net.peers["fine"].delivered) == 100
    assert net.peers["fine"].twice == 0


def test_who_finds_no_place_gets_a_childs_and_the_child_an_overflow_link() -> None:
    # Rule 6: three peers that do not cover each other, and a root with room for two.
    net = one_tree({"a": "00", "b": "01", "c": "10"}, settings=NARROW)
    assert children(net, "root") == {"a", "b", "c"}
    assert net.total("displaced") == 1
    assert net.total("overflow links") == 1
    assert not net.homeless()


def test_the_root_is_full_in_the_end_and_says_so() -> None:
    settings = PeerSettings(children=1, overflow=0, root_children=1, root_overflow=1, root_patience_seconds=0)
    net = one_tree({"a": "00", "b": "01"}, settings=settings)
    join_one(net, "c", "10", seconds=100)
    assert [address.peer for address in net.homeless()] in (["a"], ["b"], ["c"])
    assert net.total("searches that failed") > 0
    # It keeps trying, but ever more rarely: a minute and a half of it is few messages.
    assert net.messages["Search"] < 200


def test_an_own_parent_is_never_ones_child() -> None:
    net = one_tree({"one": "01"}, settings=NARROW)
    join_one(net, "same", "01")
    join_one(net, "again", "01")
    net.crash("one", silent=False)
    net.run(net.now + 60)
    assert not net.homeless()


def test_a_displaced_peer_displaces_nobody() -> None:
    assert Urgency.DISPLACE in {urgency for urgency, _ in contacts.LADDER}
    assert Urgency.DISPLACE not in {urgency for urgency, _ in searching.DISPLACED_LADDER}


@pytest.mark.parametrize("seed", range(5))
def test_the_place_does_not_depend_on_luck(seed: int) -> None:
    """Whoever comes when, every parent covers its children and everybody has a place."""
    from random import Random

    rng = Random(seed)
    labels = [format(rng.randrange(256), "08b")[: rng.randint(0, 8)] for _ in range(40)]
    net = one_tree({}, settings=NARROW, seed=seed)
    for n, label in enumerate(labels):
        net.subscriber(f"p{n}", [{"a": (label,)}])
        net.at(rng.uniform(0, 20), lambda n=n: net.join(f"p{n}", ["root"]))
    net.run(120)
    assert not net.homeless()
    net.check_forest()
