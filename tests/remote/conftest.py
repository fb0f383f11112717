"""Which cases of the conformance suite run with Spark in every run of the tests, and which in the long ones alone."""

from __future__ import annotations

import pytest

#: One with brokers and one without: Spark's source and sink are the same clients for all of them.
ON_SPARK = ("payload", "attribute")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        asked = "spark" in getattr(item, "fixturenames", ())
        if asked and item.path.parts[-2:] == ("remote", "test_conformance.py") and item.callspec.id not in ON_SPARK:  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.soak)
