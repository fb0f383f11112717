"""What all tests share: one Spark session, started only when a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Machines differ: a slow example is no failure. The examples are the same on every run, so that a failure repeats.
settings.register_profile("sealcast", deadline=None, derandomize=True)
settings.load_profile("sealcast")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session. It ends with the process."""
    from sealcast.pipeline.session import session

    yield session("local[2]", app_name="sealcast tests", driver_memory="1g", short_lived=True)
