"""What docs/trust/brokers.md says to type does what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sealcast.overlay.relay import Relay
from sealcast.trust.deployment import Realm
from tests.cli.shell import sealcast
from tests.clients.pump import pump

GUIDE = Path(__file__).parents[2] / "docs" / "trust" / "brokers.md"


def run_once() -> None:
    """`sealcast run --once` without Spark; with it, `test_spark` does the same."""
    realm = Realm()
    relay = Relay(realm, realm.state().brokers())
    for _ in range(2):
        for broker in realm.state().serving("quotes"):
            pump(realm, "quotes", broker=broker)
        relay.once()
    relay.close()


def test_the_guide_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (session,) = re.findall(r"^```sh\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEALCAST_REALM", raising=False)
    printed: list[str] = []
    for line in filter(None, session.replace(" && ", "\n").splitlines()):
        match shlex.split(line, comments=True):
            case ["cd", directory]:
                monkeypatch.chdir(directory)
            case ["echo", text, ">", file]:
                Path(file).write_text(text)
            case ["sealcast", "run", "--once"]:
                run_once()
            case ["sealcast", *arguments]:
                done = sealcast(*arguments)
                assert done.code == 0, (line, done.err)
                if arguments[0] == "sub":
                    printed.append(done.out)
            case other:
                raise AssertionError(other)
    assert [out.count("to everyone") for out in printed] == [1, 1, 1]
