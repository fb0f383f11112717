"""A small realm that ran on Spark, to see what a wrong byte in Spark's checkpoint does.

    python -m tests.soak.checkpointed make DIR PROTECTION      makes it
    python -m tests.soak.checkpointed flip DIR PROTECTION      as small_realm.py does, with one Spark for all flips

A flip is tried on a copy of the realm: two more events are published, the pipeline is run, and everybody reads on. If
the run is refused, the refusal must name the checkpoint, and the remedy that it names must help.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sealcast import Realm, Subscriber
from sealcast.errors import Corrupt, SealcastError
from sealcast.pipeline.run import run
from sealcast.pipeline.session import session
from tests.soak import small_realm
from tests.soak.small_realm import ACKNOWLEDGED, AFTER, BEFORE, FILTERS, TOPIC, check, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DUE: Final = {name: [*BEFORE[name][ACKNOWLEDGED:], *AFTER[name]] for name in FILTERS}


@contextmanager
def _spark() -> Iterator[SparkSession]:
    yield (started := session("local[1]", app_name="checkpoints", driver_memory="1g", short_lived=True))
    started.stop()


def make(root: Path, protection: str) -> None:
    with _spark() as spark:
        small_realm.make(root, protection, lambda realm: _run(realm.paths.root, spark))


def _run(root: Path, spark: SparkSession) -> None:
    run(root, once=True, spark=spark)


def _read_on(root: Path) -> None:
    realm, found = Realm(root), {}
    for name in FILTERS:
        with Subscriber(realm, TOPIC, name) as reader:
            found[name] = [event.payload for event in reader]
    assert found == DUE, f"{found} was read, not {DUE}"


def outcome(root: Path, spark: SparkSession) -> dict[str, Any]:
    """What each act came to, as in small_realm.py. What a refusal calls for is done, and must help."""
    publish(Realm(root), [5, 6])
    found = {"run": _said(lambda: _run(root, spark))}
    if found["run"] != "same":
        shutil.rmtree(Realm(root).paths.topic(TOPIC).checkpoint)
        found["run without it"] = _said(lambda: _run(root, spark))
    return {**found, "read": _said(lambda: _read_on(root)), "check": _said(lambda: check(root))}


def _said(act: Callable[[], object]) -> object:
    try:
        act()
    except Corrupt as error:
        named = "checkpoint" in error.message and error.hint is not None and "remove the checkpoint" in error.hint
        return ["Corrupt" if named else "WITHOUT A REMEDY", error.message]
    except SealcastError as error:
        return [f"UNEXPECTED {type(error).__name__}", error.message]
    except Exception:  # noqa: BLE001
        return f"UNEXPECTED {traceback.format_exc()[-1500:]}"
    return "same"


def flip_all(root: Path) -> None:
    answers = os.dup(1)
    os.dup2(2, 1)
    with _spark() as spark:
        for number, (name, first, count, mask) in enumerate(small_realm.asked()):
            copy = root.with_name(f"{root.name}-copy-{os.getpid()}-{number}")
            small_realm.flipped(root, copy, name, first, count, mask)
            said = outcome(copy, spark)
            os.write(answers, json.dumps([name, first, count, mask, said]).encode() + b"\n")
            shutil.rmtree(copy)


if __name__ == "__main__":
    _, what, directory, protection = sys.argv
    if what == "make":
        make(Path(directory), protection)
    else:
        flip_all(Path(directory))
