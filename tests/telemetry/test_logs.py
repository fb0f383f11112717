"""Logs of daemons: JSON, a line each, without what must not be in a log."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sealcast.telemetry.logs import REDACTED, JsonLog, redacted
from sealcast.trust.deployment import Realm

SEALCAST = str(Path(sys.executable).with_name("sealcast"))


@pytest.mark.parametrize(
    "secret",
    [
        "0123456789abcdef" * 2,
        "0123456789ABCDEF" * 8,
        "aB3-_xYz0123456789QwertyUIOPasdfGHJKlzxcVBNM",
        "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2Vw\n-----END PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\ncut off",
    ],
)
def test_what_looks_like_a_secret_is_left_out(secret: str) -> None:
    assert redacted(f"it has {secret}") == f"it has {REDACTED}"
    stream = io.StringIO()
    JsonLog(stream).write("note", message=f"it has {secret}", caller=secret, body=secret)
    assert secret[:20] not in stream.getvalue()
    assert json.loads(stream.getvalue())["message"].endswith(REDACTED)


def test_a_bearer_token_is_left_out() -> None:
    assert redacted("Authorization: Bearer tiny") == f"Authorization: Bearer {REDACTED}"


@pytest.mark.parametrize(
    "text",
    [
        "topic 'flood-levels-of-the-river-and-its-harbours' failed: the disk is full",
        "listening on 127.0.0.1:1883; Ctrl-C stops in good order",
        "batch 12: 1,000 events, 3,000 deliveries, 0.52 s, backlog 0 frames",
        "2026-03-01T12:00:00.000000Z",
    ],
)
def test_what_operators_need_stays(text: str) -> None:
    assert redacted(text) == text


def test_fields_that_nobody_declared_are_not_written() -> None:
    stream = io.StringIO()
    JsonLog(stream).write("note", message=7, attributes={"ward": "secret"}, status=200)
    assert json.loads(stream.getvalue()).keys() == {"time", "event", "status"}


def test_every_daemon_can_write_json() -> None:
    """Each of the commands that run for good takes --log-json, and its help says so."""
    for command in (["run"], ["serve"], ["peer", "run"], ["mqtt", "bridge"], ["mqtt", "broker"]):
        shown = subprocess.run(
            [SEALCAST, *command, "--help"],
            capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"}, check=True,
        )  # fmt: skip
        assert "--log-json" in shown.stdout, command


def test_serve_writes_one_document_a_line_and_no_topic_of_its_own(tmp_path: Path) -> None:
    """The ids of control topics that it listens on are capabilities. Without --log-json, a person is shown them."""
    realm = Realm.create(tmp_path / "realm")
    said = {flag: _served(realm, flag) for flag in ((), ("--log-json",))}
    lines = [json.loads(line) for line in said["--log-json",]]
    assert lines and all({"time", "event", "message"} <= line.keys() for line in lines)
    ids = {word for line in said[()] for word in line.split() if re.fullmatch("[0-9a-f]{32}", word)}
    assert ids, "a person sees where it listens"
    assert not any(id in line for id in ids for line in said["--log-json",])


def _served(realm: Realm, flags: tuple[str, ...]) -> list[str]:
    """What `serve` writes until it listens."""
    process = subprocess.Popen(
        [SEALCAST, "serve", "--realm", str(realm.paths.root), *flags],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    timer = threading.Timer(120, process.kill)
    timer.start()
    lines = list[str]()
    for line in process.stderr:
        lines.append(line.strip())
        if "Ctrl-C" in line:
            process.send_signal(signal.SIGTERM)
    process.wait()
    timer.cancel()
    return lines
