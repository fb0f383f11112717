"""A curious broker, in a day of quotes: what it is said to learn it learns, and what it is said not to learn it does
not; where it does not, a weaker variant shows that the attempt was a good one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from functools import cache
from random import Random

import pytest

from sealcast.filters.labels import Labeller
from sealcast.lab.curious.diary import Diary
from sealcast.lab.curious.experiment import Evening, compared
from sealcast.lab.curious.truth import NetTruth
from sealcast.lab.curious.workload import PLAN, SCHEMA, CuriousDay
from sealcast.lab.experiments import find
from sealcast.lab.shikfa.net import Net
from sealcast.primitives.groups import Element, Exponent
from sealcast.protections.layered.publish import TreePublisher
from sealcast.protections.layered.tree import Path

EVENTS = 160
DAY = CuriousDay.of(Random(7), EVENTS)
LABELLER = Labeller(SCHEMA, PLAN)
LABELS = sorted({label for values in DAY.events for label in LABELLER.labels(values)})
BROKERS = ("A", "B", "D", "E", "C", "F")


@cache
def net(layers: int = 2) -> Net:
    return DAY.lived(Random(2), layers=layers)


@cache
def diary(name: str, layers: int = 2) -> Diary:
    return Diary(net(layers), name)


@cache
def truth(layers: int = 2) -> NetTruth:
    return NetTruth(net(layers), DAY.filters)


@cache
def later() -> Net:
    """The same day under the keys of another epoch."""
    return DAY.lived(Random(8))


@cache
def padded() -> Net:
    return DAY.lived(Random(4), padded=True)


def test_the_experiment_says_the_same() -> None:
    """`sealcast lab run shikfa/curious`: what follows here, one by one, as a table."""
    report = compared(Evening(DAY, net()), Evening(DAY, padded()), Evening(DAY, later()))
    assert report.agrees and len(report.rows) == 12
    assert find("shikfa/curious").at == "curious.experiment:run"


# --- what it learns ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("broker", BROKERS)
def test_it_learns_which_filters_are_equal_from_where_they_meet(broker: str, layers: int) -> None:
    assert diary(broker, layers).equal_filters() == truth(layers).met(broker)
    assert diary(broker, layers).rows.keys() == truth(layers).rows(broker).keys()


def test_it_learns_what_filters_look_like() -> None:
    for broker in BROKERS:
        names = truth().rows(broker)
        for row, shape in diary(broker).shapes().items():
            assert shape == tuple(sorted(map(len, names[row].slots)))


def test_it_learns_how_often_rows_are_hit() -> None:
    events = [frozenset(LABELLER.labels(values)) for values in DAY.events]
    for broker in BROKERS:
        names = truth().rows(broker)
        for row, hit in diary(broker).hits.items():
            assert len(hit) == sum(names[row].matches(labels) for labels in events)


def test_it_learns_how_many_labels_events_have_at_the_root_alone() -> None:
    true = {event: len(about.labels) for event, about in net().events.items()}
    assert diary("A").label_counts() == true and len(set(true.values())) == 2
    # Below, only what hit something behind the path goes on.
    below = diary("B").label_counts()
    assert max(below.values()) < min(true.values())


def test_it_guesses_labels_by_their_frequency() -> None:
    """Who knows from other days how frequent labels are, and which are asked for."""
    named, asked = (
        truth().labels("A"),
        {label for c, _, _ in truth().passing("A") for slot in c.slots for label in slot},
    )
    other_days = CuriousDay.of(Random(99), 2000).events
    often = Counter(label for values in other_days for label in LABELLER.labels(values))
    guessed = diary("A").by_frequency({label: often[label] / len(other_days) for label in asked})
    right = sum(named[token] == label for token, label in guessed.items()) / len(guessed)
    assert right > 4 / len(asked)  # four times what guessing gets


def contained(seen: Diary, least: int = 5) -> set[tuple[Element, Element]]:
    """(narrow, wide): every event that has the one has the other, as if that were a prefix of it."""
    events: dict[Element, set[bytes]] = {}
    for event, tokens in seen.seen.items():
        for token in tokens & seen.tokens():
            events.setdefault(token, set()).add(event)
    return {(a, b) for a in events for b in events if len(events[a]) >= least and events[a] < events[b]}


def test_it_learns_which_labels_hold_others() -> None:
    named, implied = truth().labels("A"), contained(diary("A"))
    often = {label: {i for i, v in enumerate(DAY.events) if label in LABELLER.labels(v)} for label in LABELS}
    true = [often[named[narrow]] < often[named[wide]] for narrow, wide in implied]
    assert len(true) > 3 and sum(true) / len(true) > 0.6  # by chance: about one in ten


def test_events_tell_what_layers_hide() -> None:
    """Below the point where filters meet, their tokens say nothing; that the very same events hit them does."""
    found = diary("D").equal_by_traffic()
    names = truth().rows("D")
    assert found == {
        frozenset((one, other))
        for one in names
        for other in names
        if one != other and names[one] == names[other] and len(diary("D").hits[one]) >= 5
    }
    assert found and not diary("D").equal_by_value()


def test_events_are_followed_from_broker_to_broker() -> None:
    """One id, one body: two brokers find out which of their rows are the same filter."""
    above, below = truth().rows("B"), truth().rows("D")
    linked = diary("D").linked(diary("B"))
    right = sum(below[one] == above[two] for one, two in linked)
    assert right >= 4 and right / len(linked) > 0.8
    bodies = {m.event: m.body for m in diary("A").received}
    assert all(bodies[m.event] == m.body for m in diary("D").received)


# --- what it does not learn -------------------------------------------------------------------------------------------


def test_its_own_keys_open_no_row() -> None:
    asked = sorted({label for c, _, _ in truth().passing("A") for slot in c.slots for label in slot})
    assert diary("A").named_by_dictionary(asked) == {}  # the others are in the experiment
    # Two in a row do (r = 2): everything that the lower one has.
    opened = Diary(net(), "D", ("B",)).named_by_dictionary(asked)
    named = truth().labels("D")
    assert opened == {token: named[token] for token in diary("D").tokens()}


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
    weak = Diary(CuriousDay(DAY.filters, ()).lived(Random(3), kind=OneKey), "D")
    # With one key for all, three equal filters of three subscribers are one row already at their own broker.
    assert len(weak.rows) < len(diary("D").rows) and weak.equal_filters()


class FreshFilling(TreePublisher):
    """Padding that never comes again."""

    def _padding(self, count: int, most: int) -> list[bytes]:
        return [b"\0padding" + os.urandom(16) for _ in range(count)]


class BareFilling(FreshFilling):
    """And that has no layers: the same for every target."""

    def _encrypted(self, target: Path, labels: Sequence[bytes]) -> list[bytes]:
        bare = (self._group.encode(self._group.hash(label)) for label in labels)
        return [
            without if label.startswith(b"\0padding") else layered
            for label, without, layered in zip(labels, bare, super()._encrypted(target, labels), strict=True)
        ]


class Fresh(Net):
    publishing = FreshFilling


class Bare(Net):
    publishing = BareFilling


def guessed_right(world: Net, counts: dict[bytes, int]) -> float:
    true = {event: len(about.labels) for event, about in world.events.items()}
    return sum(counts[event] == true[event] for event in true) / len(true)


def test_padding_hides_how_many_labels_an_event_has() -> None:
    day = CuriousDay(DAY.filters, DAY.events[:60])
    most = LABELLER.most()
    by_size = Counter(len(LABELLER.labels(values)) for values in DAY.events)
    guessing = max(by_size.values()) / len(DAY.events)

    world = padded()
    seen = Diary(world, "A")
    assert set(seen.label_counts().values()) == {most}
    assert set(seen.label_counts_across_entries().values()) == {most}
    assert guessed_right(world, seen.label_counts_without_unique()) <= guessing + 0.1

    # Padded by what never comes again, or without layers, it is told from labels.
    weak = DAY.lived(Random(5), padded=True, kind=Fresh)
    assert guessed_right(weak, Diary(weak, "A").label_counts_without_unique()) > guessing + 0.3
    weaker = day.lived(Random(6), padded=True, kind=Bare)
    assert guessed_right(weaker, Diary(weaker, "A").label_counts_across_entries()) == 1


def test_an_epoch_ends_what_tokens_say_and_not_what_traffic_says() -> None:
    tomorrow = Diary(later(), "A")
    assert diary("A").tokens_again(tomorrow) == set()
    # Paths, shapes and frequencies are what they were, and tell which row became which.
    before, after = truth().rows("A"), NetTruth(later(), DAY.filters).rows("A")
    again = diary("A").rows_again(tomorrow)
    assert sum(before[one] == after[two] for one, two in again.items()) / len(before) > 0.8
    # With the same keys, everything comes again: a new epoch is new keys.
    same = Diary(CuriousDay(DAY.filters, DAY.events[:20]).lived(Random(2)), "A")
    assert diary("A").tokens() <= diary("A").tokens_again(same)
