"""Peers' own logs: chained, signed, bounded; whoever alters, reorders or forges a record is found out."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast.errors import Corrupt, FrameRejected, Misuse
from sealcast.log import peer_log
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.peer_log import PeerLogReader, PeerLogWriter
from sealcast.log.relayed import RelayedLog
from sealcast.primitives.sign import SigningKey
from sealcast.wire import cbor, peer_logs
from sealcast.wire.limits import MAX_PEER_LOG_ENTRIES
from sealcast.wire.peer_logs import NOTHING_BEFORE, EntryKind, PeerEntry

TOPIC = bytes(range(16))
KEY, OTHER = SigningKey.generate(), SigningKey.generate()


def entry(number: int, kind: EntryKind = EntryKind.RECEIVED) -> PeerEntry:
    return PeerEntry(kind, number.to_bytes(16, "big"), "bob", "")


def written(directory: Path, counts: list[int]) -> list[PeerEntry]:
    """Several lives of one peer; each flushes once."""
    said = list[PeerEntry]()
    for count in counts:
        with PeerLogWriter(directory, TOPIC, "alice", KEY) as log:
            for _ in range(count):
                said.append(entry(len(said)))
                log.add(said[-1])
            log.flush(1_000_000 + len(said))
    return said


def reader(directory: Path, by: SigningKey = KEY, topic: bytes = TOPIC, peer: str = "alice") -> PeerLogReader:
    return PeerLogReader(directory, topic, peer, by.verify_key)


def test_what_was_said_is_read_again_over_several_lives(tmp_path: Path) -> None:
    said = written(tmp_path / "log", [3, 0, 5, MAX_PEER_LOG_ENTRIES + 1])
    with reader(tmp_path / "log") as log:
        records = list(log.records())
        assert [e for record in records for e in record.entries] == said
        assert [record.number for record in records] == [0, 1, 2, 3] and log.complete


def test_a_log_that_was_never_written_is_empty(tmp_path: Path) -> None:
    with reader(tmp_path / "none") as log:
        assert list(log.records()) == [] and log.complete


def test_another_key_topic_or_peer_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "log", [1])
    for case in ({"by": OTHER}, {"topic": bytes(16)}, {"peer": "mallory"}):
        with reader(tmp_path / "log", **case) as log, pytest.raises(Corrupt):  # type: ignore[arg-type]
            list(log.records())
    with pytest.raises(Corrupt):
        PeerLogWriter(tmp_path / "log", TOPIC, "alice", OTHER)


def forged(directory: Path, records: list[bytes]) -> Path:
    with EmbeddedLog(directory) as log:
        log.append(records)
    return directory


def record(number: int, previous: bytes, at: int = 0, by: SigningKey = KEY) -> bytes:
    return peer_logs.write(by, TOPIC, "alice", number, previous, at, [entry(number)])


def test_a_record_that_is_left_out_repeated_or_exchanged_is_found(tmp_path: Path) -> None:
    """Mallory writes the files. The peer's key it does not have, so all it can do is move what the peer once said."""
    first = record(0, NOTHING_BEFORE)
    second = record(1, peer_logs.digest(first))
    third = record(2, peer_logs.digest(second))
    apart = record(1, peer_logs.digest(first), at=7)  # what the peer said elsewhere
    good = [first, second, third]
    with reader(forged(tmp_path / "good", good)) as log:
        assert len(list(log.records())) == 3
    cases = [[first, third], [first, second, second], [second, third], [first, apart, third], [third, second, first]]
    for number, case in enumerate(cases):
        with reader(forged(tmp_path / str(number), case)) as log, pytest.raises(Corrupt):
            list(log.records())


def test_records_are_one_form_and_signed() -> None:
    good = record(0, NOTHING_BEFORE)
    assert peer_logs.read(good, KEY.verify_key).entries == (entry(0),)
    with pytest.raises(FrameRejected, match="did not sign"):
        peer_logs.read(good, OTHER.verify_key)
    magic, version, body, signature = cbor.decode(good)
    topic, peer, number, previous, time_us, entries = cbor.decode(body)
    bad_bodies: list[list[object]] = [
        [topic[1:], peer, number, previous, time_us, entries],
        [topic, "", number, previous, time_us, entries],
        [topic, peer, True, previous, time_us, entries],
        [topic, peer, -1, previous, time_us, entries],
        [topic, peer, number, previous[1:], time_us, entries],
        [topic, peer, number, previous, -1, entries],
        [topic, peer, number, previous, time_us, []],
        [topic, peer, number, previous, time_us, [[99, bytes(16), "", ""]]],
        [topic, peer, number, previous, time_us, [[True, bytes(16), "", ""]]],
        [topic, peer, number, previous, time_us, [[1, bytes(15), "", ""]]],
        [topic, peer, number, previous, time_us, [[1, bytes(16), "", "x" * 1_025]]],
        [topic, peer, number, previous, time_us, [[1, bytes(16), "x" * 257, ""]]],
    ]
    for bad in bad_bodies:
        with pytest.raises(FrameRejected):
            peer_logs.read(cbor.encode([magic, version, cbor.encode(bad), signature]))
    for outer in ([magic, 2, body, signature], [magic, version, body], [magic, version, body, signature[1:]], ["no"]):
        with pytest.raises(FrameRejected):
            peer_logs.read(cbor.encode(outer))
    with pytest.raises(FrameRejected):
        peer_logs.read(good + b"\0")
    with pytest.raises(Misuse):
        peer_logs.write(KEY, TOPIC, "alice", 0, NOTHING_BEFORE, 0, [])


def test_details_are_clipped() -> None:
    long = PeerEntry(EntryKind.REFUSED, bytes(16), "bob", "ü" * 2_000)
    read = peer_logs.read(peer_logs.write(KEY, TOPIC, "alice", 0, NOTHING_BEFORE, 0, [long]))
    assert len(read.entries[0].detail.encode()) == 1_024


def test_a_log_is_bounded_and_says_where_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_log, "SEGMENT_BYTES", 4_096)
    with PeerLogWriter(tmp_path / "log", TOPIC, "alice", KEY, max_bytes=16_384) as log:
        for number in range(200):
            log.add(entry(number))
            log.flush(number)
    with reader(tmp_path / "log") as log:
        numbers = [record.number for record in log.records()]
        assert not log.complete and numbers == list(range(numbers[0], 200)) and numbers[0] > 0
    written(tmp_path / "log", [1])
    with reader(tmp_path / "log") as log:
        assert [record.number for record in log.records()][-1] == 200


def test_relayed_events_are_kept_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sealcast.log.relayed.SEGMENT_BYTES", 4_096)
    events = [number.to_bytes(4, "big") * 64 for number in range(200)]
    with RelayedLog(tmp_path / "relayed", max_bytes=20_000) as log:
        log.keep([])
        for event in events:
            log.keep([event])
    with RelayedLog(tmp_path / "relayed", max_bytes=20_000) as log:
        kept = [record.data for record in log.since(0)]
        assert kept == events[log.let_go :] and 0 < log.let_go < 200
        late = list(log.since(0))[-1].time_us
        assert events[-1] in [record.data for record in log.since(late)]
        assert list(log.since(2**62)) == []
