"""`sealcast console` as a user starts it: the link, as words or as JSON, and what it refuses."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from sealcast import Realm
from tests.cli.shell import sealcast


def test_it_prints_a_link_that_lets_in_and_ends_in_good_order(tmp_path: Path) -> None:
    Realm.create(tmp_path / "realm")
    command = [sys.executable, "-c", "from sealcast.cli.main import main; main()", "console", "--json"]
    environment = os.environ | {"SEALCAST_REALM": str(tmp_path / "realm")}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    printed = ""
    while not printed.endswith("}\n"):
        printed += process.stdout.readline()
    at = urlsplit(json.loads(printed)["link"])
    connection = http.client.HTTPConnection("127.0.0.1", at.port, timeout=60)
    connection.request("GET", at.path, headers={"Host": at.netloc})
    assert connection.getresponse().status == 200
    connection.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_it_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    Realm.create(tmp_path / "realm")
    at = ("--realm", tmp_path / "realm")
    assert sealcast("console", "--listen", "0.0.0.0:0", *at).code == 1
    assert sealcast("console", "--listen", "here", *at).code == 2
    assert sealcast("console", "--as", "nobody", *at).code == 1
    assert sealcast("console", "--realm", tmp_path / "nowhere").code == 1
