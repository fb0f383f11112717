"""sealcast lab: the contract of its commands."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sealcast.groupkeys.catalog import ALGORITHMS
from sealcast.groupkeys.clusters import CLUSTERINGS, arranged, by_full_tables
from tests.cli.shell import sealcast
from tests.groupkeys import plain
from tests.groupkeys.groups import packed

N, CACHE, EVENTS, WARMUP = 90, 40, 300, 60


@pytest.fixture(scope="module")
def drawn() -> list[int]:
    rng = random.Random(4)
    popular = [rng.getrandbits(N) for _ in range(15)]
    return [rng.choice(popular) if rng.random() < 0.7 else rng.getrandbits(N) for _ in range(EVENTS - 1)] + [0]


@pytest.fixture
def groups(tmp_path: Path, drawn: list[int]) -> Path:
    """As anybody would write them: any case, with and without 0x and leading zeros."""
    shapes = ("{:x}", "{:X}", "{:#x}", "{:030x}")
    (tmp_path / "groups.txt").write_text("".join(shapes[i % 4].format(g) + "\n" for i, g in enumerate(drawn)))
    return tmp_path / "groups.txt"


def count(algorithm: str, groups: Path, *more: object) -> object:
    result = sealcast(
        *("lab", "groupkeys", "--algorithm", algorithm, "--groups", groups, "--subscribers", N, "--cache", CACHE),
        *more,
        "--json",
    )
    assert result.code == 0, result.err
    return result.document


@pytest.mark.parametrize("policy", ["lru", "frequency"])
@pytest.mark.parametrize("algorithm", ["naive", "simple", "build-up", "clustered", "clustered-popular", "key-tree"])
def test_groupkeys_counts_what_a_plain_implementation_counts(
    algorithm: str, policy: str, groups: Path, drawn: list[int]
) -> None:
    rows = [frozenset(i for i in range(N) if group >> i & 1) for group in drawn]
    costs = {
        "naive": lambda: plain.naive(rows),
        "simple": lambda: plain.simple(rows, CACHE, policy),
        "build-up": lambda: plain.build_up(rows, CACHE),
        "clustered": lambda: plain.clustered(rows, N, CACHE, None, policy),
        "clustered-popular": lambda: plain.clustered_popular(rows, N, CACHE, None, policy),
        "key-tree": lambda: plain.key_tree(rows, N),
    }[algorithm]()[WARMUP:]
    clusters = {
        "clustered": plain.number_of_clusters(N, CACHE),
        "clustered-popular": plain.number_of_clusters(N, CACHE // 2),
    }
    assert count(algorithm, groups, "--policy", policy, "--warmup", WARMUP) == {
        "events": EVENTS - WARMUP,
        "encryptions": sum(costs),
        "mean": sum(costs) / (EVENTS - WARMUP),
        "max": max(costs),
        "clusters": clusters.get(algorithm),
    }


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_answers(algorithm: str, groups: Path) -> None:
    assert set(count(algorithm, groups)) == {"events", "encryptions", "mean", "max", "clusters"}  # type: ignore[call-overload]
    told = sealcast(
        *("lab", "groupkeys", "--algorithm", algorithm, "--groups", groups, "--subscribers", N, "--cache", 5)
    )
    assert told.code == 0 and "encryptions an event" in told.out


def test_groupkeys_takes_clusters_and_trees(groups: Path) -> None:
    assert count("clustered", groups, "--clusters", 7)["clusters"] == 7  # type: ignore[index]
    one, four = (count("key-tree", groups, "--trees", t)["encryptions"] for t in (1, 4))  # type: ignore[index]
    assert four < one
    noted = sealcast(
        *("lab", "groupkeys", "--algorithm", "naive", "--groups", groups, "--subscribers", N, "--cache", 5),
        *("--clusters", 3),
    )
    assert noted.code == 0 and "--clusters changes nothing for naive" in noted.err


def test_groupkeys_takes_who_goes_together(groups: Path, drawn: list[int]) -> None:
    """Subscribers in another order are other subscribers: a plain implementation counts them as if they were."""
    clusters = plain.number_of_clusters(N, CACHE)
    counts = {way: count("clustered", groups, "--clustering", way, "--warmup", WARMUP) for way in CLUSTERINGS}
    for way, found in counts.items():
        past = packed([frozenset(i for i in range(N) if g >> i & 1) for g in drawn[:WARMUP]], N)
        place = {slot: at for at, slot in enumerate(arranged(way, N, clusters, past).order.tolist())}
        assert way == "id" or list(place) != sorted(place)
        rows = [frozenset(place[i] for i in range(N) if group >> i & 1) for group in drawn]
        costs = plain.clustered(rows, N, CACHE, None, "lru")[WARMUP:]
        assert found["encryptions"] == sum(costs)  # type: ignore[index]


def test_groupkeys_finds_the_number_of_clusters(groups: Path) -> None:
    full = count("clustered", groups, "--clusters", "full-tables")["clusters"]  # type: ignore[index]
    assert full == by_full_tables(N, CACHE)
    tuned = count("clustered", groups, "--clusters", "tuned", "--warmup", WARMUP)
    assert 1 <= tuned["clusters"] <= N  # type: ignore[index]
    base = ("lab", "groupkeys", "--algorithm", "clustered", "--groups", groups, "--subscribers", N, "--cache", 5)
    for wrong, words in [
        (("--clusters", "tuned"), "there are none"),
        (("--clusters", "many"), "no number of clusters"),
        (("--clustering", "similarity"), "there are none"),
        (("--clustering", "colour"), "not by 'colour'"),
    ]:
        refused = sealcast(*base, *wrong)
        assert refused.code == 1 and words in refused.err


def test_groupkeys_takes_arity(groups: Path, drawn: list[int]) -> None:
    """Three children a node, by hand: a node is full if all below it are members; a cover has the highest full ones."""

    def cover(members: int) -> int:
        full = [[bool(members >> i & 1) for i in range(N)]]
        while len(full[-1]) > 1:
            below = full[-1]
            full.append([all(below[i : i + 3]) for i in range(0, len(below), 3)])
        return sum(
            is_full and not (level + 1 < len(full) and full[level + 1][at // 3])
            for level, nodes in enumerate(full)
            for at, is_full in enumerate(nodes)
        )

    counted = count("key-tree", groups, "--arity", 3, "--warmup", WARMUP)
    assert counted["encryptions"] == sum(map(cover, drawn[WARMUP:]))  # type: ignore[index]


def test_a_warm_up_that_takes_everything_leaves_nothing(groups: Path) -> None:
    counted = count("simple", groups, "--warmup", EVENTS + 1)
    assert (counted["events"], counted["mean"], counted["max"]) == (0, 0, 0)  # type: ignore[index]


def test_no_events_cost_nothing(tmp_path: Path) -> None:
    (tmp_path / "none").write_text("")
    assert count("clustered", tmp_path / "none")["mean"] == 0  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1f\nxyz\n", ":2: not a hexadecimal group"),
        ("1\n\n2\n", ":2: not a hexadecimal group"),
        (f"0\n1\n{1 << N:x}\n", ":3: a member that is none of the 90 subscribers"),
        (f"{1 << 900:x}\n", ":1: a member that is none of the 90 subscribers"),
        ("-1\n", ":1: not a hexadecimal group"),
        ("ä\n", ":1: not a hexadecimal group"),
    ],
)
def test_lines_that_are_no_groups_are_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "bad").write_text(text)
    result = sealcast(
        *("lab", "groupkeys", "--algorithm", "naive", "--groups", tmp_path / "bad", "--subscribers", N, "--cache", 5)
    )
    assert result.code == 1 and words in result.err and result.out == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--algorithm", "clusterd", "--groups", "/dev/null"), "did you mean 'clustered'?"),
        (("--algorithm", "naive", "--groups", "/nowhere"), "/nowhere"),
        (("--algorithm", "simple", "--groups", "/dev/null", "--policy", "fifo"), "the policies are lru, frequency"),
        (("--algorithm", "clustered", "--groups", "/dev/null", "--clusters", 11), "1 to 10 clusters, not 11"),
    ],
)
def test_what_cannot_be_counted_is_refused(arguments: tuple[object, ...], words: str) -> None:
    result = sealcast("lab", "groupkeys", *arguments, "--subscribers", 10, "--cache", 5)
    assert result.code == 1 and words in result.err
