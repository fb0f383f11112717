"""A snapshot answers as the index it was made of, and anything that is not what was written is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sealcast.errors import Corrupt, NotFound
from sealcast.filters.index import Index, snapshot
from sealcast.filters.index.arrays import FACTS, from_arrays, to_arrays
from sealcast.filters.index.treejson import from_json, to_json
from tests.filters.test_index import PLANS, built
from tests.filters.worlds import Maker


@pytest.mark.parametrize("chosen", PLANS)
@pytest.mark.parametrize("seed", range(4))
def test_round_trip(chosen: str, seed: int, tmp_path: Path) -> None:
    world = Maker(seed).world(conditions=150, events=25)
    index = built(chosen, list(world.conditions), world.schema)
    snapshot.save(tmp_path / "index", index)
    again = snapshot.load(tmp_path / "index")
    assert again.schema == index.schema
    assert again.reads_payloads == index.reads_payloads
    assert np.array_equal(again.match(world.columns, world.payloads), index.match(world.columns, world.payloads))
    snapshot.save(tmp_path / "twice", again)
    assert (tmp_path / "index").read_bytes() == (tmp_path / "twice").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["index", "twice"]


def test_every_condition_survives_as_json() -> None:
    maker = Maker(77)
    for _ in range(400):
        condition = maker.condition(maker.schema(), 3)
        assert from_json(to_json(condition)) == condition


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    world = Maker(4).world(conditions=150, events=0)
    path = tmp_path_factory.mktemp("snapshot") / "index"
    snapshot.save(path, built("some dense", list(world.conditions), world.schema))
    return path


def test_a_flipped_bit_anywhere_is_noticed(saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    victim = tmp_path / "index"
    for at in [*range(60), *range(60, len(whole), max(1, len(whole) // 300)), len(whole) - 1]:
        victim.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(Corrupt, match="index"):
            snapshot.load(victim)


def test_a_cut_or_grown_file_is_noticed(saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    victim = tmp_path / "index"
    for size in [0, 1, 55, 56, 57, 200, len(whole) // 2, len(whole) - 64, len(whole) - 1]:
        victim.write_bytes(whole[:size])
        with pytest.raises(Corrupt):
            snapshot.load(victim)
    victim.write_bytes(whole + b"\0")
    with pytest.raises(Corrupt, match="bytes"):
        snapshot.load(victim)
    with pytest.raises(NotFound):
        snapshot.load(tmp_path / "none")


def test_arrays_that_do_not_fit_together_are_refused(saved: Path) -> None:
    arrays = to_arrays(snapshot.load(saved))
    for name, array in arrays.items():
        rest = {n: a for n, a in arrays.items() if n != name}
        with pytest.raises(Corrupt):
            from_arrays(rest)
        with pytest.raises(Corrupt):
            from_arrays({**rest, name: array.astype(np.float32)})
        if array.size and name not in (FACTS, "always") and not name.endswith("/grid"):
            with pytest.raises(Corrupt):
                from_arrays({**rest, name: array[: array.shape[0] - 1]})
    wild = arrays["fan/subscriptions"].copy()
    wild[0] = 10**9
    with pytest.raises(Corrupt, match="points outside"):
        from_arrays({**arrays, "fan/subscriptions": wild})


def test_an_index_of_nothing(tmp_path: Path) -> None:
    world = Maker(1).world(conditions=0, events=3)
    snapshot.save(tmp_path / "index", Index.build([], world.schema))
    assert snapshot.load(tmp_path / "index").match(world.columns).shape == (3, 1)
