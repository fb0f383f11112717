"""Consumer groups: processes share a mailbox, each event goes to one of them, and is acknowledged once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sealcast.clients.group import group_of, share_of
from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Corrupt, Locked, Misuse, Unavailable
from sealcast.log import group_statement
from sealcast.log.group_statement import SHARES, StayPlace
from sealcast.log.groups import KeptGroup, ShareLost, SignedAck
from sealcast.model import Event, OpenedEvent, Schema
from sealcast.trust.backups import moment
from sealcast.trust.backups.making import back_up, restore
from sealcast.trust.deployment import Realm
from tests.clients.pump import pump
from tests.trust.postgres import PASSWORD, Server

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1_000_000}]})
PUBLISHERS = [f"p{number}" for number in range(8)]


@pytest.fixture(params=["file", "server"])
def realm(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Realm:
    """Groups are where the registry is: in the realm's directory, or on PostgreSQL."""
    registry = None
    if request.param == "server":
        server: Server = request.getfixturevalue("postgres")
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        registry = server.url(server.schema(), password=None)
    made = Realm.create(tmp_path / "realm", registry=registry)
    made.create_topic("quotes", SCHEMA, access="members")
    made.enrol_many(["alice", *PUBLISHERS])
    made.subscribe("quotes", "alice", "price >= 0")
    return made


def publish(realm: Realm, count: int = 5, publishers: Sequence[str] = PUBLISHERS) -> None:
    for name in publishers:
        with Publisher(realm, "quotes", as_=name) as publisher:
            publisher.publish([Event({"price": number}, name.encode()) for number in range(count)])
    pump(realm, "quotes")


def member(realm: Realm, group: str = "workers", **settings: object) -> Subscriber:
    return Subscriber(realm, "quotes", as_="alice", group=group, **settings)  # type: ignore[arg-type]


def drained(members: Iterable[Subscriber], *, ack: bool = True) -> list[list[OpenedEvent]]:
    """What each gets, in turns, until nobody gets more for a while."""
    members = list(members)
    got: list[list[OpenedEvent]] = [[] for _ in members]
    quiet = 0
    while quiet < 3:
        quiet += 1
        for number, each in enumerate(members):
            if events := each.poll(7, timeout=0.3):
                got[number] += events
                quiet = 0
                if ack:
                    each.ack()
    return got


def acknowledged(realm: Realm, group: str = "workers", reader: str = "alice") -> Iterator[tuple[str, str, int]]:
    """The ledger of acknowledgements, event by event."""
    with group_of(realm, "quotes", reader, group) as kept:  # type: ignore[attr-defined]
        for record in kept.acks():
            for publisher, _, boots in json.loads(record.events):
                for boot, _, _, numbers in boots:
                    at = 0
                    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
                        yield from ((publisher, boot, n) for n in range(at + gap, at + gap + length))
                        at += gap + length


def ledger(realm: Realm, group: str = "workers") -> Counter[tuple[str, str, int]]:
    """How often each event was acknowledged."""
    return Counter(acknowledged(realm, group))


def identities(events: Iterable[OpenedEvent]) -> Counter[tuple[str, str, int]]:
    return Counter((event.publisher, event.boot.hex(), event.sequence) for event in events)


class TestMembers:
    def test_two_share_the_mailbox_and_each_event_goes_to_one(self, realm: Realm) -> None:
        publish(realm)
        with member(realm) as one, member(realm) as other:
            for each in (one, other, one, other):
                each.poll(0, timeout=0.3)
            got = drained([one, other])
        assert all(got)
        assert sum(map(len, got)) == 40
        assert ledger(realm) == identities([*got[0], *got[1]])
        assert set(ledger(realm).values()) == {1}

    def test_a_publishers_events_are_handed_out_and_acknowledged_in_their_order(self, realm: Realm) -> None:
        publish(realm, 30)
        with member(realm) as one, member(realm) as other:
            got = drained([one, other])
        assert all(got)
        in_order = list(acknowledged(realm))
        for name in PUBLISHERS:
            assert [number for publisher, _, number in in_order if publisher == name] == list(range(30))
            for events in got:
                own = [event.sequence for event in events if event.publisher == name]
                assert own == sorted(own)

    def test_a_member_that_leaves_hands_on_what_it_did_not_acknowledge(self, realm: Realm) -> None:
        publish(realm)
        with member(realm) as one:
            assert len(one.poll(13)) == 13
        with member(realm) as other:
            (got,) = drained([other])
        assert len(got) == 40
        assert set(ledger(realm).values()) == {1}

    def test_who_comes_gets_shares_once_they_are_acknowledged(self, realm: Realm) -> None:
        publish(realm)
        with member(realm) as one:
            first = one.poll(100)
            assert len(first) == 40
            with member(realm) as other:
                assert not other.poll(timeout=1.5)  # all of it waits for an acknowledgement
                one.ack()
                publish(realm)
                got = drained([one, other])
        assert all(got)
        assert sum(map(len, got)) == 40
        assert ledger(realm) == identities([*first, *got[0], *got[1]])

    def test_groups_have_places_of_their_own(self, realm: Realm) -> None:
        publish(realm)
        for group in ("workers", "auditors"):
            with member(realm, group, from_="start") as one:
                (got,) = drained([one])
            assert len(got) == 40

    def test_a_new_group_begins_at_the_cursor_or_where_it_is_told(self, realm: Realm) -> None:
        publish(realm, 1)
        with Subscriber(realm, "quotes", as_="alice") as plain:
            assert len(plain.poll()) == 8
            plain.ack()
        publish(realm, 1)
        with member(realm) as one:
            assert len(drained([one])[0]) == 8
        with member(realm, "again", from_="start") as one:
            assert len(drained([one])[0]) == 16
        with pytest.raises(Misuse, match="--from is for new groups"):
            member(realm, "again", from_="start")

    def test_the_readers_cursor_follows_the_slowest_share(self, realm: Realm) -> None:
        publish(realm)
        with member(realm) as one:
            drained([one])
            time.sleep(0.3)
            one.poll(timeout=0.5)
            assert one.lag() == 0

    def test_an_event_that_is_acknowledged_twice_is_refused(self, realm: Realm) -> None:
        """The old owner of a share was taken for dead, and comes back."""
        publish(realm)
        with member(realm) as one:
            events = one.poll(100)
            with group_of(realm, "quotes", "alice", "workers") as kept:  # type: ignore[attr-defined]
                kept.leave(one._group._member)  # type: ignore[union-attr]
            with member(realm) as other:
                assert len(drained([other])[0]) == len(events)
            with pytest.raises(ShareLost, match="went to other members"):
                one.ack()
        assert set(ledger(realm).values()) == {1}

    @pytest.mark.parametrize("done", [True, False], ids=["taken", "not taken"])
    @pytest.mark.parametrize("then", ["ack", "poll", "lose"])
    def test_an_acknowledgement_without_an_answer_counts_once(
        self, realm: Realm, monkeypatch: pytest.MonkeyPatch, done: bool, then: str
    ) -> None:
        """The connection breaks before or after it was taken, and the member goes on: nothing is handed out twice that
        was taken, and nothing is acknowledged twice."""
        publish(realm)
        with member(realm) as one:
            assert len(one.poll(13)) == 13
            kept = one._group._group  # type: ignore[union-attr]
            takes = kept.acknowledge

            def cut(member: str, ack: SignedAck) -> None:
                if done:
                    takes(member, ack)
                raise Unavailable("the connection broke")

            with monkeypatch.context() as patched, pytest.raises(Unavailable, match="broke"):
                patched.setattr(kept, "acknowledge", cut)
                one.ack()
            if then == "ack":
                one.ack()
                assert len(ledger(realm)) == 13
            if then == "lose":
                kept.leave(one._group._member)  # type: ignore[union-attr]
                with pytest.raises(ShareLost):
                    one.ack()
            (got,) = drained([one])
            assert len(got) == (40 if then == "lose" and not done else 27)
        assert len(ledger(realm)) == 40 and set(ledger(realm).values()) == {1}

    def test_publishers_fall_into_all_shares(self) -> None:
        assert {share_of(name) for name in (f"publisher-{n}" for n in range(2_000))} == set(range(SHARES))


@pytest.mark.parametrize("realm", ["file"], indirect=True)
class TestAlone:
    def test_a_second_process_is_refused_and_told_of_groups(self, realm: Realm) -> None:
        with Subscriber(realm, "quotes", as_="alice") as plain:
            plain.poll()
            other = in_another_process(realm, "")
            assert f"process {os.getpid()} reads the mailbox of 'alice'" in other
            assert "--group NAME" in other
            assert "Locked" not in in_another_process(realm, ", peek=True")
        assert "Locked" not in in_another_process(realm, "")

    def test_a_group_and_a_lone_reader_do_not_mix(self, realm: Realm) -> None:
        with member(realm) as one:
            one.poll()
            with pytest.raises(Locked, match="a group reads the mailbox of 'alice'"):
                Subscriber(realm, "quotes", as_="alice").poll()

    def test_who_peeks_does_not_acknowledge(self, realm: Realm) -> None:
        with Subscriber(realm, "quotes", as_="alice", peek=True) as looks, pytest.raises(Misuse, match="peek"):
            looks.ack()


def in_another_process(realm: Realm, settings: str) -> str:
    code = (
        "from sealcast import Subscriber\n"
        f"with Subscriber({str(realm.paths.root)!r}, 'quotes', as_='alice'{settings}) as reader: reader.poll()\n"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr


class Credulous:
    def verify(self, said: bytes, signature: bytes) -> bool:
        return True


class GroupLooker(Subscriber):
    """Knows where the mailbox ends."""

    def __init__(self, realm: Realm) -> None:
        super().__init__(realm, "quotes", as_="alice", from_="end", peek=True)

    def end(self) -> tuple[StayPlace, ...]:
        mail = self._inbox.mail
        return tuple(
            StayPlace(broker, first, at, mail.mailbox(broker).tag_before(at))
            for (broker, first), at in mail.places().items()
        )


class TestWhoKeepsTheState:
    """Whoever keeps the group's state has no key of the reader's."""

    @pytest.fixture
    def kept(self, realm: Realm) -> Iterator[KeptGroup]:
        publish(realm)
        with member(realm) as one:
            one.poll(9)
            one.ack()
        with group_of(realm, "quotes", "alice", "workers") as kept:  # type: ignore[attr-defined]
            yield kept

    def test_cannot_invent_a_place(self, realm: Realm, kept: KeptGroup) -> None:
        last = kept.acks()[-1]
        about = group_statement.parse(last.statement)
        with GroupLooker(realm) as looker:
            end = looker.end()
        moved = replace(about, shares=tuple(s._replace(place=end) for s in about.shares))
        with kept._transaction() as rows:
            rows._do("UPDATE {ack} SET statement = :s WHERE {own} AND id = :id", {"s": moved.encode(), "id": last.id})
        with member(realm) as one, pytest.raises(Corrupt, match="not signed by its reader"):
            one.poll()
        # A member that believed it would skip all that was not acknowledged.
        with member(realm) as one:
            assert one._group is not None
            one._group._verify = Credulous()  # type: ignore[assignment]
            assert one.poll(timeout=0.5) == []
            one.ack()
        assert len(ledger(realm)) == 9 < 40

    def test_cannot_add_to_what_was_had(self, realm: Realm, kept: KeptGroup) -> None:
        with kept._transaction() as rows:
            rows._do("UPDATE {share} SET had = :had WHERE {own}", {"had": b'[["p1",9999999999999999,[]]]'})
        with member(realm) as one, pytest.raises(Corrupt, match="about something else"):
            one.poll()

    def test_shows_an_older_place_to_no_member_that_saw_a_newer(self, realm: Realm, kept: KeptGroup) -> None:
        with member(realm) as one:
            one.poll(100)
            one.ack()
            with kept._transaction() as rows:
                back = "UPDATE {share} SET ack = 1, seq = 0, fence = fence + 1, had = :had WHERE {own}"
                rows._do(back, {"had": b"[]"})
            one._group._next_turn = 0.0  # type: ignore[union-attr]
            with pytest.raises(Corrupt, match="older than what this member saw"):
                one.poll()


def test_a_backup_has_no_group_that_is_ahead_of_its_ledgers(
    realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events are delivered and acknowledged while it is made, just after it saw how far the ledgers are."""
    publish(realm, 1)
    with member(realm) as one:
        drained([one])
        marks = moment._marks

        def then_go_on(logs: list[Path]) -> object:
            found = marks(logs)
            publish(realm, 1)
            assert len(drained([one])[0]) == 8
            return found

        monkeypatch.setattr(moment, "_marks", then_go_on)
        made = back_up(realm, tmp_path / "backup")
    restored = Realm(restore(made.path, tmp_path / "again").root)
    with member(restored) as other:
        assert drained([other]) == [[]]
        publish(restored, 1)
        assert len(drained([other])[0]) == 8
    assert set(ledger(restored).values()) == {1}
