"""Files that hold private keys: made once, readable by their owner alone, refused when they are not."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sealcast.errors import Corrupt, Misuse, NotFound, Rejected
from sealcast.log import files

FORMAT: Final = 1
#: More than any key file of ours has; a wrong path is noticed before it is read whole.
MAX_BYTES: Final = 16_384
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def write(path: Path, kind: str, body: Mapping[str, object]) -> None:
    """A new file, durable on return. It is never writable or readable by others, not even for a moment."""
    content = json.dumps({"format": FORMAT, "kind": kind, **body, "check": _check(body)}, indent=2).encode() + b"\n"
    files.make_directory(path.parent)
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    with files.named(path, "writing"):
        try:
            file = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            try:
                files.write_all(file, content, 0)
                os.fsync(file)
            finally:
                os.close(file)
            # link, not rename: two processes that make the same file cannot overwrite each other's keys
            os.link(staged, path)
        except FileExistsError:
            raise Misuse(f"{path} exists; keys are never overwritten") from None
        finally:
            staged.unlink(missing_ok=True)
        files.sync_directory(path.parent)


def read(path: Path, kind: str, missing: NotFound) -> Mapping[str, Any]:
    """The body of a key file, if it is one of `kind` and no one else could have read it; `missing` if there is none."""
    with files.named(path, "reading"):
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise missing from None
    try:
        # Asked of the open file, so that what was checked is what is read.
        mode = os.fstat(file).st_mode
        if mode & _OTHERS:
            raise Rejected(
                f"{path} can be read by others (mode {stat.S_IMODE(mode):04o}); its keys may be known to them",
                hint=f"if you are sure they are not: chmod 600 {path}",
            )
        with files.named(path, "reading"):
            content = os.read(file, MAX_BYTES + 1)
    finally:
        os.close(file)
    return _parse(path, kind, content)


def _parse(path: Path, kind: str, content: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(content)
        if len(content) > MAX_BYTES or not isinstance(body, dict) or body["kind"] != kind or body["format"] != FORMAT:
            raise KeyError
        kept = {name: value for name, value in body.items() if name not in ("format", "kind", "check")}
        if body["check"] != _check(kept):
            raise Corrupt(f"{path} is not as it was written", hint="restore it from a copy; keys cannot be made again")
    except (ValueError, KeyError):
        raise Corrupt(
            f"{path} is no {kind} file of format {FORMAT}", hint="restore it from a copy; keys cannot be made again"
        ) from None
    return kept


def _check(body: Mapping[str, object]) -> str:
    """Finds accidents. A key with one bit flipped is a key too: nothing opens under it, and everything is refused."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
