"""A registry on PostgreSQL whose machine is cut off while it is asked: whoever asks hears of it within seconds."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.network.hosts import missing
from tests.pipeline.drivers import ROOT
from tests.soak.cluster.machines import Machines

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]
#: Some twenty seconds, on a busy machine.
NOTICED_S = 40.0
_CLIENT = """
import sys
from sqlalchemy import text
from sealcast.trust.storage.address import Server
from sealcast.trust.storage.postgres import PostgresDatabase
with PostgresDatabase(Server(sys.argv[1], "the registry", False)).engine().connect() as connection:
    connection.execute(text("SELECT 1"))
    print("connected", flush=True)
    sys.stdin.readline()
    try:
        connection.execute(text("SELECT 2"))
    except Exception as error:
        print(type(error).__name__, flush=True)
        connection.invalidate()
"""


@pytest.mark.parametrize("weakened", [False, True])
def test_a_server_that_is_cut_off_is_noticed(tmp_path: Path, weakened: bool) -> None:
    """As an operating system has it by itself, nothing is noticed for a quarter of an hour."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    with Machines(tmp_path / "machines", "nats", spark=False) as machines:
        url = machines.postgres.registry(machines.postgres.schema())
        url += "&keepalives=0&tcp_user_timeout=0" if weakened else ""
        client = subprocess.Popen(
            [*machines.within("clients"), sys.executable, "-c", _CLIENT, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **machines.environment},
        )
        assert client.stdout is not None and client.stdin is not None
        assert client.stdout.readline() == "connected\n"
        machines.cut("database")
        began = time.monotonic()
        try:
            said, _ = client.communicate("\n", timeout=NOTICED_S)
        except subprocess.TimeoutExpired:
            client.kill()
            client.communicate()
            assert weakened, "it waits"
            return
        print(f"\nnoticed after {time.monotonic() - began:.1f} s")
        assert said == "OperationalError\n" and not weakened
