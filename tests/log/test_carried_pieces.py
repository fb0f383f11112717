"""Sealed pieces on a carrier: in parts, found by name, removed for good, and never lost to whoever removes others."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator

import pytest

from sealcast.bench.carrier_servers import CarrierServer
from sealcast.errors import Corrupt, NotFound
from sealcast.log import carried_pieces
from sealcast.log.carried_journal import CarriedJournal
from sealcast.log.carried_pieces import PART_BYTES, SMALL_BYTES, CarriedPieces, Drop, Place, Small, read_note
from sealcast.log.carriers import Carrier, CarrierAddress, Placement, connect
from sealcast.log.journal import KeptJournal
from sealcast.log.pieces import StagedPiece
from sealcast.log.port import TermedLog

#: Pieces that are where their places are, and others.
SIZES = (100, SMALL_BYTES + 1)


class Kept:
    """A journal on a carrier that several processes would open, each by a connection of its own."""

    def __init__(self, server: CarrierServer, partitions: int = 1) -> None:
        self._server, self.name, self._partitions = server, f"j.{secrets.token_hex(6)}", partitions
        self._connected: list[Carrier] = []
        self.open().create(Placement(partitions))

    def open(self) -> CarriedJournal:
        self._connected.append(connect(CarrierAddress.parse(self._server.address), {}))
        return CarriedJournal(self._connected[-1], self.name, self._partitions)

    def close(self) -> None:
        while self._connected:
            self._connected.pop().close()


@pytest.fixture(params=["kafka", "nats"])
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    made = Kept(request.getfixturevalue(request.param), 2)
    yield made
    made.close()


@pytest.fixture
def on_nats(nats: CarrierServer) -> Iterator[Kept]:
    made = Kept(nats)
    yield made
    made.close()


def staged(pieces: CarriedPieces, count: int, size: int = 100, partition: int = 0) -> list[StagedPiece]:
    return [pieces.stage(partition, n, n + 1, secrets.token_bytes(size)) for n in range(count)]


def test_it_is_a_journal(kept: Kept) -> None:
    journal: KeptJournal = kept.open()
    assert isinstance(journal.writer("ledger"), TermedLog)


def test_a_piece_of_any_size_is_read_by_another_process(kept: Kept) -> None:
    pieces, other = kept.open().pieces, kept.open().pieces
    for size in (1, SMALL_BYTES, SMALL_BYTES + 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES):
        data = secrets.token_bytes(size)
        made = pieces.stage(1, size, size + 1, data)
        assert (made.size, other.read(made.name, made.digest)) == (size, data)
        assert other.has(made.name)
    assert len(other.names()) == 6
    with pytest.raises(NotFound):
        other.bytes_of("0000-0000000000000-0000000000001-0123456789abcdef.piece")


def test_a_piece_that_is_staged_twice_is_one(kept: Kept) -> None:
    pieces = kept.open().pieces
    for _ in range(2):
        made = pieces.stage(0, 0, 1, b"the same")
    assert kept.open().pieces.names() == [made.name]


@pytest.mark.parametrize("others_size", SIZES)
@pytest.mark.parametrize("size", SIZES)
def test_what_is_removed_is_gone_from_the_carrier_and_the_rest_stays(kept: Kept, size: int, others_size: int) -> None:
    journal = kept.open()
    pieces = journal.pieces
    made = staged(pieces, 10, size)
    others = staged(pieces, 3, others_size, partition=1)
    gone = [made[2], made[5]]
    secret = [pieces.read(each.name, each.digest) for each in gone]
    pieces.remove(each.name for each in gone)
    for reader in (pieces, kept.open().pieces):
        assert set(reader.names()) == {each.name for each in (*made, *others)} - {each.name for each in gone}
        for each in made:
            if each in gone:
                with pytest.raises(NotFound):
                    reader.read(each.name, each.digest)
            else:
                assert len(reader.read(each.name, each.digest)) == size
        assert all(len(reader.read(each.name, each.digest)) == others_size for each in others)
    left = [
        stored.data
        for name, number in (("pieces", 0), ("pieces", 1), ("places", 0))
        for partition in [journal._carrier.partition(f"{kept.name}.{name}", number)]
        for stored in partition.fetch(*partition.bounds())
    ]
    assert len(left) >= 11 and not any(each in data for each in secret for data in left)
    pieces.remove(each.name for each in made)
    for reader in (pieces, kept.open().pieces):
        assert set(reader.names()) == {each.name for each in others}
        assert all(len(reader.read(each.name, each.digest)) == others_size for each in others)


@pytest.mark.parametrize("size", SIZES)
def test_whoever_lists_pieces_does_not_hold_them(on_nats: Kept, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried_pieces, "_KEPT_SMALL", 5)
    made = staged(on_nats.open().pieces, 20, size)
    reader = on_nats.open().pieces
    assert len(reader.names()) == 20 and len(reader._small) <= 5
    assert all(len(reader.read(each.name, each.digest)) == size for each in made)


def test_a_small_piece_that_was_exchanged_is_found_out_by_name(on_nats: Kept) -> None:
    journal = on_nats.open()
    made = journal.pieces.stage(0, 0, 1, b"what was staged")
    (again,) = journal.pieces._places.append([Small(made.name, b"something else!").encode()])
    reader = on_nats.open().pieces
    assert reader.read(made.name, made.digest) == b"what was staged", "a copy that is not the piece is passed over"
    journal.pieces._places.drop(again)  # the carrier drops the true one
    with pytest.raises(Corrupt, match=f"{made.name} is not the piece that was committed"):
        on_nats.open().pieces.read(made.name, made.digest)


def test_a_place_is_found_however_many_came_after_it(on_nats: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    made = staged(on_nats.open().pieces, 60, 10)
    monkeypatch.setattr(carried_pieces, "_FIRST_LOOK", 4)
    for each in (made[-1], made[0], made[30]):
        pieces = on_nats.open().pieces
        assert len(pieces.read(each.name, each.digest)) == 10
    pieces = on_nats.open().pieces
    pieces.read(made[-1].name, made[-1].digest)
    assert len(pieces._known) <= 8, "whoever reads what is new does not read where everything else is"


def _stage_while_others_drop(kept: Kept) -> tuple[StagedPiece, CarriedPieces]:
    """A piece whose parts are on the carrier, and whose place is not, when another process removes one after it."""
    slow, other = kept.open().pieces, kept.open().pieces
    append = slow._places.append

    def late(records: list[bytes]) -> list[int]:
        slow._places.append = append  # type: ignore[method-assign]
        victim = other.stage(0, 7, 8, b"to be removed" * SMALL_BYTES)
        other.remove([victim.name])
        return append(records)

    slow._places.append = late  # type: ignore[assignment,method-assign]
    return slow.stage(0, 0, 1, b"staged meanwhile" * SMALL_BYTES), kept.open().pieces


def test_a_piece_that_is_staged_while_others_are_removed_is_not_lost(on_nats: Kept) -> None:
    made, reader = _stage_while_others_drop(on_nats)
    assert reader.read(made.name, made.digest) == b"staged meanwhile" * SMALL_BYTES


def test_it_would_be_lost_if_whoever_stages_did_not_look(on_nats: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CarriedPieces, "_is_dropped", lambda *_: False)
    made, reader = _stage_while_others_drop(on_nats)
    with pytest.raises(NotFound):
        reader.read(made.name, made.digest)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("removed", SIZES)
def test_many_stage_and_remove_side_by_side(on_nats: Kept, size: int, removed: int) -> None:
    kept, lost = dict[str, StagedPiece](), list[str]()

    def stage(partition: int) -> None:
        pieces = on_nats.open().pieces
        for each in staged(pieces, 20, size, partition):
            kept[each.name] = each

    threads = [threading.Thread(target=stage, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    remover = on_nats.open().pieces
    while any(thread.is_alive() for thread in threads):
        remover.remove([remover.stage(9, 0, 1, secrets.token_bytes(removed)).name])
    for thread in threads:
        thread.join()
    reader = on_nats.open().pieces
    for each in kept.values():
        try:
            reader.read(each.name, each.digest)
        except NotFound:
            lost.append(each.name)
    assert (len(kept), lost) == (60, [])


def test_bytes_that_were_exchanged_are_found_out_by_name(on_nats: Kept) -> None:
    journal = on_nats.open()
    data = b"what was staged" * SMALL_BYTES
    made = journal.pieces.stage(0, 0, 1, data)
    head = journal.pieces._parts[0].append([(b"", b"something else!" * SMALL_BYTES)])
    journal.pieces._places.append([Place(made.name, 0, tuple(head), len(data)).encode()])
    reader = on_nats.open().pieces
    assert reader.read(made.name, made.digest) == data, "a copy that is not the piece is passed over"
    reader._parts[0].drop(head[0])  # the carrier drops the true one
    with pytest.raises(Corrupt, match=f"{made.name} is not the piece that was committed"):
        on_nats.open().pieces.read(made.name, made.digest)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\xff", b"\x80", Drop(7, 0).encode(), Place("n", 5, (0,), 1).encode()),
        *(Place("n", 0, where, size).encode() for where, size in (((), 1), ((-1,), 1), ((0,), 1 << 40))),
        *(Small("n", bytes(size)).encode() for size in (0, SMALL_BYTES + 1)),
    ],
)
def test_rubbish_among_the_places_is_passed_over(data: bytes) -> None:
    assert read_note(data, 2) is None


def test_a_note_reads_as_it_was_written() -> None:
    for note in (Place("n", 1, (3, 4), 9), Small("n", b"piece"), Drop(0, 12)):
        assert read_note(note.encode(), 2) == note
