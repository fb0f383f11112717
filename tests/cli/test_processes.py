"""Commands as processes: pipes, signals, and what they do not load."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sealcast.trust.deployment import Realm
from tests.cli.conftest import EVENTS
from tests.cli.shell import SEALCAST, sealcast, spawn, write_lines
from tests.clients.pump import pump

PATIENCE = 60.0


def reader(stream: IO[str] | None) -> Callable[[], str]:
    """Gives line after line, or fails instead of waiting for ever."""
    assert stream is not None
    lines: queue.Queue[str] = queue.Queue()

    def pour() -> None:
        for line in stream:
            lines.put(line)

    threading.Thread(target=pour, daemon=True).start()
    return lambda: lines.get(timeout=PATIENCE)


@contextmanager
def running(*arguments: object, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A command in its own process, which ends with the block whatever happens in it."""
    process = spawn(*arguments, cwd=cwd)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_stranger_gets_from_nothing_to_an_opened_event(tmp_path: Path) -> None:
    """The journey of the README, each step a process, everything through pipes."""
    schema = json.dumps({"attributes": [{"name": "price", "type": "decimal"}]})
    realm = tmp_path / "market"

    def step(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [*SEALCAST, *arguments], input=stdin, capture_output=True, text=True, check=False, cwd=tmp_path,
            env={**os.environ, "SEALCAST_REALM": str(realm)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    step("init", "market")
    step("topic", "create", "quotes", "--schema", "-", "--access", "members", stdin=schema)
    step("entity", "enrol", "nyse", "alice")
    step("subscription", "add", "quotes", "--as", "alice", "--filter", "price > 100")
    event = '{"attributes": {"price": 101.5}, "payload": "h\\u00e9llo"}\n{"attributes": {"price": 7}, "payload": "no"}'
    assert step("pub", "quotes", "--as", "nyse", stdin=event) == "0/0/0\n0/0/1\n"
    pump(Realm(realm), "quotes")
    (opened,) = map(json.loads, step("sub", "quotes", "--as", "alice").splitlines())
    assert (opened["payload"], opened["attributes"]) == ("héllo", {"price": "101.500000"})
    assert step("sub", "quotes", "--as", "alice") == ""


def test_help_and_simple_commands_load_nothing_heavy(home: Path) -> None:
    code = (
        "import sys; from sealcast.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print('LOADED', *(m for m in ('pyspark', 'numpy', 'pyarrow', 'lxml', 'rich', 'numba') if m in sys.modules))"
    )

    def loaded(*arguments: str) -> str:
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[-1].removeprefix("LOADED").strip()

    assert loaded("--help") == ""
    assert loaded("pub", "--help") == ""
    for command in (["entity", "list"], ["topic", "list"], ["topic", "show", "quotes"]):
        assert loaded(*command, "--realm", str(home)) in ("", "rich"), command  # rich draws their tables
    for command in (["topic", "list"], ["status"], ["run", "--help"], ["run", "--topic", "none"]):
        assert "pyspark" not in loaded(*command)


def test_pub_does_not_wait_for_the_end_of_its_input(home: Path) -> None:
    with running("pub", "quotes", "--as", "nyse", cwd=home) as process:
        line = reader(process.stdout)
        assert process.stdin is not None
        for row in range(3):
            process.stdin.write(json.dumps(EVENTS[0]) + "\n")
            process.stdin.flush()
            assert line() == f"0/{row}/0\n", "durable before the next line came"
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None and process.stderr.read() == "3 published\n"


def test_sub_follows_until_interrupted_and_acknowledges_what_it_printed(delivered: Path) -> None:
    with running("sub", "quotes", "--as", "alice", "--follow", cwd=delivered) as process:
        line = reader(process.stdout)
        assert [json.loads(line())["position"] for _ in range(2)] == ["0/0/0", "0/0/2"]
        assert sealcast("pub", "quotes", "--as", "nyse", "--file", delivered / "events.jsonl").code == 0
        pump(Realm(delivered), "quotes")
        assert [json.loads(line())["position"] for _ in range(2)] == ["0/1/0", "0/1/2"]
        deadline = time.monotonic() + PATIENCE
        while sealcast("status", "--json").document["topics"][0]["lag"]["subscribers"]["alice"]:
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert process.stderr is not None and "Traceback" not in process.stderr.read()


def test_a_reader_that_goes_away_is_no_catastrophe(home: Path) -> None:
    assert sealcast("subscription", "add", "quotes", "--as", "alice", "--filter", "price > 0").code == 0
    many = write_lines(home / "many.jsonl", *(EVENTS[0] for _ in range(3_000)))
    assert sealcast("pub", "quotes", "--as", "nyse", "--file", many).code == 0
    pump(Realm(home), "quotes")
    with running("sub", "quotes", "--as", "alice", cwd=home) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE) == 1
        assert "Traceback" not in process.stderr.read()
    lag = sealcast("status", "--json").document["topics"][0]["lag"]["subscribers"]["alice"]
    assert lag > 0, "what nobody read was not acknowledged"


def test_killed_between_printing_and_acknowledging_repeats_and_loses_nothing(delivered: Path) -> None:
    with running("sub", "quotes", "--as", "alice", "--no-ack", "--follow", cwd=delivered) as process:
        reader(process.stdout)()
    assert [e["position"] for e in sealcast("sub", "quotes", "--as", "alice").lines] == ["0/0/0", "0/0/2"]


def test_a_key_file_open_to_others_is_refused(delivered: Path) -> None:
    (delivered / "entities" / "alice.key").chmod(0o644)
    result = sealcast("sub", "quotes", "--as", "alice")
    assert result.code == 1
    assert "can be read by others (mode 0644)" in result.err and "chmod 600" in result.err


def test_subscribers_need_no_secret_of_the_broker(delivered: Path) -> None:
    (delivered / "secrets").rename(delivered.parent / "elsewhere")
    assert len(sealcast("sub", "quotes", "--as", "alice").lines) == 2
    assert sealcast("pub", "quotes", "--as", "nyse", "--file", delivered / "events.jsonl").code == 0
    assert sealcast("status").code == 0
    refused = sealcast("entity", "enrol", "carol")
    assert refused.code == 1 and "there is no authority" in refused.err
