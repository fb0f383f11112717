"""Why a step of a broker does not run: a note beside the topic's ledger, for `sealcast status`.

Whoever runs the step writes it, and removes it once the step works again. It is not synced: what is lost of it is
written again with the next attempt.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Final

from sealcast.log import files
from sealcast.model.dataclass import dataclass

_PREFIX, _SUFFIX = "failing-", ".json"
#: Characters of a message or a hint that are kept.
_MAX_TEXT: Final = 2_000
#: More than any note that we write.
_MAX_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class FailureNote:
    """One step that failed and did not work since."""

    step: str
    #: When it failed first, and last.
    since_us: int
    last_us: int
    #: How often in a row.
    attempts: int
    message: str
    hint: str


def write(topic: Path, note: FailureNote) -> None:
    """Puts a note into a topic's directory, in place of the step's last one."""
    path = _path(topic, note.step)
    staged = path.with_name(f".{path.name}-{os.getpid()}")
    short = {**asdict(note), "message": note.message[:_MAX_TEXT], "hint": note.hint[:_MAX_TEXT]}
    with files.named(path, "writing"):
        staged.write_text(json.dumps(short))
        staged.rename(path)


def clear(topic: Path, step: str) -> None:
    """Removes a step's note, if there is one."""
    path = _path(topic, step)
    with files.named(path, "removing"):
        path.unlink(missing_ok=True)


def notes(topic: Path) -> Iterator[FailureNote]:
    """What a topic's directory says. One that cannot be read counts, too: something failed."""
    for path in sorted(topic.glob(f"{_PREFIX}*{_SUFFIX}")):
        with files.named(path, "reading"), path.open("rb") as file:
            raw, written_us = file.read(_MAX_BYTES), os.fstat(file.fileno()).st_mtime_ns // 1000
        step = path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
        yield _parsed(raw) or FailureNote(step, written_us, written_us, 1, f"{path} cannot be read", "")


def _parsed(raw: bytes) -> FailureNote | None:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    kinds = {field.name: int if field.type == "int" else str for field in fields(FailureNote)}
    if not isinstance(body, dict) or {name: type(value) for name, value in body.items()} != kinds:
        return None
    return FailureNote(**body)


def _path(topic: Path, step: str) -> Path:
    return topic / f"{_PREFIX}{step}{_SUFFIX}"
