"""What the tests of this room share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sealcast.log.control_topics import ControlPlane


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Control topics are logs, a few open files each: what a test opened is closed after it. One that another test
    still holds opens again when it is used."""
    made, real = list[ControlPlane](), ControlPlane.__init__

    def remember(self: ControlPlane, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(ControlPlane, "__init__", remember)
    yield
    for plane in made:
        plane.close()
