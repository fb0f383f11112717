"""From nothing to an opened event on another machine: each step a process, and the client has nothing but a home."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.network.machine import Machine

SCHEMA = {"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1000}]}
pytestmark = pytest.mark.timeout(600)


def test_two_machines(tmp_path: Path) -> None:
    here, there = Machine(tmp_path / "here"), Machine(tmp_path / "there")
    here.step("init", "market")
    here.environment["SEALCAST_REALM"] = str(here.directory / "market")
    (here.directory / "schema.json").write_text(json.dumps(SCHEMA))
    here.step("topic", "create", "quotes", "--schema", "schema.json")
    here.step("entity", "enrol", "door", "--role", "gateway", "--host", "127.0.0.1")
    with (
        here.running("gateway", "--listen", "127.0.0.1:0", ready="started") as said,
        here.running("serve", ready="serving"),
    ):
        port = said.split(" on port ")[1].split(";")[0]
        address = f"sealcast://127.0.0.1:{port}"
        invited = here.step(
            "entity", "invite", "bob", "--grant", "quotes:publish", "--grant", "quotes:subscribe", "--json"
        )
        code = json.loads(invited)["code"]
        joined = json.loads(there.step("join", address, "--code", "-", "--json", stdin=code + "\n"))
        assert joined["realm"] == address and Path(joined["home"]).is_relative_to(there.directory)
        assert not list(here.directory.rglob("bob.key")), "the private key never travelled"
        assert "used" in there.step("join", address, "--code", code, "--home", "again", code=1)
        (listed,) = json.loads(here.step("entity", "invitations", "--json"))["invitations"]
        assert (listed["entity"], listed["standing"]) == ("bob", "used")

        there.environment["SEALCAST_REALM"] = address
        there.step("subscription", "add", "quotes", "--as", "bob", "--filter", "price > 100")
        lines = [json.dumps({"attributes": {"price": price}, "payload": f"at {price}"}) for price in (50, 150)]
        there.step("pub", "quotes", "--as", "bob", stdin="\n".join(lines) + "\n")
        here.step("run", "--once")
        got = there.step("sub", "quotes", "--as", "bob")
        assert [json.loads(line)["payload"] for line in got.splitlines()] == ["at 150"]
