"""Short commands start fast: they import what they need, and nothing that is large and not needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sealcast import Realm, Schema
from sealcast.bench import ease
from sealcast.bench.suites import SUITES
from tests.cli.shell import sealcast

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int"}]})
#: What each takes tens of milliseconds to import, or more.
HEAVY = {"sqlalchemy", "alembic", "pydantic", "numpy", "pyarrow", "pandas", "pyspark", "rich", "prometheus_client"}
#: By command, what it needs of these.
NEEDED = {
    "status-json": {"numpy"},
    "topic-list": set[str](),
    "pub-one": {"numpy", "pyarrow"},
    "sub-one": {"numpy", "pyarrow"},
}
LOOK = """
import sys
from sealcast.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(*(set(sys.modules) & set(LARGE)), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Realm.create(tmp_path_factory.mktemp("ease") / "realm")
    made.create_topic(ease.TOPIC, SCHEMA, access="members")
    made.enrol_many(["nyse", "alice"])
    made.subscribe(ease.TOPIC, "alice", "price > 0")
    return made.paths.root


@pytest.mark.parametrize("name", ease.COMMANDS)
def test_a_short_command_imports_nothing_large_that_it_does_not_need(name: str, realm: Path) -> None:
    code = LOOK.replace("LARGE", repr(sorted(HEAVY)))
    command = [sys.executable, "-c", code, *ease.COMMANDS[name], "--realm", str(realm)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert set(done.stderr.splitlines()[-1].split()) <= NEEDED[name]


def test_the_rows_are_measured_with_real_processes() -> None:
    rows = {row.name: row for row in ease.rows(quick=True)}
    assert list(rows) == list(ease.COMMANDS) and SUITES["ease"] == ("ease", "ease_console")
    for row in rows.values():
        assert row.ratio == pytest.approx(row.ours / row.reference) and row.reference > 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["status", "--every", "abc", "--watch"], "valid number"),
        (["status", "--every", "0", "--watch"], "greater than or equal to 0.2"),
        (["status", "--nonsense"], "No such option"),
    ],
)
def test_values_that_are_not_what_they_should_be_are_refused_as_ever(given: list[str], said: str, realm: Path) -> None:
    refused = sealcast(*given, "--realm", realm)
    assert refused.code == 2 and said in refused.err
