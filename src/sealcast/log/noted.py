"""Small notes that a process keeps for itself, as JSON, with a check by which it finds that they were damaged.

A check finds accidents and not attacks: a note is in a file that only its owner writes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sealcast.log import files

_CHECK: Final = "check"


def encode(body: Mapping[str, object]) -> bytes:
    """The note's bytes."""
    return json.dumps({**body, _CHECK: check(body)}).encode()


def decode(raw: bytes) -> dict[str, Any]:
    """What `encode` was given; ValueError for anything else."""
    body = json.loads(raw)
    if not isinstance(body, dict) or body.pop(_CHECK, None) != check(body):
        raise ValueError("not as it was written")
    return body


def write(path: Path, body: Mapping[str, object]) -> None:
    """Puts a note in the place of the one before, durably."""
    files.replace_file(path, encode(body))


def check(body: object) -> str:
    """Differs for every other body."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
