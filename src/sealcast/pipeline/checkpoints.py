"""Spark's checkpoints beside our ledgers. The checkpoint is Spark's note of how far it got; the ledger is the truth.

A checkpoint that belongs to another query than a ledger's last record is out of date and is dropped: a new one goes on
where the ledger ends, and its replay state begins with what the ledger's frames leave in the windows. One that belongs
to it and disagrees with it was altered, and is refused (sources.py).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from sealcast.broker.replay import Windows
from sealcast.errors import Corrupt
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.steps import OpenStep


def drop_foreign(checkpoint: Path, steps: Sequence[OpenStep]) -> None:
    """Drops a checkpoint that belongs to a different query than the last records of these steps' ledgers."""
    known = {last.query for step in steps if (last := step.ledger.last_span()) is not None}
    if known and (query := query_of(checkpoint)) is not None and known != {query}:
        shutil.rmtree(checkpoint)


def query_of(checkpoint: Path) -> str | None:
    """The query that a checkpoint belongs to; None where there is none yet."""
    metadata = checkpoint / "metadata"
    if not metadata.exists():
        return None
    try:
        return str(json.loads(metadata.read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        raise Corrupt(
            f"{metadata} cannot be read", hint="remove the checkpoint; a new one goes on where the ledger ends"
        ) from None


def initial_windows(step: FramesStep) -> Windows | None:
    """The replay windows that a checkpoint's first batch begins with; None when that batch is done, and Spark has its
    own. A first batch that is run again begins as it did before."""
    if any(path.name.isdigit() for path in (step.paths.checkpoint / "commits").glob("*")):
        return None
    last, before = step.ledger.last_span(), step.ledger.end()
    if last is not None and last.query == query_of(step.paths.checkpoint):
        before -= 1
    return step.history().windows(before)
