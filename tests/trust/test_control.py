"""Control topics and services: bounded queues, handled once however often asked, dying at every step."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from sealcast.control.asking import ServiceAddress
from sealcast.control.envelopes import MAX_ENVELOPE_BYTES, ControlMessage, EnvelopeParty, ProvenMessage, seal
from sealcast.control.journal import ServiceJournal
from sealcast.control.service import MAX_SENT, Answer, Service, ServiceRefused
from sealcast.errors import Busy, Misuse, NotFound, Rejected, SealcastError, Unavailable
from sealcast.log.control_topics import ControlPlane, new_topic_id
from tests.trust.control_world import REALM, SECOND, Echo
from tests.trust.tampering import Cast

CAST = Cast.make()
WORLD, ALICE, MALLORY, CENTER = CAST.world, CAST.alice, CAST.mallory, CAST.center


@pytest.fixture(autouse=True)
def _clock() -> None:
    WORLD.now = 1_800_000_000_000_000


def at(service: Service, party: EnvelopeParty = CENTER) -> Callable[[], ServiceAddress]:
    return lambda: ServiceAddress(service.topic, WORLD.recipient(party))


def turn(service: Service) -> Callable[[], object]:
    return lambda: service.serve_once(WORLD.now)


def asked(party: EnvelopeParty, body: bytes, reply_topic: bytes) -> bytes:
    return seal(party, REALM, WORLD.recipient(CENTER), ControlMessage.request("echo", body, reply_topic, WORLD.now))


# --- topics -------------------------------------------------------------------------------------------


def test_a_topic_is_private_random_and_gone_when_dropped(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    topic = plane.create()
    assert len({plane.create() for _ in range(8)} | {topic}) == 9
    for directory in (plane.root, plane.root / topic.hex()):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert [plane.post(topic, b"one"), plane.post(topic, b"two")] == [0, 1]
    assert [(p.offset, p.data, p.origin) for p in plane.read(topic, 0)] == [
        (0, b"one", f"user {os.getuid()}"),
        (1, b"two", f"user {os.getuid()}"),
    ]
    other = ControlPlane(tmp_path, origin="elsewhere")
    other.post(topic, b"three")
    assert [p.origin for p in plane.read(topic, 2)] == ["elsewhere"]
    plane.drop(topic)
    plane.drop(topic)
    assert not list(plane.root.glob(f"*{topic.hex()}*"))
    for gone in (plane, other):
        with pytest.raises(NotFound):
            gone.post(topic, b"four")
        with pytest.raises(NotFound):
            gone.read(topic, 0)


@pytest.mark.parametrize("topic", [b"", b"short", bytes(17)], ids=repr)
def test_only_ids_name_topics(tmp_path: Path, topic: bytes) -> None:
    plane = ControlPlane(tmp_path)
    for call in (plane.create, plane.exists, plane.drop, lambda t: plane.post(t, b"x"), lambda t: plane.read(t, 0)):
        with pytest.raises(Misuse):
            call(topic)


def test_a_queue_is_bounded_for_all_and_for_each_origin(tmp_path: Path) -> None:
    planes = [ControlPlane(tmp_path, origin=f"origin {i}", max_queue=16) for i in range(5)]
    topic = planes[0].create()
    took = Counter[str]()
    for plane in planes:
        for _ in range(16):
            try:
                plane.post(topic, b"x")
                took[plane.origin] += 1
            except Busy as busy:
                assert busy.hint
                break
    # A quarter each: no origin has the queue for itself, and the fifth finds it full.
    assert took == {f"origin {i}": 4 for i in range(4)}
    planes[4].take(topic, 8)
    assert len(planes[4].read(topic, 8)) == 8
    planes[4].post(topic, b"x")


def test_a_queue_is_bounded_in_bytes_and_its_files_go(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path, max_queue_bytes=4 << 20)
    topic, big = plane.create(), bytes(1 << 20)
    taken, largest = 0, 0
    for _ in range(4):
        with pytest.raises(Busy):
            while True:
                plane.post(topic, big)
        taken = plane.end(topic)
        plane.take(topic, taken)
        largest = max(largest, sum(f.stat().st_size for f in (plane.root / topic.hex()).iterdir()))
    assert taken == 16 and largest <= 2 * (4 << 20) + 2 * (4 << 20) + (1 << 20)
    assert plane.read(topic, 0), "old offsets are given what is left, not an error"
    for size in (0, MAX_ENVELOPE_BYTES + 1):
        with pytest.raises(Misuse):
            plane.post(topic, bytes(size))


def test_reply_topics_of_the_dead_are_swept(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    kept, left = plane.create(), plane.create(reply=True)
    assert plane.sweep() == 0
    an_age = 2 * 3_600 * 10**9
    mark = plane.root / left.hex() / "reply"
    os.utime(mark, ns=(mark.stat().st_atime_ns, mark.stat().st_mtime_ns - an_age))
    assert plane.sweep() == 1
    assert plane.exists(kept) and not plane.exists(left)


# --- asking -------------------------------------------------------------------------------------------


def test_ask_and_be_answered(tmp_path: Path) -> None:
    service = WORLD.service(tmp_path, CENTER, Echo())
    with WORLD.asker(tmp_path, ALICE) as asker:
        for word in (b"abc", b"de", b""):
            reply = asker.ask(at(service), "echo", word, turn=turn(service))
            assert (reply.message.kind, reply.message.body) == ("echoed", word[::-1])
            assert reply.sender.name == "center"
    assert len(list((tmp_path / "control").iterdir())) == 1, "the reply topic is gone"


class Refusing:
    kinds = frozenset({"no", "away", "twice"})

    def handle(self, request: ProvenMessage, now_us: int, /) -> Answer:
        errors: dict[str, SealcastError] = {
            "no": Rejected("you may not", hint="ask another"),
            "away": Unavailable("the disk is full"),
            "twice": Misuse("that exists"),
        }
        raise errors[request.message.kind]


def test_a_refusal_is_an_answer(tmp_path: Path) -> None:
    service = WORLD.service(tmp_path, CENTER, Refusing())
    asker = WORLD.asker(tmp_path, ALICE)
    for kind, code in (("no", "rejected"), ("away", "unavailable"), ("twice", "misuse")):
        with pytest.raises(ServiceRefused) as refused:
            asker.ask(at(service), kind, b"", turn=turn(service))
        assert refused.value.service_code == code
    assert refused.value.as_json()["service_code"] == "misuse"


def test_nobody_answers(tmp_path: Path) -> None:
    service = WORLD.service(tmp_path, CENTER, Echo())
    asker = WORLD.asker(tmp_path, ALICE)
    with pytest.raises(Unavailable, match="no answer"):
        asker.ask(at(service), "echo", b"", turn=lambda: None, attempts=2)
    with pytest.raises(Unavailable, match="no such control topic"):
        asker.ask(
            lambda: ServiceAddress(new_topic_id(), WORLD.recipient(CENTER)), "echo", b"", turn=lambda: None, attempts=2
        )


def test_a_forged_answer_is_passed_over(tmp_path: Path) -> None:
    """Mallory watches the directory, and answers first. The answer that counts is the center's."""
    service, eve = WORLD.service(tmp_path, CENTER, Echo()), ControlPlane(tmp_path, origin="eve")
    forgeries = 0

    def forge() -> None:
        nonlocal forgeries
        for directory in eve.root.iterdir():
            if (directory / "reply").exists():
                fake = ControlMessage("echoed", b"forged", bytes(16), WORLD.now)
                for forger in (MALLORY, EnvelopeParty("center", CENTER.certificate, MALLORY.signer, MALLORY.kem)):
                    eve.post(bytes.fromhex(directory.name), seal(forger, REALM, WORLD.recipient(ALICE), fake))
                    forgeries += 1
                eve.post(bytes.fromhex(directory.name), b"noise")
        service.serve_once(WORLD.now)

    reply = WORLD.asker(tmp_path, ALICE).ask(at(service), "echo", b"abc", turn=forge)
    assert reply.message.body == b"cba" and forgeries == 2


# --- once ---------------------------------------------------------------------------------------------


def test_a_replay_is_never_handled_again_and_answered_a_few_times(tmp_path: Path) -> None:
    echo = Echo()
    service = WORLD.service(tmp_path, CENTER, echo)
    replies, eve = ControlPlane(tmp_path, origin="alice"), ControlPlane(tmp_path, origin="eve")
    topic = replies.create(reply=True)
    envelope = asked(ALICE, b"once", topic)
    replies.post(service.topic, envelope)
    counts = Counter(service.serve_once(WORLD.now).counts)
    for _ in range(30):
        eve.post(service.topic, envelope)
        WORLD.now += SECOND
        counts += Counter(service.serve_once(WORLD.now).counts)
    assert echo.handled == {b"once": 1}
    assert counts["answered"] == 1 and counts["again"] == MAX_SENT - 1
    assert counts["replay"] + counts["origin-waits"] == 30 - (MAX_SENT - 1)
    sent = [p.data for p in replies.read(topic, 0)]
    assert len(sent) == MAX_SENT and len(set(sent)) == 1, "the very same answer, bytes and all"
    # When its id is forgotten, its time refuses it.
    WORLD.now += 400 * SECOND
    eve.post(service.topic, envelope)
    assert service.serve_once(WORLD.now).counts == {"late": 1}
    assert echo.handled == {b"once": 1}


def test_twice_in_one_turn_is_once(tmp_path: Path) -> None:
    echo = Echo()
    service, plane = WORLD.service(tmp_path, CENTER, echo), ControlPlane(tmp_path, origin="alice")
    topic = plane.create(reply=True)
    envelope = asked(ALICE, b"once", topic)
    for _ in range(MAX_SENT + 3):
        plane.post(service.topic, envelope)
    # An impatient asker is not punished; who goes on and on is.
    assert service.serve_once(WORLD.now).counts == {"answered": 1, "again": MAX_SENT, "replay": 1, "origin-waits": 1}
    assert echo.handled == {b"once": 1}
    assert len(plane.read(topic, 0)) == 1


def test_answers_go_only_where_one_is_awaited(tmp_path: Path) -> None:
    """Mallory names another service's topic for her answers: one service is not made to flood another."""
    service, victim = WORLD.service(tmp_path, CENTER, Echo()), WORLD.service(tmp_path, CAST.other, Echo())
    plane = ControlPlane(tmp_path, origin="mallory")
    plane.post(service.topic, asked(MALLORY, b"abc", victim.topic))
    assert service.serve_once(WORLD.now).counts.get("answered", 0) == 1
    assert plane.end(victim.topic) == 0


def test_memory_is_bounded_for_each_sender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sealcast.control.service.MAX_ANSWERED_EACH", 3)
    monkeypatch.setattr("sealcast.control.service.MAX_ANSWERED", 5)
    service, plane = WORLD.service(tmp_path, CENTER, Echo()), ControlPlane(tmp_path, origin="all")
    topic = plane.create(reply=True)
    for party, count in ((ALICE, 5), (MALLORY, 5)):
        for i in range(count):
            plane.post(service.topic, asked(party, bytes([i]), topic))
    assert service.serve_once(WORLD.now).counts == {"answered": 5, "no-room": 5}
    WORLD.now += 301 * SECOND
    plane.post(service.topic, b"noise")
    service.serve_once(WORLD.now)
    assert service._journal.remembered() == 0, "what its time refuses is forgotten"


def test_old_answers_are_let_go_and_their_ids_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sealcast.control.journal.MAX_KEPT_BYTES", 8_000)
    service, plane = WORLD.service(tmp_path, CENTER, Echo()), ControlPlane(tmp_path, origin="alice")
    topic = plane.create(reply=True)
    for i in range(12):
        WORLD.now += SECOND
        plane.post(service.topic, asked(ALICE, bytes([i]), topic))
        service.serve_once(WORLD.now)
    journal = service._journal
    kept = [row[0] for row in journal.db._db.execute("SELECT length(reply) FROM answered WHERE reply IS NOT NULL")]
    assert journal.remembered() == 12 and sum(kept) <= 8_000 + 2_200
    assert journal.db._db.execute("SELECT bytes FROM kept").fetchone() == (sum(kept),)


def test_a_restart_remembers(tmp_path: Path) -> None:
    echo, plane = Echo(), ControlPlane(tmp_path, origin="alice")
    first = WORLD.service(tmp_path, CENTER, echo)
    topic = plane.create(reply=True)
    envelope = asked(ALICE, b"once", topic)
    plane.post(first.topic, envelope)
    first.serve_once(WORLD.now)
    again = WORLD.service(tmp_path, CENTER, echo)
    assert again.topic == first.topic
    assert again.serve_once(WORLD.now).taken == 0, "what was taken is not taken again"
    plane.post(again.topic, envelope)
    assert again.serve_once(WORLD.now).counts == {"again": 1}
    assert echo.handled == {b"once": 1}


@pytest.mark.parametrize("step", ["handle", "commit", "post", "sent", "take"])
def test_death_at_every_step_of_a_turn_loses_nothing(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the step; the next process takes over. Handled again only if nothing was written yet."""

    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    echo, plane = Echo(), ControlPlane(tmp_path, origin="alice")
    service = WORLD.service(tmp_path, CENTER, echo)
    topic = plane.create(reply=True)
    plane.post(service.topic, asked(ALICE, b"abc", topic))
    where = {
        "commit": ServiceJournal,
        "sent": ServiceJournal,
        "post": ControlPlane,
        "take": ControlPlane,
        "handle": Echo,
    }[step]
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(where, step, die)
        service.serve_once(WORLD.now)
    after = WORLD.service(tmp_path, CENTER, echo)
    after.serve_once(WORLD.now)
    after.serve_once(WORLD.now)
    sent = [p.data for p in plane.read(topic, 0)]
    assert len(set(sent)) == 1 and len(sent) == (2 if step == "sent" else 1)
    assert echo.handled[b"abc"] == (2 if step == "commit" else 1)
    assert after.serve_once(WORLD.now).taken == 0
