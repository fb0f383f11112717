"""Two machines that share a registry on PostgreSQL, a carrier and no disk: one runs a topic, the other takes over."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from sealcast import Realm
from sealcast.bench.carrier_servers import NatsServer
from sealcast.errors import Locked
from sealcast.log.entry import Entry
from sealcast.pipeline.run import queries_of, refuse_second_run, taken
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.steps import StepName
from sealcast.trust.handles import BrokerRealm
from tests.copies import copy_realm
from tests.log.test_carried_topics import SCHEMA, TOPIC
from tests.trust.postgres import PASSWORD, Server, postgres

__all__ = ["postgres"]


@pytest.fixture
def machines(
    tmp_path: Path, postgres: Server, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> tuple[FramesStep, FramesStep]:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    realm = Realm.create(
        tmp_path / "one", f"r{tmp_path.name[-12:]}", registry=postgres.url(postgres.schema(), password=None)
    )
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.add_carrier("away", nats.address)
    realm.move_topic(TOPIC, "away")
    copy_realm(tmp_path / "one", tmp_path / "two")
    one, two = (FramesStep.of(StepName(str(tmp_path / name), TOPIC)) for name in ("one", "two"))
    return one, two


def next_batch(step: FramesStep) -> Entry:
    last, start = step.ledger.last(), step.committed()
    return Entry("q", 0 if last is None else last.entry.batch + 1, start, start, (), {})


def run_by_another(step: FramesStep) -> Locked | None:
    (other,) = taken(queries_of(BrokerRealm(step.name.realm), [TOPIC]))
    return other


def test_one_machine_runs_a_topic_and_another_takes_over(
    machines: tuple[FramesStep, FramesStep], postgres: Server
) -> None:
    one, two = machines
    assert run_by_another(two) is None
    with ExitStack() as held:
        before = held.enter_context(one.ledger.exclusive())
        assert one.ledger.commit(next_batch(one), before)
        for _ in range(2):  # and whoever looks takes nothing away
            assert "is being run on another machine" in str(run_by_another(two))
        with pytest.raises(Locked, match="on another machine"):
            refuse_second_run(queries_of(BrokerRealm(two.name.realm), [TOPIC]))
        with pytest.raises(Locked, match="on another machine"), two.ledger.exclusive():
            pass
        assert one.ledger.commit(next_batch(one), before)

        # Its connection is cut, as if the machine could not be reached any more: it knows nothing of it.
        with postgres.connect() as server:
            held_by = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
            assert server.execute(f"SELECT pg_terminate_backend(pid) FROM ({held_by}) AS holders").fetchall()
        since = held.enter_context(two.ledger.exclusive())
        assert two.ledger.commit(next_batch(two), since)
        with pytest.raises(Locked):
            one.ledger.commit(next_batch(two), before)
        assert two.ledger.commit(next_batch(two), since)
    assert run_by_another(two) is None
    with one.ledger.exclusive() as again:
        assert one.ledger.commit(next_batch(one), again)
    assert one.ledger.verify() == 5
