"""The index: its memos decide nothing, its table changes at any time, and what it refuses is counted."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from sealcast.errors import Bug
from sealcast.primitives import points
from sealcast.primitives.curve import CURVE, ORDER
from sealcast.primitives.groups import Element, Exponent
from sealcast.protections.searchable import combine, scheme, search, tokens
from sealcast.protections.searchable.search import Registered, SearchIndex
from sealcast.wire.searching import SealedFilter, SealedReason, packed_block, parse_block
from tests.protections.searchable.world import TOPIC_ID, World

WORDS = [f"w{i}".encode() for i in range(40)]


def index_of(world: World, *filters: object) -> SearchIndex:
    """Subscription i of ana, bo and cy in turn."""
    index = SearchIndex(TOPIC_ID, world.tag_bits)
    rows = [world.registered(number, ("ana", "bo", "cy")[number % 3], each) for number, each in enumerate(filters)]
    assert index.add(rows, world.half) == {}
    return index


# --- conjunctions -----------------------------------------------------------------------------------------------------


def test_slots_conjunctions_and_alternatives() -> None:
    world = World()
    index = index_of(
        world,
        [[[b"a"]]],
        [[[b"a"], [b"b"]]],
        [[[b"a", b"c"], [b"b", b"d"]]],
        [[[b"x"]], [[b"c"], [b"d"]]],
        [],
    )
    assert world.matches(index, [b"a"], [b"b"], [b"a", b"b"], [b"c", b"d"], [b"x"], [], [b"a", b"c"]) == [
        [0],
        [],
        [0, 1, 2],
        [2, 3],
        [3],
        [],
        [0],
    ]


def test_two_labels_of_one_slot_count_once() -> None:
    world = World()
    index = index_of(world, [[[b"a", b"b"], [b"c"]]])
    assert world.matches(index, [b"a", b"b"], [b"a", b"b", b"c"]) == [[], [0]]


def test_an_empty_index_and_an_empty_batch() -> None:
    world = World()
    assert world.matches(SearchIndex(TOPIC_ID, 16), [b"a"]) == [[]]
    assert world.search(SearchIndex(TOPIC_ID, 16), []).words(3).shape == (0, 1)


def test_a_subscription_may_have_filters_of_several_epochs() -> None:
    world, index = World(), SearchIndex(TOPIC_ID, 16)
    index.add([world.registered(5, "bo", [[[b"a"]]], epoch) for epoch in (1, 2)], world.half)
    assert [world.matches(index, [b"a"], epoch=epoch) for epoch in (1, 2, 3)] == [[[5]], [[5]], [[]]]


# --- memos ------------------------------------------------------------------------------------------------------------


class Counted:
    """How often the broker multiplies."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tokens = self.tried = 0
        token, matching = scheme.token, scheme.matching

        def counted_token(trapdoor: bytes, half: Exponent, expected: Element | None = None) -> Element | None:
            self.tokens += 1
            return token(trapdoor, half, expected)

        def counted_matching(
            encrypted: list[Element], checks: list[bytes], bounds: list[bytes], found: Element
        ) -> list[int]:
            self.tried += len(encrypted)
            return matching(encrypted, checks, bounds, found)

        monkeypatch.setattr(scheme, "token", counted_token)
        monkeypatch.setattr(scheme, "matching", counted_matching)

    def take(self) -> tuple[int, int]:
        found, self.tokens, self.tried = (self.tokens, self.tried), 0, 0
        return found


def test_what_was_seen_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world, counted = World(tag_bits=32), Counted(monkeypatch)
    index = index_of(world, *[[[[word]]] for word in WORDS])
    block = world.block([WORDS[7]])
    world.search(index, [block])
    assert counted.take() == (1, 1)  # one multiplication, and its own bucket
    world.search(index, [block] * 100)
    assert counted.take() == (0, 0)  # a trapdoor that is used again
    world.search(index, [world.block([WORDS[7]])])
    assert counted.take() == (1, 0)  # a fresh one of a label that was seen
    world.search(index, [world.block([b"nobody asked for it"])])
    assert counted.take() == (0, 0)  # dismissed by its tag


def test_a_new_subscription_costs_a_look_at_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    world, counted = World(tag_bits=0), Counted(monkeypatch)
    index = index_of(world, *[[[[word]]] for word in WORDS])
    block = world.block([WORDS[7]])
    world.search(index, [block])
    assert counted.take() == (1, len(WORDS))  # without tags there is one bucket
    index.add([world.registered(100, "bo", [[[WORDS[7]]]]), world.registered(101, "bo", [[[b"else"]]])], world.half)
    assert world.search(index, [block]).matches[0].tolist() == [7, 100]
    assert counted.take() == (0, 2)


@pytest.mark.parametrize("tag_bits", [0, 3, 16])
def test_memos_decide_nothing(tag_bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables change, publishers reuse trapdoors or not, and memos forget: an index always says what is true."""
    monkeypatch.setattr(tokens, "MAX_TRAPDOORS", 5)
    monkeypatch.setattr(tokens, "MAX_EMPTY_TOKENS", 3)
    monkeypatch.setattr(search, "_MIN_REMOVED", 4)
    monkeypatch.setattr(combine, "MAX_KEPT", 6)
    monkeypatch.setattr(combine, "_MAX_AT_ONCE", 3)
    random, world = Random(tag_bits), World(tag_bits=tag_bits)
    index, table = SearchIndex(TOPIC_ID, tag_bits), dict[int, tuple[Registered, list[list[list[bytes]]]]]()
    kept: list[tuple[list[bytes], bytes]] = []
    for step in range(60):
        if random.random() < 0.5 or not table:
            wanted = [
                [random.sample(WORDS[:8], random.randint(1, 2)) for _ in range(random.randint(1, 2))]
                for _ in range(random.randint(1, 2))
            ]
            row = world.registered(step, random.choice(("ana", "bo")), wanted)
            table[step] = row, wanted
            assert index.add([row], world.half) == {}
        elif random.random() < 0.5:
            gone = random.sample(sorted(table), random.randint(1, min(3, len(table))))
            index.remove(gone)
            for number in gone:
                del table[number]
        for _ in range(3):
            if kept and random.random() < 0.5:
                labels, block = random.choice(kept)
            else:
                labels = random.sample(WORDS[:12], random.randint(0, 4))
                block = world.block(labels)
                kept.append((labels, block))
            truth = [
                number
                for number, (_, wanted) in sorted(table.items())
                if any(all(set(slot) & set(labels) for slot in slots) for slots in wanted)
            ]
            assert world.search(index, [block]).matches[0].tolist() == truth, (step, labels)


def test_a_bucket_that_emptied_and_filled_again() -> None:
    world = World()
    index = index_of(world, [[[b"a"]]])
    block = world.block([b"a"])
    assert world.search(index, [block]).matches[0].tolist() == [0]
    index.remove([0])
    assert world.search(index, [block]).matches[0].tolist() == []
    index.add([world.registered(9, "cy", [[[b"a"]]])], world.half)
    assert world.search(index, [block]).matches[0].tolist() == [9]


def test_equal_filters_of_many_are_found_together() -> None:
    world = World()
    index = index_of(world, *[[[[b"a"]]]] * 30)
    assert world.matches(index, [b"a"]) == [list(range(30))]


# --- who may ----------------------------------------------------------------------------------------------------------


def test_a_revoked_publisher_matches_nothing_from_the_next_batch_on() -> None:
    world = World()
    index = index_of(world, [[[b"a"]]])
    block = world.block([b"a"], "bo")
    assert world.search(index, [block], "bo").matches[0].tolist() == [0]
    world.users.remove("bo")
    found = world.search(index, [block, world.block([b"a"], "bo")], "bo")
    assert [each.tolist() for each in found.matches] == [[], []]
    assert [each.reason for each in found.refused.values()] == [SealedReason.HALF] * 2
    world.users.add("bo")
    assert world.search(index, [block], "bo").matches[0].tolist() == [0]


def test_another_publisher_gains_nothing_from_a_copied_trapdoor() -> None:
    """Neither before nor after the memo knows it."""
    world = World()
    index = index_of(world, [[[b"a"]]])
    block = world.block([b"a"], "bo")
    for _ in range(2):
        assert world.search(index, [block], "cy").matches[0].tolist() == []
        assert world.search(index, [block], "bo").matches[0].tolist() == [0]


def test_a_subscriber_without_a_half_is_refused_and_matches_nothing() -> None:
    world, index = World(), SearchIndex(TOPIC_ID, 16)
    world.users.remove("cy")
    refused = index.add([world.registered(0, "cy", [[[b"a"]]]), world.registered(1, "bo", [[[b"a"]]])], world.half)
    assert {place: refusal.reason for place, refusal in refused.items()} == {0: SealedReason.HALF}
    assert world.matches(index, [b"a"]) == [[1]]


def test_a_label_registered_under_another_name_matches_nothing() -> None:
    world, index = World(), SearchIndex(TOPIC_ID, 16)
    index.add([world.registered(0, "bo", [[[b"a"]]])._replace(user="cy")], world.half)
    assert world.matches(index, [b"a"]) == [[]]


# --- what is refused --------------------------------------------------------------------------------------------------

OFF = bytes(31) + b"\x05"


def _off_the_curve(part: bytes, at: int) -> bytes:
    return part[: at + 1] + OFF + part[at + 33 :]


@pytest.mark.parametrize("at", [4, 37])
def test_a_filter_with_a_point_off_the_curve_is_refused_whole(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world, index = World(), SearchIndex(TOPIC_ID, 16)
    good, other = (world.keys("bo").seal_label(word) for word in (b"a", b"b"))
    bad = SealedFilter(1, (((good,),), ((_off_the_curve(other, at),),)))
    refused = index.add([Registered(0, "bo", bad), world.registered(1, "bo", [[[b"a"]]])], world.half)
    assert {place: refusal.reason for place, refusal in refused.items()} == {0: SealedReason.POINT}
    assert world.matches(index, [b"a"]) == [[1]]


@pytest.mark.parametrize("at", [4, 37])
def test_a_trapdoor_with_a_point_off_the_curve_matches_nothing_and_is_told(at: int) -> None:
    world = World()
    index = index_of(world, [[[b"a"]]], [[[b"b"]]])
    good, bad = (parse_block(world.block([word]))[0] for word in (b"a", b"b"))
    blocks = [packed_block([good, _off_the_curve(bad, at)]), packed_block([good])]
    for _ in range(2):  # whether a or b was seen before or not
        found = world.search(index, blocks)
        assert [each.tolist() for each in found.matches] == [[0], [0]]
        assert {event: refusal.reason for event, refusal in found.refused.items()} == {0: SealedReason.POINT}
        assert world.matches(index, [b"a"], [b"b"]) == [[0], [1]]


def test_what_an_event_matches_does_not_depend_on_other_subscriptions() -> None:
    """A broker keeps several versions of a table in one index: none of them shows in what another matches."""
    world = World()
    (good,), (bad,) = (parse_block(world.block([word])) for word in (b"a", b"b"))
    block = packed_block([good, _off_the_curve(bad, 4)])
    alone, among = index_of(world, [[[b"a"]]]), index_of(world, [[[b"a"]]], [[[b"b"]]], [[[b"a"], [b"b"]]])
    assert [world.search(index, [block]).matches[0].tolist() for index in (alone, among)] == [[0], [0]]


def test_infinity_matches_nothing_and_breaks_nothing() -> None:
    """Points that a broker's own half turns into infinity, as only whoever knows it could make them."""
    world, index = World(), SearchIndex(TOPIC_ID, 16)
    half = world.known_half("bo")
    first = points.base_wire(Exponent(1, ORDER))
    second = points.base_wire(Exponent(ORDER - half.reveal(), ORDER))
    tag = world.keys("bo").tag(b"a")
    nothing = SealedFilter(1, (((tag + first + second + bytes(16),),),))
    index.add([Registered(0, "bo", nothing), world.registered(1, "bo", [[[b"a"]]])], world.half)
    blocks = [packed_block([tag + first + second]), world.block([b"a"], "bo")]
    for _ in range(2):
        assert [each.tolist() for each in world.search(index, blocks, "bo").matches] == [[], [1]]


def test_a_token_equal_to_a_label_matches_nothing() -> None:
    """C = T: a publisher that copied C into a trapdoor."""
    world = World()
    sealed = world.keys("cy").seal_label(b"a")
    index = SearchIndex(TOPIC_ID, 16)
    index.add([Registered(0, "cy", SealedFilter(1, (((sealed,),),)))], world.half)
    (c,) = scheme.re_encrypt([sealed], world.known_half("cy"))
    assert c is not None
    half = world.known_half("bo")
    minus_half = points.base(Exponent(ORDER - half.reveal(), ORDER))
    second = points.add(c, minus_half)  # half * G + second = C
    assert second is not None
    trapdoor = sealed[:4] + points.base_wire(Exponent(1, ORDER)) + CURVE.encode(second)
    assert scheme.token(trapdoor, half) == c
    found = world.search(index, [packed_block([trapdoor])], "bo")
    assert found.matches[0].tolist() == [] and not found.refused


def test_a_false_tag_only_hides_what_it_is_on() -> None:
    world = World()
    index = index_of(world, [[[b"a"]]], [[[b"b"]]])
    (honest,) = parse_block(world.block([b"a"]))
    false = world.keys("ana").tag(b"b") + honest[4:]
    for block, expected in ((packed_block([false]), []), (packed_block([honest]), [0]), (packed_block([false]), [])):
        assert world.search(index, [block]).matches[0].tolist() == expected


@pytest.mark.parametrize("make", [lambda block: block[:-1], lambda block: block + b"\0", lambda block: b"" + block[1:]])
def test_a_damaged_block_is_refused_and_the_others_are_not(make: Callable[[bytes], bytes]) -> None:
    world = World()
    index = index_of(world, [[[b"a"]]])
    good = world.block([b"a"])
    found = world.search(index, [good, make(good), good])
    assert [each.tolist() for each in found.matches] == [[0], [], [0]]
    assert list(found.refused) == [1]


def test_refusals_name_no_secret() -> None:
    world = World()
    index = index_of(world, [[[b"a"]]])
    (good,) = parse_block(world.block([b"a"]))
    (refusal,) = world.search(index, [packed_block([_off_the_curve(good, 4)])]).refused.values()
    secrets = (world.known_half("ana").packed, world.topic_key.reveal(), world.content.reveal())
    text = f"{refusal!r} {refusal} {refusal.hint} {refusal.as_json()}"
    assert not any(secret.hex() in text or repr(secret) in text for secret in secrets)
    assert not isinstance(refusal, Bug)


def test_a_batch_is_searched_as_each_event_alone() -> None:
    """Batches are read on arrays, few events one by one."""
    world, random = World(tag_bits=4), Random(3)
    index = index_of(world, *[[[[word]]] for word in WORDS[:20]], [[[WORDS[0]], [WORDS[1]]]])
    blocks = [world.block(random.sample(WORDS, random.randint(0, 5))) for _ in range(60)]
    blocks[7], blocks[9], blocks[11] = blocks[7][:-1], b"", blocks[11] + b"\0"
    (trapdoor,) = parse_block(world.block([WORDS[3]]))
    blocks[13] = packed_block([_off_the_curve(trapdoor, 37)])
    assert len(blocks) >= search._BATCH > 1
    together, again = (world.search(each, blocks) for each in (index, index_of(world)))
    assert [each.tolist() for each in again.matches] == [[]] * 60
    for event, block in enumerate(blocks):
        alone = world.search(index, [block])
        assert alone.matches[0].tolist() == together.matches[event].tolist()
        reasons = [refusal.reason for refusal in alone.refused.values()]
        assert reasons == [together.refused[event].reason for _ in alone.refused]
        assert bool(reasons) == (event in together.refused)
    assert set(together.refused) == {7, 9, 11, 13}


def test_what_is_kept_is_bounded_by_its_size_and_not_by_how_often_it_was_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A publisher that shuffles popular labels makes a new set of tokens with every event. Sets that match nothing
    have no matches to be counted, but names of tokens."""
    most = 4_000
    monkeypatch.setattr(combine, "MAX_KEPT", most)
    random, world = Random(3), World()
    index = index_of(world, *[[[[word], [b"never"]]] for word in WORDS])
    door = {word: world.block([word])[5:] for word in WORDS}
    for _ in range(40):
        sets = [random.sample(WORDS, random.randint(1, len(WORDS))) for _ in range(10)]
        world.search(index, [packed_block(door[word] for word in words) for words in sets])
        held = sum(len(tokens) + len(matched) for tokens, matched in index._combined._known.items())
        assert held <= most + sum(map(len, sets))
