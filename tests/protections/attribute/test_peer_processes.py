"""Real processes of peers over real TLS: everything wanted arrives once, through kills, restarts and a revocation."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Subscriber
from sealcast.errors import Rejected
from sealcast.log.mailbox import inbox_mailbox
from sealcast.log.peer_log import PeerLogReader
from sealcast.model.event import Position
from sealcast.model.protection import protection_of
from sealcast.model.schema import Schema
from sealcast.primitives.sign import VerifyKey
from sealcast.protections.attribute import testimony
from sealcast.protections.attribute.audit import PeersAudit
from sealcast.protections.attribute.peering import status
from sealcast.protections.port import witness_side
from sealcast.protections.witness.answer import Verdict
from sealcast.wire.peer_logs import EntryKind
from tests.protections.attribute.nursery import Nursery

TOPIC = "vitals"
SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "heat", "type": "int", "min": 0, "max": 15},
            {"name": "ward", "type": "string", "max_length": 4},
        ]
    }
)
QUICK = ("--heartbeat", "0.5")
#: Who wants what, and whether an event of this heat and ward is it.
WANTED: dict[str, tuple[str, Callable[[int, str], bool]]] = {
    "hot": ("heat >= 8", lambda heat, ward: heat >= 8),
    "warm": ("heat BETWEEN 4 AND 11", lambda heat, ward: 4 <= heat <= 11),
    "ward": ("ward = 'a1'", lambda heat, ward: ward == "a1"),
}


def until(holds: Callable[[], object], within: float = 180.0, what: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


class Field:
    """A realm whose peers are processes, and what should have arrived."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.realm = Realm.create(directory / "realm")
        self.realm.enrol_many(["pub-1", "pub-2", *WANTED])
        self.realm.create_topic(TOPIC, SCHEMA, protection=protection_of("attribute", settings), access="members")
        for name, (text, _) in WANTED.items():
            self.realm.subscribe(TOPIC, name, text)
        self.nursery = Nursery(directory / "realm", directory / "out")
        self.published = list[tuple[int, str]]()
        self._publishers = {name: Publisher(self.realm, TOPIC, name) for name in ("pub-1", "pub-2")}

    def publish(self, by: str, *events: tuple[int, str]) -> None:
        made = []
        for heat, ward in events:
            made.append(Event({"heat": heat, "ward": ward}, str(len(self.published)).encode()))
            self.published.append((heat, ward))
        self._publishers[by].publish(made)

    def expected(self, name: str) -> list[int]:
        holds = WANTED[name][1]
        return [number for number, event in enumerate(self.published) if holds(*event)]

    def received(self, name: str) -> list[int]:
        with Subscriber(self.realm, TOPIC, name, from_=0) as reader:
            return sorted(int(event.payload) for event in reader)

    def arrived(self, *names: str) -> None:
        """Waits until each has what it wants, and has it once."""
        for name in names:
            until(
                lambda name=name: self.received(name) == self.expected(name),  # type: ignore[misc]
                what=lambda name=name: f"{name}: {self.received(name)}, not {self.expected(name)}\n{self.said()}",  # type: ignore[misc]
            )

    def said(self) -> str:
        return "\n".join(f"--- {each.names}\n{each.said()[-1500:]}" for each in self.nursery.started)

    def close(self) -> None:
        for each in self._publishers.values():
            each.close()
        self.nursery.close()


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    made = Field(tmp_path)
    try:
        yield made
    finally:
        made.close()


def some(first: int) -> list[tuple[int, str]]:
    return [((first + step * 3) % 16, "a1" if step % 2 else "b2") for step in range(6)]


def test_five_processes_through_kills_and_a_revocation(field: Field) -> None:
    processes = {name: field.nursery.start(name, options=QUICK) for name in ("pub-1", "pub-2", *WANTED)}
    # (1) what was published before anyone ran, and after
    field.publish("pub-1", *some(0))
    field.arrived(*WANTED)
    field.publish("pub-2", *some(5))
    field.arrived(*WANTED)

    # (2) a subscriber that is killed gets what came meanwhile when it is back, and nothing twice
    processes["hot"].kill()
    field.publish("pub-1", *some(1))
    field.arrived("warm", "ward")
    processes["hot"] = field.nursery.start("hot", options=QUICK)
    field.arrived(*WANTED)

    # (3) a rendezvous that is killed: those below it find another; what it did not confirm comes to it later
    processes["pub-1"].kill()
    field.publish("pub-2", *some(7))
    field.arrived(*WANTED)
    processes["pub-1"] = field.nursery.start("pub-1", options=QUICK)
    field.publish("pub-1", *some(2))
    field.arrived(*WANTED)
    until(lambda: waiting(field, "pub-1") == waiting(field, "pub-2") == 0)

    # (4) who is revoked is cut off at once, gets nothing more, and cannot come back
    links_to(field, "ward", present=True)
    before = field.received("ward")
    field.realm.revoke_entity("ward")
    links_to(field, "ward", present=False)
    field.publish("pub-2", (9, "a1"), (9, "a1"))
    field.arrived("hot", "warm")
    processes["ward"].kill()
    again = field.nursery.start("ward", options=QUICK)
    time.sleep(3)
    assert _inbox_length(field, "ward") == len(before)
    again.kill()
    with pytest.raises(Rejected, match="revoked"):
        field.received("ward")

    # (5) whoever ends in good order says so
    processes["warm"].kill(15)
    assert "peers: " in processes["warm"].said()
    logs_agree(field)

    # (6) and the whole holds together
    report = PeersAudit(field.realm, TOPIC).run(lambda done: None)
    assert report.ok and not report.also.get("peers_on_the_way"), report.problems
    event = Position(field.realm.state().entity_number("pub-1"), 0, 2)
    answer = witness_side(field.realm.state().topic(TOPIC).protection).why(field.realm, TOPIC, event, "warm")
    assert answer.verdict is Verdict.DELIVERED and "by way of 'pub-" in str(answer.because)


def test_a_rendezvous_that_is_down_holds_up_nobody_else(field: Field) -> None:
    """Its roots are down, the others' are not: everything that is published meanwhile arrives while it is away."""
    processes = {name: field.nursery.start(name, options=QUICK) for name in ("pub-1", "pub-2", "hot", "warm")}
    field.publish("pub-1", *some(0))
    field.publish("pub-2", *some(5))
    field.arrived("hot", "warm")
    processes["pub-1"].kill()
    for first in (1, 7, 4):  # each alone, so that each is a batch of its own
        field.publish("pub-2", *some(first))
        field.arrived("hot", "warm")
    until(lambda: unconfirmed(field, "pub-2").get("pub-1") == 18, what=lambda: unconfirmed(field, "pub-2"))
    assert waiting(field, "pub-2") == 3, "they count as sent when every rendezvous has them"
    # The publisher's process dies, too: it gives out again what it did not note, and nothing arrives twice
    processes["pub-2"].kill()
    processes["pub-2"] = field.nursery.start("pub-2", options=QUICK)
    field.publish("pub-2", *some(2))
    field.arrived("hot", "warm")
    processes["pub-1"] = field.nursery.start("pub-1", options=QUICK)
    until(lambda: waiting(field, "pub-1") == waiting(field, "pub-2") == 0)
    assert unconfirmed(field, "pub-2") == {}
    report = PeersAudit(field.realm, TOPIC).run(lambda done: None)
    assert report.ok, report.problems


def unconfirmed(field: Field, name: str) -> dict[str, int]:
    shown = status.read(field.realm, name)
    return {} if shown is None or not shown["topics"] else dict(shown["topics"][TOPIC]["unconfirmed"])


def waiting(field: Field, name: str) -> int | None:
    shown = status.read(field.realm, name)
    return None if shown is None or not shown["topics"] else int(shown["topics"][TOPIC]["waiting"])


def links_to(field: Field, name: str, *, present: bool) -> None:
    """Waits until somebody, or nobody, of those who run has a link to it."""

    def linked() -> bool:
        shown = [each for each in status.all_here(field.realm) if each["entity"] != name]
        return any(name in each["links"] for each in shown)

    until(lambda: linked() is present)


def _inbox_length(field: Field, name: str) -> int:
    with closing(inbox_mailbox(field.realm.paths.topic(TOPIC, name).root, name)) as mailbox:
        return mailbox.lag()


def logs_agree(field: Field) -> None:
    """What peers say of themselves, signed: everything that one got, another says it sent."""
    state = field.realm.state()
    sent, got, delivered = set[tuple[str, str, bytes]](), set[tuple[str, str, bytes]](), dict[str, int]()
    for name in ("pub-1", "pub-2", *WANTED):
        key, about = VerifyKey(state.entity(name).verify_key), state.topic(TOPIC)
        with PeerLogReader(field.realm.paths.topic(TOPIC, name).peer_log, about.id, name, key) as log:
            for entry in (each for record in log.records() for each in record.entries):
                if entry.kind is EntryKind.FORWARDED:
                    sent.add((name, entry.other, entry.event))
                elif entry.kind is EntryKind.RECEIVED and entry.other not in ("pub-1", "pub-2"):
                    got.add((entry.other, name, entry.event))
                elif entry.kind is EntryKind.DELIVERED:
                    delivered[name] = delivered.get(name, 0) + 1
    assert got <= sent
    assert delivered["warm"] <= len(field.expected("warm"))


def test_one_process_hosts_everyone_and_drains(field: Field) -> None:
    """Embedded: one command, nothing to install, nobody else."""
    field.publish("pub-1", *some(0))
    field.publish("pub-2", *some(3))
    done = field.nursery.start(options=("--once", "--json"))
    until(lambda: not done.alive)
    said = json.loads(done.said()[done.said().index("{") :])
    assert (said["peers"], said["published"], said["missed"]) == (5, 12, 0)
    for name in WANTED:
        assert field.received(name) == field.expected(name)
    again = field.nursery.start(options=("--once", "--json"))
    until(lambda: not again.alive)
    assert json.loads(again.said()[again.said().index("{") :])["deliveries"] == 0


def test_a_peer_runs_in_one_process(field: Field) -> None:
    first = field.nursery.start("hot", options=QUICK)
    until(lambda: status.read(field.realm, "hot"))
    second = field.nursery.start("hot", options=QUICK)
    until(lambda: not second.alive)
    assert "another process runs the peer of 'hot'" in second.said() and first.alive


def test_parts_of_a_split_label_have_parents_in_different_processes(tmp_path: Path) -> None:
    """Two rendezvous, a process each: each routes by one part's token and passes on that part's events alone. When one
    is killed, the other takes both parts; when it is back, they part again."""
    with closing(Field(tmp_path, routing=True, split=2)) as field:
        processes = {name: field.nursery.start(name) for name in ("pub-1", "pub-2", "hot")}

        def to_hot() -> list[set[bytes]]:
            return [passed_on(field.realm, name, "hot") for name in ("pub-1", "pub-2")]

        field.publish("pub-1", (9, "b2"), (3, "b2"))
        field.publish("pub-2", (13, "b2"))
        field.arrived("hot")
        apart(field)
        until(lambda: len(set.union(*to_hot())) == 2, what=field.said)
        before = set.union(*to_hot())
        field.publish("pub-1", *((heat, "b2") for heat in (1, 8, 10, 12, 13, 14, 15)))
        field.arrived("hot")
        until(lambda: len(set.union(*to_hot())) == 8, what=field.said)
        halves = [found - before for found in to_hot()]
        assert sorted(map(len, halves)) == [2, 4] and not halves[0] & halves[1], "nothing by both, and not the 1"

        processes["pub-1"].kill()
        field.publish("pub-2", (8, "b2"), (12, "b2"), (4, "b2"))
        field.arrived("hot")
        until(lambda: set(parents(field, "hot")) == {"pub-2"}, what=field.said)
        assert "two places or more of one subscription are below pub-2" in processes["hot"].said()
        processes["pub-1"] = field.nursery.start("pub-1")
        apart(field)
        field.publish("pub-1", (11, "b2"), (15, "b2"))
        field.arrived("hot")
        until(lambda: waiting(field, "pub-1") == waiting(field, "pub-2") == 0)
        report = PeersAudit(field.realm, TOPIC).run(lambda done: None)
        assert report.ok, report.problems


def apart(field: Field) -> None:
    """Waits until both parts of `hot` have parents, in different processes."""
    until(lambda: sorted(map(str, parents(field, "hot"))) == ["pub-1", "pub-2"], within=300.0, what=field.said)


def parents(field: Field, name: str) -> list[str | None]:
    shown = status.read(field.realm, name)
    return [] if shown is None or not shown["topics"] else [s["parent"] for s in shown["topics"][TOPIC]["seats"]]


def passed_on(realm: Realm, name: str, to: str) -> set[bytes]:
    """Events that a peer passed on to another, by its own log, which is signed every second."""
    said = testimony.said_by(realm, TOPIC, name)
    return {entry.event for entry in said if entry.kind is EntryKind.FORWARDED and entry.other == to}
