"""What a campaign reads in the log of a run is what a run writes there."""

from __future__ import annotations

import pytest

from sealcast.cli import talk
from sealcast.cli.run import _Shown
from sealcast.errors import Unavailable
from sealcast.pipeline.metrics import FinishedBatch
from tests.soak.standing import BATCH, FAILED


def test_a_campaign_finds_batches_and_failures_in_the_log_of_a_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(talk.given, "daemon", True)
    shown = _Shown()
    shown.batch(FinishedBatch("quotes-run", 3, {"admitted": 4}, 0.5, 0, 7, "quotes", {"broker": {}}))
    shown.failure("trades", Unavailable("no answer", hint="wait"), 1)
    told = capsys.readouterr().err
    assert BATCH.findall(told) == ["quotes"]
    assert FAILED.findall(told) == [("trades", "no answer (wait)")]
