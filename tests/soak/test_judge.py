"""The campaign's judge finds what it is there to find: each wrong that a campaign could do is done here by hand."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest

from tests.soak.journal import Journal, Received
from tests.soak.judge import Verdict, judge, leaks
from tests.soak.world import CANARY, FILTERS, PUBLISHERS, SHARES, events, named, prices, wanted

TOPIC = "endpoint"


class Story:
    """Journals, as clients would have written them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def published(self, *spans: tuple[int, int, bool], by: str = PUBLISHERS[0]) -> None:
        journal = Journal(self._directory / f"{TOPIC}-publisher-{by}")
        for first, count, acknowledged in spans:
            journal.note("begin", first, count)
            if acknowledged:
                journal.note("acknowledged")

    def got(self, name: str, *batches: list[int], acknowledged: bool = True) -> None:
        journal = Journal(self._directory / f"{TOPIC}-subscriber-{name}")
        for batch in batches:
            journal.note("got", [[PUBLISHERS[0], number] for number in batch])
            if acknowledged:
                journal.note("acknowledged")

    def all_got(self, end: int, **but: list[int]) -> None:
        for name in SHARES[TOPIC].subscribers:
            self.got(name, but.get(name, wanted(name, np.arange(end)).tolist()))

    def verdict(self) -> Verdict:
        return judge(self._directory, TOPIC, ordered=True)


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path)


LOW = wanted("low", np.arange(100)).tolist()


def test_a_good_end_is_one(story: Story) -> None:
    story.published((0, 50, True), (50, 50, True))
    story.all_got(100)
    verdict = story.verdict()
    assert verdict.ok and verdict.events == 100 and verdict.deliveries > 100


@pytest.mark.parametrize(
    ("got", "wrong"),
    [
        (LOW[:-1], (1, 0, 0, 0)),
        ([*LOW, LOW[-1]], (0, 1, 0, 0)),
        ([*LOW[:-2], LOW[-1], LOW[-2]], (0, 0, 1, 0)),
        ([*LOW, 10_000], (0, 0, 0, 1)),
        ([], (len(LOW), 0, 0, 0)),
    ],
)
def test_every_wrong_is_counted(story: Story, got: list[int], wrong: tuple[int, ...]) -> None:
    story.published((0, 100, True))
    story.all_got(100, low=got)
    verdict = story.verdict()
    assert (verdict.lost, verdict.doubled, verdict.out_of_order, verdict.unexpected) == wrong
    assert not verdict.ok and verdict.findings


def test_what_is_in_doubt_may_be_there_or_not_but_the_same_for_all(story: Story, tmp_path: Path) -> None:
    story.published((0, 50, True), (50, 50, False), (100, 50, False))
    for name in FILTERS:
        story.got(name, wanted(name, np.arange(100)).tolist())
    verdict = story.verdict()
    assert verdict.ok and (verdict.events, verdict.doubtful, verdict.doubtful_made) == (100, 2, 1)
    story.got("low", wanted("low", np.arange(100, 150)).tolist())  # the others did not get theirs
    assert story.verdict().lost


def test_what_comes_again_after_a_death_counts_once(story: Story, tmp_path: Path) -> None:
    story.got("low", [1, 2], [1, 2, 3], acknowledged=False)  # killed before it acknowledged
    story.got("low", [4, 5], acknowledged=False)  # and after, before it said so
    found = Received(tmp_path / f"{TOPIC}-subscriber-low")
    assert [number for _, number in found.events] == [1, 2, 3, 4, 5] and found.again == 1


def test_a_client_that_fell_over_is_a_finding(story: Story, tmp_path: Path) -> None:
    story.published((0, 100, True))
    story.all_got(100)
    journal = Journal(tmp_path / f"{TOPIC}-subscriber-low")
    journal.note("error", "DiskFull", "no space")
    verdict = story.verdict()
    assert verdict.ok and json.loads(json.dumps(verdict.as_json()))["errors"] == {"DiskFull": 1}
    journal.note("UNEXPECTED", "KeyError 'x'")
    assert story.verdict().findings == ["UNEXPECTED KeyError 'x'"]


@pytest.mark.parametrize(
    "spelled",
    [
        CANARY,
        CANARY.hex().encode(),
        CANARY.decode().encode("utf-16-le"),
        *(base64.b64encode(b"x" * shift + CANARY) for shift in range(3)),
    ],
)
def test_a_payload_in_a_file_is_found(tmp_path: Path, spelled: bytes) -> None:
    (tmp_path / "some.log").write_bytes(b"before " + spelled + b" after")
    (tmp_path / "other.log").write_bytes(b"nothing")
    searched, found = leaks(tmp_path)
    assert searched > len(spelled) and [Path(path).name for path in found] == ["some.log"]


def test_events_say_what_they_are(tmp_path: Path) -> None:
    made = events("ann", 5, 200)
    numbers = np.arange(5, 205)
    assert [named(event.payload) for event in made] == [("ann", n) for n in numbers.tolist()]
    assert [event.attributes["price"] for event in made] == prices(numbers).tolist()
    assert set(prices(numbers).tolist()) == set(range(16)), "every value of the domain comes"
    low, high = wanted("low", numbers), wanted("high", numbers)
    assert sorted([*low, *high]) == numbers.tolist(), "each event is for one of the two"
