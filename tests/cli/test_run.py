"""sealcast run, on the real Spark: what was published is delivered, once, and the registry of now is what counts."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sealcast.errors import Unavailable
from sealcast.protections.steps import StepName
from tests.cli.conftest import EVENTS
from tests.cli.shell import sealcast, write_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_run_once_drains_and_the_next_run_goes_on_from_there(
    home: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sealcast("subscription", "add", "quotes", "--as", "alice", "--filter", "price > 100").code == 0
    events = write_lines(home / "events.jsonl", *EVENTS)
    assert sealcast("pub", "quotes", "--as", "nyse", "--file", events).code == 0
    first = sealcast("run", "--once", "--json")
    assert first.code == 0, first.err
    done = first.document
    assert (done["admitted"], done["matched"], done["deliveries"], done["batches"]) == (4, 2, 2, 1)
    assert "batch 0: 4 events, 2 deliveries" in first.err
    assert [e["position"] for e in sealcast("sub", "quotes", "--as", "alice").lines] == ["0/0/0", "0/0/2"]

    assert sealcast("revoke", "quotes", "alice", "subscribe").code == 0
    assert sealcast("subscription", "add", "quotes", "--as", "bob", "--filter", "symbol = 'IBM'").code == 0
    assert sealcast("pub", "quotes", "--as", "nyse", "--file", events).code == 0
    second = sealcast("run", "--once")
    assert second.out == "4 events admitted, 0 refused, 2 matched, 2 deliveries, 2 encryptions\n"
    assert [e["position"] for e in sealcast("sub", "quotes", "--as", "bob").lines] == ["0/1/0", "0/1/1"]
    assert "alice" not in {name for name, lag in _lags().items() if lag}, "nothing was sealed for one without the right"

    monkeypatch.setattr("sealcast.pipeline.session.session", no_session)
    third = sealcast("run", "--once", "--json")
    assert third.code == 0 and third.document.get("admitted", 0) == 0, "there is nothing left to do"
    assert "Spark was not started" in third.err and "starting Spark" not in third.err
    assert sealcast("pub", "quotes", "--as", "nyse", "--file", events).code == 0
    fourth = sealcast("run", "--once")
    assert fourth.code == 1 and "Spark was started" in fourth.err, "now there is something to do"


def no_session(*_: object, **__: object) -> None:
    """Stands for `session` where Spark must not be started."""
    raise Unavailable("Spark was started")


def test_a_second_run_is_refused_before_it_starts_spark(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting Spark fails here. With one of two topics free, a run goes on to it; with none, it is refused before."""
    sealcast("topic", "create", "other", "--schema", "schema.json", "--access", "members")
    monkeypatch.setattr("sealcast.pipeline.session.session", no_session)
    ledgers = [StepName(str(home), topic).open().ledger for topic in ("quotes", "other")]
    assert "Spark was started" in sealcast("run").err
    with ledgers[0].exclusive():
        for refused in (sealcast("run", "--topic", "quotes"), sealcast("run", "--once", "--topic", "quotes", "--json")):
            assert refused.code == 1 and f"is being run by process {os.getpid()}" in refused.err
            assert "starting Spark" not in refused.err
        assert "Spark was started" in sealcast("run").err, "the other topic is free"
        with ledgers[1].exclusive():
            assert "is being run by process" in sealcast("run").err
    assert "Spark was started" in sealcast("run", "--topic", "quotes").err, "and so is this one, afterwards"


def test_a_port_in_use_is_a_refusal(home: Path, spark: SparkSession) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = sealcast("run", "--once", "--prometheus", taken.getsockname()[1])
    assert result.code == 1
    assert "metrics cannot be served on 127.0.0.1" in result.err and "choose another port" in result.err


def _lags() -> dict[str, int]:
    lags: dict[str, int] = sealcast("status", "--json").document["topics"][0]["lag"]["subscribers"]
    return lags
