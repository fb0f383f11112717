"""A run of the pipeline that keeps everything it shows to anybody: for a search through all of it (test_canaries.py).

    python -m tests.pipeline.watched REALM OUT

Spark's UI, its event log, its log at DEBUG, py4j's, plans, progress reports, metrics, exceptions, process environments
and command lines, and the files of its private directory while it runs: all of it is written to OUT.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import time
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from sealcast.pipeline.metrics import Metrics
from sealcast.pipeline.run import run, start
from sealcast.pipeline.session import session

MAX_PAGES = 150
#: What Spark's pages tell over its REST interface.
REST = (
    "",
    "/jobs",
    "/stages?details=true",
    "/sql?details=true&length=200",
    "/environment",
    "/executors",
    "/storage/rdd",
)


class Watch:
    """Collects into a directory."""

    def __init__(self, out: Path) -> None:
        self.out = out
        logging.basicConfig(level=logging.DEBUG, filename=out / "python.log", force=True)
        extra = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": str(out),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.logStageExecutorMetrics": "true",
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "spark.sql.debug.maxToStringFields": "10000",  # nothing is hidden by being shortened
            "spark.sql.maxPlanStringLength": "1000000",
        }
        self.spark = session("local[2]", extra=extra, short_lived=True)
        self.spark.sparkContext.setLogLevel("DEBUG")
        self.home = Path(self.spark.sparkContext.getConf().get("spark.local.dir") or "").parent

    def write(self, name: str, text: str | bytes) -> None:
        (self.out / name).write_bytes(text.encode() if isinstance(text, str) else text)

    def exception(self, name: str, act: Callable[[], object]) -> None:
        """What it raises, with every cause and traceback."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  whatever it is, it is what the user would see
            self.write(name, "".join(traceback.format_exception(error)) + repr(error) + str(error))
            return
        raise AssertionError(f"{name} was to fail")

    def everything(self, moment: str) -> None:
        """Pages, processes and files, as they are now."""
        self._pages(moment)
        self._processes(moment)
        self._files(moment)

    def _pages(self, moment: str) -> None:
        root = str(self.spark.sparkContext.uiWebUrl)
        rest = f"{root}/api/v1/applications/{self.spark.sparkContext.applicationId}"
        waiting = [f"{root}/", f"{root}/StreamingQuery/", f"{root}/SQL/", *(rest + path for path in REST)]
        seen = dict.fromkeys(waiting)
        for number, url in enumerate(waiting):  # grows while it is walked
            text = _fetch(url)
            self.write(f"ui-{moment}-{number:03}", f"{url}\n{text}")
            for link in re.findall(r"""(?:href|src)=["']([^"'#]+)["']""", text):
                target = urljoin(url, link.replace("&amp;", "&"))
                wanted = target.startswith(root) and "/static/" not in target and "/kill" not in target
                if wanted and target not in seen and len(seen) < MAX_PAGES:
                    seen[target] = None
                    waiting.append(target)

    def _processes(self, moment: str) -> None:
        told = []
        for process in Path("/proc").iterdir():
            with suppress(OSError):
                if process.name.isdigit() and os.getsid(int(process.name)) == os.getsid(0):
                    told += [(process / "cmdline").read_bytes(), (process / "environ").read_bytes()]
        assert len(told) >= 6, "this process, the JVM and workers at least"
        self.write(f"processes-{moment}", b"\n".join(told))

    def _files(self, moment: str) -> None:
        # Files come and go while it runs; those that are gone again are not missed.
        with suppress(shutil.Error, FileNotFoundError):
            shutil.copytree(self.home, self.out / f"home-{moment}", ignore=_no_sockets)


def _no_sockets(directory: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(directory) / name).is_socket()]


def _fetch(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return str(answer.read().decode("utf-8", "replace"))
    except urllib.error.HTTPError as error:
        return f"{error.code}: {error.read().decode('utf-8', 'replace')}"


def main(realm: Path, out: Path) -> None:
    watch, metrics = Watch(out), Metrics()
    spark = watch.spark
    reports: list[str] = []
    with metrics.serve(0) as served, start(realm, spark=spark, metrics=metrics) as pipeline:
        pipeline.wait(lambda: pipeline.totals["admitted"] >= 3 and pipeline.totals["rejected_event"] >= 1)
        (query,) = spark.streams.active
        watch.write("plan-streaming", _plan(query._jsq))
        watch.write("metrics", _fetch(f"http://127.0.0.1:{served.port}/metrics"))
        watch.everything("running")
        reports += [str(query.lastProgress), str(query.recentProgress), str(query.status)]
    watch.write("progress", "\n".join(reports))

    options = {"realm": str(realm), "topic": "quotes", "as": "alice"}
    opened = spark.read.format("sealcast").options(**options).load()
    assert opened.count() == 2
    execution = opened.select("position")._jdf.queryExecution()
    watch.write("plan-batch", execution.toString() + execution.debug().toString() + execution.logical().toJSON())
    watch.write("conf", spark.sparkContext._jsc.sc().conf().toDebugString())  # type: ignore[union-attr]

    _fail(watch, realm, options)
    watch.everything("after")
    for name in ("spark.log", "jvm.out"):
        shutil.copy(watch.home / name, out / name)


def _fail(watch: Watch, realm: Path, options: dict[str, str]) -> None:
    """Failures in a worker, on the driver, and in a user's own job."""
    spark, frames = watch.spark, realm / "topics" / "quotes" / "frames" / "0" / f"{0:020}.seg"
    broker, alice = realm / "secrets" / "broker.key", realm / "entities" / "alice.key"
    (realm / "publish-more").touch()  # the test publishes an event more, which cannot be read:
    while (realm / "publish-more").exists():
        time.sleep(0.05)
    with _damaged(frames, -20):
        watch.exception("exception-frames", lambda: run(realm, once=True, spark=spark))
    with _damaged(broker, 200):
        watch.exception("exception-broker", lambda: run(realm, once=True, spark=spark))
    with _damaged(alice, 100):
        watch.exception("exception-alice", lambda: spark.read.format("sealcast").options(**options).load().collect())
    opened = spark.read.format("sealcast").options(**options).load()
    watch.exception("exception-user", opened.mapInArrow(_raise, "position string").collect)


class _damaged:
    """One byte of a file, for as long as the block takes."""

    def __init__(self, path: Path, at: int) -> None:
        self._path, self._at, self._good = path, at, path.read_bytes()

    def __enter__(self) -> None:
        bad = bytearray(self._good)
        bad[self._at] ^= 0x11
        self._path.write_bytes(bad)

    def __exit__(self, *_: object) -> None:
        self._path.write_bytes(self._good)


def _raise(batches: Any) -> Any:
    """A user's function that fails with opened events in its variables."""
    for batch in batches:
        opened = batch.to_pylist()
        raise ValueError(f"a user's own mistake, with {len(opened)} events at hand")
    yield from ()


def _plan(query: Any) -> str:
    return str(query.explainInternal(True)) + str(query.streamingQuery().lastExecution())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
