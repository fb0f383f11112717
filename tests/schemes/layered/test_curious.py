"""A curious broker, in a day of quotes: what it is said to learn it learns, and what it is said not to learn it does
not; where it does not, a weaker variant shows that the attempt was a good one."""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from random import Random

import pytest

from sealcast.filters.labels import Labeller
from sealcast.filters.labels.compile import Conjunction
from sealcast.lab.curious.diary import Diary
from sealcast.lab.curious.net import Net
from sealcast.lab.curious.workload import PLAN, SCHEMA, Day, compiled
from sealcast.primitives.groups import Element, Exponent
from sealcast.schemes.layered.publish import Publisher
from sealcast.schemes.layered.tree import Path

EVENTS = 160
DAY = Day.of(Random(7), EVENTS)
LABELLER = Labeller(SCHEMA, PLAN)
LABELS = sorted({label for values in DAY.events for label in LABELLER.labels(values)})
BROKERS = ("A", "B", "D", "E", "C", "F")


@cache
def net(layers: int = 2) -> Net:
    return DAY.lived(Random(2), layers=layers)


@cache
def diary(name: str, layers: int = 2) -> Diary:
    return Diary(net(layers), name)


# --- the truth --------------------------------------------------------------------------------------------------------


def passing(broker: str, layers: int = 2) -> list[tuple[Conjunction, Path, str]]:
    """(conjunction, path, subscriber) of everything below a broker."""
    found = []
    for name, text in DAY.filters.items():
        line = (name, *net().tree.ancestors(name))
        if broker in line:
            path = line[line.index(broker) - 1 :: -1][:layers]
            found += [(conjunction, path, name) for conjunction in compiled(text).conjunctions]
    return found


def names_of(broker: str, layers: int = 2, world: Net | None = None) -> dict[object, Conjunction]:
    """What each row really is, read with all keys."""
    world, found = world or net(layers), {}
    for conjunction, _, name in passing(broker, layers):
        line = (name, *world.tree.ancestors(name))
        at, last = line.index(broker), len(line) - 1
        pairs = [(line[m], line[min(m + layers, last)]) for m in range(max(at - layers + 1, 1), at)]
        pairs += [(name, line[j]) for j in range(at + 1, min(layers, last) + 1)]
        exponent = world.keys[pairs[0]]
        for pair in pairs[1:]:
            exponent = exponent * world.keys[pair]
        power = world.group.power
        row = tuple(
            sorted(tuple(sorted(power(world.hashes(label), exponent) for label in s)) for s in conjunction.slots)
        )
        found[row] = conjunction
    assert found.keys() == {row.slots for row in world.brokers[broker].table.rows()}
    return found


def label_of(broker: str) -> dict[Element, bytes]:
    world, found = net(), {}
    ways = {(name, *world.tree.ancestors(name)) for _, _, name in passing(broker)}
    pairs = {pair for pair in world.keys if any(set(pair) <= set(way) for way in ways)}
    for label in LABELS:
        for pair in pairs:
            found[world.group.power(world.hashes(label), world.keys[pair])] = label
    return found


# --- what it learns ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("broker", BROKERS)
def test_it_learns_which_filters_are_equal_from_where_they_meet(broker: str, layers: int) -> None:
    rows: dict[tuple[Conjunction, Path], set[Path]] = {}
    for conjunction, path, _ in passing(broker, layers):
        rows.setdefault((conjunction, path[: layers - 1]), set()).add(path)
    assert diary(broker, layers).equal_filters() == {frozenset(paths) for paths in rows.values() if len(paths) > 1}
    assert sorted(map(sorted, diary(broker, layers).rows.values())) == sorted(map(sorted, rows.values()))


def test_it_learns_what_filters_look_like() -> None:
    for broker in BROKERS:
        names = names_of(broker)
        for row, shape in diary(broker).shapes().items():
            assert shape == tuple(sorted(map(len, names[row].slots)))


def test_it_learns_how_often_rows_are_hit() -> None:
    events = [frozenset(LABELLER.labels(values)) for values in DAY.events]
    for broker in BROKERS:
        names = names_of(broker)
        for row, hit in diary(broker).hits.items():
            assert len(hit) == sum(names[row].matches(labels) for labels in events)


def test_it_learns_how_many_labels_events_have_at_the_root_alone() -> None:
    truth = {event: len(about.labels) for event, about in net().events.items()}
    assert diary("A").label_counts() == truth and len(set(truth.values())) == 2
    # Below, only what hit something behind the path goes on.
    below = diary("B").label_counts()
    assert max(below.values()) < min(truth.values())


def test_it_guesses_labels_by_their_frequency() -> None:
    """Who knows from other days how frequent labels are, and which are asked for."""
    truth, asked = label_of("A"), {label for c, _, _ in passing("A") for slot in c.slots for label in slot}
    other_days = Day.of(Random(99), 2000).events
    often = Counter(label for values in other_days for label in LABELLER.labels(values))
    guessed = diary("A").by_frequency({label: often[label] / len(other_days) for label in asked})
    right = sum(truth[token] == label for token, label in guessed.items()) / len(guessed)
    assert right > 4 / len(asked)  # four times what guessing gets


def test_it_learns_which_labels_hold_others() -> None:
    truth, implied = label_of("A"), diary("A").contained()
    often = {label: {i for i, v in enumerate(DAY.events) if label in LABELLER.labels(v)} for label in LABELS}
    true = [often[truth[narrow]] < often[truth[wide]] for narrow, wide in implied]
    assert len(true) > 3 and sum(true) / len(true) > 0.6  # by chance: about one in ten


def test_events_tell_what_layers_hide() -> None:
    """Below the point where filters meet, their tokens say nothing; that the very same events hit them does."""
    found = diary("D").equal_by_traffic()
    names = names_of("D")
    assert found == {
        frozenset((one, other))
        for one in names
        for other in names
        if one != other and names[one] == names[other] and len(diary("D").hits[one]) >= 5
    }
    assert found and not diary("D").equal_by_value()


def test_events_are_followed_from_broker_to_broker() -> None:
    """One id, one body: two brokers find out which of their rows are the same filter."""
    above, below = names_of("B"), names_of("D")
    linked = diary("D").linked(diary("B"))
    right = sum(below[one] == above[two] for one, two in linked)
    assert right >= 4 and right / len(linked) > 0.8
    bodies = {m.event: m.body for m in diary("A").received}
    assert all(bodies[m.event] == m.body for m in diary("D").received)


# --- what it does not learn -------------------------------------------------------------------------------------------


def test_its_own_keys_open_no_row() -> None:
    asked = sorted({label for c, _, _ in passing("A") for slot in c.slots for label in slot})
    for broker in BROKERS:
        assert diary(broker).named_by_dictionary(asked) == {}
    # Two in a row do (r = 2): everything that the lower one has.
    opened = Diary(net(), "D", ("B",)).named_by_dictionary(asked)
    truth = label_of("D")
    assert opened == {token: truth[token] for token in diary("D").tokens()}


class OneKey(Net):
    """Every subscriber has the same keys: no layer of its own."""

    def agreed(self, descendant: str, ancestor: str) -> Exponent:
        same = "S" if descendant.startswith("S") else descendant
        drawn = Random(f"{same} {ancestor}").randrange(1, self.group.order)
        return Exponent(drawn, self.group.order)


def test_layers_hide_equality_below_where_filters_meet() -> None:
    for layers in (2, 3):
        for broker in BROKERS:
            assert diary(broker, layers).equal_by_value() == set()
    weak = Diary(Day(DAY.filters, ()).lived(Random(3), kind=OneKey), "D")
    # With one key for all, three equal filters of three subscribers are one row already at their own broker.
    assert len(weak.rows) < len(diary("D").rows) and weak.equal_filters()


class FreshFilling(Publisher):
    """Padding that never comes again."""

    def _padding(self, count: int, most: int) -> list[bytes]:
        return [b"\0padding" + os.urandom(16) for _ in range(count)]


class BareFilling(FreshFilling):
    """And that has no layers: the same for every target."""

    def _encrypted(self, target: Path, label: bytes) -> bytes:
        if label.startswith(b"\0padding"):
            return self._group.encode(self._group.hash(label))
        return super()._encrypted(target, label)


class Fresh(Net):
    publishing = FreshFilling


class Bare(Net):
    publishing = BareFilling


def guessed_right(world: Net, counts: dict[bytes, int]) -> float:
    truth = {event: len(about.labels) for event, about in world.events.items()}
    return sum(counts[event] == truth[event] for event in truth) / len(truth)


def test_padding_hides_how_many_labels_an_event_has() -> None:
    day = Day(DAY.filters, DAY.events[:120])
    most = LABELLER.most()
    by_size = Counter(len(LABELLER.labels(values)) for values in day.events)
    guessing = max(by_size.values()) / len(day.events)

    world = day.lived(Random(4), padded=True)
    seen = Diary(world, "A")
    assert set(seen.label_counts().values()) == {most}
    assert set(seen.label_counts_across_entries().values()) == {most}
    assert guessed_right(world, seen.label_counts_without_unique()) <= guessing + 0.1

    # Padded by what never comes again, or without layers, it is told from labels.
    weak = day.lived(Random(5), padded=True, kind=Fresh)
    assert guessed_right(weak, Diary(weak, "A").label_counts_without_unique()) > guessing + 0.3
    weaker = day.lived(Random(6), padded=True, kind=Bare)
    assert guessed_right(weaker, Diary(weaker, "A").label_counts_across_entries()) == 1


def test_an_epoch_ends_what_tokens_say_and_not_what_traffic_says() -> None:
    world = DAY.lived(Random(8))
    later = Diary(world, "A")
    assert diary("A").tokens_again(later) == set()
    # Paths, shapes and frequencies are what they were, and tell which row became which.
    before, after = names_of("A"), names_of("A", world=world)
    again = diary("A").rows_again(later)
    assert sum(before[one] == after[two] for one, two in again.items()) / len(before) > 0.8
    # With the same keys, everything comes again: a new epoch is new keys.
    same = Diary(DAY.lived(Random(2)), "A")
    assert diary("A").tokens() <= diary("A").tokens_again(same)
