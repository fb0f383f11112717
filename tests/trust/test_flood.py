"""Services that are asked too much: budgets, floods counted post by post, moving away, and dying on the way."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from sealcast.control.asking import ServiceAddress
from sealcast.control.budgets import Allowance, Budgets
from sealcast.control.envelopes import MAX_ENVELOPE_BYTES, ControlMessage, EnvelopeParty, seal
from sealcast.control.journal import ServiceJournal
from sealcast.control.service import Noise, Service
from sealcast.errors import Busy, Misuse, NotFound
from sealcast.log.control_topics import MAX_QUEUE, ControlPlane
from sealcast.log.embedded import EmbeddedLog
from sealcast.wire import cbor
from tests.trust.control_world import REALM, SECOND, Echo
from tests.trust.tampering import Case, Cast, bent_envelopes

CAST = Cast.make()
WORLD, ALICE, MALLORY, CENTER = CAST.world, CAST.alice, CAST.mallory, CAST.center
BENT = bent_envelopes(CAST)
_CASE = Case.of(CAST)


@pytest.fixture(autouse=True)
def _clock() -> None:
    WORLD.now = 1_800_000_000_000_000


def at(service: Service, party: EnvelopeParty = CENTER) -> Callable[[], ServiceAddress]:
    return lambda: ServiceAddress(service.topic, WORLD.recipient(party))


def turn(service: Service) -> Callable[[], object]:
    return lambda: service.serve_once(WORLD.now)


def asked(party: EnvelopeParty, body: bytes, reply_topic: bytes) -> bytes:
    return seal(party, REALM, WORLD.recipient(CENTER), ControlMessage.request("echo", body, reply_topic, WORLD.now))


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
    assert service.serve_once(WORLD.now).counts.get("answered", 0) == 1, "another's budget is another's"


def test_forged_requests_cost_their_origin_and_not_the_entity(tmp_path: Path) -> None:
    service = WORLD.service(tmp_path, CENTER, Echo(), senders=Budgets(Allowance(per_second=1, burst=2)))
    eve, honest = ControlPlane(tmp_path, origin="eve"), ControlPlane(tmp_path, origin="honest")
    topic = honest.create(reply=True)
    impostor = EnvelopeParty("alice", ALICE.certificate, MALLORY.signer, MALLORY.kem)
    for i in range(50):
        eve.post(service.topic, asked(impostor, bytes([i]), topic))
    noisy = service.serve_once(WORLD.now)
    assert noisy.counts == {"signature": 1, "origin-waits": 49} and noisy.opened == 1
    for i in range(2):
        honest.post(service.topic, asked(ALICE, bytes([i]), topic))
    assert service.serve_once(WORLD.now).counts.get("answered", 0) == 2


# --- floods -------------------------------------------------------------------------------------------


def flood(rng: int, replayed: bytes) -> bytes:
    """Forged, replayed, meaningless, and as large as a post can be, in turn."""
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
        late += done.counts.get("answered", 0) != 1
        opened += done.opened - 1
        total += Counter(done.counts)
    assert noise == 10 * honest == 300
    assert total["answered"] == honest and late == 0
    assert all(n == 1 for n in echo.handled.values())
    assert service._journal.remembered() == honest + 1, "noise is not remembered"
    assert len(service._origins) <= 32
    # Cryptography for noise: some while an origin is new, then ever less. With a name for each attempt, the crowd's.
    assert opened <= {1: 30, 7: 80, 10_000: 32 + 20 + 20 * 6}[origins]


def test_what_is_too_large_is_not_even_opened(tmp_path: Path) -> None:
    """A plane refuses to post it; whoever writes to the files directly has it counted, and of unknown origin."""
    service = WORLD.service(tmp_path, CENTER, Echo())
    with EmbeddedLog(tmp_path / "control" / service.topic.hex()) as log:
        log.append([bytes(MAX_ENVELOPE_BYTES + 1_000), cbor.encode(["eve", bytes(MAX_ENVELOPE_BYTES + 1)])])
    assert service.serve_once(WORLD.now).counts == {"size": 2}


def test_a_newcomer_in_a_crowd_shares_its_budget(tmp_path: Path) -> None:
    """What is left: who comes new while every name is taken waits with the crowd. Moving is the answer."""
    origins = Budgets(Allowance(per_second=1, burst=5), max_keys=4)
    service = WORLD.service(tmp_path, CENTER, Echo(), origins=origins, noise=Noise(posts=20, stay_us=0))
    WORLD.now += SECOND
    for i in range(40):
        eve = ControlPlane(tmp_path, origin=f"eve {i}")
        eve.post(service.topic, b"noise")
        eve.close()
    newcomer = ControlPlane(tmp_path, origin="newcomer")
    topic = newcomer.create(reply=True)
    newcomer.post(service.topic, asked(ALICE, b"abc", topic))
    assert service.serve_once(WORLD.now).counts.get("answered", 0) == 0
    assert service.wants_to_move(WORLD.now)


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

    reply = asker.ask(lambda: ServiceAddress(places[-1], WORLD.recipient(CENTER)), "echo", b"abc", turn=moves)
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
    assert service.serve_once(WORLD.now).counts.get("answered", 0) == 20
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
    where = {"settle": ServiceJournal, "left": ServiceJournal, "drop": ControlPlane, "announce": ControlPlane}[step]
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


def test_two_handles_may_serve_one_service(tmp_path: Path) -> None:
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
from sealcast.log.control_topics import ControlPlane
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
    assert service.serve_once(WORLD.now).counts.get("answered", 0) == 3


def test_a_service_that_never_started_says_so(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    journal = ServiceJournal(tmp_path / "journal.sqlite")
    service = Service(plane, CENTER, REALM, WORLD.verify, Echo(), journal, announce=lambda topic, now: None)
    for call in (lambda: service.topic, lambda: service.serve_once(WORLD.now)):
        with pytest.raises(Misuse, match="does not listen"):
            call()
