"""Runs on a real Spark cluster: a master and workers from the installed PySpark, as processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast.clients.subscriber import Subscriber
from tests.pipeline.standalone import MOUNTED, apart, on, sealcast
from tests.pipeline.test_canaries import PAYLOAD, PRICE, SYMBOL, found, make_realm, spellings

pytestmark = pytest.mark.timeout(1_500)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_executors_open_keys_with_what_is_on_their_worker_and_leave_no_secret_there(
    tmp_path: Path, workers: int
) -> None:
    realm, state = make_realm(tmp_path / "realm"), tmp_path / "state"
    with apart(tmp_path / "cluster", workers) as cluster:
        run = ("run", "--once", "--realm", str(realm.paths.root), "--checkpoint", state.as_uri())
        totals = sealcast(*run, *on(cluster, workers))
    assert (totals["admitted"], totals["deliveries"], totals["rejected_frame"]) == (3, 4, 1), totals
    for name in ("alice", "bob"):
        with Subscriber(realm, "quotes", name, from_=0) as reader:
            opened = [(event.attributes, event.payload) for event in reader]
        assert opened == [({"symbol": SYMBOL, "price": PRICE}, PAYLOAD)] * 2
    with Subscriber(realm, "quotes", "eve", from_=0) as reader:
        assert list(reader) == []
    left = [path for path in cluster.directory.rglob("*") if path.is_file() and path.name != MOUNTED]
    assert sum(path.name == "sealcast-python" for path in left) == workers, "all executors ran"
    assert any(path.name == "stderr" for path in left), "and what they said is among what is searched"
    noted = [path for path in state.rglob("*") if path.is_file()]
    assert noted, "Spark keeps its state where it was told to"
    assert found([*left, *noted], spellings(realm)) == []
    weak = cluster.work[0] / "weak"
    weak.write_bytes(realm.broker().journal_key(realm.state().topic("quotes").id).reveal())
    assert found([weak], spellings(realm)) == ["journal key"], "a task that wrote a key down would be found"
