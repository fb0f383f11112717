"""Spark's classes, kept from one start of Java to the next.

A third of what a short run costs is Java that finds, verifies and links the same thousands of classes again. A JVM can
write down at its end what it has loaded, and the next one maps that into its memory (class-data sharing). Java checks
by itself that an archive fits its own build and Spark's files, and does without it otherwise.

The archive lies in the Python environment that Spark is installed in, and goes with it: whoever can write there could
replace Spark itself. Where we cannot write, or where a trimmed Java cannot share classes, starts are as they were.
"""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sealcast.pipeline.java import SPARK_HOME, Java

_DIRECTORY: Final = Path(sys.prefix) / "var" / "cache" / "sealcast"


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of Spark's classes on one Java."""

    path: Path
    #: Where the JVM of this process writes one when it ends; None when it was not asked to.
    draft: Path | None = None

    @property
    def options(self) -> list[str]:
        """For the JVM."""
        if self.draft is not None:
            return [f"-XX:ArchiveClassesAtExit={self.draft}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        if self.path.exists():
            # What does not fit is ignored, and the JVM has nothing to say about it that a user could act on.
            return [f"-XX:SharedArchiveFile={self.path}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        return []

    def finish(self) -> None:
        """Gives the draft its name, once the JVM has ended. One that was killed over it has left none, or half of one
        under a name that nobody looks for."""
        if self.draft is not None and self.draft.exists():
            self.draft.replace(self.path)


def archive_for(java: Java, *, keep: bool = False) -> ClassArchive:
    """The archive for a session on this Java. With `keep`, the JVM writes one at its end if there is none: that takes
    it some ten seconds, so it is for whoever has finished."""
    of = hashlib.sha256(f"{java.executable.resolve()}\n{SPARK_HOME}".encode()).hexdigest()[:16]
    path = _DIRECTORY / f"spark-on-java-{java.version}-{of}.jsa"
    if not keep or path.exists() or not _writable():
        return ClassArchive(path)
    _DIRECTORY.mkdir(parents=True, exist_ok=True)
    for abandoned in _DIRECTORY.glob(f"{path.stem}.*.draft"):
        if not _runs(int(abandoned.suffixes[-2][1:])):
            abandoned.unlink(missing_ok=True)
    return ClassArchive(path, path.with_suffix(f".{os.getpid()}.draft"))


def _writable() -> bool:
    existing = next(path for path in (_DIRECTORY, *_DIRECTORY.parents) if path.exists())
    return os.access(existing, os.W_OK)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
