"""A mosquitto to measure, and the leanest clients that keep it busy: sockets that write packets made beforehand and
count what comes back. MQTT 3.1.1, section 3, has the packets."""

from __future__ import annotations

import os
import selectors
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from sealcast.errors import Bug, Unavailable

#: Topics of one SUBSCRIBE packet.
_AT_ONCE: Final = 100
_READ: Final = 1 << 20
_PATIENCE_S: Final = 120.0
_CONNACK, _SUBACK, _PUBLISH, _PUBACK = 2, 9, 3, 4


class MqttServer:
    """A mosquitto on loopback, with these lines of configuration."""

    def __init__(self, *lines: str) -> None:
        program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
        if program is None:
            raise Unavailable("mosquitto is not installed", hint="make mqtt-plugin installs it and builds the plug-in")
        self.directory = Path(tempfile.mkdtemp(prefix="sealcast-mosquitto-"))
        with socket.create_server(("127.0.0.1", 0)) as chosen:
            self.port: int = chosen.getsockname()[1]
        always = [f"listener {self.port} 127.0.0.1", "allow_anonymous true", "log_type error"]
        unlimited = ["max_queued_messages 0", "max_inflight_messages 0", "set_tcp_nodelay true"]
        user = ["user root"] if os.geteuid() == 0 else []
        (self.directory / "conf").write_text("\n".join([*always, *unlimited, *user, *lines, ""]))
        self._process = subprocess.Popen(
            [program, "-c", self.directory / "conf"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def __enter__(self) -> MqttServer:
        end = time.monotonic() + _PATIENCE_S
        while self._process.poll() is None and time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                time.sleep(0.02)
        self.close()
        raise Unavailable("mosquitto does not start")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def cpu_seconds(self) -> float:
        """What the server, which has one thread, has used so far: to the nanosecond, where other files of /proc count
        hundredths of a second."""
        try:
            return int(Path(f"/proc/{self._process.pid}/schedstat").read_text().split()[0]) / 1e9
        except FileNotFoundError:
            raise Unavailable("CPU time of other processes is read from /proc, which lacks schedstat here") from None


# --- packets --------------------------------------------------------------------------------------------------------


def publish_packet(topic: str, payload: bytes, qos: int, number: int) -> bytes:
    """`number` identifies a message of QoS 1 until it is acknowledged."""
    body = _text(topic) + (struct.pack(">H", number % 65535 + 1) if qos else b"") + payload
    return bytes([_PUBLISH << 4 | qos << 1]) + _length(len(body)) + body


def _connect(user: str) -> bytes:
    body = _text("MQTT") + b"\x04\x82" + struct.pack(">H", 0) + _text(user) + _text(user)
    return b"\x10" + _length(len(body)) + body


def _subscribe(topics: Sequence[str], qos: int) -> bytes:
    body = b"\x00\x01" + b"".join(_text(topic) + bytes([qos]) for topic in topics)
    return b"\x82" + _length(len(body)) + body


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _length(size: int) -> bytes:
    found = bytearray()
    while True:
        size, digit = divmod(size, 128)
        found.append(digit | (0x80 if size else 0))
        if not size:
            return bytes(found)


# --- clients --------------------------------------------------------------------------------------------------------


class Clients:
    """One publisher and some subscribers of a server, connected and subscribed."""

    def __init__(self, server: MqttServer, publisher: str, topics: Mapping[str, Iterable[str]], qos: int) -> None:
        self._qos = qos
        self._publisher = _connected(server, publisher)
        self._subscribers = {name: _subscribed(server, name, list(wanted), qos) for name, wanted in topics.items()}

    def run(self, packets: Sequence[bytes], due: Mapping[str, int]) -> None:
        """Publishes, and reads until every subscriber has got as many packets as it is due. All packets of a run have
        one size, so that counting bytes is counting packets; one too many shows as well."""
        size = len(packets[0])
        if any(len(packet) != size for packet in packets):
            raise Bug("packets of a run differ in size")
        sending = threading.Thread(target=self._publisher.sendall, args=(b"".join(packets),))
        sending.start()
        acknowledged = 4 * len(packets) if self._qos else 0
        with selectors.DefaultSelector() as waiting:
            left = {self._publisher: acknowledged}
            left |= {self._subscribers[name]: size * count for name, count in due.items()}
            rest = dict.fromkeys(left, b"")
            for each in left:
                waiting.register(each, selectors.EVENT_READ)
            end = time.monotonic() + _PATIENCE_S
            while any(left.values()):
                if time.monotonic() > end:
                    raise Unavailable("mosquitto does not deliver what it should")
                for key, _ in waiting.select(1):
                    found = key.fileobj
                    assert isinstance(found, socket.socket)
                    data = found.recv(_READ)
                    left[found] -= len(data)
                    if not data or left[found] < 0:
                        raise Unavailable("mosquitto delivers more than it should, or hangs up")
                    if self._qos and found is not self._publisher:
                        rest[found] = _acknowledge(found, rest[found] + data, size)
        sending.join()

    def close(self) -> None:
        for each in (self._publisher, *self._subscribers.values()):
            each.close()


def _acknowledge(to: socket.socket, data: bytes, size: int) -> bytes:
    """Answers all whole packets and returns what is left. The topic's length comes after one to four bytes of size."""
    whole = len(data) // size
    if whole:
        at = next(n for n in range(1, 5) if not data[n] & 0x80) + 1
        at += 2 + struct.unpack_from(">H", data, at)[0]
        numbers = [data[at + n * size : at + n * size + 2] for n in range(whole)]
        to.sendall(b"".join(b"\x40\x02" + number for number in numbers))
    return data[whole * size :]


def _connected(server: MqttServer, user: str) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", server.port), _PATIENCE_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.sendall(_connect(user))
    if made.recv(4) != bytes([_CONNACK << 4, 2, 0, 0]):
        raise Unavailable("mosquitto refuses a client")
    return made


def _subscribed(server: MqttServer, user: str, topics: Sequence[str], qos: int) -> socket.socket:
    made = _connected(server, user)
    for at in range(0, len(topics), _AT_ONCE):
        part = topics[at : at + _AT_ONCE]
        made.sendall(_subscribe(part, qos))
        expected = bytes([_SUBACK << 4]) + _length(2 + len(part)) + b"\x00\x01" + bytes([qos]) * len(part)
        if made.recv(len(expected), socket.MSG_WAITALL) != expected:
            raise Unavailable("mosquitto refuses a subscription")
    return made
