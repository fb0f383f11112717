"""Things that hold files or connections, and let go of them at the end of a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Whatever has a `close` serves a `with` block, which calls it."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of everything that is held. Closing twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()
