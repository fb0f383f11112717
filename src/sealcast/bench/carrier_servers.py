"""Carriers to measure and to test with: a Kafka and a NATS server on loopback, each in a directory of its own.

Kafka's jars come from `make kafka`, which checks each against its digest; the NATS server is a package of the
development environment. Both keep the promises of the port with one machine: they sync what they acknowledge.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from sealcast.errors import Unavailable
from sealcast.log.closing import Closing
from sealcast.pipeline import java

#: Where `make kafka` puts the jars, unless the variable says otherwise.
JARS: Final = Path(".tools/kafka/jars")
JARS_VARIABLE: Final = "SEALCAST_KAFKA_JARS"
_START_S: Final = 120.0
_JAVA_OPTIONS: Final = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_PROBE: Final = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)"
_CLUSTER: Final = "c2VhbGNhc3QtY2Fycmllcg"


class CarrierServer(Closing):
    """A server that can be killed and started again on what it left behind."""

    def __init__(self, directory: Path, host: str = "127.0.0.1", port: int = 0, within: Sequence[str] = ()) -> None:
        """On a port that is free here, without one. `within` is a command that starts programs elsewhere, where `host`
        is: in a namespace."""
        self.directory, self.host, self._within = directory, host, within
        directory.mkdir(parents=True, exist_ok=True)
        self.port = port or _free_port(host)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def address(self) -> str:
        """As `sealcast carrier add` takes it."""

    @abstractmethod
    def _command(self) -> list[str]:
        """What starts it."""

    def start(self) -> Self:
        """Returns when it accepts connections."""
        output = (self.directory / "output").open("ab")
        with output:
            self._process = subprocess.Popen(
                [*self._within, *self._command()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        end = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < end:
            if self._answers():
                return self
            time.sleep(0.05)
        said = (self.directory / "output").read_text(errors="replace").splitlines()[-3:]
        raise Unavailable(f"the carrier's server does not start: {' | '.join(said)}")

    def _answers(self) -> bool:
        if self._within:
            asked = [*self._within, sys.executable, "-c", _PROBE, self.host, str(self.port)]
            return subprocess.run(asked, capture_output=True, check=False).returncode == 0
        try:
            socket.create_connection((self.host, self.port), 1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """At once, as by kill -9: nothing is flushed, nobody is told."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def cut(self, off: bool) -> None:
        """Lets it hang, as one that cannot be reached any more, or go on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP if off else signal.SIGCONT)

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class KafkaServer(CarrierServer):
    """One machine that is broker and controller (KRaft)."""

    def __init__(self, directory: Path, host: str = "127.0.0.1", port: int = 0, within: Sequence[str] = ()) -> None:
        super().__init__(directory, host, port, within)
        found = Path(os.environ.get(JARS_VARIABLE) or JARS)
        if not found.is_dir():
            raise Unavailable(f"there are no jars of Kafka in {found}", hint="make kafka fetches them")
        self._java = [str(java.find().executable), *_JAVA_OPTIONS, "-cp", f"{found.resolve()}/*"]
        self._properties = directory / "server.properties"
        self._properties.write_text(self._configuration(self.port + 1 if port else _free_port(host)))
        made = subprocess.run(
            [*self._java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._properties)],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise Unavailable(f"Kafka does not format its storage: {made.stderr[-200:]}")

    @property
    def address(self) -> str:
        return f"kafka://{self.host}:{self.port}"

    def _command(self) -> list[str]:
        return [*self._java, "kafka.Kafka", str(self._properties)]

    def _configuration(self, controller: int) -> str:
        lines = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{self.host}:{controller}",
            "listeners": f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://{self.host}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.host}:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.directory / "data",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "auto.create.topics.enable": "false",
            "message.max.bytes": 64 << 20,
            "socket.request.max.bytes": 256 << 20,
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items())


class NatsServer(CarrierServer):
    """One machine with JetStream, which syncs what it acknowledges."""

    @property
    def address(self) -> str:
        return f"nats://{self.host}:{self.port}"

    def _command(self) -> list[str]:
        found = shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
        if found is None:
            raise Unavailable("there is no nats-server on the path", hint="make setup installs it")
        configuration = self.directory / "server.conf"
        configuration.write_text(
            f"listen: {self.host}:{self.port}\nmax_payload: 32MB\n"
            f'jetstream {{ store_dir: "{self.directory / "data"}", sync_interval: always }}\n'
        )
        return [found, "-c", str(configuration)]


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as chosen:
        port: int = chosen.getsockname()[1]
        return port
