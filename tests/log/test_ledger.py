"""The ledger: commits once, in order, by one broker; and attacks on it by someone who can write its files."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import Corrupt, Locked, Misuse, NotFound
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.entry import Entry, PieceRef, slot_bits
from sealcast.log.ledger import GENESIS, Ledger, LedgerReader
from sealcast.log.offsets import PinnedOffset
from sealcast.primitives.secrets import Secret
from sealcast.wire import cbor

KEY = Secret(bytes(range(32)))


def at(offset: int) -> PinnedOffset:
    return PinnedOffset((offset,), 1) if offset else PinnedOffset.initial(1)


def piece(first: int, end: int, partition: int = 0) -> PieceRef:
    return PieceRef(f"{partition}-{first}-{end}", bytes(32), 10, partition, first, end, 3, 2, 1, slot_bits([4]))


def entry(batch: int, first: int, end: int, query: str = "q") -> Entry:
    return Entry(query, batch, at(first), at(end), (piece(first, end),), {"admitted": end - first, "rejected_time": 1})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Five batches of ten frames."""
    with Ledger(tmp_path / "ledger", KEY) as ledger:
        for batch in range(5):
            assert ledger.commit(entry(batch, batch * 10, batch * 10 + 10))
    return tmp_path / "ledger"


# --- committing ----------------------------------------------------------------------------------


def test_what_was_committed_is_read_back(directory: Path) -> None:
    for reader in (LedgerReader(directory), LedgerReader(directory, KEY), Ledger(directory, KEY)):
        with reader:
            assert reader.end() == reader.verify() == 5
            assert [c.entry for c in reader.entries()] == [entry(b, b * 10, b * 10 + 10) for b in range(5)]
            assert [c.index for c in reader.entries(3)] == [3, 4]
            last = reader.last()
            assert last is not None and last.entry.batch == 4 and reader.at(4) == last
            assert last.entry.version == 1
            assert reader.index_at(0) == 0 and reader.index_at(last.time_us) == 4 and reader.index_at(10**18) == 5


def test_a_batch_is_committed_once(directory: Path) -> None:
    with Ledger(directory, KEY) as ledger:
        for batch in range(5):
            assert ledger.commit(entry(batch, batch * 10, batch * 10 + 10)) is False
        assert ledger.end() == 5


def test_a_batch_with_other_content_is_refused(directory: Path) -> None:
    same = entry(4, 40, 50)
    with Ledger(directory, KEY) as ledger:
        for other in (
            replace(same, end=at(51), pieces=(piece(40, 51),)),
            replace(same, pieces=()),
            replace(same, pieces=(replace(same.pieces[0], digest=b"1" * 32),)),
            replace(same, counts={"admitted": 11}),
            entry(2, 20, 31),
        ):
            with pytest.raises(Corrupt, match="was committed before with other content"):
                ledger.commit(other)
        assert ledger.end() == 5


@pytest.mark.parametrize(("first", "end"), [(51, 60), (49, 60), (0, 10), (40, 50)])
def test_a_batch_that_does_not_start_at_the_end_is_refused(directory: Path, first: int, end: int) -> None:
    with Ledger(directory, KEY) as ledger:
        if (first, end) == (40, 50):
            # The very span again, from a query that does not know it: its checkpoint is not this ledger's.
            assert ledger.commit(entry(0, 50, 60, "new")) is True
            with pytest.raises(Corrupt, match="delivered again"):
                ledger.commit(entry(9, 40, 50, "new"))
            return
        with pytest.raises(Corrupt, match="the ledger ends at 50"):
            ledger.commit(entry(5, first, end))


def test_a_new_checkpoint_goes_on_where_the_ledger_ends(directory: Path) -> None:
    with Ledger(directory, KEY) as ledger:
        assert ledger.commit(entry(0, 50, 60, "another query"))
        assert ledger.commit(entry(0, 50, 60, "another query")) is False
        assert ledger.verify() == 6


def test_a_ledger_that_never_was_is_empty(tmp_path: Path) -> None:
    reader = LedgerReader(tmp_path / "none")
    assert (reader.end(), list(reader.entries()), reader.last(), reader.index_at(0), reader.verify()) == (
        0,
        [],
        None,
        0,
        0,
    )
    for call in (lambda: reader.at(0), lambda: list(reader.entries(2))):
        with pytest.raises(NotFound):
            call()
    with Ledger(tmp_path / "none", KEY) as ledger:
        ledger.commit(entry(0, 0, 10))
        assert reader.end() == 1, "a reader that came first sees what comes later"


_HOLD = """
import sys
from sealcast.log.ledger import Ledger
from sealcast.primitives.secrets import Secret
with Ledger(sys.argv[1], Secret(bytes(range(32)))).exclusive():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_one_pipeline_runs_a_topic(directory: Path) -> None:
    command = [sys.executable, "-c", _HOLD, str(directory)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder,
        Ledger(directory, KEY) as ledger,
    ):
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(Locked, match=f"process {holder.pid}"), ledger.exclusive():
            pass
        holder.kill()
        holder.wait()
        with ledger.exclusive(), pytest.raises(Locked, match=f"process {os.getpid()}"), ledger.exclusive():
            pass


#: A driver: goes on where the ledger ends, and asks to commit everything twice, as Spark does after a crash.
_DRIVER = """
import sys
from sealcast.log.entry import Entry
from sealcast.log.ledger import Ledger
from sealcast.log.offsets import PinnedOffset
from sealcast.primitives.secrets import Secret
ledger = Ledger(sys.argv[1], Secret(bytes(range(32))))
while True:
    last = ledger.last_span()
    start = last.end if last else PinnedOffset.initial(1)
    if last is not None:
        assert ledger.commit(last) is False
    entry = Entry("q", last.batch + 1 if last else 0, start, PinnedOffset((start.partitions[0] + 3,), 1))
    assert ledger.commit(entry) is True
    print(entry.batch, flush=True)
"""


def test_a_driver_killed_at_any_moment_commits_each_batch_once(tmp_path: Path) -> None:
    acknowledged = -1
    for kill in range(8):
        command = [sys.executable, "-c", _DRIVER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as driver:
            assert driver.stdout is not None
            lines = [driver.stdout.readline() for _ in range(3 + 5 * kill)]
            driver.kill()
            lines += driver.stdout.read().splitlines(keepends=True)
        whole = [int(line) for line in lines if line.endswith(b"\n")]
        assert whole[0] >= acknowledged + 1
        acknowledged = whole[-1]
        reader = LedgerReader(tmp_path, KEY)
        assert reader.verify() > acknowledged
        assert [c.entry.batch for c in reader.entries()] == list(range(reader.end())), "each batch once, none left out"


def test_the_key_stays_here(directory: Path) -> None:
    with Ledger(directory, KEY) as ledger, pytest.raises(Misuse):
        pickle.dumps(ledger)


# --- entries -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Entry("", 0, at(0), at(5)), "names its query"),
        (lambda: Entry("q", -1, at(0), at(5)), "names its query"),
        (lambda: Entry("q", 0, at(5), at(4)), "goes forward"),
        (lambda: Entry("q", 0, at(0), at(5), (piece(0, 6),)), "not this batch's"),
        (lambda: Entry("q", 0, at(2), at(5), (piece(1, 5),)), "not this batch's"),
        (lambda: Entry("q", 0, at(0), at(5), (piece(0, 3), piece(2, 5))), "another piece's"),
        (lambda: Entry("q", 0, at(0), at(5), (piece(0, 3), piece(0, 3))), "another piece's"),
        (lambda: Entry("q", 0, at(0), at(5), (piece(0, 5, partition=1),)), "not this batch's"),
        (lambda: Entry("q", 0, at(0), at(5), (), {str(i): 1 for i in range(65)}), "at most"),
        (lambda: Entry("q", 0, at(5), at(9), (piece(0, 3), piece(5, 9)), late=3), "cannot be late"),
        (lambda: Entry("q", 0, at(5), at(9), (piece(5, 9),), late=1), "not an earlier batch's"),
        (lambda: Entry("q", 0, at(5), at(9), (piece(4, 6), piece(6, 9)), late=1), "not an earlier batch's"),
        (lambda: Entry("q", 0, at(5), at(9), (piece(0, 3), piece(2, 5), piece(5, 9)), late=2), "another piece's"),
        (lambda: Entry("q", 0, at(5), at(9), (piece(0, 3), piece(5, 9))), "not this batch's"),
        (lambda: PieceRef("x", b"short", 1, 0, 0, 1, 0, 0, 0), "not described properly"),
        (lambda: PieceRef("x", bytes(32), 1, 0, 0, 1, 0, 0, 0, b"\1\0"), "trailing zero"),
    ],
)
def test_an_entry_that_makes_no_sense_cannot_be_made(make: Callable[[], object], says: str) -> None:
    with pytest.raises(Misuse, match=says):
        make()


def test_late_pieces_are_counted_in_an_entry_that_has_any(directory: Path) -> None:
    ends = at(50), PinnedOffset((50,), 2)
    late = Entry("q", 5, *ends, (piece(0, 10), piece(20, 30)), {"deliveries": 4}, late=2)
    assert (late.own, late.late) == ((), 2)
    with Ledger(directory, KEY) as ledger:
        assert ledger.commit(late) and not ledger.commit(late)
        assert ledger.at(5).entry == late and ledger.verify() == 6
        with pytest.raises(Corrupt, match="other content"):
            ledger.commit(replace(late, pieces=late.pieces[:1], late=1))
    assert b"late" not in entry(0, 0, 10).encode(GENESIS) and b"late" in late.encode(GENESIS)
    body = cbor.decode(late.encode(GENESIS))
    for bad in (0, -1, True, "2", 3):
        with pytest.raises(Misuse):
            Entry.decode(cbor.encode({**body, "late": bad}))


@given(slots=st.sets(st.integers(0, 300)), asked=st.integers(0, 310))
def test_slot_bits(slots: set[int], asked: int) -> None:
    ref = replace(piece(0, 1), slots=slot_bits(slots))
    assert ref.concerns(asked) == (asked in slots)
    assert replace(ref, slots=None).concerns(asked), "who does not know must look"


# --- attacks -------------------------------------------------------------------------------------


def rewritten(directory: Path, records: list[bytes]) -> Path:
    """Someone who can write files makes the log anew: all checksums and the log's own chain are right."""
    forged = directory.with_name("forged")
    with EmbeddedLog(forged) as log:
        for record in records:
            log.append([record])
    return forged


def records_of(directory: Path) -> list[bytes]:
    with EmbeddedLog(directory, read_only=True) as log:
        return [record.data for record in log.read(0)]


@pytest.mark.parametrize(
    "attack",
    [
        lambda r: [r[0], r[2], r[1], r[3], r[4]],
        lambda r: [r[0], r[1], r[1], r[2], r[3], r[4]],
        lambda r: [r[0], r[1], r[3], r[4]],
        lambda r: r[1:],
        lambda r: [*r, r[0]],
        lambda r: [*r, r[4]],
    ],
    ids=["reorder", "duplicate", "remove the middle", "remove the first", "replay the first", "replay the last"],
)
def test_records_moved_by_a_forger_are_noticed_by_anyone(directory: Path, attack) -> None:  # type: ignore[no-untyped-def]
    forged = rewritten(directory, attack(records_of(directory)))
    EmbeddedLog(forged, read_only=True).verify()  # the log's own chain is no defence against this forger
    for reader in (LedgerReader(forged), LedgerReader(forged, KEY)):
        with pytest.raises(Corrupt, match="does not follow"):
            reader.verify()


def test_a_record_altered_by_a_forger_is_noticed_by_the_broker(directory: Path) -> None:
    records = records_of(directory)
    body, tag = cbor.decode(records[4])[1], cbor.decode(records[4])[2]
    inner = cbor.decode(body)
    inner["counts"]["admitted"] = 9
    forged = rewritten(directory, [*records[:4], cbor.encode({1: cbor.encode(inner), 2: tag})])
    assert LedgerReader(forged).verify() == 5, "without the key this forgery passes: it is the MAC that finds it"
    with pytest.raises(Corrupt, match="record 4 was not written by this broker"):
        LedgerReader(forged, KEY).verify()
    with Ledger(forged, KEY) as ledger, pytest.raises(Corrupt, match="not written by this broker"):
        ledger.commit(entry(5, 50, 60))


def test_a_ledger_of_another_topic_is_refused(directory: Path) -> None:
    with pytest.raises(Corrupt, match="not written by this broker"):
        LedgerReader(directory, Secret(b"1" * 32)).last()


@pytest.mark.parametrize(
    "forge",
    [
        lambda body, tag: b"",
        lambda body, tag: b"\xff" * 10,
        lambda body, tag: cbor.encode([body, tag]),
        lambda body, tag: cbor.encode({1: body}),
        lambda body, tag: cbor.encode({1: body, 2: tag, 3: b""}),
        lambda body, tag: cbor.encode({1: body, 2: tag[:16]}),
        lambda body, tag: cbor.encode({1: body + b"\0", 2: tag}),
        *(
            lambda body, tag, name=name: cbor.encode({1: cbor.encode({**cbor.decode(body), name: -1}), 2: tag})
            for name in ("v", "query", "batch", "start", "end", "pieces", "counts", "previous", "new")
        ),
        lambda body, tag: cbor.encode({1: cbor.encode({**cbor.decode(body), "pieces": [[1]]}), 2: tag}),
        lambda body, tag: cbor.encode({1: cbor.encode({**cbor.decode(body), "counts": {"x": -1}}), 2: tag}),
        lambda body, tag: cbor.encode({1: cbor.encode({**cbor.decode(body), "start": [[0], 0, 0]}), 2: tag}),
    ],
)
def test_what_is_no_record_is_refused_by_name(directory: Path, forge: Callable[[bytes, bytes], bytes]) -> None:
    records = records_of(directory)
    outer = cbor.decode(records[4])
    forged = rewritten(directory, [*records[:4], forge(outer[1], outer[2])])
    with pytest.raises(Corrupt, match="record 4 is not a ledger record"):
        LedgerReader(forged).verify()


def test_a_flipped_byte_anywhere_is_found(directory: Path, tmp_path: Path) -> None:
    segment = next(directory.glob("*.seg"))
    raw = segment.read_bytes()
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    for at_byte in range(0, len(raw), 3):
        (copy / segment.name).write_bytes(raw[:at_byte] + bytes([raw[at_byte] ^ 4]) + raw[at_byte + 1 :])
        with pytest.raises(Corrupt):
            LedgerReader(copy).verify()
