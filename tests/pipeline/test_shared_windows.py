"""A driver on another machine has the replay windows of the one before, from the database that both share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sealcast.broker.history import History
from sealcast.broker.kept_windows import NEAR_RECORDS, KeptWindows
from sealcast.broker.replay import Windows
from sealcast.log.ledger import LedgerReader
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.steps import StepName
from sealcast.trust.shared_windows import SharedWindows
from tests.pipeline.field import TOPIC, Field
from tests.pipeline.test_replay import batch
from tests.trust.postgres import PASSWORD, Server

BATCHES = NEAR_RECORDS + 4


@pytest.fixture
def field(tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Field]:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    field = Field(tmp_path / "realm", registry=postgres.url(postgres.schema(), password=None))
    yield field
    field.close()


def taken_over(field: Field, step: FramesStep, read: list[int], path: Path) -> bytes:
    """What another machine, which has no file, works out; `read` has the records that it looked into for it."""
    read.clear()
    other = KeptWindows(path, step.journal_key, shared(step))
    return other.after(step.ledger.last(), step.history()).pack()


def shared(step: FramesStep) -> SharedWindows:
    found = step.kept_windows._elsewhere
    assert isinstance(found, SharedWindows)
    return found


def test_another_machine_goes_on_from_the_copy(field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, read = StepName(str(field.realm.paths.root), TOPIC), list[int]()
    real = History._accepted
    monkeypatch.setattr(History, "_accepted", lambda *about: read.append(1) or real(*about))
    for _ in range(BATCHES):
        field.publish_round()
        batch(name)
    step = FramesStep.of(name)
    wanted = step.history().windows(step.ledger.end()).pack()
    # The copy is of the first batch: it is made every few seconds, and these took less.
    with LedgerReader(step.journal) as ledger:
        all_pieces = sum(len(committed.entry.own) for committed in ledger.entries())
        first = len(ledger.at(0).entry.own)
    assert taken_over(field, step, read, tmp_path / "one") == wanted
    assert len(read) == all_pieces - first
    # A newer one: what came since is all that is read.
    field.publish_round()
    step.kept_windows._copied = float("-inf")
    batch(name)
    wanted = step.history().windows(step.ledger.end()).pack()
    assert taken_over(field, step, read, tmp_path / "two") == wanted
    assert read == []
    # An old file of its own does not keep it from looking.
    old = KeptWindows(tmp_path / "three", step.journal_key)
    old.after(step.ledger.at(0), step.history())
    assert taken_over(field, step, read, tmp_path / "three") == wanted
    assert read == []


def test_a_copy_that_somebody_altered_is_not_believed(field: Field, tmp_path: Path) -> None:
    """Whoever writes the database takes all numbers out of the windows."""
    name = StepName(str(field.realm.paths.root), TOPIC)
    field.publish_round()
    batch(name)
    step = FramesStep.of(name)
    kept, wanted = shared(step).load(), step.history().windows(1).pack()
    assert kept is not None and kept.endswith(wanted)
    for altered in (kept[: -len(wanted)] + Windows(step.history().bounds).pack(), b"", kept[:-1], bytes(100)):
        shared(step).save(altered)
        assert taken_over(field, step, [], tmp_path / "other") == wanted
        (tmp_path / "other").unlink()


def test_they_go_with_the_topic(field: Field) -> None:
    name = StepName(str(field.realm.paths.root), TOPIC)
    field.publish_round()
    batch(name)
    beside = shared(FramesStep.of(name))
    assert beside.load() is not None
    field.close()
    field.realm.delete_topic(TOPIC)
    assert beside.load() is None
