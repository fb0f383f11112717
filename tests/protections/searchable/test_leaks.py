"""What tags reveal of labels that were never published: the numbers that `explain` quotes, and the attack itself."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from sealcast.errors import Misuse
from sealcast.protections.searchable.leaks import tag_leak
from tests.protections.searchable.world import World


@pytest.mark.parametrize(
    ("bits", "precision", "anonymity"),
    [
        (0, (0.017, 0.018), (8_000, 9_000)),
        (8, (0.78, 0.86), (30, 40)),
        (16, (0.999, 1), (1, 1.2)),
        (32, (1, 1), (1, 1)),
    ],
)
def test_what_is_quoted(bits: int, precision: tuple[float, float], anonymity: tuple[float, float]) -> None:
    leak = tag_leak(bits)
    assert precision[0] <= leak.precision <= precision[1]
    assert anonymity[0] <= leak.anonymity <= anonymity[1]
    assert 0.017 <= leak.baseline <= 0.018
    assert ("No tags" if not bits else f"{bits} bits") in leak.summary


def test_more_bits_never_reveal_less() -> None:
    leaks = [tag_leak(bits) for bits in range(0, 33, 4)]
    assert [leak.precision for leak in leaks] == sorted(leak.precision for leak in leaks)
    assert [leak.anonymity for leak in leaks] == sorted((leak.anonymity for leak in leaks), reverse=True)


@pytest.mark.parametrize(("bits", "least", "most"), [(0, 0.1, 0.1), (2, 0.2, 0.7), (32, 1, 1)])
def test_the_attack_on_sealed_labels(bits: int, least: float, most: float) -> None:
    """A broker that has nothing but sealed filters says which of them ask for the same.

    Where labels fall is drawn with the keys, and ten labels on four tags may all fall on one. Over forty draws the mean
    lies fourteen standard deviations inside the bounds; a single draw was outside once in some fifty runs."""
    random = Random(1)
    wanted = [f"label {number % 10}".encode() for number in range(100)]
    right = guesses = 0
    for _ in range(40 if bits == 2 else 1):
        world = World(tag_bits=bits)
        keys = [world.keys(user) for user in sorted(world.users)]
        sealed = [random.choice(keys).seal_label(word) for word in wanted]
        guessed = [(i, j) for i, j in combinations(range(100), 2) if sealed[i][:4] == sealed[j][:4]]
        hits = sum(wanted[i] == wanted[j] for i, j in guessed)
        assert hits == 10 * 45  # no equal pair is missed
        right, guesses = right + hits, guesses + len(guessed)
    assert least - 0.02 <= right / guesses <= most
    # Nothing but the tag is equal: without tags, no two sealed labels have anything in common.
    assert len({label[4:37] for label in sealed} | {label[37:70] for label in sealed}) == 200


@pytest.mark.parametrize("bits", [-1, 33])
def test_lengths_that_no_tag_has(bits: int) -> None:
    with pytest.raises(Misuse):
        tag_leak(bits)
