"""What is published on plain topics takes so much room and no more, whoever publishes, on however many topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast.log.embedded import EmbeddedLog
from sealcast.overlay import plain
from sealcast.overlay.plain import PlainLogs

SMALL = 4 << 10


@pytest.fixture(autouse=True)
def quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "PLAIN_LOG_BYTES", 16 * SMALL)
    monkeypatch.setattr(plain, "PLAIN_TOTAL_BYTES", 64 * SMALL)
    monkeypatch.setattr(plain, "SEGMENT_BYTES", 2 * SMALL)


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def read(logs: PlainLogs, topic: bytes) -> list[bytes]:
    return [record.data for record in EmbeddedLog(logs.log(topic), read_only=True).read(logs_start(logs, topic))]


def logs_start(logs: PlainLogs, topic: bytes) -> int:
    return EmbeddedLog(logs.log(topic), read_only=True).start()


def flood(logs: PlainLogs, topics: int, messages: int) -> None:
    for number in range(topics):
        for _ in range(messages):
            logs.append(b"flood %d" % number, bytes(SMALL))


def test_each_topic_and_all_together_have_a_quota(tmp_path: Path) -> None:
    logs = PlainLogs(tmp_path)
    logs.append(b"quiet", b"hello")
    flood(logs, topics=1, messages=40)
    assert size(tmp_path) < 20 * SMALL
    flood(logs, topics=30, messages=12)
    assert size(tmp_path) <= 64 * SMALL
    assert read(logs, b"quiet") == [b"hello"], "who sends little keeps it"
    # What another process of the broker appended counts, too.
    flood(PlainLogs(tmp_path), topics=30, messages=12)
    assert size(tmp_path) <= 64 * SMALL


def test_many_topics_of_one_message_each(tmp_path: Path) -> None:
    logs = PlainLogs(tmp_path)
    flood(logs, topics=100, messages=1)
    assert size(tmp_path) <= 64 * SMALL
    logs.append(b"new", b"hello")
    assert read(logs, b"new") == [b"hello"]


def test_with_a_quota_for_each_topic_alone_the_disk_fills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "PLAIN_TOTAL_BYTES", 1 << 60)
    flood(PlainLogs(tmp_path), topics=30, messages=12)
    assert size(tmp_path) > 300 * SMALL
