"""Suite `ease`, row `console`: what a hundred open pages cost the server of a console, at one batch a second.

`sealcast console` runs as a user starts it, over a realm whose broker commits a batch every second. A hundred
browsers, which are connections here, have the overview open and read what moves. What counts is the processor time of
the console and its children, as a share of one core. The reference is one core.
"""

from __future__ import annotations

import http.client
import json
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from sealcast.bench.ease import COMMAND, SCHEMA, TOPIC
from sealcast.bench.report import BenchRow
from sealcast.clients.publisher import Publisher
from sealcast.errors import Bug
from sealcast.lab import scratch
from sealcast.lab.pallickara.broker import LabBroker
from sealcast.model.event import Event
from sealcast.trust.deployment import Realm

PAGES: Final = 100
SECONDS: Final = 30.0
QUICK_SECONDS: Final = 8.0
SETTLED_S: Final = 4.0
BATCH_S: Final = 1.0


def rows(*, quick: bool = False) -> Iterator[BenchRow]:
    seconds = QUICK_SECONDS if quick else SECONDS
    with scratch.realm(64 << 20) as realm:
        realm.create_topic(TOPIC, SCHEMA, access="members")
        realm.enrol_many(["nyse", "alice"])
        realm.subscribe(TOPIC, "alice", "price > 0")
        with _batches(realm), _console(realm.paths.root) as (process, link):
            share = _share(process.pid, link, seconds)
    yield BenchRow("console", share, 1.0, f"one core, {PAGES} pages open, one batch a second", share, "cores")


@contextmanager
def _batches(realm: Realm) -> Iterator[None]:
    """A batch every second, in a thread."""
    ended = threading.Event()

    def run() -> None:
        here = realm.reopen()
        with Publisher(here, TOPIC, as_="nyse") as publisher, LabBroker(here, TOPIC) as broker:
            price = 0
            while not ended.wait(BATCH_S):
                price = price % 1000 + 1
                publisher.publish([Event({"price": price}, b"x")])
                broker.turn()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _console(realm: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and the link that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "console", "--json"],
        env=os.environ | {"SEALCAST_REALM": str(realm)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        printed = ""
        while not printed.endswith("}\n"):
            line = process.stdout.readline()
            if not line:
                raise Bug("`sealcast console` ended before it began")
            printed += line
        yield process, json.loads(printed)["link"]
    finally:
        process.terminate()
        process.wait()


def _share(pid: int, link: str, seconds: float) -> float:
    """Of a core, while a hundred pages are open."""
    with ExitStack() as held, selectors.DefaultSelector() as reading:
        cookie, at = _entered(link)
        for _ in range(PAGES):
            connection = held.enter_context(socket.create_connection(("127.0.0.1", at.port or 80)))
            host = f"GET /live/overview HTTP/1.1\r\nHost: {at.netloc}\r\n"
            connection.sendall(f"{host}Cookie: {cookie}\r\nAccept: text/event-stream\r\n\r\n".encode())
            connection.setblocking(False)
            reading.register(connection, selectors.EVENT_READ)
        _read(reading, SETTLED_S)
        spent, began = _spent(pid), time.monotonic()
        parts = _read(reading, seconds)
        share = (_spent(pid) - spent) / (time.monotonic() - began)
        if parts < PAGES:
            raise Bug(f"{PAGES} pages were open, and {parts} of them heard of something")
        return share


def _entered(link: str) -> tuple[str, SplitResult]:
    at = urlsplit(link)
    connection = http.client.HTTPConnection("127.0.0.1", at.port)
    connection.request("GET", at.path, headers={"Host": at.netloc})
    answer = connection.getresponse()
    cookie = (answer.getheader("set-cookie") or "").split(";")[0]
    connection.close()
    return cookie, at


def _read(reading: selectors.BaseSelector, seconds: float) -> int:
    """Takes what comes on all connections for so long; how often a page heard that something changed."""
    heard, until = 0, time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        for key, _ in reading.select(left):
            assert isinstance(key.fileobj, socket.socket)
            heard += key.fileobj.recv(1 << 16).count(b"event: parts")
    return heard


def _spent(pid: int) -> float:
    """Processor seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    ticks: int = sum(int(fields[at]) for at in (11, 12, 13, 14))
    return ticks / os.sysconf("SC_CLK_TCK")
