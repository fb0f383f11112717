"""The public names: few, there, and light."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sealcast


def test_at_most_fifteen_names_and_each_is_there() -> None:
    assert len(sealcast.__all__) <= 15
    for name in sealcast.__all__:
        assert getattr(sealcast, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        sealcast.nonsense  # noqa: B018


@pytest.mark.parametrize("names", ["", "Realm, Publisher, Subscriber, Event, Schema"])
def test_spark_is_not_loaded_by_importing(names: str) -> None:
    code = f"from sealcast import {names}" if names else "import sealcast"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; sys.exit('pyspark' in sys.modules)"], check=False
    )
    assert done.returncode == 0
