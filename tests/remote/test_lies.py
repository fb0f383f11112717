"""A malicious gateway: it drops, repeats, reorders, alters, withholds, shows old things and forks histories.

Each lie is found out by the client or does no harm, and each goes through with a client that has lost the one check
that stands against it.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sealcast import Publisher, Realm, Subscriber
from sealcast.control import asking, standings
from sealcast.control.wallet import Wallet
from sealcast.errors import Corrupt, SealcastError, Unavailable
from sealcast.gateway.frames import receipt
from sealcast.gateway.running import GatewayService
from sealcast.log import piece_reader
from sealcast.log.annals import TaggedLog
from sealcast.log.lane_log import LostFrame
from sealcast.log.mailbox import Mailbox
from sealcast.log.piece_reader import PieceReader
from sealcast.primitives.sign import SigningKey, VerifyKey
from sealcast.transports.journals import RemoteJournal
from sealcast.transports.problems import GatewayRefused
from sealcast.transports.receipts import KeptReceipts, Receipt
from sealcast.trust.comparing import Histories, compare, signed_head
from sealcast.trust.gateway_site import GatewaySite
from sealcast.trust.handles import EntityRealm, GatewayRealm
from sealcast.trust.realm.changes import Right
from sealcast.trust.registry import Registry
from sealcast.wire import cbor
from tests.remote.lying import Liar, Request, the_truth
from tests.remote.world import TOPIC, Served, events, served

PRICES = ((1, 2), (3,), (4, 5), (6,))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Liar]]:
    """A realm with four delivered batches, and a gateway that can lie."""
    liar = Liar()
    with liar.in_place(), served(tmp_path_factory.mktemp("lies"), "endpoint") as world:
        reader = world.client("ann")
        with world.side.interests(reader, TOPIC, "ann") as interests:
            interests.add("price < 100")
        with Publisher(world.client("nyse"), TOPIC, "nyse") as publisher:
            for prices in PRICES:
                publisher.publish(events(*prices))
                world.pump()
        yield world, liar


@pytest.fixture
def world(stage: tuple[Served, Liar]) -> Iterator[Served]:
    yield stage[0]
    stage[1].lie, stage[1].version = the_truth, None


@pytest.fixture
def liar(stage: tuple[Served, Liar]) -> Liar:
    return stage[1]


def read_all(home: EntityRealm | Path, *, ack: bool = False) -> list[bytes]:
    realm = home if isinstance(home, EntityRealm) else EntityRealm(home)
    with Subscriber(realm, TOPIC, "ann") as subscriber:
        found = list[bytes]()
        while more := subscriber.poll():
            found += [event.payload for event in more]
        if ack:
            subscriber.ack()
        return found


EVERYTHING = [f"at {price}".encode() for prices in PRICES for price in prices]


def test_the_honest_gateway(world: Served) -> None:
    assert read_all(world.client("ann")) == EVERYTHING


# --- mail ---------------------------------------------------------------------------------------------


def is_ledger(request: Request) -> bool:
    return request.last == "ledger"


def reordered(order: list[int]) -> Any:
    """A ledger whose records are those of the true one, in this order, numbered as they have to be."""

    async def lie(request: Request) -> Any:
        if not is_ledger(request):
            return None
        true = (await request.honest(**{"from": 0}))["records"]
        shown = [[number, *true[old][1:]] for number, old in enumerate(order)]
        first = int(request.query.get("from", 0))
        return {"records": shown[first:], "start": 0, "end": len(shown)}

    return lie


def trusts_every_record(patch: pytest.MonkeyPatch) -> None:
    """A client that holds no record to the one before it."""

    def record(self: PieceReader[Any], index: int) -> Any:
        return self.ledger.at(index)

    patch.setattr(PieceReader, "seen_record", record)


@pytest.mark.parametrize(
    ("order", "weakly"),
    [
        pytest.param([0, 2, 3], [1, 2, 4, 5, 6], id="drops"),
        pytest.param([0, 1, 3, 2], [1, 2, 3, 6, 4, 5], id="reorders"),
    ],
)
def test_records_that_are_dropped_or_reordered(
    world: Served, liar: Liar, monkeypatch: pytest.MonkeyPatch, order: list[int], weakly: list[int]
) -> None:
    home = world.home("ann")
    liar.lie = reordered(order)
    with pytest.raises(Corrupt, match="does not follow record"):
        read_all(home)
    trusts_every_record(monkeypatch)
    assert read_all(home) == [f"at {price}".encode() for price in weakly]


def test_a_record_that_is_repeated(world: Served, liar: Liar, monkeypatch: pytest.MonkeyPatch) -> None:
    home = world.home("ann")
    liar.lie = reordered([0, 1, 1, 2, 3])
    with pytest.raises(Corrupt, match="does not follow record"):
        read_all(home)
    # Without that check, what was handed out before is still recognised: the lie does no harm.
    trusts_every_record(monkeypatch)
    assert read_all(home) == EVERYTHING
    monkeypatch.setattr(Subscriber, "_new_ones", lambda self, opened, late, *, again: opened)
    assert read_all(home) != EVERYTHING


def test_a_ledger_that_lost_its_newest_records(world: Served, liar: Liar, monkeypatch: pytest.MonkeyPatch) -> None:
    home = world.home("ann")
    assert read_all(home, ack=True) == EVERYTHING
    liar.lie = reordered([0, 1])
    with pytest.raises(Corrupt, match="newest records were removed"):
        read_all(home)
    # Whoever forgets where it was begins again, and takes the half for the whole.
    monkeypatch.setattr(Mailbox, "cursor", lambda self: type(self._file.load().cursor)())
    assert read_all(home) != EVERYTHING


def altered(raw: bytes) -> bytes:
    """The same record with another count of deliveries."""
    outer = cbor.decode(raw)
    body = cbor.decode(outer[1])
    body["batch"] += 1
    return cbor.encode({**outer, 1: cbor.encode(body)})


async def altered_record(request: Request) -> Any:
    if not is_ledger(request):
        return None
    found = await request.honest()
    return {**found, "records": [[n, at, altered(data)] for n, at, data in found["records"]]}


def test_a_record_that_is_altered(world: Served, liar: Liar, monkeypatch: pytest.MonkeyPatch) -> None:
    home = world.home("ann")
    liar.lie = altered_record
    with pytest.raises(Corrupt, match="does not bear the broker's signature"):
        read_all(home)

    def unsealed(self: TaggedLog[Any], record: Any, what: str) -> tuple[bytes, bytes]:
        outer = cbor.decode(record.data)
        return outer[1], outer[2]

    monkeypatch.setattr(TaggedLog, "_unsealed", unsealed)
    assert read_all(home) == EVERYTHING


async def withheld_piece(request: Request) -> Any:
    return 403 if "/pieces/" in request.path else None


def test_a_piece_that_is_withheld(world: Served, liar: Liar, monkeypatch: pytest.MonkeyPatch) -> None:
    home = world.home("ann")
    liar.lie = withheld_piece
    with pytest.raises(Corrupt, match="which is withheld"):
        read_all(home)

    def believing(self: Mailbox[Any], index: int, number: int) -> Any:
        try:
            return self.reader.piece_of(index, number)
        except SealcastError:
            return None

    monkeypatch.setattr(Mailbox, "_piece", believing)
    assert read_all(home) == []


async def other_piece(request: Request) -> Any:
    if "/pieces/" not in request.path:
        return None
    pieces = request.hub.realm.paths.topic(TOPIC).pieces
    return sorted(pieces.glob("*.piece"))[0].read_bytes()


def test_another_piece(world: Served, liar: Liar, monkeypatch: pytest.MonkeyPatch) -> None:
    home = world.home("ann")
    liar.lie = other_piece
    with pytest.raises(Corrupt, match="its digest differs"):
        read_all(home)
    monkeypatch.setattr(piece_reader, "verified", lambda data, digest, where: data)
    with pytest.raises(Corrupt, match="covers something else"):
        read_all(home)
    monkeypatch.setattr(PieceReader, "_load", lambda self, ref: self._parse(self.journal.piece(ref.name)))
    trusts_every_record(monkeypatch)
    monkeypatch.setattr(Subscriber, "_new_ones", lambda self, opened, late, *, again: opened)
    assert read_all(home) == [b"at 1", b"at 2"] * len(PRICES)


# --- another's gateway --------------------------------------------------------------------------------


def test_a_gateway_of_another_realm_is_told_nothing(world: Served, tmp_path: Path) -> None:
    other = Realm.create(tmp_path / "other", "elsewhere")
    other.add_gateway("gate", ["127.0.0.1"])
    gateway = GatewayService(GatewayRealm(other.paths.root), "gate")
    thread = threading.Thread(target=lambda: asyncio.run(gateway.run()), daemon=True)
    thread.start()
    try:
        assert gateway.started.wait(60)
        home = world.home("ann", at=f"sealcast://127.0.0.1:{gateway.port}")
        with pytest.raises(GatewayRefused, match="does not prove that it is this realm's gateway"):
            EntityRealm(home).state()
    finally:
        gateway.stop()
        thread.join(60)


def test_an_entity_that_plays_gateway_is_told_nothing(world: Served) -> None:
    """Its certificate is the realm's, and leads to the pinned root: OpenSSL would believe it but for the host."""
    site = EntityRealm(world.home("ann")).site.base
    assert isinstance(site, GatewaySite)
    with pytest.raises(GatewayRefused, match="is no gateway of"):
        site._prove(world.realm.state().entity("bob").certificate)


# --- frames -------------------------------------------------------------------------------------------


def dropping(*, signed: bool) -> Any:
    """Says that frames are durable, and throws them away."""

    async def lie(request: Request) -> Any:
        if request.last != "frames" or request.method != "POST":
            return None
        body = cbor.decode(request.body)
        offsets = list(range(1_000, 1_000 + len(body["frames"])))
        said: list[list[object]] = [
            [n, hashlib.sha256(f).digest()] for n, f in zip(offsets, body["frames"], strict=True)
        ]
        hub = request.hub
        about = hub.newest.seen.state.topic(TOPIC)
        truly = hub.identity.signer.sign(receipt(hub.realm.id, about.id, "broker", body["partition"], said))
        return {"offsets": offsets, "receipt": truly if signed else bytes(64)}

    return lie


def test_frames_that_are_thrown_away_without_a_receipt(
    world: Served, liar: Liar, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Publisher(world.client("nyse"), TOPIC, "nyse") as publisher:
        liar.lie = dropping(signed=False)
        with pytest.raises(Unavailable, match="does not sign for it"):
            publisher.publish(events(7))
        monkeypatch.setattr(Receipt, "is_signed", property(lambda self: True))
        assert publisher.publish(events(7))


def test_frames_that_are_thrown_away_with_a_receipt_convict_the_gateway(world: Served, liar: Liar) -> None:
    home = world.client("nyse")
    with Publisher(home, TOPIC, "nyse") as publisher:
        liar.lie = dropping(signed=True)
        (position,) = publisher.publish(events(8))
    (kept,) = KeptReceipts(home.paths.topic(TOPIC).root / "lanes" / "nyse" / "receipts").all()
    assert kept.is_signed and [offset for offset, _ in kept.said] == [position.offset]
    assert kept.gateway == world.realm.state().entity("gate").verify_key
    with world.realm.frames(TOPIC, read_only=True) as log:
        assert log.partition(position.partition).end() <= position.offset


def verified(world: Served, lost: LostFrame) -> tuple[Receipt, str]:
    """The evidence, as somebody judges it who has nothing but certificates: the gateway's receipt, and what the broker
    says of the same frame."""
    kept, state = Receipt.from_bytes(lost.receipt), world.realm.state()
    assert kept.is_signed and kept.gateway == state.entity("gate").verify_key
    signed, signature = lost.statement[:-64], lost.statement[-64:]
    assert VerifyKey(state.entity("broker").verify_key).verify(signed, signature)
    realm, topic, broker, partition, _, said = cbor.decode(signed.removeprefix(b"sealcast/1 frame standing\0"))
    assert (realm, topic, broker, partition) == kept.lane
    (standing,) = [row[2] for row in said if (row[0], row[1]) in kept.said and row[0] == lost.offset]
    return kept, standing


def test_a_publisher_finds_out_what_was_acknowledged_and_dropped(world: Served, liar: Liar) -> None:
    """By the gateway's own word all is well. The broker's word it carries, and cannot make."""
    with Publisher(world.client("xetra"), TOPIC, "xetra") as publisher:
        (kept,) = publisher.publish(events(11))
        found = publisher.confirm()
        assert (found.committed, found.waiting, found.lost) == (0, 1, [])
        liar.lie = dropping(signed=True)
        (dropped,) = publisher.publish(events(12))
        (away,) = publisher.publish(events(13))
        liar.lie = the_truth
        world.pump()
        found = publisher.confirm()
        assert found.committed == 1 and found.waiting == 0
        assert [(frame.offset, frame.standing) for frame in found.lost] == [(1_000, "missing")] * 2
        assert all(verified(world, frame)[1] == "missing" for frame in found.lost)
        # What is settled is not asked for again; what was lost stays lost.
        again = publisher.confirm()
        assert again.committed == 0 and len(again.lost) == 2
    assert kept.offset < 1_000 == dropped.offset == away.offset


def test_another_frame_in_the_place_of_ones_own_is_no_proof(world: Served, liar: Liar) -> None:
    """It drops a frame and signs for the place where somebody else's stands."""

    def elsewhere(at: int) -> Any:
        honest = dropping(signed=True)

        async def lie(request: Request) -> Any:
            if request.last != "frames" or request.method != "POST":
                return await honest(request)
            body, hub = cbor.decode(request.body), request.hub
            said: list[list[object]] = [[at, hashlib.sha256(frame).digest()] for frame in body["frames"]]
            about = hub.newest.seen.state.topic(TOPIC)
            signed = hub.identity.signer.sign(receipt(hub.realm.id, about.id, "broker", body["partition"], said))
            return {"offsets": [at], "receipt": signed}

        return lie

    with Publisher(world.client("nyse"), TOPIC, "nyse") as other:
        (taken,) = other.publish(events(14))
    world.pump()
    with Publisher(world.client("nyse"), TOPIC, "nyse") as publisher:
        liar.lie = elsewhere(taken.offset)
        publisher.publish(events(15))
        liar.lie = the_truth
        (lost,) = publisher.confirm().lost
        assert verified(world, lost)[1] == "other"


def test_a_gateway_cannot_answer_for_the_broker(world: Served, liar: Liar, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may withhold the question, and then nobody is told that frames are safe."""
    with Publisher(world.client("bob"), TOPIC, "bob") as publisher:
        liar.lie = dropping(signed=True)
        publisher.publish(events(16))

        async def withholding(request: Request) -> Any:
            return 404 if request.path.startswith("/v1/control/") else None

        liar.lie = withholding
        with pytest.raises(SealcastError):
            publisher.confirm()
        # The same question, answered by somebody who has another key than the broker's.
        liar.lie = the_truth
        honest = SigningKey.sign
        forger = SigningKey.generate()
        label = b"sealcast/1 frame standing"
        monkeypatch.setattr(SigningKey, "sign", lambda self, m: honest(forger if m.startswith(label) else self, m))
        with pytest.raises(Corrupt, match="does not sign for what it says"):
            publisher.confirm()
        monkeypatch.setattr(standings.VerifyKey, "verify", lambda self, message, signature: True)
        assert len(publisher.confirm().lost) == 1, "where the signature is not looked at, anybody's word counts"


# --- the registry -------------------------------------------------------------------------------------


def frozen(version: int, liar: Liar) -> Any:
    """A registry that ends at a version, for whoever asks."""

    async def lie(request: Request) -> Any:
        if request.path != "/v1/registry/changes":
            return None
        after = int(request.query.get("after", 0))
        found = await request.honest(wait=0)
        return {"rows": [row for row in found["rows"] if row[0] <= version], "newest": max(version, after)}

    liar.version = version
    return lie


def test_a_frozen_registry_is_noticed_by_what_brokers_sign(
    world: Served, liar: Liar, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = world.home("ann")
    before = EntityRealm(home).state().version
    world.realm.enrol("late-comer")
    with Publisher(world.client("nyse"), TOPIC, "nyse") as publisher:
        publisher.publish(events(9))
    world.pump()
    monkeypatch.setattr("sealcast.trust.gateway_site.WITHHELD_S", 1.0)
    liar.lie = frozen(before, liar)
    with pytest.raises(Corrupt, match="newer ones are withheld"):
        read_all(home)
    monkeypatch.setattr(RemoteJournal, "__init__", _unpinned(RemoteJournal.__init__))
    monkeypatch.setattr(Registry, "hold_to", lambda self, seen, pin: None)
    assert read_all(home)[: len(EVERYTHING)] == EVERYTHING


def _unpinned(init: Any) -> Any:
    def made(self: RemoteJournal, *arguments: Any) -> None:
        init(self, *arguments)
        self.pinned = lambda version, chain: None

    return made


async def went_back(request: Request) -> Any:
    return {"rows": [], "newest": 3} if request.path == "/v1/registry/changes" else None


def test_a_registry_that_goes_back(world: Served, liar: Liar) -> None:
    home = world.home("ann")
    EntityRealm(home).state()
    liar.lie = went_back
    with pytest.raises(Corrupt, match="rollback"):
        EntityRealm(home).state()


async def forged_row(request: Request) -> Any:
    if request.path != "/v1/registry/changes":
        return None
    found = await request.honest()
    rows = [[*row[:3], row[3].replace("ann", "eve"), *row[4:]] for row in found["rows"]]
    return {**found, "rows": rows}


def test_a_lie_about_the_registry_leaves_nothing_behind(world: Served, liar: Liar) -> None:
    home = world.home("ann")
    liar.lie = forged_row
    with pytest.raises(Corrupt):
        EntityRealm(home).state()
    liar.lie = the_truth
    honest = EntityRealm(home)
    honest.registry.come_to(world.realm.state().version)
    assert honest.state().version == world.realm.state().version


def test_two_clients_that_are_shown_different_histories_find_out(world: Served, liar: Liar, tmp_path: Path) -> None:
    """The administrator's own key is abused for the other branch: nobody else can sign one."""
    from tests.copies import copy_realm

    ann, bob = world.home("ann"), world.home("bob")
    EntityRealm(ann).state(), EntityRealm(bob).state()
    copy_realm(world.realm.paths.root, tmp_path / "other")
    other = Realm(tmp_path / "other")
    other.enrol("only-bob-sees")
    world.realm.enrol("only-ann-sees")

    async def lie(request: Request) -> Any:
        if request.path != "/v1/registry/changes" or request.caller != "bob":
            return None
        rows, newest = other.registry.rows(int(request.query.get("after", 0)), 1 << 20)
        return {"rows": [list(row) for row in rows], "newest": newest}

    liar.lie = lie
    seen_by_ann, seen_by_bob = EntityRealm(ann), EntityRealm(bob)
    seen_by_ann.registry.come_to(world.realm.state().version)
    seen_by_bob.registry.come_to(other.state().version)
    assert "only-ann-sees" in seen_by_ann.state().entities
    assert "only-bob-sees" in seen_by_bob.state().entities
    said = signed_head(seen_by_ann, seen_by_ann.identity("ann").author)
    assert compare(seen_by_bob, said).verdict is Histories.FORK
    # And a client that saw one of them does not go over to the other.
    liar.lie = the_truth
    world.realm.enrol("next")
    with pytest.raises(Corrupt, match="fork"):
        EntityRealm(bob).registry.come_to(world.realm.state().version)


# --- keys ---------------------------------------------------------------------------------------------


def test_old_answers_of_a_key_center_are_no_answers(world: Served, liar: Liar, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway keeps what a center answered once, and serves it again for the next question."""
    old = list[list[Any]]()

    async def records(request: Request) -> Any:
        if request.method == "GET" and request.path.startswith("/v1/control/"):
            found = await request.honest()
            old.extend(found["records"])
            return found
        return None

    async def repeats(request: Request) -> Any:
        if request.method == "GET" and request.path.startswith("/v1/control/"):
            first = int(request.query.get("from", 0))
            return {"records": [[first, *old[-1][1:]]], "end": first + 1}
        return None

    real, asked = asking.open_reply, list[Any]()

    def noting(data: bytes, *arguments: Any) -> Any:
        asked.append(arguments[-2])
        return real(data, *arguments)

    monkeypatch.setattr(asking, "open_reply", noting)
    with Wallet(world.client("nyse"), "nyse", keep=False) as wallet:
        liar.lie = records
        held = wallet.ask(TOPIC, Right.PUBLISH)
        question = asked[-1]
        assert old
        liar.lie = repeats
        monkeypatch.setattr(asking.Asker.ask, "__kwdefaults__", {"turn": None, "attempts": 1})
        discovery = wallet.correspondent._discovery
        assert discovery is not None
        monkeypatch.setattr(discovery.asker, "_patience_s", 0.5)
        with pytest.raises(Unavailable, match="no answer"):
            wallet.ask(TOPIC, Right.PUBLISH)
        # A client that takes the answer to any question of its own would go on with the old keys.
        monkeypatch.setattr(asking, "open_reply", lambda data, *rest: real(data, *rest[:-2], question, rest[-1]))
        assert wallet.ask(TOPIC, Right.PUBLISH).token == held.token
