"""Spark's checkpoints beside our ledgers. The checkpoint is Spark's note of how far it got; the ledger is the truth.

A checkpoint that belongs to another query than a ledger's last record is out of date and is dropped: a new one goes on
where the ledger ends. So is one of a release whose queries had state, which Spark would want to have again. One that
belongs to it and disagrees with it was altered, and is refused (sources.py).

It lies beside the ledger, or below a URL of any file system that Hadoop knows (`Options.checkpoint`).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sealcast.errors import Corrupt, Misuse, Unavailable
from sealcast.pipeline.settings import FILE_MANAGER, PLAIN_FILES
from sealcast.protections.steps import OpenStep

_METADATA: Final = "metadata"
_STATE: Final = "state"
#: It has an id, and nothing else.
_MAX_METADATA_BYTES: Final = 4_096


class Checkpoint(Protocol):
    """Where Spark keeps its notes on one query."""

    @property
    def location(self) -> str: ...

    def metadata(self) -> str | None:
        """The file that names the query; None where there is none yet."""

    def has_state(self) -> bool:
        """Whether its query had state."""

    def remove(self) -> None: ...


class LocalCheckpoint:
    """In a directory of this machine."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def location(self) -> str:
        return str(self._directory)

    def metadata(self) -> str | None:
        path = self._directory / _METADATA
        return path.read_text() if path.exists() else None

    def has_state(self) -> bool:
        return (self._directory / _STATE).is_dir()

    def remove(self) -> None:
        shutil.rmtree(self._directory)


class HadoopCheckpoint:
    """At a URL, through Spark's JVM, which has the file system's code and the operator's settings for it."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self.location = location
        jvm: Any = spark._jvm
        with self._asked():
            self._jvm, self._root = jvm, jvm.org.apache.hadoop.fs.Path(location)
            self._files = self._root.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """Says in our words what a file system says in Java's."""
        try:
            yield
        except Py4JJavaError as error:
            said = str(error.java_exception).splitlines()[0][:400]
            if "ChecksumException" in said:
                raise _damaged(self) from None
            raise Unavailable(f"{self.location} cannot be used: {said}", hint="is the file system there?") from None

    def _below(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def metadata(self) -> str | None:
        path = self._below(_METADATA)
        with self._asked():
            if not self._files.exists(path):
                return None
            if self._files.getFileStatus(path).getLen() > _MAX_METADATA_BYTES:
                raise _damaged(self)
            stream = self._files.open(path)
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def has_state(self) -> bool:
        with self._asked():
            return bool(self._files.exists(self._below(_STATE)))

    def remove(self) -> None:
        with self._asked():
            self._files.delete(self._root, True)


def checkpoint_of(spark: SparkSession, step: OpenStep, alone: bool, below: str | None) -> Checkpoint:
    """Where the notes on the query that runs a step are, and Spark set to write files there."""
    directory = step.checkpoint(alone)
    if below is None:
        _choose_manager(spark, plain=True)
        return LocalCheckpoint(directory)
    _choose_manager(spark, plain=urlsplit(below).scheme == "file")
    place = directory.relative_to(step.realm.paths.root).as_posix()
    return HadoopCheckpoint(spark, f"{below.rstrip('/')}/{step.realm.id.hex()}/{place}")


def check_location(below: str) -> None:
    """Refuses what is no URL of a directory: a path would be another one on each machine, and what stands for another
    character is one thing to Spark and another to Hadoop."""
    told = urlsplit(below)
    if not told.scheme or not told.path.startswith("/") or re.search(r"[%?#\s]", below):
        raise Misuse(
            f"{below!r} is no URL of a directory",
            hint="file:///var/lib/sealcast, hdfs://HOST:PORT/DIR, s3a://BUCKET/DIR",
        )


def _choose_manager(spark: SparkSession, *, plain: bool) -> None:
    """How Spark writes a checkpoint's files, unless the operator says so: plainly where a rename is all that it takes,
    by default elsewhere."""
    chosen = spark.conf.get(FILE_MANAGER, None)
    if plain and chosen is None:
        spark.conf.set(FILE_MANAGER, PLAIN_FILES)
    elif not plain and chosen == PLAIN_FILES:
        spark.conf.unset(FILE_MANAGER)


def drop_foreign(checkpoint: Checkpoint, steps: Sequence[OpenStep]) -> None:
    """Drops a checkpoint that belongs to a different query than the last records of these steps' ledgers, or to one
    that had state."""
    known = {last.query for step in steps if (last := step.ledger.last_span()) is not None}
    query = query_of(checkpoint)
    if query is not None and ((known and known != {query}) or checkpoint.has_state()):
        checkpoint.remove()


def query_of(checkpoint: Checkpoint) -> str | None:
    """The query that a checkpoint belongs to; None where there is none yet."""
    try:
        told = checkpoint.metadata()
        return None if told is None else str(json.loads(told)["id"])
    except (OSError, ValueError, KeyError, TypeError):
        raise _damaged(checkpoint) from None


def _damaged(checkpoint: Checkpoint) -> Corrupt:
    return Corrupt(
        f"{checkpoint.location}/{_METADATA} cannot be read",
        hint="remove the checkpoint; a new one goes on where the ledger ends",
    )
