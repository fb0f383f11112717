"""What `explain` says of peers who watch each other, against the attacks that the lab mounts on simulated peers."""

from __future__ import annotations

from functools import cache

import pytest

from sealcast.lab.tariq.attacks import BETWEEN, FLOODED, LONE, AttackResult, WatchPoint, attack
from sealcast.lab.tariq.costs import CryptoCosts
from sealcast.lab.tariq.curious import answer_times
from sealcast.model.protection import AttributeBased
from sealcast.overlay.peers.port import Dissemination
from sealcast.protections.attribute.exposure import explained
from sealcast.protections.attribute.watching import LEARNT, NOT_LEARNT, Finds, Watching, finds
from sealcast.protections.port import Explanation
from sealcast.trust.deployment import Realm
from tests.protections.attribute.test_peer_processes import SCHEMA, TOPIC

FLOODING, ROUTING = AttributeBased(), AttributeBased(routing=True)
SETTINGS = [FLOODING, ROUTING, AttributeBased(routing=True, split=2), AttributeBased(routing=True, split=4)]
COSTS = CryptoCosts(0.001, 0.0001, 0.00001, 0.003, 0.003, 0.001, 0.001)


@cache
def tried(settings: AttributeBased) -> AttackResult:
    way = Dissemination.ROUTING if settings.routing else Dissemination.FLOODING
    return attack(WatchPoint(60, 200, way, settings.split))


def test_under_flooding_a_parent_alone_finds_nothing() -> None:
    found, before, after = tried(FLOODING).found[FLOODED]
    assert (found, before) == (0.0, after)
    assert finds(Watching.PARENT, FLOODING) is Finds.NOTHING is finds(Watching.ALL_PARENTS, FLOODING)


def test_under_flooding_a_parent_and_a_grandchild_find_the_label_between_them() -> None:
    found, _, _ = tried(FLOODING).found[BETWEEN]
    assert found > 0.8
    assert finds(Watching.PARENT_AND_GRANDCHILD, FLOODING) is Finds.BETWEEN


@pytest.mark.parametrize("settings", SETTINGS[1:], ids=lambda each: f"k_D {each.split}")
def test_under_routing_a_parent_finds_the_label_of_the_link(settings: AttributeBased) -> None:
    found, before, after = tried(settings).found[LONE]
    assert found > 0.5 and after < before
    expected = Finds.LABEL if settings.split == 1 else Finds.PART
    assert finds(Watching.PARENT, settings) is expected is finds(Watching.SOME_PARENTS, settings)


@pytest.mark.parametrize("settings", SETTINGS[2:], ids=lambda each: f"k_D {each.split}")
def test_a_split_label_is_found_by_all_parents_and_by_no_fewer(settings: AttributeBased) -> None:
    pools = tried(settings).pooled
    assert list(pools) == list(range(1, settings.split + 1))
    for number, (determined, total) in pools.items():
        watching = Watching.ALL_PARENTS if number == settings.split else Watching.SOME_PARENTS
        assert (determined > 0) is (finds(watching, settings) is Finds.LABEL), f"{number}: {determined} of {total}"


def test_what_is_opened_beside_the_answers_does_not_show_in_them() -> None:
    for inline in (True, False):
        wanted, unwanted = answer_times(COSTS, inline, 8)
        assert (min(wanted) > max(unwanted)) is inline


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda each: each.summary)
def test_explain_says_just_that(settings: AttributeBased, realms: dict[AttributeBased, Explanation]) -> None:
    said = realms[settings]
    peer = next(party for party in said.parties if party.who.startswith("a peer that carries"))
    alone = finds(Watching.PARENT, settings)
    for each in Finds:
        assert all((words in peer.learns) is (LEARNT[each] == LEARNT[alone]) for words in LEARNT[each]), each
        assert all((words in peer.cannot) is (each is alone) for words in NOT_LEARNT[each]), each
    coalitions = {party.who: party for party in said.coalitions}
    pair = coalitions["a peer together with one that stands two places below it"]
    assert tuple(pair.learns) == LEARNT[finds(Watching.PARENT_AND_GRANDCHILD, settings)]
    parents = coalitions.get("all parents of one subscription's places")
    assert (parents is not None) is settings.routing
    if parents is not None:
        assert f"k_D is {settings.split} here" in parents.here
        whole = any("if one of them is missing" in words for words in parents.cannot)
        assert whole is (finds(Watching.SOME_PARENTS, settings) is not finds(Watching.ALL_PARENTS, settings))


@pytest.fixture(scope="module")
def realms(tmp_path_factory: pytest.TempPathFactory) -> dict[AttributeBased, Explanation]:
    realm = Realm.create(tmp_path_factory.mktemp("explained") / "realm")
    found = {}
    for number, settings in enumerate(SETTINGS):
        realm.create_topic(f"{TOPIC}-{number}", SCHEMA, protection=settings, access="members")
        found[settings] = explained(realm.state(), f"{TOPIC}-{number}")
    return found
