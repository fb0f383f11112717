"""A home's copy of the registry, where several processes keep it: a gateway and a broker on one machine."""

from __future__ import annotations

from pathlib import Path

from sealcast.trust.deployment import Realm
from sealcast.trust.storage.mirror import _WithPending
from sealcast.trust.storage.opening import open_store


def test_rows_that_another_process_was_faster_to_keep_are_read_once(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "market")
    realm.enrol_many(["nyse", "alice"])
    store, newest = open_store(realm.paths.registry), realm.registry.version()
    every = store.read(lambda rows: list(rows.between(0, newest)))
    for known in range(newest):
        # The page was asked for when the copy ended at `known`; since then, all of it has come.
        seen = store.read(lambda rows, known=known: list(_WithPending(rows, every[known:]).between(known, newest)))
        assert seen == every[known:]
