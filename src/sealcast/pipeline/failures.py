"""What went wrong, in our own words: Spark's reports become the errors that our code raised, or say what to do."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from sealcast.errors import HINT, Corrupt, DiskFull, Rejected, SealcastError, Unavailable

_OUR_ERROR: Final = re.compile(rf"^(sealcast(?:\.\w+)+)\.(\w+): (.*)$(?:\n{HINT}(.*)$)?", re.MULTILINE)
#: What Hadoop says of a file whose bytes are not those of its checksum. Of ours, it keeps Spark's checkpoints alone.
_WRONG_CHECKSUM: Final = re.compile(r"Checksum error: (?:file:)?(\S+)")
#: What Spark says of its own state there, with or without the reason.
_LOST_STATE: Final = "[CANNOT_LOAD_STATE_STORE"
_BEGIN_ANEW: Final = "remove the checkpoint; a new one goes on where the ledger ends"
_WORKER_GONE: Final = re.compile(r"Python worker (exited|failed to connect)|Connection reset|Broken pipe|EOFException")
_KILLED: Final = "was it killed, or short of memory? start again: nothing is lost, it goes on where it was"


def explain(failure: PySparkException | Py4JJavaError) -> SealcastError:
    """Our own error again, out of Spark's report of it; else Unavailable, with the first line of the report."""
    text = str(failure)
    if told := _OUR_ERROR.search(text):
        module, name, message, hint = told.groups()
        kind = getattr(sys.modules.get(module), name, Unavailable)
        simple = issubclass(kind, SealcastError) and kind.__init__ is SealcastError.__init__
        return (kind if simple else Rejected)(message, hint=hint)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    cause = next((line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)), lines[0] if lines else "")
    if damaged := _WRONG_CHECKSUM.search(text):
        return Corrupt(
            f"Spark's checkpoint was damaged: {damaged[1]} is not what was written",
            hint=_BEGIN_ANEW,
        )
    if _LOST_STATE in text:
        return Corrupt("the state in Spark's checkpoint cannot be loaded", hint=_BEGIN_ANEW)
    if "No space left on device" in cause:
        return DiskFull("Spark has no space left for its checkpoint or its files", hint="free some space, then go on")
    if _WORKER_GONE.search(text):
        return Unavailable("one of Spark's Python processes has ended unexpectedly", hint=_KILLED)
    return Unavailable(f"the pipeline failed: {cause[:500]}")


@contextmanager
def explained() -> Iterator[None]:
    """Raises our own errors for Spark's. What Java throws comes as it is where PySpark has no class for it."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as failure:
        raise explain(failure) from failure


@contextmanager
def living_jvm() -> Iterator[None]:
    """Says what happened when the JVM is no longer there to answer."""
    try:
        yield
    except (Py4JError, ConnectionError) as error:
        # An exception of Java's comes from a JVM that lives. One that dies in the middle of a call says nothing more.
        if isinstance(error, Py4JJavaError):
            raise
        raise Unavailable("Spark's JVM has ended unexpectedly", hint=_KILLED) from None
