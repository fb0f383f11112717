"""`shikfa/curious`: what brokers get out of a day by writing everything down, beside what is said that they get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import Final

from sealcast.filters.labels import Labeller
from sealcast.lab.curious.diary import Diary
from sealcast.lab.curious.truth import NetTruth
from sealcast.lab.curious.workload import PLAN, SCHEMA, CuriousDay
from sealcast.lab.report import Report, Told
from sealcast.lab.shikfa.net import Net

EVENTS: Final = 1_000
QUICK_EVENTS: Final = 160
BROKERS: Final = ("A", "B", "C", "D", "E", "F")
_LABELLER: Final = Labeller(SCHEMA, PLAN)
#: Events of other days, from which whoever guesses knows how frequent labels are.
_OTHER_DAYS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Tried:
    """One attempt, by all brokers together."""

    what: str
    how: str
    right: int
    wrong: int
    of: int
    #: What guessing would get right.
    chance: float
    #: Whether layered says that a broker learns this.
    said: bool

    @property
    def agrees(self) -> bool:
        """Whether brokers learnt a good part of what they are said to learn, and nothing beyond chance of the rest."""
        if self.said:
            return self.right - self.chance > (self.of - self.chance) / 3
        return self.right <= self.chance + self.of / 20

    def row(self) -> dict[str, object]:
        return {
            "tried": self.what,
            "how": self.how,
            "right": self.right,
            "wrong": self.wrong,
            "of": self.of,
            "by chance": round(self.chance, 1),
            "said": "learns" if self.said else "cannot",
            "agrees": self.agrees,
        }


class Evening:
    """All brokers of one net, with their diaries."""

    def __init__(self, day: CuriousDay, net: Net) -> None:
        self.day, self.net = day, net
        self.truth = NetTruth(net, day.filters)
        self.diaries = {name: Diary(net, name) for name in BROKERS}

    def equality(self) -> Iterator[Tried]:
        equal = by_value = by_traffic = wrong = met = meant = 0
        for name, diary in self.diaries.items():
            names = self.truth.rows(name)
            true = {frozenset(pair) for pair in combinations(names, 2) if names[pair[0]] == names[pair[1]]}
            told = diary.equal_by_traffic()
            equal += len(true)
            by_value += len(diary.equal_by_value() & true)
            by_traffic, wrong = by_traffic + len(told & true), wrong + len(told - true)
            groups = self.truth.met(name)
            meant, met = meant + len(groups), met + len(diary.equal_filters() & groups)
        yield Tried("equal filters, of one way", "one row", met, 0, meant, 0, True)
        yield Tried("equal filters, of several ways", "equal tokens", by_value, 0, equal, 0, False)
        yield Tried("equal filters, of several ways", "the same events hit", by_traffic, wrong, equal, 0, True)

    def labels(self) -> Iterator[Tried]:
        asked = sorted({label for c, _, _ in self.truth.passing("A") for slot in c.slots for label in slot})
        tokens = sum(len(diary.tokens()) for diary in self.diaries.values())
        opened = sum(len(diary.named_by_dictionary(asked)) for diary in self.diaries.values())
        yield Tried("labels of rows", "its own keys, all labels", opened, 0, tokens, 0, False)
        events = CuriousDay.of(Random(99), _OTHER_DAYS).events
        often = Counter(label for values in events for label in _LABELLER.labels(values))
        guessed = self.diaries["A"].by_frequency({label: often[label] / len(events) for label in asked})
        truth = self.truth.labels("A")
        right = sum(truth[token] == label for token, label in guessed.items())
        chance = len(guessed) / len(asked)
        yield Tried("labels of rows", "frequency, at a root", right, len(guessed) - right, len(guessed), chance, True)

    def links(self) -> Iterator[Tried]:
        above, below = self.truth.rows("B"), self.truth.rows("D")
        linked = self.diaries["D"].linked(self.diaries["B"])
        right = {one for one, two in linked if below[one] == above[two]}
        wrong = sum(below[one] != above[two] for one, two in linked)
        yield Tried("rows of two brokers", "the same events hit", len(right), wrong, len(below), 0, True)

    def counts(self, *, padded: bool) -> Iterator[Tried]:
        diary = self.diaries["A"]
        truth = {event: len(about.labels) for event, about in self.net.events.items()}
        chance = max(Counter(truth.values()).values())
        guesses = {
            "tokens": diary.label_counts(),
            "tokens in one entry": diary.label_counts_across_entries(),
            "tokens that come again": diary.label_counts_without_unique(),
        }
        for how, counts in guesses.items() if padded else list(guesses.items())[:1]:
            right = sum(counts[event] == truth[event] for event in truth)
            what = "labels of events" + (", padded" if padded else "")
            yield Tried(what, f"{how}, at a root", right, len(truth) - right, len(truth), chance, not padded)

    def epoch(self, later: Evening) -> Iterator[Tried]:
        again = self.diaries["A"].tokens_again(later.diaries["A"])
        before, after = self.truth.rows("A"), later.truth.rows("A")
        yield Tried("rows in a new epoch", "equal tokens", len(again), 0, len(before), 0, False)
        pairs = self.diaries["A"].rows_again(later.diaries["A"]).items()
        right = sum(before[one] == after[two] for one, two in pairs)
        chance = len(before) / max(1, len(after))
        yield Tried(
            "rows in a new epoch", "path, shape, frequency", right, len(pairs) - right, len(before), chance, True
        )


def run(quick: bool, told: Told) -> Report:
    day = CuriousDay.of(Random(7), QUICK_EVENTS if quick else EVENTS)
    evenings = []
    for done, (seed, padded) in enumerate(((2, False), (4, True), (8, False))):
        told(done, 3)
        evenings.append(Evening(day, day.lived(Random(seed), padded=padded)))
    told(3, 3)
    return compared(*evenings)


def compared(plain: Evening, padded: Evening, later: Evening) -> Report:
    """Compares one day as it is, padded, and under another epoch's keys."""
    tried = [
        *plain.equality(),
        *plain.labels(),
        *plain.links(),
        *plain.counts(padded=False),
        *padded.counts(padded=True),
        *plain.epoch(later),
    ]
    notes = (
        f"16 subscribers, {len(plain.day.events)} events, two layers; counted over six brokers unless one is named",
        "by chance: what the best blind guess gets right",
        "said: what docs/layered.md and `sealcast explain` say of brokers",
    )
    return Report("shikfa/curious", [one.row() for one in tried], all(one.agrees for one in tried), notes)
