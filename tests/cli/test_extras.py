"""The package without its extras: clients and administrators work, and what needs an extra says which one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from sealcast.errors import EXTRA_OF, Bug, MissingExtra, extras_named
from tests.remote.world import TOPIC, served

ROOT = Path(__file__).parents[2]
#: What is imported under another name than it is installed by, or comes along with another package.
INSTALLED_BY = {
    "confluent_kafka": "confluent-kafka",
    "nats": "nats-py",
    "opentelemetry": "opentelemetry-exporter-otlp-proto-http",
    "google": "protobuf",
    "paho": "paho-mqtt",
    "pkcs11": "python-pkcs11",
    "probables": "pyprobables",
    "prometheus_client": "prometheus-client",
    "py4j": "pyspark",
    "pybloom_live": "pybloom-live",
}
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with a wheel of this tree and what it needs in any case, and nothing else."""
    place = tmp_path_factory.mktemp("bare") / "venv"
    uv = shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")
    options = (
        "--frozen",
        "--quiet",
        "--no-default-groups",
        "--no-editable",
        "--reinstall-package",
        "sealcast",
        "--python",
        sys.executable,
    )
    subprocess.run(
        [uv, "sync", *options], cwd=ROOT, env={**os.environ, "UV_PROJECT_ENVIRONMENT": str(place)}, check=True
    )
    return place / "bin"


@pytest.fixture(scope="module")
def realm(bare: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Runs a command of the bare installation, in a realm that was made by it."""
    home = tmp_path_factory.mktemp("home")

    def sealcast(*arguments: str, text: str = "", at: Path = home / "market") -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(home), "PATH": os.defpath}
        return subprocess.run(
            [bare / "sealcast", *arguments],
            cwd=at,
            env=environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=120,
        )

    made = sealcast("init", "market", at=home)
    assert made.returncode == 0, made.stderr
    schema = {"attributes": [{"name": "price", "type": "decimal", "step": 0.01}]}
    (home / "market" / "ticks.json").write_text(json.dumps(schema))
    return sealcast


@pytest.mark.timeout(600)
def test_clients_and_administrators_need_no_extra(realm: Command) -> None:
    event = {"attributes": {"price": 118.5}, "payload": "hello"}
    for arguments, text in [
        (("topic", "create", "ticks", "--schema", "ticks.json", "--access", "members"), ""),
        (("entity", "enrol", "nyse", "alice"), ""),
        (("subscription", "add", "ticks", "--as", "alice", "--filter", "price < 120"), ""),
        (("pub", "ticks", "--as", "nyse"), json.dumps(event)),
        (("sub", "ticks", "--as", "alice"), ""),
        (("status",), ""),
        (("check",), ""),
        (("explain", "ticks"), ""),
        (("serve", "--once"), ""),
    ]:
        done = realm(*arguments, text=text)
        assert done.returncode == 0, (arguments, done.stderr)

    missing = realm("run", "--once")
    assert missing.returncode == 1 and "Traceback" not in missing.stderr
    assert missing.stderr.splitlines() == [
        "refused: this needs Spark, which is not installed",
        "hint: pip install 'sealcast[spark]'",
    ]
    told = json.loads(realm("run", "--once", "--json").stdout)
    assert told == {
        "error": "missing-extra",
        "message": "this needs Spark, which is not installed",
        "hint": "pip install 'sealcast[spark]'",
    }
    unfit = realm("doctor")
    assert unfit.returncode == 1 and "pip install 'sealcast[spark]'" in unfit.stdout and "Traceback" not in unfit.stderr


@pytest.mark.timeout(600)
def test_a_client_on_another_machine_needs_no_extra(bare: Path, tmp_path: Path) -> None:
    """Neither Spark nor Java nor a server: an address, a key, and what the wheel needs in any case."""
    with served(tmp_path, "searchable") as world:
        homes = {name: world.home(name) for name in ("nyse", "ann")}
        # What unlocks the keys lies with their user; nothing else of this environment is there.
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL", "UV"))}

        def client(name: str, *arguments: str, text: str = "") -> str:
            done = subprocess.run(
                [bare / "sealcast", *arguments, "--as", name],
                env={**own, "PATH": os.defpath, "SEALCAST_REALM": str(homes[name])},
                input=text,
                capture_output=True,
                text=True,
                timeout=240,
            )
            assert done.returncode == 0, (arguments, done.stderr)
            return done.stdout

        # It is fit as it is; what would be missing is named with the extra that brings all of it.
        fit, gateway = (
            subprocess.run(
                [bare / "sealcast", *command],
                env={**own, "PATH": os.defpath, "SEALCAST_REALM": str(homes["ann"])},
                capture_output=True,
                text=True,
                timeout=240,
            )
            for command in (["doctor", "--json"], ["gateway"])
        )
        assert fit.returncode == 0 and json.loads(fit.stdout)["fit"], fit.stdout
        assert gateway.returncode == 1 and "pip install 'sealcast[gateway]'" in gateway.stderr, gateway.stderr

        client("ann", "subscription", "add", TOPIC, "--filter", "price < 120")
        client("nyse", "pub", TOPIC, text='{"attributes": {"price": 7}, "payload": "hello"}\n')
        world.pump()
        (line,) = client("ann", "sub", TOPIC).splitlines()
        assert json.loads(line)["payload"] == "hello"
        assert client("ann", "sub", TOPIC) == ""


@pytest.mark.timeout(600)
def test_a_program_without_an_extra_is_told_too(bare: Path) -> None:
    done = subprocess.run([bare / "python", "-c", "import sealcast; sealcast.run"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2:] == [
        "sealcast.errors.MissingExtra: this needs Spark, which is not installed",
        "hint: pip install 'sealcast[spark]'",
    ]


def test_the_table_of_extras_is_the_one_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    brought = {
        re.split(r"[\[<>=]", requirement)[0]: extra for extra, packages in declared.items() for requirement in packages
    }
    del brought["sealcast"]  # an extra that contains another one
    assert {INSTALLED_BY.get(name, name): extra for name, extra in EXTRA_OF.items()} == brought


@pytest.mark.parametrize(("package", "extra"), EXTRA_OF.items())
def test_a_missing_package_names_its_extra(package: str, extra: str) -> None:
    with pytest.raises(MissingExtra) as refused, extras_named():
        raise ModuleNotFoundError(f"No module named '{package}.part'", name=f"{package}.part")
    assert refused.value.hint == f"pip install 'sealcast[{extra}]'" and refused.value.code == "missing-extra"


def test_other_failures_stay_what_they_are() -> None:
    with pytest.raises(ModuleNotFoundError), extras_named():
        raise ModuleNotFoundError("No module named 'sealcast.nothing'", name="sealcast.nothing")
    with pytest.raises(Bug), extras_named():
        raise Bug("ours")
