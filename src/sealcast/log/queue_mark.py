"""How far the one reader of a queue has taken it: a number beside the log that is the queue.

It is not synced. What is lost of it makes the queue seem longer, until the reader's next turn.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from sealcast.log import files

_NAME: Final = "taken"


def read(directory: Path) -> int:
    """The first offset that is still needed."""
    path = directory / _NAME
    try:
        return int.from_bytes(path.read_bytes()[:8], "big")
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise files.trouble(error, path, "reading") from error


def write(directory: Path, offset: int) -> None:
    """Notes that nothing before `offset` is needed any more."""
    path = directory / _NAME
    staged = path.with_name(f".taken-{os.getpid()}")
    with files.named(path, "writing"):
        staged.write_bytes(offset.to_bytes(8, "big"))
        staged.rename(path)
