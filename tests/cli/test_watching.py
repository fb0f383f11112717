"""sealcast status --watch: a table on a real terminal that shows what is new, fits 80 columns, and ends with Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

from rich.console import Console

from sealcast.cli.watching import drawn
from tests.cli.shell import sealcast, spawn

WAIT_SECONDS = 120


def test_the_table_changes_until_it_is_interrupted(delivered: Path) -> None:
    master, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = spawn(
        "status", "--watch", "--every", 0.2, cwd=delivered, stdout=terminal, env=os.environ | {"TERM": "xterm"}
    )
    os.close(terminal)
    try:
        assert _backlog_is(master, b"0"), "everything was taken"
        assert sealcast("pub", "quotes", "--as", "nyse", "price=7").code == 0
        assert _backlog_is(master, b"1"), "and then something waits"
        process.send_signal(signal.SIGINT)
        process.stdout = None  # it is the terminal's other end
        assert _ended(process, master) == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)


def _ended(process: subprocess.Popen[bytes] | subprocess.Popen[str], master: int) -> int | None:
    """Reads the terminal until the process has ended: one that nobody reads is full at some time, and whoever writes
    there waits."""
    end, waiting = time.monotonic() + WAIT_SECONDS, select.poll()
    waiting.register(master, select.POLLIN)
    while process.poll() is None and time.monotonic() < end:
        if any(event & select.POLLIN for _, event in waiting.poll(100)):
            os.read(master, 65_536)
    return process.poll()


def _backlog_is(master: int, number: bytes) -> bool:
    """Reads the terminal until a row of the topic has this backlog."""
    seen, end, waiting = b"", time.monotonic() + WAIT_SECONDS, select.poll()
    waiting.register(master, select.POLLIN)
    while time.monotonic() < end:
        if waiting.poll(1_000):
            seen += os.read(master, 65_536)
            rows = [line.split() for line in seen.splitlines() if b"quotes" in line]
            if any(row[row.index(b"broker") + 1 :][:1] == [number] for row in rows if b"broker" in row):
                return True
    return False


def test_it_is_for_people_at_a_terminal(delivered: Path) -> None:
    assert sealcast("status", "--watch", "--json").code == 2
    refused = sealcast("status", "--watch")
    assert refused.code == 1 and "sealcast status --json" in refused.err
    assert sealcast("status", "--watch", "--every", 0).code == 2


def test_eighty_columns_are_enough() -> None:
    events = {"admitted": 123_456_789, "deliveries": 123_456_789}
    wide = {
        "topic": "t" * 40,
        "broker": "b" * 40,
        "backlog": 1_234_567,
        "events": events,
        "rejected": {"replay": 12_345},
    }
    console = Console(width=80, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(drawn([wide]))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "1,234,567" in text and text.count("123,456,789") == 2 and "12,345" in text and " -" in text
    assert text.count("t" * 5) and "…" not in text, "names are broken, not cut"
