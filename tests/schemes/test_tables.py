"""Tables, links and masks with real keys: readers that hold what they were given, and coalitions of all others."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import CannotOpen, Misuse
from sealcast.filters import bits
from sealcast.groupkeys.interface import GroupKey, GrownKey, KeyPlan, PairKey, TableKey
from sealcast.groupkeys.mosaic.planner import Mosaic
from sealcast.groupkeys.mosaic.tables import labels_of, path_of, paths
from sealcast.lab import groups as workloads
from sealcast.primitives import kdf, labels
from sealcast.primitives.labels import unmask
from sealcast.primitives.secrets import Secret
from sealcast.protections.endpoint import keys, wraps
from sealcast.protections.endpoint.sealer import EndpointSealer
from sealcast.protections.endpoint.tables import LINK, WRAP, TableKeys, TablePart

TOPIC = Secret(bytes(range(32)))


# --- the tree of labels ---------------------------------------------------------------------------------


@pytest.mark.parametrize("places", [1, 2, 3, 5, 8])
def test_each_pattern_is_below_a_label_of_each_member_and_of_nobody_else(places: int) -> None:
    given_to = [set(labels_of(place, places)) for place in range(places)]
    for pattern in range(1 << places):
        path, asked = path_of(pattern, places)
        assert sorted(asked) == list(range(places))
        above = {(depth, path >> places - depth) for depth in range(1, places + 1)}
        for place in range(places):
            assert bool(above & given_to[place]) == bool(pattern >> place & 1)
    assert sum(map(len, given_to)) == (1 << places) - 1
    assert len({path_of(pattern, places)[0] for pattern in range(1 << places)}) == 1 << places


def test_a_tile_of_sixteen_shares_the_load() -> None:
    sizes = [len(labels_of(place, 16)) for place in range(16)]
    assert sum(sizes) == (1 << 16) - 1 and max(sizes) < 1.5 * 4_096


@given(st.integers(1, 16), st.lists(st.integers(0, 65_535), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_paths_are_the_same_one_by_one(places: int, patterns: list[int]) -> None:
    cut = np.array(patterns, np.int64) & (1 << places) - 1
    path, asked = paths(cut, places)
    assert [path_of(int(p), places) for p in cut] == list(zip(path.tolist(), asked.tolist(), strict=True))


def test_labels_descend_to_what_they_expand_to() -> None:
    root = bytes(32)
    leaves = labels.expand(root, 5)
    assert [labels.descend(root, path, 5) for path in range(32)] == [leaves[32 * i : 32 * i + 32] for i in range(32)]
    assert len({leaves[32 * i : 32 * i + 32] for i in range(32)}) == 32
    assert labels.descend_many([root] * 3, [7, 0, 31], 5) == [labels.descend(root, path, 5) for path in (7, 0, 31)]


@pytest.mark.parametrize("places", [2, 7, 16])
def test_members_derive_the_keys_of_their_patterns_and_are_refused_others(places: int) -> None:
    slots = tuple(range(100, 100 + places))
    broker = TableKeys(TOPIC)
    place = places - 1
    part = TablePart(place, places, broker.parts(slots, [slots[place]])[0])
    patterns = np.random.default_rng(1).integers(1, 1 << places, 100)
    for pattern, key in zip(patterns.tolist(), broker.keys(slots, patterns), strict=True):
        assert broker.key(slots, pattern) == key
        if pattern >> place & 1:
            assert part.key(pattern) == key
        else:
            with pytest.raises(CannotOpen):
                part.key(pattern)
    with pytest.raises(Misuse):
        pickle.dumps(part)


def test_tables_of_other_slots_or_topics_have_other_keys() -> None:
    one, pattern = TableKeys(TOPIC), 5
    assert one.key((1, 2, 3), pattern) != one.key((3, 2, 1), pattern)
    assert one.key((1, 2, 3), pattern) != TableKeys(Secret(bytes(32))).key((1, 2, 3), pattern)


def test_a_mask_opens_at_its_place_for_its_purpose_under_its_key_only() -> None:
    key, place, hidden = bytes(32), bytes(12), bytes(range(32))
    (masked,) = labels.mask_many([key], [place], WRAP, labels.checked([hidden]))
    assert unmask(key, place, WRAP, masked) == hidden
    for attempt in ((b"\1" * 32, place, WRAP), (key, b"\1" * 12, WRAP), (key, place, LINK)):
        with pytest.raises(CannotOpen):
            unmask(*attempt, masked)
    with pytest.raises(CannotOpen):
        unmask(key, place, WRAP, masked[:-1])
    for bit in range(8 * len(masked)):
        altered = (int.from_bytes(masked, "big") ^ 1 << bit).to_bytes(len(masked), "big")
        with pytest.raises(CannotOpen):
            unmask(key, place, WRAP, altered)
    with pytest.raises(Misuse):
        labels.checked([hidden[:-1]])
    with pytest.raises(Misuse):
        labels.mask_many([key], [place], b"wraps", labels.checked([hidden]))


# --- whole plans ----------------------------------------------------------------------------------------


class Reader:
    """A subscriber that keeps everything it was ever given: its pair secret, parts of tables, secrets by key id."""

    def __init__(self, slot: int, pair: Secret) -> None:
        self.slot, self.pair = slot, pair
        self.parts: dict[tuple[int, ...], TablePart] = {}
        self.known = {keys.pair_id(slot): pair.reveal()}

    def secret(self, ref: PairKey | GroupKey | TableKey | GrownKey, key_id: bytes) -> bytes | None:
        if isinstance(ref, TableKey) and ref.slots in self.parts and ref.pattern >> ref.slots.index(self.slot) & 1:
            return self.parts[ref.slots].key(ref.pattern)
        return self.known.get(key_id)


class Delivery:
    """A batch as it goes out, and as its readers take it in."""

    def __init__(self, plan: KeyPlan, sealer: EndpointSealer) -> None:
        self.plan, self.sealer = plan, sealer
        self.ids = [sealer.key_id(ref) for ref in plan.keys]
        self.keys = wraps.PlannedKeys(plan.keys, sealer)
        hidden = iter(wraps.links(plan, self.keys))
        self.links = [None if grows else next(hidden) for grows in plan.link_grows.tolist()]
        assert self.keys.ids == b"".join(self.ids)

    def hand_out(self, readers: list[Reader]) -> None:
        plan = self.plan
        for slot, table in zip(plan.table_slot.tolist(), plan.table_of.tolist(), strict=True):
            slots = plan.tables[table]
            part = self.sealer.tables.parts(slots, [slot])[0]
            readers[slot].parts[slots] = TablePart(slots.index(slot), len(slots), part)
        for slot, key in zip(plan.handout_slot.tolist(), plan.handout_key.tolist(), strict=True):
            ref = plan.keys[key]
            assert isinstance(ref, TableKey)
            carrier = keys.handout_key(readers[slot].pair, self.ids[key], self.sealer.associated_data)
            sealed = self.sealer.hand_out(PairKey(slot), ref)
            readers[slot].known[self.ids[key]] = carrier.unwrap(keys.HANDOUT_NONCE, sealed).reveal()

    def follow_links(self, reader: Reader) -> None:
        links = list(zip(self.plan.link_key.tolist(), self.plan.link_under.tolist(), self.links, strict=True))
        found = True
        while found:
            found = False
            for key, under, masked in links:
                held = reader.secret(self.plan.keys[under], self.ids[under])
                if held is None or self.ids[key] in reader.known:
                    continue
                opened = unmask(held, self.ids[key], LINK, masked) if masked else labels.grow(held, self.ids[key])
                reader.known[self.ids[key]] = opened
                found = True


@pytest.mark.parametrize("workload", ["random_groups", "popular_groups", "content_groups"])
def test_every_member_comes_by_its_key_and_all_others_together_by_none(workload: str) -> None:
    n = 60
    pairs = [kdf.derive(TOPIC, b"test pair", bytes([slot])) for slot in range(n)]
    sealer = EndpointSealer(bytes(16), 1, TOPIC, lambda slot: pairs[slot])
    readers = [Reader(slot, pairs[slot]) for slot in range(n)]
    planner = Mosaic(n, 20_000, tile=7, seed=1)
    events = getattr(workloads, workload)(400, n, 2)
    used: list[tuple[frozenset[int], KeyPlan, int, bytes]] = []
    for start in range(0, len(events), 50):
        rows, of_event = bits.unique_rows(events[start : start + 50])
        delivery = Delivery(planner.plan(rows, of_event), sealer)
        delivery.hand_out(readers)
        for reader in readers:
            delivery.follow_links(reader)
        plan = delivery.plan
        for group in range(len(rows)):
            members = plan.members[plan.member_start[group] : plan.member_start[group + 1]].tolist()
            via = plan.via[plan.member_start[group] : plan.member_start[group + 1]]
            uses = plan.uses[plan.use_start[group] : plan.use_start[group + 1]]
            for slot, key in zip(members, uses[via].tolist(), strict=True):
                assert readers[slot].secret(plan.keys[key], delivery.ids[key]) == sealer.secret(plan.keys[key])
            used += [(frozenset(members), plan, key, delivery.ids[key]) for key in uses.tolist()]
    for members, plan, key, key_id in used:
        outside = [reader for reader in readers if reader.slot not in members]
        assert all(reader.secret(plan.keys[key], key_id) is None for reader in outside)
        secret = sealer.secret(plan.keys[key])
        assert all(secret not in reader.known.values() for reader in outside[:5])


def test_content_keys_reach_members_under_masks_and_ciphers() -> None:
    sealer = EndpointSealer(bytes(16), 1, TOPIC, lambda slot: kdf.derive(TOPIC, b"pair", bytes([slot])))
    planner = Mosaic(40, 0, tile=8, seed=1, learn=False)
    events = workloads.random_groups(300, 40, 1)
    planner.count(events)
    plan = planner.plan(events[:20])
    nonces = [bytes([i]) * 12 for i in range(20)]
    contents = {i: bytes([i]) * 32 for i in range(20) if plan.encryptions[i] > 1}
    made = wraps.wrap_content_keys(contents, nonces, plan.use_start, plan.uses, wraps.PlannedKeys(plan.keys, sealer))
    at = 0
    for event, content in contents.items():
        for key in plan.uses[plan.use_start[event] : plan.use_start[event + 1]].tolist():
            ref = plan.keys[key]
            if isinstance(ref, TableKey):
                assert unmask(sealer.secret(ref), nonces[event], WRAP, made[at]) == content
            else:
                assert sealer.wrap_key(ref).unwrap(nonces[event], made[at]).reveal() == content
            at += 1
    assert at == len(made) > 60
