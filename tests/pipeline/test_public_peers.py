"""`format("sealcast")` on a topic that peers carry: a backlog sealed, and an inbox opened, by several processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from sealcast.clients.publisher import Publisher
from sealcast.model.event import Event
from sealcast.protections.attribute import publish
from sealcast.trust.realm.changes import Right
from sealcast.wire import frame
from tests.protections.attribute.ward import TOPIC, Ward

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def ward(tmp_path: Path) -> Ward:
    return Ward(tmp_path / "realm")


def options(ward: Ward, who: str) -> dict[str, str]:
    return {"realm": str(ward.realm.paths.root), "topic": TOPIC, "as": who}


def written(spark: SparkSession, ward: Ward, pulses: range, tasks: int) -> None:
    rows = [(pulse, f"pulse {pulse}".encode()) for pulse in pulses]
    backlog = spark.createDataFrame(rows, "pulse bigint, payload binary").repartition(tasks)
    backlog.write.format("sealcast").options(**options(ward, "monitor")).mode("append").save()


def test_a_backlog_is_sealed_by_several_processes_and_opened_by_several(spark: SparkSession, ward: Ward) -> None:
    written(spark, ward, range(0, 256, 4), tasks=2)
    with ward.realm.outbox(TOPIC, "monitor", read_only=True) as log:
        headers = [frame.parse(record.data).header for record in log.partition(0).read(0)]
    # A publisher of its own for each task: no two share the numbers that events are sealed with.
    assert len({header.boot for header in headers}) == 2 and sum(header.count for header in headers) == 64
    assert ward.carry()["admitted"] == 64
    for who, wanted in (("nurse", range(0, 64, 4)), ("doctor", range(128, 256, 4))):
        got = spark.read.format("sealcast").options(**options(ward, who)).load().collect()
        assert sorted(row.pulse for row in got) == list(wanted)
        assert all(row.payload == f"pulse {row.pulse}".encode() and row.publisher == "monitor" for row in got)


def test_who_may_not_publish_seals_nothing(spark: SparkSession, ward: Ward) -> None:
    ward.realm.revoke(TOPIC, "monitor", [Right.PUBLISH])
    with pytest.raises(PySparkException, match="entity 'monitor' may not publish"):
        written(spark, ward, range(3), tasks=1)
    assert ward.carry().get("admitted", 0) == 0


def test_sealed_events_that_do_not_fit_one_frame_go_in_several(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sealed event is many times as large as the event that it holds."""
    monkeypatch.setattr(publish, "BYTES_PER_FRAME", 4_096)
    with Publisher(ward.realm, TOPIC, as_="monitor") as monitor:
        positions = monitor.publish([Event({"pulse": n}, b"x") for n in range(12)])
    assert len({position.offset for position in positions}) > 2
    assert [position.row for position in positions].count(0) == len({position.offset for position in positions})
    ward.carry()
    assert len(ward.got("nurse")) == 12
