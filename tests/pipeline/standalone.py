"""A Spark cluster for tests: each worker has a home and an unlock key of its own, and nothing else of whoever starts
the run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sealcast.bench.standalone import Standalone
from sealcast.trust.vault import unlock

#: A master, two workers and their executors are six starts of Java, on a machine that may be busy with other things.
PATIENCE: Final = 1_200.0
MOUNTED: Final = "mounted-unlock.key"
COMMAND: Final = ("-c", "from sealcast.cli.main import main; main()")


@contextmanager
def apart(root: Path, workers: int) -> Iterator[Standalone]:
    """A cluster whose workers know the unlock key from a file of theirs, as of a mounted secret, and share the realm's
    directory with the driver."""
    key, home = root / MOUNTED, root / "nobody"
    home.mkdir(parents=True)
    unlock.for_writing()  # made, where nobody needed one before
    shutil.copyfile(unlock.key_path(), key)
    key.chmod(0o600)
    own = {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "SEALCAST_UNLOCK_KEY": str(key)}
    with Standalone(root, workers, environment=own) as cluster:
        yield cluster


def on(cluster: Standalone, cores: int = 2) -> list[str]:
    """The options of `sealcast run` for it."""
    conf = {"spark.cores.max": str(cores), **cluster.quick}
    return ["--master", cluster.url, *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}"))]


def environment() -> dict[str, str]:
    """The shell of somebody who has set nothing for another Spark."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}


def sealcast(*arguments: str, more: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What a command answers."""
    done = subprocess.run(
        [sys.executable, *COMMAND, *arguments, "--json"],
        env={**environment(), **(more or {})},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3_000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
