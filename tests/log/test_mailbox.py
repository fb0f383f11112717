"""Mailboxes against a plain model: exactly the slot's deliveries, in ledger order, from wherever one starts."""

from __future__ import annotations

import shutil
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sealcast.errors import Corrupt, Misuse, NotFound
from sealcast.log import files
from sealcast.log.cursor import Cursor, CursorFile
from sealcast.log.mailbox import Delivery, Mailbox, slot_mailbox
from sealcast.log.piece_reader import sealed_reader
from sealcast.log.pieces import Pieces
from sealcast.model.event import Position
from sealcast.wire.sealed import SealedPiece
from tests.log.topics import ROWS, TopicMaker


def positions(mailbox: Mailbox[SealedPiece], start: Cursor | None = None) -> list[str]:
    return [str(delivery.position) for delivery in mailbox.deliveries(start)]


@pytest.fixture
def topic(tmp_path: Path) -> TopicMaker:
    """Two partitions, three batches; slot 3 gets events in each, slot 5 in the second only, slot 7 never."""
    maker = TopicMaker(tmp_path / "topic")
    maker.batch([3, 1], {Position(0, 0, 1): [3], Position(0, 2, 0): [3], Position(1, 0, 3): [3]})
    maker.batch([3, 4], {Position(1, 2, 0): [3, 5], Position(1, 2, 2): [5], Position(1, 3, 0): [3]})
    maker.batch([5, 4], {Position(0, 4, 1): [3]})
    return maker


ALL = ["0/0/1", "0/2/0", "1/0/3", "1/2/0", "1/3/0", "0/4/1"]


def test_a_mailbox_has_what_is_its_own_in_order(topic: TopicMaker) -> None:
    assert positions(slot_mailbox(topic.root, 3, "ada")) == ALL
    assert positions(slot_mailbox(topic.root, 5, "bob")) == ["1/2/0", "1/2/2"]
    assert positions(slot_mailbox(topic.root, 7, "cyd")) == []
    assert positions(slot_mailbox(topic.root, 70_000, "dan")) == []
    for delivery in slot_mailbox(topic.root, 5, "bob").deliveries():
        assert delivery.piece.uses[delivery.handle] == list(delivery.piece.slots).index(5), "through its own key"


def test_pieces_without_the_slot_are_not_even_opened(topic: TopicMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    read = Pieces.bytes_of
    monkeypatch.setattr(Pieces, "bytes_of", lambda self, name: (opened.append(name), read(self, name))[1])
    assert len(positions(slot_mailbox(topic.root, 5, "bob"))) == 2
    assert len(opened) == 1
    opened.clear()
    reader = sealed_reader(topic.root)
    for name in ("ada", "eve"):
        assert positions(slot_mailbox(reader, 3, name)) == ALL
    assert len(opened) == len(set(opened)), "mailboxes that share a reader read a piece once"


def test_without_slot_bits_the_pieces_are_asked(tmp_path: Path) -> None:
    maker = TopicMaker(tmp_path)
    maker.batch([3, 3], {Position(0, 0, 1): [3], Position(1, 2, 0): [5]}, skip_bits=True)
    assert positions(slot_mailbox(tmp_path, 3, "ada")) == ["0/0/1"]
    assert positions(slot_mailbox(tmp_path, 7, "cyd")) == []


# --- whoever was told ---------------------------------------------------------------------------


def test_whoever_read_all_and_was_told_of_more_looks_at_nothing_else(
    topic: TopicMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox = slot_mailbox(topic.root, 3, "ada")
    reader, looks, at = mailbox.reader, list[str](), Cursor()
    monkeypatch.setattr(reader, "wait", lambda known, seconds: reader.ledger.end())
    for name in ("look", "end"):
        asked = getattr(reader, name)
        monkeypatch.setattr(reader, name, lambda name=name, asked=asked: (looks.append(name), asked())[1])
    for part in mailbox.parts(at):
        at = part.after(len(part))
    topic.batch([6, 4], {Position(0, 5, 0): [3], Position(0, 5, 1): [3]})
    mailbox.wait(1.0)
    looks.clear()
    found = mailbox.parts(at)
    (part,) = [next(found)]
    assert (looks, [str(each.position) for each in part.deliveries()]) == ([], ["0/5/0", "0/5/1"])
    assert not list(found)
    topic.batch([7, 4], {Position(0, 6, 0): [3]})
    mailbox.wait(1.0)
    assert positions(mailbox, part.after(1)) == ["0/5/1", "0/6/0"], "who has not read all of it reads on where it was"
    topic.batch([8, 4], {Position(0, 7, 0): [3]})
    mailbox.wait(1.0)
    stopped = mailbox.parts(part.after(2))
    next(stopped)
    topic.batch([9, 4], {Position(0, 8, 0): [3]})
    mailbox.wait(1.0)
    left = ["0/6/0", "0/7/0", "0/8/0"]
    assert positions(mailbox, part.after(2)) == left, "and so does who stopped in between"


# --- acknowledging -------------------------------------------------------------------------------


def test_acknowledged_is_durable_and_never_goes_back(topic: TopicMaker) -> None:
    mailbox = slot_mailbox(topic.root, 3, "ada")
    assert mailbox.lag() == 6
    got: list[Delivery[SealedPiece]] = list(mailbox.deliveries())
    for done, delivery in enumerate(got, 1):
        assert mailbox.acknowledge(delivery) is True
        again = slot_mailbox(topic.root, 3, "ada")
        assert positions(again) == ALL[done:]
        assert again.lag() == mailbox.lag() == 6 - done
    assert mailbox.acknowledge(got[2]) is False
    assert positions(mailbox) == []
    topic.batch([6, 4], {Position(0, 5, 0): [3]})
    assert positions(mailbox) == ["0/5/0"]
    assert mailbox.advance(Cursor()) is False
    assert positions(slot_mailbox(topic.root, 3, "ada")) == ["0/5/0"]
    assert positions(slot_mailbox(topic.root, 3, "ada"), Cursor()) == [*ALL, "0/5/0"], "reading starts anywhere"


def test_cursors_of_several_names_are_their_own(topic: TopicMaker) -> None:
    ada, eve = slot_mailbox(topic.root, 3, "ada"), slot_mailbox(topic.root, 3, "eve")
    ada.acknowledge(next(ada.deliveries()))
    assert (ada.lag(), eve.lag()) == (5, 6)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 65, "a b"])
def test_a_name_cannot_lead_elsewhere(topic: TopicMaker, name: str) -> None:
    with pytest.raises(Misuse, match="cannot name a cursor"):
        slot_mailbox(topic.root, 3, name)


def test_a_damaged_cursor_is_refused_and_not_taken_for_a_new_one(topic: TopicMaker) -> None:
    mailbox = slot_mailbox(topic.root, 3, "ada")
    mailbox.acknowledge(list(mailbox.deliveries())[3])
    path = topic.root / "cursors" / "ada.cursor"
    raw = path.read_bytes()
    for at in range(len(raw)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        with pytest.raises(Corrupt, match="ada.cursor"):
            mailbox.cursor()
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        with pytest.raises(Corrupt, match="is not the cursor that was saved"):
            mailbox.cursor()
    path.write_bytes(raw)
    with pytest.raises(Corrupt, match="slot 3, not 5"):
        slot_mailbox(topic.root, 5, "ada").cursor()


def test_a_crash_while_saving_leaves_the_old_cursor(topic: TopicMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    mailbox = slot_mailbox(topic.root, 3, "ada")
    first, second, *_ = mailbox.deliveries()
    mailbox.acknowledge(first)

    class PowerLoss(BaseException):
        pass

    def lost(fd: int) -> None:
        raise PowerLoss

    with monkeypatch.context() as patch, pytest.raises(PowerLoss):
        patch.setattr(files, "sync_data", lost)
        mailbox.acknowledge(second)
    assert positions(slot_mailbox(topic.root, 3, "ada")) == ALL[1:]


# --- attacks -------------------------------------------------------------------------------------


def test_a_ledger_that_lost_its_newest_records_is_noticed(topic: TopicMaker, tmp_path: Path) -> None:
    shutil.copytree(topic.root / "ledger", tmp_path / "old ledger")
    topic.batch([6, 4], {Position(0, 5, 0): [3]})
    mailbox = slot_mailbox(topic.root, 3, "ada")
    mailbox.acknowledge(list(mailbox.deliveries())[-1])
    shutil.rmtree(topic.root / "ledger")
    shutil.copytree(tmp_path / "old ledger", topic.root / "ledger")
    with pytest.raises(Corrupt, match="its newest records were removed"):
        list(slot_mailbox(topic.root, 3, "ada").deliveries())


def test_another_ledger_in_its_place_is_noticed(topic: TopicMaker, tmp_path: Path) -> None:
    mailbox = slot_mailbox(topic.root, 3, "ada")
    mailbox.acknowledge(list(mailbox.deliveries())[-1])
    other = TopicMaker(tmp_path / "other")
    for ends in ([1, 1], [2, 2], [3, 3], [4, 4]):
        other.batch(ends, {})
    shutil.rmtree(topic.root / "ledger")
    shutil.copytree(tmp_path / "other" / "ledger", topic.root / "ledger")
    with pytest.raises(Corrupt, match="not the one that this cursor was saved with"):
        list(slot_mailbox(topic.root, 3, "ada").deliveries())


def test_swapped_altered_and_missing_pieces_are_refused(topic: TopicMaker) -> None:
    first, second, *_ = sorted((topic.root / "pieces").iterdir())
    good, other = first.read_bytes(), second.read_bytes()
    for bad in (other, good[:-1], good + b"\0", good[:50] + bytes([good[50] ^ 1]) + good[51:], b""):
        first.write_bytes(bad)
        with pytest.raises(Corrupt, match="not the piece that was committed"):
            positions(slot_mailbox(topic.root, 3, "ada"))
    first.unlink()
    with pytest.raises(Corrupt, match="is gone; the ledger names it"):
        positions(slot_mailbox(topic.root, 3, "ada"))
    first.write_bytes(good)
    assert positions(slot_mailbox(topic.root, 3, "ada")) == ALL


# --- where to start ------------------------------------------------------------------------------


def test_starting_anywhere(topic: TopicMaker) -> None:
    mailbox = slot_mailbox(topic.root, 3, "ada")
    for ordinal in range(7):
        assert positions(mailbox, mailbox.locate(str(ordinal))) == ALL[ordinal:]
    for index, position in enumerate(ALL):
        assert positions(mailbox, mailbox.locate(position)) == ALL[index:]
    assert positions(mailbox, mailbox.locate("0/0/2")) == ALL[1:], "not its own: what follows"
    assert positions(mailbox, mailbox.locate("end")) == []
    with pytest.raises(NotFound, match="has 6 deliveries so far"):
        mailbox.locate("7")
    with pytest.raises(NotFound, match="not delivered yet"):
        mailbox.locate("1/9/0")
    for text in ("yesterday", "1/2", "-1", "", "1.5"):
        with pytest.raises(Misuse):
            mailbox.locate(text)


def test_starting_at_a_time(topic: TopicMaker) -> None:
    mailbox = slot_mailbox(topic.root, 3, "ada")
    second = mailbox.reader.record(1).time_us
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=second)
    assert positions(mailbox, mailbox.locate(moment.isoformat())) == ALL[3:]
    assert positions(mailbox, mailbox.locate(moment.isoformat().replace("+00:00", "Z"))) == ALL[3:]
    assert positions(mailbox, mailbox.locate((moment + timedelta(microseconds=1)).isoformat())) == ALL[5:]
    assert positions(mailbox, mailbox.locate("1999-01-01T00:00:00Z")) == ALL
    assert positions(mailbox, mailbox.locate("2999-01-01T00:00:00Z")) == []


def test_following_sees_batches_as_they_are_committed(tmp_path: Path) -> None:
    maker = TopicMaker(tmp_path)
    seen: list[str] = []
    done = threading.Event()

    def follow() -> None:
        # It starts before there is anything to follow.
        mailbox = slot_mailbox(tmp_path, 3, "ada")
        while len(seen) < 5 and not done.wait(0.001):
            for delivery in mailbox.deliveries():
                seen.append(str(delivery.position))
                mailbox.acknowledge(delivery)

    thread = threading.Thread(target=follow)
    thread.start()
    for number in range(5):
        maker.batch([number + 1, 0], {Position(0, number, 0): [3]})
    thread.join(20)
    assert seen == [f"0/{number}/0" for number in range(5)]


# --- a model -------------------------------------------------------------------------------------

batches = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(0, 3),
        st.dictionaries(
            st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, ROWS - 1)),
            st.sets(st.integers(0, 9), max_size=4),
            max_size=8,
        ),
    ),
    max_size=4,
)


@given(plan=batches, slot=st.integers(0, 9), taken=st.integers(0, 20))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_mailbox_agrees_with_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan, slot: int, taken: int
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(files, "sync_data", lambda fd: None)
    monkeypatch.setattr(files, "sync_directory", lambda path: None)
    root = tmp_path / str(len(list(tmp_path.iterdir())))
    maker = TopicMaker(root)
    expected: list[str] = []
    for more, others, wanted in plan:
        start = maker.end.partitions
        ends = [start[0] + more, start[1] + others]
        gets = {Position(p, start[p] + o, r): sorted(s) for (p, o, r), s in wanted.items() if start[p] + o < ends[p]}
        if ends == list(start):
            continue
        maker.batch(ends, gets)
        expected += [str(position) for position in sorted(gets) if slot in gets[position]]
    mailbox = slot_mailbox(root, slot, "ada")
    assert positions(mailbox) == expected
    assert mailbox.lag() == len(expected)
    taken = min(taken, len(expected))
    if taken:
        mailbox.acknowledge(list(mailbox.deliveries())[taken - 1])
    assert positions(slot_mailbox(root, slot, "ada")) == expected[taken:]
    assert mailbox.lag() == len(expected) - taken
    assert positions(mailbox, mailbox.at_ordinal(taken)) == expected[taken:]


def test_a_cursor_file_begins_at_the_beginning(tmp_path: Path) -> None:
    assert CursorFile(tmp_path, "ada", 3).load().cursor == Cursor(0, 0, 0)
