"""Sealed events have an end where the topic says so: by age and by size. Readers who fall behind are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Subscriber
from sealcast.errors import ParameterRejected
from sealcast.lab.drill import drill
from sealcast.lab.forgetting import Forgotten, forget
from sealcast.lab.theft.loot import steal
from sealcast.lab.theft.tries import Tries
from sealcast.log.reseals import Removal, Resealed
from sealcast.model.protection import PROTECTIONS
from sealcast.pipeline.retention import Retainer, kept_steps
from sealcast.protections import due as keeping
from sealcast.protections import steps
from sealcast.protections.endpoint.client import EndpointClient
from sealcast.protections.steps import StepName
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.realm.changes import Access, AlterTopic
from sealcast.trust.realm.parameters import FOR_EVER_S, NO_LIMIT, KeyParameters
from sealcast.trust.realm.stored import from_json, to_json
from sealcast.wire import sealed
from sealcast.wire.emptied import emptied
from tests.cli.shell import sealcast
from tests.soak.small_realm import FILTERS, SCHEMA, TOPIC, carried, publish

DAY_US = 86_400_000_000
MATCHED = [name for name, made in PROTECTIONS.items() if not made().peers and not made().overlay]


def a_realm(directory: Path, protection: str = "endpoint", **parameters: int) -> Realm:
    realm = Realm.create(directory / "realm")
    about = KeyParameters.parse({"token_lifetime_s": 200 * 86_400, **parameters})
    realm.create_topic(TOPIC, SCHEMA, protection=protection, access="members", parameters=about)
    realm.enrol_many(["ann", *FILTERS])
    for name, text in FILTERS.items():
        realm.subscribe(TOPIC, name, text)
    return realm


def deliver(realm: Realm, *numbers: int) -> None:
    publish(realm, list(numbers))
    steps._open.cache_clear()
    StepName(str(realm.paths.root), TOPIC).open().begin()
    carried(realm)


def retain(realm: Realm, days: float) -> None:
    retainer = Retainer(BrokerRealm(realm.paths.root), kept_steps(realm, [TOPIC], ["broker"]))
    retainer.once(realm.clock() + int(days * DAY_US))
    assert not retainer._failed


def read(realm: Realm, name: str, **options: object) -> tuple[list[bytes], int]:
    with Subscriber(realm, TOPIC, name, **options) as reader:  # type: ignore[arg-type]
        return [event.payload for event in reader], reader.dropped.missed


@pytest.mark.parametrize("protection", MATCHED)
def test_readers_who_fall_behind_are_told_how_many_they_missed(tmp_path: Path, protection: str) -> None:
    realm = a_realm(tmp_path, protection, pieces_kept_s=10 * 86_400)
    deliver(realm, 0, 1, 2)
    with Subscriber(realm, TOPIC, "low") as low:
        assert [event.payload for event in low.poll(1)] == [b"0"]
        low.ack()
    retain(realm, 9)
    assert read(realm, "low", from_=0) == ([b"0", b"1"], 0), "not yet"
    retain(realm, 11)
    deliver(realm, 4, 3)
    assert read(realm, "low") == ([b"4"], 1), "one it had read before"
    assert read(realm, "low", from_=0) == ([b"4"], 2) and read(realm, "high") == ([b"3"], 1)
    at = ("--realm", realm.paths.root)
    check = sealcast("check", TOPIC, "--json", *at)
    assert check.code == 0 and check.document["removed_deliveries"] == 3, check.out
    shown = sealcast("sub", TOPIC, "--as", "high", *at)
    assert shown.code == 0 and "1 event missed" in shown.err
    assert sealcast("sub", TOPIC, "--as", "high", *at).err == "", "said once: it has gone on"
    why = sealcast("why", f"{TOPIC}/0/0/0", "low", *at)
    assert why.code == 0 and "removed since" in why.out, why.out + why.err
    assert sealcast("status", *at).code == 0 and sealcast("audit", "--received", *at).code == 0


@pytest.mark.parametrize("protection", MATCHED)
def test_a_thief_of_everything_finds_nothing_older(tmp_path: Path, protection: str) -> None:
    realm = a_realm(tmp_path, protection, pieces_kept_s=10 * 86_400)
    deliver(realm, 0, 1, 2)
    thieves = [Tries(realm, steal(realm, name, tokens=False)) for name in ("broker", "center", "ann", *FILTERS)]

    def found() -> int:
        return sum(sum(thief.reads(TOPIC)[:4:2]) for thief in thieves)

    assert found() > 0
    retain(realm, 20)
    retain(realm, 20)  # frames that only their pieces needed go with the next turn
    assert found() == 0


def test_without_an_end_it_finds_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weakened variant: only a note is written."""
    realm = a_realm(tmp_path, pieces_kept_s=10 * 86_400)
    deliver(realm, 0, 1, 2)
    monkeypatch.setattr("sealcast.protections.withdrawing.remove_superseded", lambda step: 0)
    retain(realm, 20)
    assert Tries(realm, steal(realm, "low", tokens=False)).reads(TOPIC).opened == 2


def test_the_oldest_go_when_there_are_too_many_bytes(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    for n in range(4):
        deliver(realm, n)
    pieces = sorted(path.stat().st_size for path in realm.paths.topic(TOPIC).pieces.glob("*.piece"))
    realm.alter_topic(TOPIC, pieces_kept_bytes=2 * pieces[-1])
    retain(realm, 0)
    assert [read(realm, name, from_=0) for name in FILTERS] == [([], 2), ([b"2", b"3"], 0)]
    realm.alter_topic(TOPIC, pieces_kept_bytes=0)
    retain(realm, 0)
    assert [read(realm, name, from_=0) for name in FILTERS] == [([], 2), ([], 2)]
    deliver(realm, 4)
    assert read(realm, "low", from_=0) == ([b"4"], 2), "until the next turn"


def test_at_all_times_nothing_is_older_and_nothing_younger_is_gone(tmp_path: Path) -> None:
    """Against brute force: which of 60 daily records are gone after each day."""
    realm = a_realm(tmp_path, pieces_kept_s=20 * 86_400, frames_kept_s=4 * 86_400)
    about, kept = realm.state().topic(TOPIC), 20 * DAY_US

    class Daily:
        """A ledger of one record a day."""

        def __init__(self, days: int) -> None:
            self.days = days

        def end(self) -> int:
            return self.days

        def at(self, index: int) -> object:
            from types import SimpleNamespace as Plain

            end, pieces = Plain(time_us=index * DAY_US), (Plain(size=10, events=1),)
            return Plain(entry=Plain(end=end, pieces=pieces), is_emptied=False)

    begin = 0
    for day in range(1, 60):
        due = keeping.records_due(about, Daily(day), day * DAY_US, begin)  # type: ignore[arg-type]
        gone = [n for n in range(day) if day * DAY_US - n * DAY_US >= kept]
        assert list(range(due.stop)) == gone
        begin = due.stop
    few = realm.alter_topic(TOPIC, pieces_kept_bytes=35)
    assert keeping.records_due(few, Daily(10), 0) == range(7)  # type: ignore[arg-type]


def test_pieces_are_kept_as_long_as_frames(tmp_path: Path) -> None:
    realm = a_realm(tmp_path, pieces_kept_s=3_600)
    about = realm.state().topic(TOPIC)
    assert about.pieces_kept_us == about.frames_kept_us == 7 * DAY_US


def test_a_reader_who_missed_keys_gets_them_again(tmp_path: Path) -> None:
    """Group keys travel with the events that first need them: when these are gone, the broker's desk has them."""
    realm = a_realm(tmp_path, pieces_kept_s=10 * 86_400)
    realm.subscribe(TOPIC, "ann", "price < 4")
    deliver(realm, 0, 1, 0, 1)
    carried_before = realm.registry.version()
    publish(realm, [0, 1, 4])
    carried(realm)
    step = StepName(str(realm.paths.root), TOPIC).open()
    from sealcast.protections.withdrawing import withdraw

    withdraw(step, [0], "test", Removal.RETENTION)  # type: ignore[arg-type]
    with (
        EndpointClient().key_asker(realm, TOPIC, "low") as ask,
        Subscriber(realm, TOPIC, "low", ask=ask) as reader,
    ):
        assert [event.payload for event in reader] == [b"0", b"1", b"4"] and reader.dropped.missed == 4
    assert realm.registry.version() >= carried_before


def test_what_was_removed_stays_so_after_a_compromise(tmp_path: Path) -> None:
    realm = a_realm(tmp_path, pieces_kept_s=10 * 86_400)
    deliver(realm, 0, 1, 2)
    retain(realm, 11)
    deliver(realm, 4)
    report = drill(realm, "high")
    assert report.over and read(realm, "low", from_=0) == ([b"4"], 2)
    assert sealcast("check", "--realm", realm.paths.root).code == 0


def test_what_forgetting_left_of_a_batch_has_an_end_too(tmp_path: Path) -> None:
    realm = a_realm(tmp_path, pieces_kept_s=10 * 86_400)
    realm.enrol("bob")
    with Publisher(realm, TOPIC, "bob") as bob:
        bob.publish([Event({"price": 1}, b"of bob")])
    deliver(realm, 0)
    forget(realm, Forgotten(TOPIC, "bob"))
    assert read(realm, "low", from_=0) == ([b"0"], 1)
    retain(realm, 11)
    assert read(realm, "low", from_=0) == ([], 2)
    assert Tries(realm, steal(realm, "low", tokens=False)).reads(TOPIC).opened == 0


# --- rules ----------------------------------------------------------------------------------------------------


def test_what_is_stored() -> None:
    change = AlterTopic(TOPIC, Access.MEMBERS, None, None, 5, 6)
    assert from_json(change.kind, to_json(change)) == change
    before = {"topic": TOPIC, "access": "members", "frames_kept_s": None, "past_keys": None}
    assert from_json(AlterTopic.kind, before) == AlterTopic(TOPIC, Access.MEMBERS), "as releases before stored it"
    assert not KeyParameters.stored({}).pieces_end, "topics of releases before keep what they have"
    with pytest.raises(ParameterRejected, match="pieces_kept_s"):
        KeyParameters(pieces_kept_s=1)
    note = Resealed(1, bytes(32), 2, 3, 4, (), "why", ((0, 1), (2, 5)), Removal.FORGOTTEN)
    assert Resealed.from_note(note.to_note()) == note and note.withdrawn_from(2) == 5
    assert "removal" not in Resealed(1, bytes(32), 2, 3, 4, (), "why").to_note(), "the bytes of releases before"


def test_the_commands(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    at = ("--realm", realm.paths.root)
    altered = sealcast("topic", "alter", TOPIC, "--keep-pieces", "90d,10GB", *at)
    assert altered.code == 0 and "sealed events are kept for 90d at most, and 10,000,000,000 bytes" in altered.out
    assert "for 90d at most" in sealcast("topic", "show", TOPIC, *at).out
    shown = sealcast("topic", "alter", TOPIC, "--keep-pieces", "always", "--json", *at).document
    assert (shown["pieces_kept_s"], shown["pieces_kept_bytes"]) == (FOR_EVER_S, NO_LIMIT)
    wrong = sealcast("topic", "alter", TOPIC, "--keep-pieces", "10 apples", *at)
    assert wrong.code in (1, 2) and "--keep-pieces" in wrong.err


def test_an_empty_piece_is_a_piece(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    deliver(realm, 0, 1, 2)
    (path,) = realm.paths.topic(TOPIC).pieces.glob("*.piece")
    piece = sealed.parse(path.read_bytes())
    empty = sealed.parse(sealed.encode(emptied(piece, 77)))
    assert len(empty) == 0 and empty.version == 77 and not empty.slots.size
    assert (empty.first_offset, empty.end_offset, empty.counts["admitted"]) == (0, 1, 3)
