"""One ward for all tests of the room: making it takes longer than most of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.protections.attribute.ward import Ward


@pytest.fixture(scope="session")
def made_ward(tmp_path_factory: pytest.TempPathFactory) -> Ward:
    return Ward(tmp_path_factory.mktemp("ward") / "realm")


@pytest.fixture
def ward(made_ward: Ward, tmp_path: Path) -> Ward:
    """A copy that a test may change."""
    return Ward.copied(made_ward, tmp_path / "realm")
