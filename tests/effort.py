"""How much a test tries: little every day, much in the soak. The only place where the two differ for one test.

`make soak` runs tests that are `soak`, and besides them every test that tries more there: conftest.py calls `soak()`
before it collects, and marks those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

Test = TypeVar("Test", bound=Callable[..., Any])
_soaking = False


def soak() -> None:
    """From here on, tests that are imported try as much as they can."""
    global _soaking
    _soaking = True


def examples(daily: int, *, soak: int, **others: Any) -> Callable[[Test], Test]:
    """So many examples of hypothesis: enough every day to find what is broken, and in the soak to look for what is
    rare. `others` are further settings."""

    def decorate(test: Test) -> Test:
        settled = settings(max_examples=soak if _soaking else daily, **others)(test)
        settled.tries_more = True  # type: ignore[attr-defined]
        return settled

    return decorate


def tries_more(item: pytest.Item) -> bool:
    """Whether it is one of those that the soak runs with more examples."""
    return _soaking and getattr(getattr(item, "function", None), "tries_more", False)


def seeds(values: Iterable[Any], *, daily: int) -> list[Any]:
    """The first of them every day, all in the soak."""
    every = list(values)
    rest = (value if isinstance(value, tuple) else (value,) for value in every[daily:])
    return [*every[:daily], *(pytest.param(*values, marks=pytest.mark.soak) for values in rest)]
