"""Control topics and services: bounded queues, handled once however often asked, moving under a flood, dying."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from sealcast.errors import Misuse, NotFound, Rejected, SealcastError, Unavailable
from sealcast.trust.asking import Address
from sealcast.trust.budgets import Allowance, Budgets
from sealcast.trust.control import MAX_QUEUE, Busy, ControlPlane, new_topic_id
from sealcast.trust.envelopes import MAX_ENVELOPE_BYTES, Message, Opened, Party, seal
from sealcast.trust.journal import Journal
from sealcast.trust.service import MAX_SENT, Answer, Noise, Service, ServiceRefused
from tests.trust.control_world import REALM, SECOND, Echo
from tests.trust.tampering import Case, Cast, bent_envelopes

CAST = Cast.make()
WORLD, ALICE, MALLORY, CENTER = CAST.world, CAST.alice, CAST.mallory, CAST.center
BENT = bent_envelopes(CAST)
_CASE = Case.of(CAST)


@pytest.fixture(autouse=True)
def _clock() -> None:
    WORLD.now = 1_800_000_000_000_000


def at(service: Service, party: Party = CENTER) -> Callable[[], Address]:
    return lambda: Address(service.topic, WORLD.recipient(party))


def turn(service: Service) -> Callable[[], object]:
    return lambda: service.serve_once(WORLD.now)


def asked(party: Party, body: bytes, reply_topic: bytes) -> bytes:
    return seal(party, REALM, WORLD.recipient(CENTER), Message.request("echo", body, reply_topic, WORLD.now))


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
    assert planes[4].queued(topic) == 8
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

    def handle(self, request: Opened, now_us: int, /) -> Answer:
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
        asker.ask(lambda: Address(new_topic_id(), WORLD.recipient(CENTER)), "echo", b"", turn=lambda: None, attempts=2)


def test_a_forged_answer_is_passed_over(tmp_path: Path) -> None:
    """Mallory watches the directory, and answers first. The answer that counts is the center's."""
    service, eve = WORLD.service(tmp_path, CENTER, Echo()), ControlPlane(tmp_path, origin="eve")
    forgeries = 0

    def forge() -> None:
        nonlocal forgeries
        for directory in eve.root.iterdir():
            if (directory / "reply").exists():
                fake = Message("echoed", b"forged", bytes(16), WORLD.now)
                for forger in (MALLORY, Party("center", CENTER.certificate, MALLORY.signer, MALLORY.kem)):
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
    assert service.serve_once(WORLD.now).answered == 1
    assert plane.end(victim.topic) == 0


def test_memory_is_bounded_for_each_sender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sealcast.trust.service.MAX_ANSWERED_EACH", 3)
    monkeypatch.setattr("sealcast.trust.service.MAX_ANSWERED", 5)
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
    monkeypatch.setattr("sealcast.trust.journal.MAX_KEPT_BYTES", 8_000)
    service, plane = WORLD.service(tmp_path, CENTER, Echo()), ControlPlane(tmp_path, origin="alice")
    topic = plane.create(reply=True)
    for i in range(12):
        WORLD.now += SECOND
        plane.post(service.topic, asked(ALICE, bytes([i]), topic))
        service.serve_once(WORLD.now)
    journal = service._journal
    kept = [row[0] for row in journal._db.execute("SELECT length(reply) FROM answered WHERE reply IS NOT NULL")]
    assert journal.remembered() == 12 and sum(kept) <= 8_000 + 2_200
    assert journal._db.execute("SELECT bytes FROM kept").fetchone() == (sum(kept),)


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
    where = {"commit": Journal, "sent": Journal, "post": ControlPlane, "take": ControlPlane, "handle": Echo}[step]
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


# --- budgets ------------------------------------------------------------------------------------------


def test_who_asks_too_often_is_told_once_and_then_dropped(tmp_path: Path) -> None:
    echo = Echo()
    senders = Budgets(Allowance(per_second=1, burst=3))
    service = WORLD.service(tmp_path, CENTER, echo, senders=senders)
    plane = ControlPlane(tmp_path, origin="alice")
    topic = plane.create(reply=True)
    for i in range(10):
        plane.post(service.topic, asked(ALICE, bytes([i]), topic))
    assert service.serve_once(WORLD.now).counts == {"answered": 3, "sender-waits": 6, "told-to-wait": 1}
    assert len(plane.read(topic, 0)) == 4
    plane.post(service.topic, asked(MALLORY, b"other", topic))
    assert service.serve_once(WORLD.now).answered == 1, "another's budget is another's"


def test_forged_requests_cost_their_origin_and_not_the_entity(tmp_path: Path) -> None:
    service = WORLD.service(tmp_path, CENTER, Echo(), senders=Budgets(Allowance(per_second=1, burst=2)))
    eve, honest = ControlPlane(tmp_path, origin="eve"), ControlPlane(tmp_path, origin="honest")
    topic = honest.create(reply=True)
    impostor = Party("alice", ALICE.certificate, MALLORY.signer, MALLORY.kem)
    for i in range(50):
        eve.post(service.topic, asked(impostor, bytes([i]), topic))
    noisy = service.serve_once(WORLD.now)
    assert noisy.counts == {"signature": 1, "origin-waits": 49} and noisy.opened == 1
    for i in range(2):
        honest.post(service.topic, asked(ALICE, bytes([i]), topic))
    assert service.serve_once(WORLD.now).answered == 2


# --- floods -------------------------------------------------------------------------------------------


def flood(rng: int, replayed: bytes) -> bytes:
    """Forged, replayed and oversized, in turn."""
    names = ("insider: signature flipped at 0.5", "meant for another name", "too large", "noise", "sealed cut")
    kind = rng % (len(names) + 1)
    return replayed if kind == len(names) else BENT[names[kind]][1](_CASE)[:MAX_ENVELOPE_BYTES]


@pytest.mark.parametrize("origins", [1, 7, 10_000], ids=lambda n: f"{n} origins")
def test_a_flood_of_ten_times_the_honest_rate(tmp_path: Path, origins: int) -> None:
    """Counted, not timed: every honest request is answered in the turn it came in; the flood is hardly worth a look."""
    echo = Echo()
    service = WORLD.service(
        tmp_path, CENTER, echo, origins=Budgets(Allowance(per_second=20, burst=20), max_keys=32), noise=Noise(10**9)
    )
    replies, honest = ControlPlane(tmp_path, origin="honest"), 0
    topic = replies.create(reply=True)
    replayed = asked(ALICE, b"replayed", topic)
    replies.post(service.topic, replayed)
    late, opened, noise, total = 0, 0, 0, Counter[str]()
    service.serve_once(WORLD.now)
    for round in range(30):
        WORLD.now += SECOND // 5
        for i in range(10):
            eve = ControlPlane(tmp_path, origin=f"eve {(round * 10 + i) % origins}")
            eve.post(service.topic, flood(noise, replayed))
            eve.close()
            noise += 1
        replies.post(service.topic, asked(ALICE, f"honest {round}".encode(), topic))
        honest += 1
        done = service.serve_once(WORLD.now)
        late += done.answered != 1
        opened += done.opened - 1
        total += Counter(done.counts)
    assert noise == 10 * honest == 300
    assert total["answered"] == honest and late == 0
    assert all(n == 1 for n in echo.handled.values())
    assert service._journal.remembered() == honest + 1, "noise is not remembered"
    assert len(service._origins) <= 32
    # Cryptography for noise: some while an origin is new, then ever less. With a name for each attempt, the crowd's.
    assert opened <= {1: 30, 7: 80, 10_000: 32 + 20 + 20 * 6}[origins]


def test_a_full_queue_holds_the_flood_back_and_lets_the_honest_in(tmp_path: Path) -> None:
    service = WORLD.service(tmp_path, CENTER, Echo())
    eve = ControlPlane(tmp_path, origin="eve")
    posted = 0
    with pytest.raises(Busy):
        while True:
            eve.post(service.topic, b"noise")
            posted += 1
    assert posted == MAX_QUEUE // 4
    asker = WORLD.asker(tmp_path, ALICE)
    assert asker.ask(at(service), "echo", b"abc", turn=lambda: [service.serve_once(WORLD.now) for _ in range(2)])


def test_under_flood_it_moves_and_honest_askers_find_it(tmp_path: Path) -> None:
    places: list[bytes] = []
    service = WORLD.service(
        tmp_path,
        CENTER,
        Echo(),
        announce=lambda topic, now: places.append(topic),
        noise=Noise(posts=40, stay_us=SECOND),
    )
    old, eve = service.topic, ControlPlane(tmp_path, origin="eve")
    assert not service.wants_to_move(WORLD.now)
    WORLD.now += 2 * SECOND
    for _ in range(60):
        eve.post(old, b"noise")
    service.serve_once(WORLD.now)
    assert service.wants_to_move(WORLD.now)
    asker = WORLD.asker(tmp_path, ALICE)

    def moves() -> None:
        # Between the question and its turn: what alice asked at the old place is dropped with it.
        if service.wants_to_move(WORLD.now):
            service.move(WORLD.now)
        service.serve_once(WORLD.now)

    reply = asker.ask(lambda: Address(places[-1], WORLD.recipient(CENTER)), "echo", b"abc", turn=moves)
    assert reply.message.body == b"cba"
    assert len(places) == 2 and service.topic == places[1] != old
    with pytest.raises(NotFound):
        eve.post(old, b"noise")
    # It does not run away from every whisper, and not again at once.
    for _ in range(60):
        eve.post(service.topic, b"noise")
    service.serve_once(WORLD.now)
    assert not service.wants_to_move(WORLD.now)
    assert service.wants_to_move(WORLD.now + 2 * SECOND)


def test_much_honest_traffic_is_no_reason_to_move(tmp_path: Path) -> None:
    service = WORLD.service(
        tmp_path,
        CENTER,
        Echo(),
        noise=Noise(posts=5, stay_us=1),
        senders=Budgets(Allowance(per_second=1000, burst=1000)),
    )
    plane = ControlPlane(tmp_path, origin="alice")
    topic = plane.create(reply=True)
    WORLD.now += SECOND
    for i in range(20):
        plane.post(service.topic, asked(ALICE, bytes([i]), topic))
    assert service.serve_once(WORLD.now).answered == 20
    assert not service.wants_to_move(WORLD.now)


@pytest.mark.parametrize("step", ["settle", "announce", "drop", "left"])
def test_death_at_every_step_of_a_move_leaves_one_place(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    places: list[bytes] = []

    def announce(topic: bytes, now: int) -> None:
        if step == "announce" and places:
            raise Killed
        places.append(topic)

    def die(*_: object) -> None:
        raise Killed

    service = WORLD.service(tmp_path, CENTER, Echo(), announce=announce)
    where = {"settle": Journal, "left": Journal, "drop": ControlPlane, "announce": ControlPlane}[step]
    with monkeypatch.context() as patch, pytest.raises(Killed):
        if step != "announce":
            patch.setattr(where, step, die)
        service.move(WORLD.now)
    known: list[bytes] = []
    after = WORLD.service(tmp_path, CENTER, Echo(), announce=lambda topic, now: known.append(topic))
    everyone_knows = (places + known)[-1]
    assert after.topic == everyone_knows
    assert WORLD.asker(tmp_path, ALICE).ask(at(after), "echo", b"abc", turn=turn(after)).message.body == b"cba"
    place = after._journal.place()
    assert place is not None and place.leaving == ()


def test_a_damaged_topic_is_left(tmp_path: Path) -> None:
    places: list[bytes] = []
    service = WORLD.service(tmp_path, CENTER, Echo(), announce=lambda topic, now: places.append(topic))
    plane = ControlPlane(tmp_path, origin="alice")
    plane.post(service.topic, b"x" * 100)
    (segment,) = (tmp_path / "control" / service.topic.hex()).glob("*.seg")
    damaged = bytearray(segment.read_bytes())
    damaged[-1] ^= 1
    segment.write_bytes(damaged)
    assert service.serve_once(WORLD.now).counts == {"lost-topic": 1}
    assert len(places) == 2 and service.topic == places[1]
    assert WORLD.asker(tmp_path, ALICE).ask(at(service), "echo", b"abc", turn=turn(service))


def test_two_processes_may_serve_one_service(tmp_path: Path) -> None:
    """Turns are taken one at a time, whoever takes them: everything is handled once."""
    echo = Echo()
    services = [WORLD.service(tmp_path, CENTER, echo) for _ in range(2)]
    plane = ControlPlane(tmp_path, origin="alice")
    topic = plane.create(reply=True)
    for i in range(12):
        plane.post(services[0].topic, asked(ALICE, bytes([i]), topic))
        services[i % 2].serve_once(WORLD.now)
    assert len(echo.handled) == 12 and set(echo.handled.values()) == {1}
    assert len(plane.read(topic, 0)) == 12


_SERVE = """
import sys
from pathlib import Path
from sealcast.trust.control import ControlPlane
plane = ControlPlane(Path(sys.argv[1]), origin="another process")
for line in sys.stdin:
    plane.post(bytes.fromhex(sys.argv[2]), bytes.fromhex(line.strip()))
"""


def test_another_process_posts(tmp_path: Path) -> None:
    service, plane = WORLD.service(tmp_path, CENTER, Echo()), ControlPlane(tmp_path, origin="alice")
    topic = plane.create(reply=True)
    lines = "".join(asked(ALICE, bytes([i]), topic).hex() + "\n" for i in range(3))
    command = [sys.executable, "-c", _SERVE, str(tmp_path), service.topic.hex()]
    subprocess.run(command, input=lines, text=True, check=True, timeout=60)
    assert service.serve_once(WORLD.now).answered == 3


def test_serve_goes_on_until_it_is_stopped(tmp_path: Path) -> None:
    service, plane = WORLD.service(tmp_path, CENTER, Echo()), ControlPlane(tmp_path, origin="alice")
    topic = plane.create(reply=True)
    plane.post(service.topic, asked(ALICE, b"abc", topic))
    turns = iter(range(3))
    service.serve(lambda: next(turns, None) is None, idle_s=0, clock=WORLD.clock)
    assert len(plane.read(topic, 0)) == 1


def test_a_service_that_never_started_says_so(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    journal = Journal(tmp_path / "journal.sqlite")
    service = Service(plane, CENTER, REALM, WORLD.verify, Echo(), journal, announce=lambda topic, now: None)
    for call in (lambda: service.topic, lambda: service.serve_once(WORLD.now)):
        with pytest.raises(Misuse, match="does not listen"):
            call()
