"""One in a hundred subscribers is revoked while events flow: nothing is sealed for them once it is in effect.

`lab.pallickara.revocation` is the drill: the revoked keep all they ever had and try everything.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sealcast.broker.context import Context
from sealcast.lab.pallickara import revocation
from sealcast.lab.pallickara.revocation import RevocationOutcome, drill, report
from sealcast.pipeline.run import start
from sealcast.protections.frame_steps import MatchingStep
from sealcast.trust.deployment import Realm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = 300


def check(outcome: RevocationOutcome) -> None:
    assert outcome.revoked == outcome.subscribers // 100
    assert outcome.addressed == 0, "a batch after it had something for the revoked"
    assert outcome.attempts > 0 and outcome.opened_after == 0
    assert outcome.opened_before > 0, "or the attempts prove nothing"
    assert outcome.deliveries == outcome.expected > 0, "and nobody else lost an event, or got one too many"
    assert outcome.holds and outcome.decided > 0 and outcome.in_effect > 0


def test_nothing_is_sealed_for_the_revoked_once_it_is_in_effect(tmp_path: Path) -> None:
    outcome = drill(Realm.create(tmp_path / "realm"), SMALL)
    check(outcome)
    told = report(outcome)
    assert told.agrees and any("in effect" in note for note in told.notes)


def test_a_broker_that_goes_on_as_before_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It commits its batches under the newest version, and seals by the one that it began with."""
    first: list[int] = []

    real = MatchingStep.at

    def stale(step: MatchingStep, version: int, time_us: int | None = None) -> Context:
        first.append(version)
        return real(step, first[0], time_us)

    monkeypatch.setattr(MatchingStep, "at", stale)
    outcome = drill(Realm.create(tmp_path / "realm"), SMALL)
    assert outcome.addressed == outcome.batches and outcome.opened_after > 0
    assert outcome.deliveries > outcome.expected
    assert not outcome.holds and not report(outcome).agrees


def test_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    realm = Realm.create(tmp_path / "realm")
    check(drill(realm, SMALL, lambda realm: start(realm, [revocation.TOPIC], spark=spark), batches=2))


@pytest.mark.soak
@pytest.mark.parametrize("on_spark", [False, True], ids=["by hand", "on Spark"])
def test_one_percent_of_ten_thousand(tmp_path: Path, spark: SparkSession, on_spark: bool) -> None:
    running = (lambda realm: start(realm, [revocation.TOPIC], spark=spark)) if on_spark else revocation.by_hand
    outcome = drill(Realm.create(tmp_path / "realm"), revocation.SUBSCRIBERS, running)
    check(outcome)
    assert outcome.revoked == 100
