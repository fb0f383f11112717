"""One realm and one gateway for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sealcast.trust.deployment import Realm
from tests.gateway.world import RunningGateway, make_realm, running


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    return make_realm(tmp_path_factory.mktemp("gateway") / "market")


@pytest.fixture(scope="module")
def served(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running(realm, tmp_path_factory.mktemp("clients")) as made:
        yield made
