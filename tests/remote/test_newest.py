"""A gateway that has not looked at the registry yet, and clients that know more of it by what it handed out."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sealcast.gateway.newest import NewestRegistry
from sealcast.trust.storage import mirror
from tests.remote.world import PATIENCE_S, served


def test_a_client_ahead_of_the_gateways_last_look_is_not_told_of_an_older_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the gateway for one that puts old copies in place, and stop."""
    monkeypatch.setattr(mirror, "FRESH_S", 0.0)
    with served(tmp_path, "endpoint") as world:
        client, other = world.client("ann"), world.client("bob")
        before = client.state().version
        world.realm.enrol_many(["zoe"])
        until = time.monotonic() + PATIENCE_S
        while other.state().version == before:
            assert time.monotonic() < until
            time.sleep(0.01)
        # From now on it looks no more. Rows are still read as they are.
        monkeypatch.setattr(NewestRegistry, "_unwritten", lambda self: True)
        world.realm.enrol_many(["yan"])
        newest = world.realm.registry.version()
        assert client.state().version == newest > other.registry.known.version  # type: ignore[union-attr]
        assert client.state().version == newest
