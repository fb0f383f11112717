"""What the tests of the plug-in for mosquitto share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mqtt.mosquitto import build
from tests.mqtt.plugged import Plugged


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plug-in, built from this tree."""
    return build(tmp_path_factory.mktemp("plugin"))


@pytest.fixture
def plugged(tmp_path: Path, plugin: Path) -> Iterator[Plugged]:
    """A mosquitto with the plug-in, which a test starts when its table is there."""
    found = Plugged(tmp_path, plugin)
    yield found
    found.stop()
