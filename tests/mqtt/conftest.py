"""One mosquitto for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.mqtt.mosquitto import Mosquitto


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path_factory.mktemp("mosquitto")).start() as server:
        yield server
