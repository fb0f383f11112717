"""Tests on hosts of their own, where there can be any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.network.hosts import Network, missing


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Callable[..., Network]]:
    """Makes a network of hosts by their names; it is gone after the test, however that ends."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    with ExitStack() as held:
        yield lambda *names: held.enter_context(Network(tmp_path, *names))
