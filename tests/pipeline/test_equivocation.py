"""A publisher that signs two things for one number is found out, and both headers are kept: a copy is no lie, and
nobody can be made to look like a liar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sealcast.broker import equivocation
from sealcast.errors import Corrupt
from sealcast.lab.attacks import Insider
from sealcast.log import equivocations
from sealcast.log.equivocations import Equivocation, Equivocations
from sealcast.log.forwarded import partition_of
from sealcast.model import Schema
from sealcast.primitives.sign import SigningKey, VerifyKey
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.frames import FrameSealer
from sealcast.protections.steps import StepName
from sealcast.trust.deployment import Realm
from sealcast.wire import frame
from sealcast.wire.records import RecordCodec
from tests.cli.shell import sealcast
from tests.clients.pump import pump

TOPIC = "quotes"
SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int"}]})
BOOT = b"one start of it."
#: The partition in which frames of both publishers come, and the other one.
(PLACE,), ELSEWHERE = {partition_of(name, 2) for name in ("liar", "honest")}, 1 - partition_of("liar", 2)


class World:
    def __init__(self, root: Path) -> None:
        self.realm = Realm.create(root)
        self.realm.create_topic(TOPIC, SCHEMA, partitions=2, access="members")
        self.realm.enrol_many(["liar", "honest", "reader"])
        self.realm.subscribe(TOPIC, "reader", "price > 0")
        self.topic = self.realm.state().topic(TOPIC)

    def frame(self, by: str, *prices: int, sequence: int = 0, signer: SigningKey | None = None) -> bytes:
        """Made by somebody who chooses boot and numbers as it likes."""
        who, about = Insider.of(self.realm, TOPIC, by), self.topic
        sealer = FrameSealer(
            RecordCodec(SCHEMA), about.id, about.epoch, by, who.pair, signer or who.signer, BOOT, token=who.token
        )
        sealer._sequence = sequence
        values = [SCHEMA.parse({"price": price}) for price in prices]
        return sealer.seal_messages(RecordCodec(SCHEMA).encode(values, [b"x"] * len(values)), self.realm.clock())

    def append(self, *frames: bytes, partition: int = PLACE) -> None:
        with self.realm.frames(TOPIC) as log:
            log.partition(partition).append(frames)

    def run(self) -> None:
        pump(self.realm, TOPIC)
        FramesStep.of(StepName(str(self.realm.paths.root), TOPIC)).note_equivocations()

    def kept(self) -> list[Equivocation]:
        with closing(
            Equivocations(self.realm.paths.topic(TOPIC).root, self.realm.broker().journal_key(self.topic.id))
        ) as notes:
            return list(notes.all())


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    yield World(tmp_path / "realm")


def test_both_signed_headers_are_kept_and_audit_shows_them(world: World) -> None:
    world.append(world.frame("liar", 1, 2, 3), world.frame("honest", 4))
    world.run()
    assert world.kept() == []
    world.append(world.frame("liar", 9, 9, sequence=2), partition=ELSEWHERE)
    world.run()
    (lie,) = world.kept()
    assert (lie.publisher, lie.boot, lie.sequence) == ("liar", BOOT, 2)
    assert (lie.first[:2], lie.second[:2]) == ((PLACE, 0), (ELSEWHERE, 0))
    headers = [frame.parse_signed(place.signed) for place in (lie.first, lie.second)]
    key = VerifyKey(world.realm.state().entity("liar").verify_key)
    assert all(key.verify(each.to_be_signed, each.signature) for each in headers)
    assert headers[0].header.root != headers[1].header.root

    root = world.realm.paths.root
    document = sealcast("audit", "--realm", root, "--json").document
    (shown,) = document["equivocations"]
    assert (shown["entity"], shown["sequence"], shown["first"], shown["second"]) == (
        "liar",
        2,
        f"{PLACE}/0",
        f"{ELSEWHERE}/0",
    )
    assert shown["proven"] is True and [bytes.fromhex(raw) for raw in shown["signed"]] == [
        lie.first.signed,
        lie.second.signed,
    ]
    assert "signed two things" in sealcast("audit", "--realm", root).out
    assert sealcast("audit", "--realm", root, "--entity", "honest", "--json").document["equivocations"] == []
    world.run()
    assert world.kept() == [lie], "looked at once"


def test_a_broker_that_does_not_look_keeps_no_proof(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weakened variant: the second event is refused as a repetition, and the lie is gone with it."""
    monkeypatch.setattr(FramesStep, "note_equivocations", lambda step: None)
    world.append(world.frame("liar", 1, 2, 3))
    world.run()
    world.append(world.frame("liar", 9, 9, sequence=2), partition=ELSEWHERE)
    world.run()
    assert world.kept() == []
    assert sealcast("audit", "--realm", world.realm.paths.root, "--json").document["equivocations"] == []


def test_in_one_batch_too(world: World) -> None:
    world.append(world.frame("liar", 1), world.frame("liar", 2))
    world.run()
    (lie,) = world.kept()
    assert (lie.first.offset, lie.second.offset) == (0, 1)


def test_a_copy_is_no_lie_and_nobody_is_framed(world: World) -> None:
    honest = world.frame("honest", 1, 2)
    forged = world.frame("honest", 3, signer=world.realm.identity("liar").signer)
    # Forged before and after: a header that honest did not sign proves nothing against it.
    world.append(forged, honest, honest)
    world.run()
    world.append(honest, forged, partition=ELSEWHERE)
    world.run()
    assert world.kept() == []


def test_without_verifying_the_other_header_an_honest_publisher_is_framed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = world.frame("honest", 1, 2)
    world.append(world.frame("honest", 3, signer=world.realm.identity("liar").signer), honest, honest)
    monkeypatch.setattr(VerifyKey, "verify", lambda *about: True)
    world.run()
    assert [lie.publisher for lie in world.kept()] == ["honest"]


def test_proofs_and_work_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.append(world.frame("liar", 1), *(world.frame("liar", n) for n in range(2, 20)))
    world.run()
    assert len(world.kept()) == equivocations.MAX_KEPT_EACH
    monkeypatch.setattr(equivocation, "MAX_LOOKED_INTO", 0)
    world.append(world.frame("liar", 99))
    world.run()
    assert len(world.kept()) == equivocations.MAX_KEPT_EACH


def test_a_proof_that_was_altered_is_refused(world: World) -> None:
    world.append(world.frame("liar", 1), world.frame("liar", 2))
    world.run()
    (segment,) = (world.realm.paths.topic(TOPIC).root / "equivocations").glob("*.seg")
    raw = bytearray(segment.read_bytes())
    at = raw.index(b"liar")
    raw[at : at + 4] = b"lair"
    segment.write_bytes(raw)
    with pytest.raises(Corrupt):
        world.kept()
