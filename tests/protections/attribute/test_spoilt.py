"""A publisher whose frames are in order and whose events are not: spoilt ones are refused and counted against it, and
it is cut off; those that came too late are given up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sealcast import Realm
from sealcast.model.protection import protection_of
from sealcast.overlay.peers.net.frames import FrameKind, LinkReason, frame
from sealcast.primitives.pairing import PointRejected, available, named
from sealcast.protections.attribute import scheme, testimony
from sealcast.protections.attribute.audit import PeersAudit
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.attribute.outgoing import PublisherPeer
from sealcast.protections.attribute.peering.host import PeerHost
from sealcast.protections.attribute.publish import EventEncryptor
from sealcast.protections.attribute.scheme import (
    AttributeRejected,
    PublicParameters,
    PublisherKey,
    inspect,
)
from sealcast.protections.checked import CheckedEvent, CheckedRows
from sealcast.protections.frames import FrameSealer
from sealcast.trust.registry import now_us
from sealcast.wire import peers
from sealcast.wire.attribute import SealedAttribute, SealedAttributeEvent
from sealcast.wire.carried import CarriedEvent
from sealcast.wire.peer_logs import EntryKind
from sealcast.wire.peers import Announce, Inject, PeerMessage
from sealcast.wire.records import RecordCodec
from tests.overlay.links import Stranger, tls_of, until
from tests.protections.attribute.test_peer_processes import SCHEMA, TOPIC
from tests.protections.attribute.test_peering import address_of, hosted, inbox, publish
from tests.protections.attribute.world import PROFILES, World

#: y^2 = x^3 + 4 has a point with this x, and it is not in the subgroup of prime order.
OFF_SUBGROUP = bytes.fromhex("80" + "00" * 46 + "04")
IDENTITY = bytes([0xC0]) + bytes(47)
OFF_CURVE = bytes.fromhex("80" + "00" * 46 + "01")
BAD = {"identity": IDENTITY, "off the subgroup": OFF_SUBGROUP, "off the curve": OFF_CURVE}


def test_these_points_are_none() -> None:
    for name in available():
        for point in BAD.values():
            with pytest.raises(PointRejected):
                named(name).decode1(point)


def spoilt(message: bytes, point: bytes, where: str) -> bytes:
    """The sealed event with a point in place of one of its own: `CT2`, every `CT_i`, or every `CT_ij`."""
    header = SealedAttributeEvent.parse(message).header
    padded = point.ljust(header.profile.point_bytes, b"\0")

    def altered(each: SealedAttribute) -> SealedAttribute:
        if where == "CT_i":
            return each._replace(first=padded)
        return each._replace(labels=point * each.positions) if where == "CT_ij" else each

    second = padded if where == "CT2" else header.second
    attributes = [altered(each) for each in header.attributes]
    made = type(header).of(header.profile, header.tags, header.epoch, header.id, second, attributes)
    assert len(made.raw) == len(header.raw)
    return made.raw + message[len(header.raw) :]


@pytest.mark.parametrize("profile", PROFILES, ids=str)
@pytest.mark.parametrize("where", ["CT2", "CT_i", "CT_ij"])
@pytest.mark.parametrize("pairing", available())
def test_a_look_at_some_points_finds_those_that_are_none(pairing: str, profile: scheme.Profile, where: str) -> None:
    world = World(pairing, profile)
    honest = world.seal(heat="010")
    inspect(world.parameters, SealedAttributeEvent.parse(honest).header, lambda below: below - 1)
    for point in BAD.values():
        header = SealedAttributeEvent.parse(spoilt(honest, point, where)).header
        with pytest.raises(AttributeRejected, match=where):
            inspect(world.parameters, header, lambda below: below - 1)
    other = World(pairing, next(each for each in PROFILES if each is not profile))
    with pytest.raises(AttributeRejected, match="another profile"):
        inspect(other.parameters, SealedAttributeEvent.parse(honest).header, lambda below: 0)


# --- through a process --------------------------------------------------------------------------------


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    made = Realm.create(tmp_path / "realm")
    made.enrol_many(["pub", "any", "mallory"])
    made.create_topic(TOPIC, SCHEMA, protection=protection_of("attribute"), access="members")
    made.subscribe(TOPIC, "any", "heat >= 0")
    return made


def framed(realm: Realm, *messages: bytes, by: str = "mallory") -> list[CarriedEvent]:
    """The messages in a frame that its publisher signed, as its peer would carry them if it did not look."""
    about, identity, state = realm.state().topic(TOPIC), realm.identity(by), realm.state()
    pair, token = identity.pair_key(state, TOPIC), realm.token(TOPIC, by)
    sealer = FrameSealer(RecordCodec(SCHEMA), about.id, about.epoch, by, pair, identity.signer, token=token)
    with realm.outbox(TOPIC, by) as log:
        log.partition(0).append([sealer.seal_messages(list(messages), realm.clock())])
    with PublisherPeer(realm, TOPIC, by) as peer:
        found = list(next(peer.batches()).events)
    return found[-len(messages) :]


def sealed(realm: Realm, heat: int, by: str, *, forged: bool = False) -> bytes:
    """A sealed event of `by`; with `forged`, signed in the name of credentials that nobody gave it."""
    about = realm.state().topic(TOPIC)
    with CredentialRing(realm, TOPIC, realm.identity(by)) as ring:
        given = ring.publishing(about.epoch)
    key = PublisherKey.parse(given.key)
    if forged:
        others = [*key.credentials[1:], key.credentials[0]]
        swapped = [a._replace(first=b.first, second=b.second) for a, b in zip(key.credentials, others, strict=True)]
        key = PublisherKey(key.epoch, key.routing, tuple(swapped))
    encryptor = EventEncryptor(about, about.epoch, by, PublicParameters.from_bytes(given.parameters), key)
    event = CheckedEvent(SCHEMA.parse({"heat": heat, "ward": "a1"}), str(heat).encode(), "text/plain")
    (made,) = encryptor.messages(CheckedRows(SCHEMA, [event]))
    return made


def inject(realm: Realm, scene: Callable[[PeerHost, Stranger], Awaitable[None]]) -> None:
    """Runs `pub` and `any`, to whom mallory has a link of its own; honest events arrive before and after the scene."""
    publish(realm, 13)

    async def whole(host: PeerHost) -> None:
        await until(lambda: inbox(realm, "any") == [13])
        stranger = await Stranger.dial(address_of(realm, "pub"), tls_of(realm, "mallory").client)
        await stranger.hello()
        say(realm, stranger, Announce(realm.state().topic(TOPIC).id))
        await scene(host, stranger)
        publish(realm, 14)
        await until(lambda: inbox(realm, "any") == [13, 14])

    hosted(realm, ["pub", "any"], whole)


def say(realm: Realm, stranger: Stranger, body: Announce | Inject) -> None:
    message = PeerMessage(realm.state().topic(TOPIC).id, None, None, body)
    stranger.say(frame(FrameKind.MESSAGE, peers.encode(message)))


@pytest.mark.parametrize("case", [*BAD, "trailing"])
def test_who_publishes_spoilt_events_under_its_own_signature_is_cut_off(realm: Realm, case: str) -> None:
    honest = sealed(realm, 9, "mallory")
    if case == "trailing":
        events = [event.to_bytes() + b"\0" for event in framed(realm, honest, honest, honest)]
    else:
        wheres = ("CT2", "CT_i", "CT_ij")
        events = [event.to_bytes() for event in framed(realm, *(spoilt(honest, BAD[case], each) for each in wheres))]

    async def scene(host: PeerHost, stranger: Stranger) -> None:
        for event in events:
            say(realm, stranger, Inject(event))
        assert await stranger.told() in (LinkReason.REFUSED, None)
        again = await Stranger.dial(address_of(realm, "pub"), tls_of(realm, "mallory").client)
        assert await again.told() == LinkReason.PENALTY

    inject(realm, scene)
    said = [entry for entry in testimony.said_by(realm, TOPIC, "pub") if entry.other == "mallory"]
    assert [entry.kind for entry in said] == [EntryKind.REFUSED] * 3 + [EntryKind.CUT_OFF]


def test_forged_credentials_are_laid_at_their_publishers_door(realm: Realm) -> None:
    """No rendezvous can see them: they are inside. Who opens them counts them against who signed the frame."""
    bad = [sealed(realm, heat, "mallory", forged=True) for heat in (1, 2, 3)]
    *events, good = (event.to_bytes() for event in framed(realm, *bad, sealed(realm, 4, "mallory")))

    async def scene(host: PeerHost, stranger: Stranger) -> None:
        reader = next(member for member in host.members() if member.name == "any")
        for event in events:
            say(realm, stranger, Inject(event))
        await until(lambda: "mallory" in reader.node.out(asyncio.get_running_loop().time()))
        say(realm, stranger, Inject(good))
        await until(lambda: reader.journal.counts["refused"] == 4)

    inject(realm, scene)
    said = [entry for entry in testimony.said_by(realm, TOPIC, "any") if entry.kind is EntryKind.REFUSED]
    assert len(said) == 4 and all("not signed with the credentials" in entry.detail for entry in said[:3])
    assert "mallory is cut off" in said[3].detail, "and a good one after them is not opened while that lasts"
    cut = [entry for entry in testimony.said_by(realm, TOPIC, "any") if entry.kind is EntryKind.CUT_OFF]
    assert [entry.other for entry in cut] == ["mallory"]
    # Its own peer never sent them, by its account: nobody is held to have them
    report = PeersAudit(realm, TOPIC).run(lambda done: None)
    assert report.ok, report.problems


def test_events_that_nobody_takes_any_more_do_not_hold_up_a_publisher(tmp_path: Path) -> None:
    """By the time that a rendezvous looks at them they may be older than an event may be, which is a day. They are
    given up a little before, by what clocks may differ (five minutes), and that is said."""
    yesterday = Realm.create(tmp_path / "realm", clock=lambda: now_us() - (24 * 60 - 3) * 60_000_000)
    yesterday.enrol_many(["pub", "any"])
    yesterday.create_topic(TOPIC, SCHEMA, protection=protection_of("attribute"), access="members")
    yesterday.subscribe(TOPIC, "any", "heat >= 0")
    assert len(framed(yesterday, *(sealed(yesterday, heat, "pub") for heat in (1, 2)), by="pub")) == 2
    realm, said = Realm(tmp_path / "realm"), list[str]()

    async def scene(host: PeerHost) -> None:
        publish(realm, 3)
        await until(lambda: inbox(realm, "any") == [3])
        await until(lambda: all(member.idle for member in host.members()))

    hosted(realm, ["pub", "any"], scene, said)
    assert [each for each in said if "2 events on 'vitals' are too old" in each], said
