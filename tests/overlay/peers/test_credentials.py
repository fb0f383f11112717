"""Multi-credential routing at different parents, several seats of one peer, and new epochs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from sealcast.lab.tariq.ideal import ideal_event, split_labels
from sealcast.lab.tariq.simulate import Simulation
from sealcast.overlay.peers.port import Dissemination, PeerSettings, SeatAddress, SeatPlan
from sealcast.wire.peers import event_id
from tests.overlay.peers.world import children, join_one, one_tree, parent

ROUTING = PeerSettings(dissemination=Dissemination.ROUTING, children=4, root_children=4)


def parents(net: Simulation, name: str) -> list[str | None]:
    return [None if view.parent is None else view.parent.peer for view in net.peers[name].node.seats()]


def tokens(net: Simulation, parent: str, child: str) -> set[bytes]:
    seats = net.peers[parent].node._core.seats.values()
    links = [link for seat in seats for address, link in seat.children.items() if address.peer == child]
    return {token for link in links for token in link.tokens}


def published(net: Simulation, values: dict[str, str], number: int = 0) -> bytes:
    if "publisher" not in net.peers:
        net.add("publisher")
        net.join("publisher")
        net.run(net.now + 1)
    event = ideal_event("publisher", number, values)
    net.publish("publisher", event)
    net.run(net.now + 2)
    return event_id(event)


@pytest.mark.parametrize(
    ("labels", "least", "split"),
    [
        (["1"], 3, ["11", "100", "101"]),
        (["1"], 1, ["1"]),
        (["00", "1"], 3, ["00", "10", "11"]),
        (["0" * 8], 4, ["0" * 8]),
    ],
)
def test_labels_are_split_until_there_are_enough(labels: list[str], least: int, split: list[str]) -> None:
    assert sorted(split_labels(labels, least)) == sorted(split)


# --- different parents ----------------------------------------------------------------------------


def test_each_part_of_a_label_goes_to_another_parent() -> None:
    net = one_tree({}, settings=ROUTING)
    for n in range(6):
        join_one(net, f"wide{n}", "0")
    net.subscriber("split", [{"a": ("01",)}], split=3)
    net.join("split", ["wide1", "wide2"])
    net.run(net.now + 40)
    found = parents(net, "split")
    assert None not in found
    assert len(set(found)) == 3, "three labels, three parents"
    assert not net.weakened
    for each in found:
        assert each is not None
        assert len(tokens(net, each, "split")) == 1, "and each parent knows one token"


def test_where_there_are_too_few_parents_the_peer_is_told() -> None:
    """Rather with a weaker protection than without events; but not without a word."""
    net = one_tree({}, settings=ROUTING)
    net.subscriber("split", [{"a": ("01",)}], split=2)
    net.join("split", ["root"])
    net.run(net.now + 60)
    assert parents(net, "split") == ["root", "root"]
    assert [(each.parent) for each in net.weakened] == ["root"]


@pytest.mark.parametrize("seed", range(48))
def test_two_roots_are_two_parents_whatever_the_dice_say(seed: int) -> None:
    """Whom a seat asks is random. One of sixteen such peers had both labels below one root, for ever."""
    net = two_roots(seed, PeerSettings(dissemination=Dissemination.ROUTING))
    net.subscriber("split", [{"a": ("01",)}], split=2)
    net.join("split", ["one", "other"])
    net.run(60)
    assert set(parents(net, "split")) == {"one", "other"}
    assert not net.weakened


@pytest.mark.parametrize("silent", [False, True], ids=["process", "host"])
@pytest.mark.parametrize("seed", range(6))
def test_when_one_of_two_roots_dies_the_other_has_both_labels_until_it_is_back(seed: int, silent: bool) -> None:
    """Rather with a weaker protection than without events, but for no longer than need be."""
    net = two_roots(seed, PeerSettings(dissemination=Dissemination.ROUTING))
    net.subscriber("split", [{"a": ("01",)}], split=2)
    net.join("split", ["one", "other"])
    net.run(60)
    net.crash("one", silent=silent)
    net.run(net.now + 80)
    assert parents(net, "split") == ["other", "other"]
    assert [each.parent for each in net.weakened] == ["other"]
    net.restart("one", ["other"])
    net.run(net.now + 120)
    assert set(parents(net, "split")) == {"one", "other"}


@pytest.mark.parametrize("seed", range(6))
def test_a_full_root_takes_one_more_rather_than_leave_two_labels_at_another(seed: int) -> None:
    settings = replace(ROUTING, root_children=1, children=1)
    net = two_roots(seed, settings)
    for n in range(4):
        net.subscriber(f"p{n}", [{"a": (format(n + 8, "08b"),)}])
        net.join(f"p{n}", ["one", "other"])
        net.run(net.now + 60)
    net.subscriber("split", [{"a": ("01",)}], split=2)
    net.join("split", ["one", "other"])
    net.run(net.now + 120)
    assert set(parents(net, "split")) == {"one", "other"}
    assert not net.homeless()


def two_roots(seed: int, settings: PeerSettings) -> Simulation:
    net = Simulation(seed, settings=settings, wire=True)
    for root in ("one", "other"):
        net.add(root, roots=["a"])
    for root in ("one", "other"):
        net.join(root)
    return net


def test_a_parent_that_comes_later_takes_one_of_two_labels() -> None:
    net = one_tree({}, settings=ROUTING)
    join_one(net, "split", "01")
    net.peers["split"].credentials.subscribe({"a": ("10", "11")})
    net.join("split", ["root"])
    net.run(net.now + 200)
    assert parents(net, "split") == ["root", "root", "root"] and len(net.weakened) == 1
    join_one(net, "wide", "1", seconds=500.0)
    assert sorted(map(str, parents(net, "split"))) == ["root", "root", "wide"]
    assert parents(net, "split")[0] == "root", "another subscription's label stays where it is"
    assert len(tokens(net, "wide", "split")) == 1
    asked = net.messages["Search"]
    net.run(net.now + 500)
    assert net.messages["Search"] == asked, "nobody searches any more"


@pytest.mark.parametrize("seed", range(8))
def test_a_label_that_moves_takes_along_what_is_below_it(seed: int) -> None:
    """It misses nothing on the way, and makes no circle of itself and what is below it."""
    net = Simulation(seed, settings=replace(ROUTING, root_children=2), wire=True)
    for root in ("one", "other"):
        net.add(root, roots=["a"])
    net.join("one")
    net.subscriber("split", [{"a": ("0",)}], split=2)
    net.join("split", ["one"])
    net.run(60)
    assert parents(net, "split") == ["one", "one"] and len(net.weakened) == 1
    for name, label in {"left": "000", "right": "010", "low": "0001", "deep": "0101"}.items():
        join_one(net, name, label, contact="one")
    assert children(net, "split", 0) >= {"left"} and children(net, "split", 1) >= {"right"}, "the root is full"
    net.add("publisher")
    net.join("publisher")
    events = [ideal_event("publisher", n, {"a": format(n % 128, "08b")}) for n in range(400)]
    for n, event in enumerate(events):
        net.at(net.now + n * 0.2, lambda event=event: net.publish("publisher", event))
    net.join("other")
    net.run(net.now + 200)
    assert set(parents(net, "split")) == {"one", "other"}
    assert not net.homeless()
    net.check_forest()
    for name in ("split", "left", "right", "low", "deep"):
        peer = net.peers[name]
        assert set(peer.delivered) == {event_id(event) for event in events if peer.credentials.wants(event)}
        assert peer.twice == 0


def test_flooding_parents_learn_no_token_so_that_one_may_have_all() -> None:
    net = one_tree({}, settings=PeerSettings(root_patience_seconds=0))
    net.subscriber("both", [{"a": ("01", "10")}])
    net.join("both", ["root"])
    net.run(net.now + 20)
    assert parents(net, "both") == ["root", "root"]
    assert tokens(net, "root", "both") == set()
    assert not net.weakened


def test_routing_sends_each_child_what_it_wants_and_tests_each_token_once() -> None:
    net = one_tree({"one": "00", "two": "01", "three": "01"}, settings=ROUTING)
    before = net.peers["root"].credentials.meter.tests
    sent = net.messages["Carry"]
    id = published(net, {"a": "01000000"})
    assert id not in net.peers["one"].delivered
    assert id in net.peers["two"].delivered
    assert id in net.peers["three"].delivered
    assert net.messages["Carry"] - sent == 2
    assert net.peers["root"].credentials.meter.tests - before == 2, "two different tokens, three children"
    assert net.total("false positives") == 0


def test_flooding_sends_all_children_everything_of_the_parents() -> None:
    net = one_tree({"one": "00", "two": "01"}, settings=PeerSettings(root_patience_seconds=0))
    published(net, {"a": "01000000"})
    assert net.total("false positives") == 1


# --- several seats ----------------------------------------------------------------------------------


def test_a_peer_with_several_seats_gets_an_event_once_and_passes_it_on_in_all_trees() -> None:
    settings = PeerSettings(children=4, root_children=1, root_overflow=0, root_patience_seconds=0)
    net = Simulation(5, settings=settings, wire=True)
    net.add("root", roots=["a", "b"])
    net.join("root")
    for name, wanted in {
        "middle": {"a": ("0",), "b": ("0",)},
        "left": {"a": ("00",)},
        "right": {"b": ("00",)},
    }.items():
        net.subscriber(name, [wanted])
        net.join(name, ["root"])
        net.run(net.now + 20)
    assert (parent(net, "left"), parent(net, "right")) == ("middle", "middle")
    before = net.messages["Carry"]
    id = published(net, {"a": "00001111", "b": "00001111"})
    assert all(id in net.peers[name].delivered for name in ("middle", "left", "right"))
    assert net.messages["Carry"] - before == 3, "each peer once, though the middle one has two seats"


def test_subscriptions_come_and_go_while_a_peer_runs() -> None:
    net = one_tree({"peer": "00"}, settings=PeerSettings(root_patience_seconds=0))
    peer = net.peers["peer"]
    peer.credentials.subscribe({"a": ("11",)})
    net.join("peer", ["root"])
    net.run(net.now + 20)
    assert parents(net, "peer") == ["root", "root"]
    id = published(net, {"a": "11000000"})
    assert id in peer.delivered
    del peer.credentials.places[1], peer.credentials.conjunctions[1]
    net.join("peer", ["root"])
    net.run(net.now + 20)
    assert len(children(net, "root")) == 1
    assert published(net, {"a": "11000000"}, number=1) not in peer.delivered


def test_a_rendezvous_can_subscribe_and_publish_too() -> None:
    net = one_tree({"other": "0"}, settings=PeerSettings(root_patience_seconds=0))
    net.peers["root"].credentials.subscribe({"a": ("01",)})
    net.join("root")
    net.run(net.now + 20)
    assert parents(net, "root") == [None, "root"]
    event = ideal_event("root", 1, {"a": "01010101"})
    net.publish("root", event)
    net.run(net.now + 2)
    assert event_id(event) in net.peers["root"].delivered
    assert event_id(event) in net.peers["other"].delivered


# --- epochs -----------------------------------------------------------------------------------------


def test_a_new_epoch_proves_every_link_again() -> None:
    net = one_tree({"coarse": "0", "fine": "00"}, settings=PeerSettings(root_children=1, root_patience_seconds=0))
    assert parent(net, "fine") == "coarse"
    links = net.counts["links"]
    for peer in net.peers.values():
        peer.credentials.epoch += 1
    for name, peer in net.peers.items():
        net._run(name, lambda node=peer.node: node.renew(net.now))
    net.run(net.now + 60)
    assert (parent(net, "coarse"), parent(net, "fine")) == ("root", "coarse")
    assert net.counts["links"] == links, "nobody moved"
    assert not net.closed


@pytest.mark.parametrize("who", ["coarse", "fine"])
def test_a_revoked_peer_is_out_with_the_next_epoch(who: str) -> None:
    """It gets no credentials of the new epoch: its parent lets it go, and its children leave it."""
    net = one_tree({"coarse": "0", "fine": "00"}, settings=PeerSettings(root_children=1, root_patience_seconds=0))
    for name, peer in net.peers.items():
        if name != who:
            peer.credentials.epoch += 1
            net._run(name, lambda node=peer.node: node.renew(net.now))
    net.run(net.now + 100)
    assert who not in children(net, "root")
    assert SeatAddress(who, 0) in net.homeless()
    other = {"coarse": "fine", "fine": "coarse"}[who]
    assert parent(net, other) == "root"
    assert published(net, {"a": "00110011"}) in net.peers[other].delivered
    assert not net.peers[who].delivered
    assert net.total("broken rules") == 0, "who is late, or out, breaks no rule by asking"


@pytest.mark.parametrize("dissemination", Dissemination)
@pytest.mark.parametrize("late", [0.0, 4.0])
def test_the_first_events_of_an_epoch_are_not_lost(dissemination: Dissemination, late: float) -> None:
    """Publishers begin an epoch before every peer has its keys: one after the other they learn of it, some late."""
    settings = PeerSettings(dissemination=dissemination, children=2, root_children=2, root_patience_seconds=0)
    net = one_tree({"a": "0", "b": "00", "c": "001", "d": "0010"}, settings=settings)
    net.add("publisher")
    net.join("publisher")
    net.run(net.now + 1)
    begin = net.now
    net.peers["root"].credentials.epoch = 1
    events = [ideal_event("publisher", n, {"a": "00101111"}, epoch=1) for n in range(40)]
    for n, event in enumerate(events):
        net.at(begin + n * 0.2, lambda event=event: net.publish("publisher", event))

    def renew(name: str) -> None:
        net.peers[name].credentials.epoch = 1
        net._run(name, lambda: net.peers[name].node.renew(net.now))

    for n, name in enumerate(["d", "root", "a", "c", "b"]):
        net.at(begin + 0.5 + n * late / 4, lambda name=name: renew(name))
    net.run(begin + 60)
    for name in "abcd":
        assert set(net.peers[name].delivered) == {event_id(event) for event in events}, name
        assert net.peers[name].twice == 0
    assert not net.closed
    assert net.total("broken rules") == 0


def test_a_parent_that_floods_keeps_no_token_even_if_it_is_given_one() -> None:
    net = one_tree({"child": "01"}, settings=PeerSettings(root_patience_seconds=0))
    (seat,) = net.peers["root"].node._core.seats.values()
    (link,) = seat.children.values()
    assert link.tokens == ()


def test_a_root_without_the_keys_of_an_epoch_keeps_its_first_events_for_its_own_subscriber() -> None:
    """It passes them on at once, and delivers them here when it has the keys: once, and those that it wants."""
    net = one_tree({"leaf": "01"}, settings=PeerSettings())
    root = net.peers["root"]
    root.credentials.conjunctions.append({"a": ("01",)})
    net.add("publisher")
    net.join("publisher")
    net.run(net.now + 1)
    events = [ideal_event("publisher", n, {"a": bits}, epoch=1) for n, bits in enumerate(("01000000", "10000000"))]
    for event in events:
        net.publish("publisher", event)
    net.run(net.now + 5)
    carried = net.messages["Carry"]
    assert carried == 2 and not root.delivered, "whether it wants them, it cannot tell"
    for name, peer in net.peers.items():
        peer.credentials.epoch = 1
        net._run(name, partial(peer.node.renew, net.now))
    net.run(net.now + 5)
    for peer in (root, net.peers["leaf"]):
        assert list(peer.delivered) == [event_id(events[0])] and peer.twice == 0
    assert net.messages["Carry"] == carried, "nobody got anything again"
    assert not root.node.early()


# --- a peer that begins and ends to run roots -------------------------------------------------------


def serve(net: Simulation, names: list[str]) -> None:
    """From now on these peers run the roots, and everybody knows it."""
    net.rendezvous = names
    for name, peer in net.peers.items():
        roots = {number for number, place in peer.credentials.places.items() if place.label == ""}
        for number in roots:
            plan = SeatPlan("a", root=name in names)
            peer.credentials.places[number] = replace(peer.credentials.places[number], plan=plan)
        if peer.alive:
            net._run(name, partial(peer.node.meet, names, net.now))
            net.join(name)


@pytest.mark.parametrize("settings", [ROUTING, PeerSettings()], ids=["routing", "flooding"])
def test_a_subscriber_to_everything_runs_a_root_for_a_while(settings: PeerSettings) -> None:
    """Its label is the root's: the place keeps its number, and is another one."""
    net = one_tree({"all": "", "leaf": "01"}, settings=settings)
    assert published(net, {"a": "01000000"}) in net.peers["leaf"].delivered
    serve(net, ["root", "all"])
    net.run(net.now + 30)
    net.crash("root", silent=False)
    net.run(net.now + 30)
    assert parent(net, "leaf") == "all" and not net.homeless()
    alone = published(net, {"a": "01000000"}, 1)
    assert alone in net.peers["leaf"].delivered and alone in net.peers["all"].delivered
    net.restart("root", [])
    serve(net, ["root"])
    net.run(net.now + 30)
    assert parent(net, "all") == "root" and not net.homeless()
    below = published(net, {"a": "01000000"}, 2)
    assert below in net.peers["leaf"].delivered and below in net.peers["all"].delivered
    net.check_forest()
