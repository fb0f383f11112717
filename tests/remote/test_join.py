"""Joining from afar: a code, keys that are made at home, and everybody on the way who would rather have other keys."""

from __future__ import annotations

import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sealcast import Realm
from sealcast.control import reception as receptions
from sealcast.control.invited import MAX_ATTEMPTS
from sealcast.control.reception import Reception, invite
from sealcast.errors import Misuse, Rejected
from sealcast.log import receiving
from sealcast.primitives import mac
from sealcast.transports.address import GatewayAddress
from sealcast.transports.problems import GatewayRefused
from sealcast.trust import homes, joining
from sealcast.trust.handles import EntityRealm
from sealcast.trust.heads import Pin
from sealcast.trust.invitations import InvitationCode, InvitationKeys, JoinAnswer, JoinRequest
from sealcast.trust.keys.identity import Identity
from sealcast.trust.layout import read_mark
from sealcast.trust.realm.changes import Grant, Right
from sealcast.trust.registry import now_us
from tests.gateway.world import TOPIC, RunningGateway, make_realm, running

HOUR_US = 3_600_000_000


class World:
    """A realm, its gateway, and a reception that answers as `sealcast serve` does."""

    def __init__(self, realm: Realm, served: RunningGateway) -> None:
        self.realm, self.served = realm, served
        self.address = GatewayAddress("127.0.0.1", served.port)
        self._stop = threading.Event()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._answer, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(60)

    def _answer(self, ready: threading.Event) -> None:
        with Reception(Realm(self.realm.paths.root)) as reception:
            ready.set()
            while not self._stop.is_set():
                reception.turn()
                self._stop.wait(0.01)

    def invite(self, name: str, *grants: Right) -> InvitationCode:
        wanted = (Grant(TOPIC, name, grants),) if grants else ()
        return invite(self.realm, name, wanted, HOUR_US)[0]

    def close(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    realm = make_realm(tmp_path_factory.mktemp("joining") / "market")
    with running(realm, tmp_path_factory.mktemp("clients")) as served:
        made = World(realm, served)
        yield made
        made.close()


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    return make_realm(tmp_path_factory.mktemp("reception") / "market")


@pytest.fixture
def reception(realm: Realm) -> Iterator[Reception]:
    with Reception(realm) as made:
        yield made


def reason_of(answer: bytes) -> str | None:
    """Why it was refused; None for an answer that was granted."""
    found = receiving.read_answer(answer)
    assert found is not None
    return found[0] if isinstance(found, tuple) else None


# --- over a gateway -------------------------------------------------------------------------------------


def test_a_newcomer_gets_a_home_with_what_waits_for_it(world: World, tmp_path: Path) -> None:
    code = world.invite("carol", Right.PUBLISH)
    paths = joining.join(world.address, code, tmp_path / "home", now_us)
    assert stat.S_IMODE(paths.entity_key("carol").stat().st_mode) == 0o600
    mark = read_mark(paths)
    assert (mark.gateway, mark.at_hand, mark.id) == (str(world.address), False, world.realm.id)
    assert not world.realm.paths.entity_key("carol").exists(), "the private key was never there"
    client = EntityRealm(paths.root)
    seen = Pin.beside(paths.entity_key("carol"), "carol").read()
    assert seen is not None and client.registry.chain_at(seen.version) == seen.chain
    assert client.state().rights_of(TOPIC, "carol") == {Right.PUBLISH}
    assert client.identity("carol").topic_keys(client.state(), TOPIC).pair.size == 32
    with pytest.raises(Misuse, match="joined already"):
        joining.join(world.address, code, paths.root, now_us)
    with pytest.raises(GatewayRefused, match="used already") as stolen:
        joining.join(world.address, code, tmp_path / "thief", now_us)
    assert stolen.value.reason == "used" and homes_in(tmp_path / "thief") == []


def homes_in(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.crt"))


def test_an_answer_that_was_lost_is_asked_for_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, home = world.invite("dora"), tmp_path / "home"
    with monkeypatch.context() as lost:
        lost.setattr(homes, "write_chain", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            joining.join(world.address, code, home, now_us)
    before, made = world.realm.state(), (home / "entities" / "dora.key").read_bytes()
    joining.join(world.address, code, home, now_us)
    assert (home / "entities" / "dora.key").read_bytes() == made
    assert world.realm.state().entity("dora").serials == before.entity("dora").serials
    assert EntityRealm(home).identity("dora").name == "dora"


def test_a_gateway_with_another_root_gets_nothing(world: World, tmp_path: Path) -> None:
    other = InvitationCode.make(world.realm.id, bytes(32), "eve")
    with pytest.raises(GatewayRefused, match="another root") as refused:
        joining.join(world.address, other, tmp_path / "home", now_us)
    assert refused.value.reason == "root" and not (tmp_path / "home").exists()


def test_another_host_gets_nothing(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a host that no certificate of a gateway names, nothing is sent."""
    before = joins(world)
    code, away = world.invite("fay"), GatewayAddress("127.0.0.2", world.served.port)
    monkeypatch.setattr("socket.getaddrinfo", _redirected(away.host, "127.0.0.1"))
    with pytest.raises(GatewayRefused, match="does not prove"):
        joining.join(away, code, tmp_path / "home", now_us)
    assert joins(world) == before and homes_in(tmp_path) == []
    joining.join(world.address, code, tmp_path / "home", now_us)
    assert joins(world) == before + 1


def joins(world: World) -> int:
    return world.served.log.getvalue().count('"route": "join"')


def _redirected(away: str, to: str) -> Any:
    import socket

    real = socket.getaddrinfo
    return lambda host, *more, **named: real(to if host == away else host, *more, **named)


def test_guesses_are_bounded_by_address(world: World, tmp_path: Path) -> None:
    client = world.served.client()
    code = InvitationCode.make(world.realm.id, read_mark(world.realm.paths).root, "guessed")
    request = JoinRequest.make(code, Identity.generate("guessed")).to_bytes()
    said = []
    for _ in range(64):
        answer = client.ask("POST", "/v1/join", {"request": request})
        said.append(answer.status)
        if answer.status == 429:
            break
    assert said[0] == 403 and said[-1] == 429, said


# --- the reception, without anybody in between ----------------------------------------------------------


def asked(realm: Realm, name: str) -> tuple[InvitationCode, JoinRequest, Identity]:
    code, identity = invite(realm, name, (), HOUR_US)[0], Identity.generate(name)
    return code, JoinRequest.make(code, identity), identity


def test_keys_that_a_gateway_swapped_are_refused(
    realm: Realm, reception: Reception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway in the middle puts its own keys into a request, with its own proofs. Without the tag it would be in."""
    code, honest, _ = asked(realm, "gus")
    thief = Identity.generate("gus")
    forged = replace(
        JoinRequest.make(InvitationCode.make(code.realm, code.root, "gus"), thief), invitation=honest.invitation
    )
    signed = thief.key.sign(forged.transcript), thief.signer.sign(forged.transcript)
    forged = replace(forged, by_identity=signed[0], by_signer=signed[1])
    assert forged.proves_possession()
    assert reason_of(reception.answer(forged.to_bytes())) == "code"
    assert "gus" not in realm.state().entities
    with monkeypatch.context() as weak:
        weak.setattr(JoinRequest, "is_under", lambda self, key: True)
        assert reason_of(reception.answer(forged.to_bytes())) is None, "the attack works where the tag is not looked at"
    assert reason_of(reception.answer(honest.to_bytes())) == "used"


def test_one_swapped_key_is_refused(realm: Realm, reception: Reception) -> None:
    _, honest, _ = asked(realm, "hal")
    other = Identity.generate("hal").public_keys
    for field in ("identity", "verify_key", "kem_public"):
        forged = replace(honest, keys=replace(honest.keys, **{field: getattr(other, field)}))
        assert reason_of(reception.answer(forged.to_bytes())) == "code", field
    assert reason_of(reception.answer(honest.to_bytes())) is None


def test_keys_of_somebody_else_are_refused(realm: Realm, reception: Reception) -> None:
    """Whoever has a code cannot have another's keys certified for its own name."""
    code, honest, mine = asked(realm, "ida")
    other = Identity.generate("ida")
    mixed = Identity("ida", mine.signer, mine.kem, other.key)
    made = JoinRequest.make(code, mixed)
    forged = replace(made, keys=honest.keys)
    said = forged.transcript
    forged = replace(forged, by_identity=other.key.sign(said), by_signer=mine.signer.sign(said))
    forged = replace(forged, tag=mac.tag(code.keys().request, said, forged.by_identity, forged.by_signer))
    assert reason_of(reception.answer(forged.to_bytes())) == "possession"
    assert "ida" not in realm.state().entities


def test_a_replayed_request_changes_nothing(realm: Realm, reception: Reception) -> None:
    code, request, identity = asked(realm, "jan")
    first = receiving.read_answer(reception.answer(request.to_bytes()))
    version = realm.state().version
    again = receiving.read_answer(reception.answer(request.to_bytes()))
    assert isinstance(first, bytes) and first == again and realm.state().version == version
    later = JoinRequest.make(code, identity)
    assert reason_of(reception.answer(later.to_bytes())) is None, "the same keys, another nonce: the same person"
    answer = code.keys().answer
    assert JoinAnswer.parse(first, answer, request).certificate == realm.state().entity("jan").certificate
    with pytest.raises(Rejected):
        JoinAnswer.parse(first, answer, later)
    with pytest.raises(Rejected):
        JoinAnswer.parse(first[:-1] + bytes([first[-1] ^ 1]), answer, request)


def test_a_stolen_code_after_the_real_one(realm: Realm, reception: Reception, monkeypatch: pytest.MonkeyPatch) -> None:
    code, request, _ = asked(realm, "kim")
    assert reason_of(reception.answer(request.to_bytes())) is None
    stolen = JoinRequest.make(code, Identity.generate("kim"))
    assert reason_of(reception.answer(stolen.to_bytes())) == "used"
    assert realm.state().entity("kim").verify_key == request.keys.verify_key
    realm.revoke_entity("kim")
    assert reason_of(reception.answer(request.to_bytes())) == "name", "a revoked name does not come back by its code"


def test_guesses_at_an_invitation_are_bounded(realm: Realm, reception: Reception) -> None:
    _, honest, _ = asked(realm, "lea")
    for number in range(MAX_ATTEMPTS):
        guess = replace(honest, tag=number.to_bytes(32, "big"))
        assert reason_of(reception.answer(guess.to_bytes())) == "code"
    assert reason_of(reception.answer(honest.to_bytes())) == "attempts"
    assert "lea" not in realm.state().entities
    assert reception.counts["code"] == MAX_ATTEMPTS and reception.counts["attempts"] == 1


def test_who_has_no_code_learns_nothing(realm: Realm, reception: Reception) -> None:
    """Names that are invited, enrolled or neither, ids that exist or not, codes that are over: one word for all."""
    code, request, _ = asked(realm, "mia")
    over, _, _ = asked(realm, "noa")
    with receptions.store_of(realm.paths) as store:
        store.revoke("noa", realm.clock())
    for name in ("mia", "noa", "alice", "nobody"):
        stranger = InvitationCode.make(realm.id, code.root, name)
        made = JoinRequest.make(stranger, Identity.generate(name))
        assert reason_of(reception.answer(made.to_bytes())) == "code"
        for known in (code, over):
            named = replace(made, invitation=known.keys().id)
            assert reason_of(reception.answer(named.to_bytes())) == "code"
    assert {reception.answer(raw) for raw in (b"", b"\x00", bytes(900))} == {reception.answer(b"\xff")}
    assert reason_of(reception.answer(request.to_bytes())) is None


def test_each_end_of_an_invitation_has_its_word(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    late = Realm(realm.paths.root, clock=lambda: now_us() + 2 * HOUR_US)
    _, expired, _ = asked(realm, "pam")
    _, revoked, _ = asked(realm, "quin")
    with receptions.store_of(realm.paths) as store:
        with pytest.raises(Misuse, match="already"):
            invite(realm, "quin", (), HOUR_US)
        store.revoke("quin", realm.clock())
        with pytest.raises(Misuse):
            store.revoke("quin", realm.clock())
    with Reception(late) as reception:
        assert reason_of(reception.answer(expired.to_bytes())) == "expired"
        assert reason_of(reception.answer(revoked.to_bytes())) == "revoked"
    assert not {"pam", "quin"} & set(realm.state().entities)
    for wrong in ("alice", "../up", ""):
        with pytest.raises(Misuse):
            invite(realm, wrong, (), HOUR_US)
    with pytest.raises(Misuse):
        invite(realm, "rob", (Grant("nothing", "rob", (Right.PUBLISH,)),), HOUR_US)


def test_the_store_cannot_give_the_code_back(realm: Realm) -> None:
    code = invite(realm, "sam", (), HOUR_US)[0]
    place = realm.paths.secrets / "reception"
    assert stat.S_IMODE((place / "invitations.sqlite").stat().st_mode) == 0o600
    kept = b"".join(path.read_bytes() for path in place.iterdir())
    secret: bytes = code._secret.reveal()
    assert code.keys().id in kept and secret not in kept
    assert secret.hex() not in repr(code) + str(code)


def test_codes_that_were_mistyped(realm: Realm) -> None:
    text = InvitationCode.make(realm.id, bytes(32), "tom").reveal()
    read = InvitationCode.parse(f" {text[:40]}\n{text[40:]} ")
    assert (read.name, read.realm, read.keys().id) == ("tom", realm.id, InvitationCode.parse(text).keys().id)
    for wrong in ("", "sealcast-invite-1.", text[:-1], text[:30] + ("A" if text[30] != "A" else "B") + text[31:]):
        with pytest.raises(Rejected, match="no invitation's code"):
            InvitationCode.parse(wrong)
    assert isinstance(read.keys(), InvitationKeys)
