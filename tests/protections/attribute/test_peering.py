"""Between nodes, keys and links: who gets which places, what every peer checks, and what becomes of attackers."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sealcast import Event, Publisher, Realm, Subscriber
from sealcast.errors import FrameRejected, Locked, Misuse, Rejected, SealcastError
from sealcast.log import noted
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.peer_log import PeerLogWriter
from sealcast.model.protection import protection_of
from sealcast.overlay.peers.net.frames import FrameKind, LinkReason, frame
from sealcast.overlay.peers.port import Weakened
from sealcast.protections.attribute import testimony
from sealcast.protections.attribute.audit import PeersAudit
from sealcast.protections.attribute.credentials import EventSpace
from sealcast.protections.attribute.exposure import explained
from sealcast.protections.attribute.interests import CredentialInterests
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.attribute.outgoing import PublisherPeer
from sealcast.protections.attribute.peering import status
from sealcast.protections.attribute.peering.away import AwayNote
from sealcast.protections.attribute.peering.host import PeerHost
from sealcast.protections.attribute.peering.hosting import ListenAt, with_heartbeat
from sealcast.protections.attribute.peering.journal import PeerJournal
from sealcast.protections.attribute.peering.places import PeerPlaces
from sealcast.protections.attribute.peering.rendezvous import rendezvous_of
from sealcast.protections.witness.report import Kind
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys import peer_addresses
from sealcast.trust.keys.peer_addresses import PeerAddress, StatedAddress
from sealcast.trust.realm.changes import AnnouncePeer, Right
from sealcast.wire import peers
from sealcast.wire.carried import CarriedEvent
from sealcast.wire.peer_logs import EntryKind, PeerEntry
from sealcast.wire.peers import Announce, Carry, Inject, PeerMessage
from tests.cli.shell import sealcast
from tests.overlay.links import PATIENT, Stranger, tls_of, until
from tests.protections.attribute.test_peer_processes import SCHEMA, TOPIC

NAMES = ("pub", "hot", "any", "mallory", "mute")
LIMITS, SETTINGS = with_heartbeat(0.5)


@pytest.fixture
def realm(tmp_path: Path) -> Iterator[Realm]:
    made = Realm.create(tmp_path / "realm")
    made.enrol_many(NAMES)
    made.create_topic(TOPIC, SCHEMA, protection=protection_of("attribute"), access="members")
    made.revoke(TOPIC, "mute", [Right.SUBSCRIBE])
    made.subscribe(TOPIC, "hot", "heat >= 12 AND ward LIKE 'a%'")
    made.subscribe(TOPIC, "any", "heat >= 0")
    yield made


def publish(realm: Realm, *heats: int, by: str = "pub") -> None:
    with Publisher(realm, TOPIC, by) as publisher:
        publisher.publish([Event({"heat": heat, "ward": "a1"}, str(heat).encode()) for heat in heats])


def carried(realm: Realm, *heats: int) -> list[CarriedEvent]:
    """Events as a publisher's peer makes them; nobody is told that they went out."""
    publish(realm, *heats)
    with PublisherPeer(realm, TOPIC, "pub") as peer:
        return [event for batch in [next(peer.batches())] for event in batch.events]


def places(realm: Realm, name: str, *, rendezvous: bool = False) -> PeerPlaces:
    made = PeerPlaces(realm, TOPIC, name, CredentialRing(realm, TOPIC, realm.identity(name)))
    assert made.refresh(rendezvous=rendezvous) == (bool(made.seats), False)
    assert made.refresh(rendezvous=rendezvous) == (False, False)
    return made


# --- places -------------------------------------------------------------------------------------------


def test_a_peer_takes_places_where_its_subscription_asks_for_least(realm: Realm) -> None:
    hot, anything, root = places(realm, "hot"), places(realm, "any"), places(realm, "pub", rendezvous=True)
    assert {plan.attribute for plan in hot.seats.values()} == {"ward"}, "'a%' is less than a quarter of all heats"
    assert len(anything.seats) == 1
    assert all(plan.root for plan in root.seats.values())
    assert {plan.attribute for plan in root.seats.values()} == set(EventSpace(SCHEMA).spaces)


def test_whoever_covers_a_request_opens_it_and_nobody_else(realm: Realm) -> None:
    hot, anything, root = places(realm, "hot"), places(realm, "any"), places(realm, "pub", rendezvous=True)
    (seat, plan), *_ = hot.seats.items()
    asked = hot.ask(seat)
    root_seat = next(number for number, each in root.seats.items() if each.attribute == plan.attribute)
    assert root.open_request(root_seat, asked.request, "hot") == asked.key
    (other,) = anything.seats
    if anything.seats[other].attribute != plan.attribute:
        assert anything.open_request(other, asked.request, "hot") is None
    assert hot.open_request(seat, root_request(anything, other), "any") is None
    again = hot.ask(seat)
    assert again.request != asked.request and hot.ask(seat).request == again.request, "fresh while there are some"
    for forged in (b"", b"nonsense", asked.request[:-1] + bytes([asked.request[-1] ^ 1])):
        with pytest.raises(Rejected):
            root.open_request(root_seat, forged, "mallory")


def root_request(of: PeerPlaces, seat: int) -> bytes:
    return of.ask(seat).request


def test_tags_decide_what_is_wanted(realm: Realm) -> None:
    hot, anything = places(realm, "hot"), places(realm, "any")
    cold, warm = (event.to_bytes() for event in carried(realm, 3, 13))
    assert (hot.wants(cold), hot.wants(warm), anything.wants(cold)) == (False, True, True)
    (seat, *_) = hot.seats
    assert hot.matches(seat, cold) and hot.matches(seat, warm), "on the attribute of its seat, both are in ward a1"
    token = hot.token(seat)
    assert anything.routes(hot.seats[seat].attribute, token, warm)
    assert not anything.routes(hot.seats[seat].attribute, b"", warm)
    anything.check_token("ward", token)
    with pytest.raises(Rejected):
        anything.check_token("ward", b"short")


def test_every_peer_checks_every_event(realm: Realm) -> None:
    relay = places(realm, "any")
    (event,) = carried(realm, 9)
    relay.state = realm.state()
    relay.check_event(event.to_bytes())
    forged = {
        "message": replace(event, message=event.message[:-1] + bytes([event.message[-1] ^ 1])),
        "row": replace(event, position=replace(event.position, row=1)),
        "signature": replace(event, signed=event.signed[:-1] + bytes([event.signed[-1] ^ 1])),
        "token": replace(event, token=event.token[:-1] + bytes([event.token[-1] ^ 1])),
        "no token": replace(event, token=b""),
    }
    for case in forged.values():
        with pytest.raises(Rejected):
            relay.check_event(case.to_bytes())
    for raw in (b"", b"nonsense", event.to_bytes() + b"\0"):
        with pytest.raises(Rejected):
            relay.check_event(raw)
    relay.check_publisher("pub", relay.topic_id)
    realm.revoke_entity("pub")
    relay.state = realm.state()
    with pytest.raises(FrameRejected):
        relay.check_event(event.to_bytes())
    with pytest.raises(Rejected, match="may not publish"):
        relay.check_publisher("pub", relay.topic_id)
    with pytest.raises(Rejected, match="another topic"):
        relay.check_publisher("any", bytes(16))


def test_the_key_center_gives_places_to_whom_they_belong(realm: Realm) -> None:
    space = EventSpace(SCHEMA)
    roots = [(name, each.root) for name, each in space.spaces.items()]
    publishes = CredentialRing(realm, TOPIC, realm.identity("mute"))
    given = publishes.connecting(1, roots, Right.PUBLISH)
    assert [place[3:] for place in given.places] == [(b"",) * 5] * len(roots), "neither token nor request"
    assert publishes.connecting(1, roots, Right.PUBLISH) == given, "held, not asked for again"
    deeper = space.event(SCHEMA.parse({"heat": 9, "ward": "a1"}))["heat"][2]
    assert deeper is not None
    for wanted in ([("heat", deeper)], [("heat", b"no label")], [("no such space", deeper)]):
        with pytest.raises(SealcastError):
            publishes.connecting(1, wanted, Right.PUBLISH)
    subscribes = CredentialRing(realm, TOPIC, realm.identity("any"))
    (place,) = subscribes.connecting(1, [("heat", deeper)], Right.SUBSCRIBE).places
    assert all(place[3:])


# --- who runs the roots -------------------------------------------------------------------------------


def announce(realm: Realm, name: str, *, serves: bool, sequence: int = 1) -> None:
    address = PeerAddress("127.0.0.1", 7000, os.urandom(16).hex())
    stated = StatedAddress(address, serves, sequence)
    made = peer_addresses.announce(realm.identity(name).signer, realm.id, name, stated)
    realm.registry.apply(AnnouncePeer(name, made, sequence, serves))


def test_everybody_finds_the_same_rendezvous(realm: Realm) -> None:
    def chosen() -> tuple[str, ...]:
        return rendezvous_of(realm.state(), TOPIC, realm.clock())

    assert chosen() == ()
    for name in ("mallory", "any", "pub"):
        announce(realm, name, serves=True)
    announce(realm, "hot", serves=False)
    assert chosen() == ("pub", "any", "mallory"), "by the order in which they came into the realm"
    announce(realm, "hot", serves=True, sequence=2)
    assert chosen() == ("pub", "hot", "any"), "three at the most"
    realm.revoke(TOPIC, "hot", [Right.PUBLISH])
    realm.revoke_entity("pub")
    assert chosen() == ("any", "mallory")


# --- a process, and who attacks it --------------------------------------------------------------------


def hosted(
    realm: Realm,
    names: list[str],
    scene: Callable[[PeerHost], Coroutine[Any, Any, None]],
    said: list[str] | None = None,
    *,
    heartbeat: float = 0.5,
) -> None:
    """Runs a process of peers in this one, and a scene with it. With a slow heartbeat nobody moves, however busy the
    machine is."""
    limits, settings = with_heartbeat(heartbeat)

    async def both() -> None:
        heard = [] if said is None else said
        host = PeerHost(EntityRealm(realm.paths.root), names, limits=limits, settings=settings, told=heard.append)
        done = asyncio.Event()
        running = asyncio.ensure_future(host.run(done.is_set))
        try:
            await until(lambda: running.done() or (host.members() and all(m.idle for m in host.members())))
            await scene(host)
        finally:
            done.set()
            await asyncio.wait_for(running, PATIENT)

    asyncio.run(both())


def address_of(realm: Realm, name: str) -> PeerAddress:
    state = realm.state()
    return peer_addresses.judge(
        state.peers[name].announcement, realm.id, state.entity(name), realm.trust(), state.revoked, realm.clock()
    ).address


def inbox(realm: Realm, name: str) -> list[int]:
    with Subscriber(realm, TOPIC, name, from_=0) as reader:
        return sorted(int(event.payload) for event in reader)


def test_a_member_that_sends_forged_events_is_cut_off(realm: Realm) -> None:
    """Mallory is enrolled, may publish, and speaks the protocol. It has no other publisher's keys."""
    (honest,) = carried(realm, 13)
    topic = realm.state().topic(TOPIC).id
    forged = replace(honest, message=os.urandom(len(honest.message))).to_bytes()

    async def scene(host: PeerHost) -> None:
        stranger = await Stranger.dial(address_of(realm, "pub"), tls_of(realm, "mallory").client)
        await stranger.hello()
        for body in (Announce(topic), Inject(forged), Inject(forged), Inject(forged)):
            stranger.say(frame(FrameKind.MESSAGE, peers.encode(PeerMessage(topic, None, None, body))))
        assert await stranger.told() in (LinkReason.REFUSED, None)
        again = await Stranger.dial(address_of(realm, "pub"), tls_of(realm, "mallory").client)
        assert await again.told() == LinkReason.PENALTY
        await until(lambda: inbox(realm, "any") == [13])
        assert sum(member.journal.counts["refused"] for member in host.members()) == 3

    hosted(realm, ["pub", "any", "hot"], scene)
    kinds = [entry for entry in testimony.said_by(realm, TOPIC, "pub") if entry.other == "mallory"]
    assert [entry.kind for entry in kinds] == [EntryKind.REFUSED] * 3 + [EntryKind.CUT_OFF]


def test_what_is_no_message_ends_the_link_at_once(realm: Realm) -> None:
    publish(realm, 13)

    async def scene(host: PeerHost) -> None:
        for raw in (b"\xff", peers.encode(PeerMessage(bytes(16), None, None, Announce(b"x"))) + b"\0"):
            await asyncio.sleep(1.2 * LIMITS.penalty_s * (2 if raw != b"\xff" else 0))
            stranger = await Stranger.dial(address_of(realm, "pub"), tls_of(realm, "mallory").client)
            await stranger.hello()
            stranger.say(frame(FrameKind.MESSAGE, raw))
            assert await stranger.told() in (LinkReason.REFUSED, None)
        await until(lambda: inbox(realm, "any") == [13])

    hosted(realm, ["pub", "any"], scene)


def test_an_event_that_nobody_asked_a_peer_for_is_not_taken(realm: Realm) -> None:
    """Who is nobody's parent carries nothing to it, honest event or not; other topics are nobody's business."""
    honest, other = carried(realm, 13, 14)
    topic = realm.state().topic(TOPIC).id

    async def scene(host: PeerHost) -> None:
        await until(lambda: inbox(realm, "any") == [13, 14])
        stranger = await Stranger.dial(address_of(realm, "any"), tls_of(realm, "mallory").client)
        await stranger.hello()
        for at, event in ((topic, honest), (topic, other), (bytes(16), honest)):
            message = PeerMessage(at, 0, 0, Carry(event.to_bytes()))
            stranger.say(frame(FrameKind.MESSAGE, peers.encode(message)))
        await until(lambda: host.counts["of other topics"] == 1)
        stranger.close()
        assert inbox(realm, "any") == [13, 14]

    hosted(realm, ["pub", "any"], scene)


def test_who_loses_its_right_leaves_and_others_stay(realm: Realm) -> None:
    publish(realm, 13)

    async def scene(host: PeerHost) -> None:
        await until(lambda: inbox(realm, "hot") == inbox(realm, "any") == [13])
        realm.revoke(TOPIC, "hot", [Right.SUBSCRIBE, Right.PUBLISH])
        await until(lambda: {member.name for member in host.members()} == {"pub", "any"})
        publish(realm, 14)
        await until(lambda: inbox(realm, "any") == [13, 14])

    hosted(realm, ["pub", "any", "hot"], scene)


def test_a_subscriber_to_everything_that_begins_to_publish_can_run_the_roots_alone(realm: Realm) -> None:
    """Its only place has the label of a root, and becomes one while it runs."""
    publish(realm, 13)

    async def scene(host: PeerHost) -> None:
        await until(lambda: inbox(realm, "hot") == inbox(realm, "any") == [13])
        publish(realm, 14, by="any")
        await until(lambda: all(member.rendezvous == ("pub", "any") for member in host.members()))
        await until(lambda: inbox(realm, "hot") == inbox(realm, "any") == [13, 14])
        realm.revoke_entity("pub")
        publish(realm, 15, by="any")
        await until(lambda: inbox(realm, "hot") == inbox(realm, "any") == [13, 14, 15])

    hosted(realm, ["pub", "any", "hot"], scene)


def test_a_new_epoch_begins_while_peers_run(realm: Realm) -> None:
    publish(realm, 13)

    async def scene(host: PeerHost) -> None:
        await until(lambda: inbox(realm, "any") == [13])
        realm.rotate(TOPIC)
        publish(realm, 14)
        await until(lambda: inbox(realm, "any") == [13, 14] == inbox(realm, "hot"))

    hosted(realm, ["pub", "any", "hot"], scene)


def routed(directory: Path, routing: bool) -> tuple[Realm, int]:
    """A topic with two subscribers that want different things; how many events the one got that are the other's."""
    made = Realm.create(directory)
    made.enrol_many(["pub", "cold", "hot"])
    protection = protection_of("attribute", {"routing": routing})
    made.create_topic(TOPIC, SCHEMA, protection=protection, access="members")
    made.subscribe(TOPIC, "cold", "heat < 4")
    made.subscribe(TOPIC, "hot", "heat >= 12")
    publish(made, 1)
    received = list[int]()

    async def scene(host: PeerHost) -> None:
        await until(lambda: inbox(made, "cold") == [1])
        publish(made, 13)
        await until(lambda: inbox(made, "hot") == [13])
        if routing:  # tokens are of an epoch, and given anew
            made.rotate(TOPIC)
            publish(made, 2, 14)
            await until(lambda: inbox(made, "cold") == [1, 2] and inbox(made, "hot") == [13, 14])
        received.extend(each.journal.counts["received"] for each in host.members() if each.name == "cold")

    hosted(made, ["pub", "cold", "hot"], scene)
    return made, received[0]


def test_peers_of_a_topic_route_by_tokens_if_it_says_so(tmp_path: Path) -> None:
    realm, received = routed(tmp_path / "routed", True)
    assert received == 2, "1 and 2, which are its own, of four"
    said = str(explained(realm.state(), TOPIC))
    assert "by a token that each gave it" in said
    realm, received = routed(tmp_path / "flooded", False)
    assert received == 2, "1 and 13: everything that its parent has"
    assert "by a token that each gave it" not in str(explained(realm.state(), TOPIC))


def test_keys_that_nobody_takes_any_more_are_removed(realm: Realm) -> None:
    publish(realm, 1)
    made, epoch = places(realm, "any"), realm.state().topic(TOPIC).epoch
    ring = CredentialRing(realm, TOPIC, realm.identity("pub"))
    ring.connecting(epoch, [("heat", EventSpace(SCHEMA).spaces["heat"].root)], Right.PUBLISH)
    assert ring.prune(epoch + 1) == 0, "what is on its way may be of the epoch before"
    assert ring.prune(epoch + 2) == 2 and ring.prune(epoch + 2) == 0
    realm.rotate(TOPIC)
    realm.rotate(TOPIC)
    with CredentialInterests(realm, TOPIC, "any") as interests:
        interests.refresh()
    made.state = realm.state()
    assert made.refresh(rendezvous=False)[1], "an epoch began"
    kept = {path.name.split(".")[0] for path in (realm.paths.root / "wallets" / "any").rglob("*.connecting")}
    assert kept == {str(epoch + 2)}
    opening = (realm.paths.root / "wallets" / "any").rglob(f"{epoch}.*.subscribing")
    assert list(opening), "they open what is in the inbox"


def test_creating_a_topic_says_what_a_text_without_a_greatest_length_costs(realm: Realm, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    texts = [{"name": "ward", "type": "string"}, {"name": "bed", "type": "string", "max_length": 4}]
    schema.write_text(json.dumps({"attributes": texts}))
    options = ("--schema", schema, "--access", "members", "--protection", "attribute", "--routing")
    told = sealcast("topic", "create", "notes", *options, "--realm", realm.paths.root)
    assert told.code == 0 and "routing by tokens" in told.out
    assert "'ward' has no max_length: every event carries 101 sealed positions" in told.err
    assert "'bed'" not in told.err


def test_a_peer_runs_once(realm: Realm) -> None:
    async def scene(host: PeerHost) -> None:
        assert status.read(realm, "pub") is not None
        with pytest.raises(Locked, match="another process runs the peer of 'pub'"):
            await PeerHost(EntityRealm(realm.paths.root), ["pub"]).run(lambda: False)

    publish(realm, 13)
    hosted(realm, ["pub"], scene)
    assert status.read(realm, "pub") is None


def test_a_host_that_nobody_could_dial_is_refused() -> None:
    for host in ("0.0.0.0", "::", ""):
        with pytest.raises(Misuse, match="nobody can dial"):
            ListenAt(host, 7400)
    assert ListenAt("0.0.0.0", 7400, "10.0.0.7").dialled == "10.0.0.7"


# --- what peers say -----------------------------------------------------------------------------------


def test_check_holds_peers_to_what_they_signed(realm: Realm) -> None:
    publish(realm, 13, 3)

    async def scene(host: PeerHost) -> None:
        await until(lambda: inbox(realm, "any") == [3, 13] and inbox(realm, "hot") == [13])

    hosted(realm, ["pub", "any", "hot"], scene)
    report = PeersAudit(realm, TOPIC).run(lambda done: None)
    assert report.ok, report.problems
    assert (report.events, report.deliveries, report.also["peers_delivered"]) == (2, 3, 3)
    # A peer that signs what is not so is found out
    paths, identity, about = realm.paths.topic(TOPIC, "hot"), realm.identity("hot"), realm.state().topic(TOPIC)
    with PeerLogWriter(paths.peer_log, about.id, "hot", identity.signer) as log:
        log.add(PeerEntry(EntryKind.DELIVERED, os.urandom(16)))
        log.flush(realm.clock())
    assert PeersAudit(realm, TOPIC).run(lambda done: None).found[Kind.LOG] == 1
    # So is somebody else who writes in its place
    with EmbeddedLog(realm.paths.topic(TOPIC, "any").peer_log) as raw:
        raw.append([b"what it never said"])
    found = PeersAudit(realm, TOPIC).run(lambda done: None)
    assert found.found[Kind.LOG] == 2 and "any" in found.problems[-1].message + found.problems[0].message


def test_what_is_on_its_way_is_not_lost(realm: Realm) -> None:
    """Both ran once, then the subscriber's process stopped, and the publisher's went on."""
    publish(realm, 13)

    async def nothing(host: PeerHost) -> None:
        await until(lambda: inbox(realm, "any") == [13])

    hosted(realm, ["pub", "any"], nothing)
    publish(realm, 14)

    async def sent(host: PeerHost) -> None:
        await until(lambda: all(member.idle for member in host.members()))

    hosted(realm, ["pub"], sent)
    report = PeersAudit(realm, TOPIC).run(lambda done: None)
    assert report.ok, report.problems
    assert report.also["peers_on_the_way"] == 3, "hot never ran: two of its events are on their way, and one of any's"

    async def all_there(host: PeerHost) -> None:
        await until(lambda: inbox(realm, "any") == [13, 14] == inbox(realm, "hot"))

    hosted(realm, ["pub", "any", "hot"], all_there)
    assert PeersAudit(realm, TOPIC).run(lambda done: None).also.get("peers_on_the_way") is None


def test_a_parent_of_many_places_is_told_of_once(realm: Realm, tmp_path: Path) -> None:
    told = list[str]()
    with PeerJournal(tmp_path / "log", (TOPIC, bytes(16)), realm.identity("hot"), told.append) as journal:
        for seat, parent in enumerate(["pub", "pub", "any", "pub"]):
            journal.weakened(Weakened(seat, parent))
    assert [line.split(" are below ")[1].split(",")[0] for line in told] == ["pub", "any"]


def test_a_damaged_note_of_what_was_heard_asks_for_everything(tmp_path: Path) -> None:
    path = tmp_path / "peer" / "heard.json"
    first = AwayNote(path, lambda: 50_000_000)
    assert first.seconds is None and first.since_us == 50_000_000
    first.heard(2.0)
    assert noted.decode(path.read_bytes()) == {"since": 50_000_000, "heard": 48_000_000}
    again = AwayNote(path, lambda: 60_000_000)
    assert (again.seconds, again.since_us) == (12.0, 50_000_000)
    path.write_bytes(b"")
    damaged = AwayNote(path, lambda: 60_000_000)
    assert (damaged.seconds, damaged.since_us) == (60.0, 60_000_000)
    first.heard(2.0)
    good = path.read_bytes()
    for at in range(len(good)):  # also a digit that became another one
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert AwayNote(path, lambda: 60_000_000).seconds == 60.0, at
