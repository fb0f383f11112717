"""A topic that is on a carrier, ledger and pieces and all: nothing of it is in the directory, and one broker writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex

import pytest

from sealcast import Realm, Subscriber
from sealcast.bench.carrier_servers import CarrierServer, NatsServer
from sealcast.errors import Corrupt, Locked, Misuse, Unavailable
from sealcast.log.carried_journal import CarriedJournal
from sealcast.log.carried_pieces import CarriedPieces
from sealcast.log.carriers import Placement
from sealcast.log.entry import Entry
from sealcast.log.ledger import Ledger, LedgerReader
from sealcast.log.nats import NatsCarrier
from sealcast.log.nats_partition import NatsPartition, stream_of
from sealcast.log.numbered import NumberedLog
from sealcast.log.offsets import PinnedOffset
from sealcast.pipeline import reseal
from sealcast.pipeline.retention import Retainer, kept_steps
from sealcast.protections import steps
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.steps import StepName
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.realm.changes import CarryJournal, CarryTopic
from sealcast.trust.realm.state import CarriedName
from tests.cli.shell import sealcast
from tests.copies import copy_realm
from tests.log.test_carried_topics import SCHEMA, TOPIC, deliver, opened, publish


@pytest.fixture(params=["kafka", "nats"])
def server(request: pytest.FixtureRequest) -> CarrierServer:
    found: CarrierServer = request.getfixturevalue(request.param)
    return found


def made(directory: Path, *, partitions: int = 1) -> Realm:
    realm = Realm.create(directory / "realm", f"r{directory.name[-12:]}")
    realm.create_topic(TOPIC, SCHEMA, partitions=partitions, access="members")
    realm.enrol_many(["nyse", "lse", "alice"])
    realm.subscribe(TOPIC, "alice", "price > 10")
    return realm


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    return made(tmp_path)


@pytest.fixture
def carried(realm: Realm, nats: NatsServer) -> Realm:
    realm.add_carrier("away", nats.address)
    realm.move_topic(TOPIC, "away")
    return realm


def files_of(realm: Realm) -> list[str]:
    """What the directory has of frames, ledger, notes and pieces."""
    paths = realm.paths.topic(TOPIC)
    notes = [
        *paths.root.glob("reseals/*.seg"),
        *paths.root.glob("replays/notes/*.seg"),
        *paths.root.glob("replays/pieces/*"),
    ]
    found = [*paths.ledger.glob("*.seg"), *paths.pieces.glob("*"), *notes]
    return sorted(path.name for path in found)


def step(realm: Realm) -> FramesStep:
    steps._open.cache_clear()
    return FramesStep.of(StepName(str(realm.paths.root), TOPIC))


def journal(realm: Realm) -> CarriedJournal:
    found = realm.journal(TOPIC)
    assert isinstance(found, CarriedJournal)
    return found


def everything(realm: Realm) -> list[int]:
    with Subscriber(realm, TOPIC, "alice", from_=0) as reading:
        return [int(event.payload) for event in reading]


def is_whole(realm: Realm) -> bool:
    return bool(sealcast("check", "--json", "--realm", realm.paths.root).document["ok"])


# --- where everything is --------------------------------------------------------------------------


def test_nothing_of_a_topic_is_in_the_directory(tmp_path: Path, server: CarrierServer) -> None:
    realm = made(tmp_path, partitions=2)
    realm.add_carrier("away", server.address)
    realm.move_topic(TOPIC, "away")
    for round in range(3):
        publish(realm, 11 + round, 5)
        publish(realm, 31 + round, by="lse")
        deliver(realm)
        assert sorted(opened(realm)) == [11 + round, 31 + round]
    assert files_of(realm) == []
    assert journal(realm).log("ledger").end() == 3
    assert len(journal(realm).pieces.names()) == 6
    assert is_whole(realm)
    status = sealcast("status", "--json", "--realm", realm.paths.root).document["topics"][0]
    assert status["lag"]["subscribers"] == {"alice": 0}


def test_a_ledger_that_moves_keeps_numbers_times_and_cursors(realm: Realm, server: CarrierServer) -> None:
    for price in (11, 12, 13):
        publish(realm, price)
        deliver(realm)
    with Subscriber(realm, TOPIC, "alice") as reading:
        assert [int(event.payload) for event in reading.poll(max_events=2)] == [11, 12]
        reading.ack()
    with LedgerReader(realm.paths.topic(TOPIC).ledger) as ledger:
        before = [(each.index, each.time_us, each.tag) for each in ledger.entries()]
    realm.add_carrier("away", server.address)
    realm.move_topic(TOPIC, "away")
    with LedgerReader(realm.journal(TOPIC)) as ledger:
        assert [(each.index, each.time_us, each.tag) for each in ledger.entries()] == before
        assert ledger.index_at(before[1][1]) == 1
    assert files_of(realm) == []
    publish(realm, 14)
    deliver(realm)
    assert opened(realm) == [13, 14]
    assert everything(realm) == [11, 12, 13, 14]
    assert is_whole(realm)


@pytest.mark.parametrize("after", [pytest.param("ledger", marks=pytest.mark.soak), "pieces", "registry"])
def test_a_move_that_is_cut_short_is_done_again(
    realm: Realm, nats: NatsServer, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sealcast.trust.admin import carrying, moving_journals

    publish(realm, 11, 12)
    deliver(realm)
    realm.add_carrier("away", nats.address)

    def fails(*_: object) -> int:
        raise Unavailable("cut short")

    at = {
        "ledger": (moving_journals, "_copy_pieces"),
        "pieces": (moving_journals, "CarryJournal"),
        "registry": (moving_journals, "clear_directory"),
    }
    with monkeypatch.context() as patched:
        patched.setattr(*at[after], fails)
        with pytest.raises(Unavailable):
            realm.move_topic(TOPIC, "away")
    assert files_of(realm), "nothing is removed before all of it is elsewhere"
    assert opened(realm) == [11, 12]
    if after == "registry":
        with pytest.raises(Misuse, match="already"):
            carrying.move_topic(realm, TOPIC, "away")
    else:
        realm.move_topic(TOPIC, "away")
    assert files_of(realm) == []
    assert everything(realm) == [11, 12]
    assert len(journal(realm).pieces.names()) == 1
    assert is_whole(realm)


def test_a_topic_whose_frames_were_moved_before_follows(realm: Realm, nats: NatsServer) -> None:
    """Releases before this one moved frames alone."""
    realm.add_carrier("away", nats.address)
    publish(realm, 11)
    name = f"{realm.name}.old"
    realm.carriers.carrier(realm.state(), "away").create(name, Placement(1))
    realm.registry.apply(CarryTopic(TOPIC, "broker", "away", name, (0,), (0,)))
    publish(realm, 12)
    deliver(realm)
    assert opened(realm) == [12] and files_of(realm)
    assert realm.move_topic(TOPIC, "away").copied == 0
    assert files_of(realm) == []
    publish(realm, 13)
    deliver(realm)
    assert everything(realm) == [12, 13]


def test_a_name_that_has_another_ledger_is_refused(carried: Realm) -> None:
    publish(carried, 11)
    deliver(carried)
    carried.create_topic("other", SCHEMA, access="members")
    with pytest.raises(Misuse, match=r"has the frames of topic 'quotes' already|not of this topic"):
        carried.move_topic("other", "away", name=carried.state().carried[TOPIC, "broker"].name)


# --- one writer -----------------------------------------------------------------------------------


def test_a_broker_that_was_taken_over_commits_nothing(carried: Realm, tmp_path: Path) -> None:
    """Two machines: each has its own directory and its own locks, and the carrier between them."""
    key = carried.broker().journal_key(carried.state().topic(TOPIC).id)
    with ExitStack() as held:
        old, new = (Ledger(tmp_path / name, key, carried.reopen().journal(TOPIC)) for name in ("one", "two"))
        before = held.enter_context(old.exclusive())
        assert old.commit(_first(), before)
        # Another process of the same pipeline goes on with its term, and so does the first one after it.
        helper = Ledger(tmp_path / "one", key, carried.reopen().journal(TOPIC))
        assert helper.commit(_next(helper), before)
        assert old.commit(_next(old), before)
        since = held.enter_context(new.exclusive())
        for stale in (old, helper):
            with pytest.raises(Locked, match=f"another run has taken over .* with term {since} .* term {before}"):
                stale.commit(_next(new), before)
        assert new.commit(_next(new), since)
        with pytest.raises(Locked):
            Ledger(tmp_path / "one", key, carried.reopen().journal(TOPIC)).commit(_next(new), before)
        assert new.commit(_next(new), since), "whoever tries in vain does not end the term"
        assert new.verify() == 5


def test_it_would_commit_if_terms_were_not_read(
    carried: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NumberedLog, "resume", lambda self, term: self.fence())
    key = carried.broker().journal_key(carried.state().topic(TOPIC).id)
    old, new = (Ledger(tmp_path / name, key, carried.reopen().journal(TOPIC)) for name in ("one", "two"))
    with old.exclusive() as before, new.exclusive() as since:
        assert new.commit(_first(), since)
        assert old.commit(_next(new), before), "its own lock says that it is the one"


def _first() -> Entry:
    return Entry("q", 0, PinnedOffset.initial(1), PinnedOffset((0,), 1, 1), (), {})


def _next(ledger: Ledger) -> Entry:
    last = ledger.last()
    assert last is not None
    return Entry("q", last.entry.batch + 1, last.entry.end, last.entry.end, (), {})


# --- removed for good -----------------------------------------------------------------------------


def on_the_carrier(realm: Realm) -> bytes:
    """Every byte of sealed pieces that the carrier still gives."""
    pieces = journal(realm).pieces
    partitions = (*pieces._parts, pieces._places._partition)
    return b"".join(stored.data for partition in partitions for stored in partition.fetch(*partition.bounds()))


def test_what_is_sealed_again_leaves_nothing_under_the_keys_before(carried: Realm) -> None:
    publish(carried, 11, 12)
    deliver(carried)
    publish(carried, 13)
    deliver(carried)
    before = [journal(carried).pieces.bytes_of(name) for name in journal(carried).pieces.names()]
    carried.rotate(TOPIC)
    topic = step(carried)
    done = reseal.run(topic, reseal.wanted(topic, "the broker was compromised"))
    assert (done.pieces, done.removed) == (2, 2)
    left = on_the_carrier(carried)
    assert left and not any(piece in left for piece in before)
    assert everything(carried) == [11, 12, 13]
    assert is_whole(carried)
    assert not reseal.wanted(topic, "again").places


def test_pieces_have_an_end(carried: Realm) -> None:
    carried.alter_topic(TOPIC, pieces_kept_s=86_400)
    publish(carried, 11)
    deliver(carried)
    sealed = on_the_carrier(carried)
    now = carried.clock() + 30 * 86_400_000_000
    with Retainer(BrokerRealm(carried.paths.root), kept_steps(carried, [TOPIC], ["broker"])) as retainer:
        retainer.once(now)
        assert not retainer._failed
    assert sealed not in on_the_carrier(carried)
    publish(carried, 12)
    deliver(carried)
    assert everything(carried) == [12]
    assert is_whole(carried)


def replayed(realm: Realm, count: int) -> None:
    ask = ("replay", TOPIC, "--as", "lse", "--from", "2020-01-01", "--filter", "price > 0", "--json")
    assert len(sealcast(*ask, "--realm", realm.paths.root).document["events"]) == count


def test_what_is_replayed_is_on_the_carrier_too(
    realm: Realm, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sealcast.log import carried_pieces

    publish(realm, 11, 12)
    deliver(realm)
    replayed(realm, 2)
    assert any("piece" in name for name in files_of(realm))
    realm.add_carrier("away", nats.address)
    realm.move_topic(TOPIC, "away")
    publish(realm, 13)
    deliver(realm)
    replayed(realm, 3)
    assert files_of(realm) == []
    received = sealcast("audit", "--received", "--entity", "lse", "--json", "--realm", realm.paths.root).document
    assert sum(row["replayed"] for row in received["received"]) == 5
    monkeypatch.setattr(carried_pieces, "GRACE_US", 0)
    assert step(realm).collect_garbage(realm.clock()) == [], "no record of the ledger names them, and they stay"
    assert is_whole(realm)
    realm.rotate(TOPIC)
    topic = step(realm)
    reseal.run(topic, reseal.wanted(topic, "the broker was compromised"))
    assert len(topic.pieces.names()) == 2, "what was replayed under the keys before is gone with the rest"


def test_garbage_is_collected_once_it_is_old(carried: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    from sealcast.log import carried_pieces

    publish(carried, 11)
    deliver(carried)
    topic = step(carried)
    topic.pieces.stage(0, 5, 6, b"of a task that was killed")
    assert topic.collect_garbage(carried.clock()) == []
    monkeypatch.setattr(carried_pieces, "GRACE_US", 0)
    assert len(topic.collect_garbage(carried.clock())) == 1
    assert everything(carried) == [11]


# --- lies -----------------------------------------------------------------------------------------


def deletes(realm: Realm, suffix: str, sequence: int) -> None:
    there = realm.carriers.carrier(realm.state(), "away")
    assert isinstance(there, NatsCarrier)
    stream = stream_of(f"{realm.state().journals[TOPIC, 'broker'].name}.{suffix}", 0)

    async def delete() -> bool:
        return await (await there.streams()).delete_msg(stream, sequence)

    assert there.ask(delete())


def tells(realm: Realm, suffix: str, lie: Callable[[list[tuple[bytes, bytes]]], list[tuple[bytes, bytes]]]) -> None:
    """The carrier serves another journal from now on, of which one log differs."""
    there, place = realm.carriers.carrier(realm.state(), "away"), realm.state().journals[TOPIC, "broker"]
    other = CarriedName("away", f"{place.name}.{token_hex(4)}")
    realm.carriers.journal_at(realm.state(), other, 1).create(Placement(1))
    for each in ("ledger", "reseals", "replays", "pieces", "places"):
        source = there.partition(f"{place.name}.{each}", 0)
        stored = [(found.head, found.data) for found in source.fetch(*source.bounds())]
        told = lie(stored) if each == suffix else stored
        if told:
            there.partition(f"{other.name}.{each}", 0).append(told)
    realm.registry.apply(CarryJournal(TOPIC, "broker", *other))


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory, nats: NatsServer) -> Realm:
    realm = made(tmp_path_factory.mktemp("lies"))
    realm.add_carrier("away", nats.address)
    realm.move_topic(TOPIC, "away")
    for price in range(11, 16):
        publish(realm, price)
        deliver(realm)
    with Subscriber(realm, TOPIC, "alice") as reading:
        reading.poll(max_events=2)
        reading.ack()
    return realm


@pytest.fixture
def delivered(pristine: Realm, tmp_path: Path) -> Realm:
    """A copy of its own, on the carrier, too."""
    copy_realm(pristine.paths.root, tmp_path / "realm")
    realm = Realm(tmp_path / "realm")
    tells(realm, "", lambda stored: stored)
    return realm


def records(stored: list[tuple[bytes, bytes]]) -> list[int]:
    """Where the ledger's records are, among the marks of its writers."""
    return [at for at, (_, data) in enumerate(stored) if len(data) > 64]


def found_out(realm: Realm, text: str) -> None:
    with pytest.raises(Corrupt, match=text):
        everything(realm.reopen())


def test_a_ledger_that_lacks_a_record_is_found_out_by_its_number(delivered: Realm) -> None:
    tells(delivered, "ledger", lambda stored: [each for at, each in enumerate(stored) if at != records(stored)[2]])
    found_out(delivered, "record 3 is where record 2 should be")


def test_a_ledger_whose_record_was_deleted_is_found_out_by_its_number(delivered: Realm) -> None:
    log = journal(delivered)._carrier.partition(f"{journal(delivered)._name}.ledger", 0)
    stored = [(each.head, each.data) for each in log.fetch(*log.bounds())]
    deletes(delivered, "ledger", records(stored)[2] + 1)
    found_out(delivered, "record 3 is where record 2 should be")


def test_a_ledger_that_is_cut_off_is_found_out_by_the_cursor_and_by_what_it_took(delivered: Realm) -> None:
    tells(delivered, "ledger", lambda stored: stored[: records(stored)[1]])
    with pytest.raises(Corrupt, match="shorter|record 1|has only 1"):
        opened(delivered.reopen())


@pytest.mark.parametrize(
    ("lie", "text"),
    [
        (lambda s, r: [*s, s[r[1]]], "record 1 is where record 5 should be"),
        (lambda s, r: _swapped(s, r[1], r[3]), "record 3 is where record 1 should be"),
        (lambda s, r: _altered(s, r[2]), "is not what was written"),
        (lambda s, r: _renumbered(s, r[2], r[3]), "record 2 does not follow record 1"),
    ],
    ids=["repeats", "reorders", "alters", "leaves out and renumbers"],
)
def test_a_ledger_that_was_tampered_with_is_found_out(
    delivered: Realm, lie: Callable[..., list[tuple[bytes, bytes]]], text: str
) -> None:
    tells(delivered, "ledger", lambda stored: lie(stored, records(stored)))
    found_out(delivered, text)


def _swapped(stored: list[tuple[bytes, bytes]], one: int, other: int) -> list[tuple[bytes, bytes]]:
    stored[one], stored[other] = stored[other], stored[one]
    return stored


def _altered(stored: list[tuple[bytes, bytes]], at: int) -> list[tuple[bytes, bytes]]:
    head, data = stored[at]
    stored[at] = head, data[:-1] + bytes([data[-1] ^ 1])
    return stored


def _renumbered(stored: list[tuple[bytes, bytes]], at: int, other: int) -> list[tuple[bytes, bytes]]:
    """The record after it in its place, with a head that a liar makes."""
    from sealcast.log.carried import NUMBERED, RecordHead

    data = stored[other][1]
    stored[at] = RecordHead(NUMBERED, 1, 2).sealed(data), data
    return stored


def test_a_piece_that_is_withheld_is_found_out_by_its_name(
    delivered: Realm, in_parts: Callable[[CarriedPieces], None]
) -> None:
    in_parts(journal(delivered).pieces)
    with LedgerReader(delivered.journal(TOPIC)) as ledger:
        (ref,) = ledger.at(2).entry.pieces
    (place,) = [each.place for each in journal(delivered).pieces._kept()[ref.name]]
    assert place is not None
    deletes(delivered, "pieces", place.positions[0] + 1)
    found_out(delivered, f"{ref.name} is gone; the ledger names it")
    report = sealcast("check", "--json", "--realm", delivered.paths.root).document
    assert not report["ok"] and ref.name in str(report)


def test_a_small_piece_that_is_withheld_is_found_out_by_its_number(delivered: Realm) -> None:
    with LedgerReader(delivered.journal(TOPIC)) as ledger:
        (ref,) = ledger.at(2).entry.pieces
    (known,) = journal(delivered).pieces._kept()[ref.name]
    assert known.place is None
    deletes(delivered, "places", known.number + 1)
    found_out(delivered, f"places.*record {known.number} is missing")
    report = sealcast("check", "--json", "--realm", delivered.paths.root).document
    assert not report["ok"] and f"record {known.number} is missing" in str(report)


def test_a_small_piece_that_was_altered_is_found_out(delivered: Realm) -> None:
    tells(delivered, "places", lambda stored: _altered(stored, 2))
    found_out(delivered, "places.*record 2 is not what was written")


def test_a_piece_that_was_altered_is_found_out_by_its_name(
    delivered: Realm, in_parts: Callable[[CarriedPieces], None]
) -> None:
    in_parts(journal(delivered).pieces)
    tells(delivered, "pieces", lambda stored: _altered(stored, 2))
    with LedgerReader(delivered.journal(TOPIC)) as ledger:
        (ref,) = ledger.at(2).entry.pieces
    found_out(delivered, f"{ref.name} is not the piece that was committed")


def test_places_that_are_missing_are_found_out_by_number_or_by_the_pieces_name(delivered: Realm) -> None:
    tells(delivered, "places", lambda stored: [*stored[:2], *stored[3:]])
    with LedgerReader(delivered.journal(TOPIC)) as ledger:
        (ref,) = ledger.at(2).entry.pieces
    found_out(delivered, f"{ref.name} is gone")


# --- a server that dies ---------------------------------------------------------------------------


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path / "nats") as server:
        yield server.start()


@pytest.mark.soak
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_server_is_killed_between_every_two_steps(
    realm: Realm, own_nats: NatsServer, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each write that a batch makes to the carrier, by kill -9: 0 lost, 0 doubled."""
    realm.add_carrier("away", own_nats.address)
    realm.move_topic(TOPIC, "away")
    done, writes, due = list[int](), 0, 10
    honest = {name: getattr(NatsPartition, name) for name in ("append", "append_alone", "become_writer")}
    die_at = 0

    def killing(name: str) -> Callable[..., object]:
        def call(self: NatsPartition, *arguments: object) -> object:
            nonlocal writes
            writes += 1
            dies = writes == die_at
            if dies and when == "before":
                own_nats.kill()
                own_nats.start()
            try:
                return honest[name](self, *arguments)
            finally:
                if dies and when == "after":
                    own_nats.kill()
                    own_nats.start()

        return call

    for step_number in range(1, 8):
        due += 1
        publish(realm, due)
        done.append(due)
        writes, die_at = 0, step_number
        with monkeypatch.context() as patched:
            for name in honest:
                patched.setattr(NatsPartition, name, killing(name))
            for _ in range(20):
                try:
                    deliver(realm)
                    break
                except Unavailable:
                    continue
    assert everything(realm) == done
    assert is_whole(realm)
