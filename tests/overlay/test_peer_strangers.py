"""Whoever is not who it should be, or does not do what it should: kept out, cut off, counted; nobody else notices."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace

import pytest

from sealcast.overlay.peers.net import tls
from sealcast.overlay.peers.net.frames import BOOT_BYTES, FrameKind, LinkEnded, LinkReason, frame
from sealcast.overlay.peers.net.limits import LinkLimits
from sealcast.overlay.peers.net.penalties import Penalties
from sealcast.overlay.peers.net.tls import PeerTrust, ProvenPeer, TlsIdentity
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.peer_addresses import PeerAddress
from sealcast.wire.limits import MAX_PEER_MESSAGE_BYTES
from tests.overlay.links import QUICK, Process, Stranger, realm_of, run, tls_of, trust_of, until

NAMES = ("alice", "bob", "carol", "mallory", "victim-1", "victim-2")


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    return realm_of(tmp_path_factory.mktemp("strangers") / "realm", NAMES)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    return realm_of(tmp_path_factory.mktemp("elsewhere") / "realm", ["alice", "mallory"])


def context_of(identity: TlsIdentity) -> ssl.SSLContext:
    """Somebody's certificate, and no question about whom it talks to."""
    context = identity.client
    context.verify_mode = ssl.CERT_NONE
    return context


def bare() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["sealcast-peer/1"])
    return context


def old(identity: TlsIdentity) -> ssl.SSLContext:
    context = context_of(identity)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def other_protocol(identity: TlsIdentity) -> ssl.SSLContext:
    context = context_of(identity)
    context.set_alpn_protocols(["h2"])
    return context


async def refused(address: PeerAddress, context: ssl.SSLContext, door: str | None = None) -> None:
    """Nobody says HELLO to this."""
    try:
        stranger = await Stranger.dial(address, context, door=door)
        stranger.say(frame(FrameKind.HELLO, os.urandom(BOOT_BYTES)))
        kind, _ = await stranger.hear()
    except (OSError, ssl.SSLError, asyncio.IncompleteReadError):
        return
    pytest.fail(f"it was answered with {kind.name}")


STRANGERS: dict[str, tuple[Callable[[Realm, Realm], ssl.SSLContext], LinkReason]] = {
    "without a certificate": (lambda realm, other: bare(), LinkReason.PROTOCOL),
    "with a certificate of another realm": (
        lambda realm, other: context_of(tls_of(other, "mallory")),
        LinkReason.CERTIFICATE,
    ),
    "with the same name in another realm": (
        lambda realm, other: context_of(tls_of(other, "alice")),
        LinkReason.CERTIFICATE,
    ),
    "with TLS 1.2": (lambda realm, other: old(tls_of(realm, "mallory")), LinkReason.PROTOCOL),
    "with another protocol": (lambda realm, other: other_protocol(tls_of(realm, "mallory")), LinkReason.PROTOCOL),
}


@pytest.mark.parametrize("case", STRANGERS)
def test_nobody_gets_in(realm: Realm, elsewhere: Realm, case: str) -> None:
    make, reason = STRANGERS[case]

    async def scene() -> None:
        here = Process(realm, {})
        here.add("alice")
        await refused(here.book["alice"], make(realm, elsewhere))
        await until(lambda: here.listener.counts[reason] == 1)
        assert here.ears["alice"].ups == [] and here.listener.counts["proven"] == 0
        await here.close()

    run(scene)


def test_who_runs_the_realm_is_no_peer(realm: Realm) -> None:
    """A broker's certificate is of this realm and counts; peers are entities."""
    state = realm.state()
    with pytest.raises(LinkEnded, match="is no entity") as refused_:
        trust_of(realm).prove(state.entity("broker").certificate)
    assert refused_.value.reason is LinkReason.CERTIFICATE


def test_an_unknown_door_shows_no_certificate(realm: Realm) -> None:
    async def scene() -> None:
        here = Process(realm, {})
        here.add("alice")
        seen = list[bytes | None]()
        for door in ("", os.urandom(16).hex()):
            try:
                stranger = await Stranger.dial(here.book["alice"], bare(), door=door)
                seen.append(stranger.writer.get_extra_info("ssl_object").getpeercert(True))
            except (OSError, ssl.SSLError):
                seen.append(None)
        assert seen == [None, None]
        await here.close()

    run(scene)


def test_whoever_answers_must_be_whom_one_dialled(realm: Realm) -> None:
    """Mallory is a member, has a certificate, and put its address where Bob's should be."""

    async def scene() -> None:
        book: dict[str, PeerAddress] = {}
        here, there = Process(realm, book), Process(realm, book)
        alice = here.add("alice")
        there.add("mallory")
        book["bob"] = book["mallory"]
        alice.send("bob", b"for bob alone")
        await until(lambda: alice.counts["ended:certificate"] > 0)
        await asyncio.sleep(0.3)
        assert there.ears["mallory"].messages == [] and alice.links == []
        await here.close()
        await there.close()

    run(scene)


def test_the_name_of_a_link_comes_from_the_certificate(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack of the test before succeeds where the name that was dialled is believed."""

    def believes(self: PeerTrust, der: bytes | None, name: str | None = None) -> ProvenPeer:
        return ProvenPeer(name or "somebody", der or b"")

    monkeypatch.setattr(tls.PeerTrust, "prove", believes)

    async def scene() -> None:
        book: dict[str, PeerAddress] = {}
        here, there = Process(realm, book), Process(realm, book)
        alice = here.add("alice")
        there.add("mallory")
        book["bob"] = book["mallory"]
        alice.send("bob", b"for bob alone")
        await until(lambda: [m for _, m in there.ears["mallory"].messages] == [b"for bob alone"])
        await here.close()
        await there.close()

    run(scene)


def test_sessions_are_not_resumed(realm: Realm) -> None:
    async def scene() -> None:
        here = Process(realm, {})
        here.add("alice")
        context = tls_of(realm, "bob").client
        first = await Stranger.dial(here.book["alice"], context)
        await first.hello()
        session = first.writer.get_extra_info("ssl_object").session
        assert session is None or not session.has_ticket
        first.close()
        await here.close()

    run(scene)


# --- revocation ---------------------------------------------------------------------------------------


def test_a_revoked_peer_is_cut_off_at_once_and_stays_out(realm: Realm) -> None:
    async def scene() -> None:
        book: dict[str, PeerAddress] = {}
        here, there = Process(realm, book), Process(realm, book)
        alice, victim = here.add("alice"), there.add("victim-1")
        victim.keep("alice")
        await until(lambda: alice.links == ["victim-1"])
        alice.send("victim-1", b"before")
        await until(lambda: there.ears["victim-1"].messages)
        realm.revoke_entity("victim-1")
        here.look()  # the victim does not look: it would rather not know
        assert alice.send("victim-1", b"after") and alice.links == ["victim-1"]
        await until(lambda: here.ears["alice"].reasons("victim-1") == [LinkReason.CERTIFICATE])
        await until(lambda: here.listener.counts[LinkReason.CERTIFICATE] > 0)
        assert alice.links == [] and there.ears["victim-1"].of("alice") == [b"before"]
        await here.close()
        await there.close()

    run(scene)


def test_nobody_dials_a_revoked_peer(realm: Realm) -> None:
    async def scene() -> None:
        book: dict[str, PeerAddress] = {}
        here, there = Process(realm, book), Process(realm, book)
        alice = here.add("alice")
        there.add("victim-2")
        realm.revoke_entity("victim-2")
        here.look()
        alice.send("victim-2", b"nobody should get this")
        await until(lambda: alice.counts["ended:certificate"] > 0)
        assert there.ears["victim-2"].messages == []
        await here.close()
        await there.close()

    run(scene)


def test_certificates_end(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A link does not outlive the certificate that it was made with."""
    realm = realm_of(tmp_path_factory.mktemp("ending") / "realm", ["alice", "bob"])

    async def scene() -> None:
        book: dict[str, PeerAddress] = {}
        here, there = Process(realm, book), Process(realm, book)
        alice, bob = here.add("alice"), there.add("bob")
        bob.keep("alice")
        await until(lambda: alice.links == ["bob"])
        assert alice.recheck() == []
        here.trust._clock = lambda: realm.state().entity("bob").expires_us + 1
        assert alice.recheck() == ["bob"]
        await until(lambda: here.ears["alice"].reasons("bob") == [LinkReason.CERTIFICATE])
        await here.close()
        await there.close()

    run(scene)


# --- what peers should not send -----------------------------------------------------------------------

HUGE = (MAX_PEER_MESSAGE_BYTES + 2).to_bytes(4, "big")
FORGED: dict[str, tuple[bytes, LinkReason]] = {
    "a message longer than any": (HUGE + bytes([FrameKind.MESSAGE]), LinkReason.OVERSIZED),
    "four gigabytes": (b"\xff\xff\xff\xff" + bytes([FrameKind.MESSAGE]), LinkReason.OVERSIZED),
    "a long goodbye": ((66).to_bytes(4, "big") + bytes([FrameKind.BYE]) + bytes(65), LinkReason.OVERSIZED),
    "no kind at all": (bytes(5), LinkReason.MALFORMED),
    "a kind that there is not": (b"\x00\x00\x00\x02\x63\x00", LinkReason.MALFORMED),
    "an empty message": (b"\x00\x00\x00\x01" + bytes([FrameKind.MESSAGE]), LinkReason.MALFORMED),
    "a short ping": (b"\x00\x00\x00\x02" + bytes([FrameKind.PING, 0]), LinkReason.MALFORMED),
    "a second hello": (frame(FrameKind.HELLO, bytes(16)), LinkReason.MALFORMED),
    "a goodbye for no reason": (frame(FrameKind.BYE, b"\xff\xfe"), LinkReason.MALFORMED),
    "what the overlay refuses": (frame(FrameKind.MESSAGE, b"\xff forged"), LinkReason.REFUSED),
}


@pytest.mark.parametrize("case", FORGED)
def test_who_sends_what_nobody_may_send_is_cut_off_and_stays_out_for_a_while(realm: Realm, case: str) -> None:
    raw, reason = FORGED[case]

    async def scene() -> None:
        book: dict[str, PeerAddress] = {}
        here, there = Process(realm, book), Process(realm, book)
        alice = here.add("alice")
        there.add("bob").send("alice", b"first")
        await until(lambda: here.ears["alice"].of("bob"))
        context = tls_of(realm, "mallory").client
        stranger = await Stranger.dial(book["alice"], context)
        await stranger.hello()
        stranger.say(raw)
        assert await stranger.told() in (reason, None)
        await until(lambda: here.ears["alice"].reasons("mallory") == [reason])
        assert alice.counts[f"ended:{reason}"] == 1
        again = await Stranger.dial(book["alice"], context)
        assert await again.told() == LinkReason.PENALTY
        await asyncio.sleep(QUICK.penalty_s)
        later = await Stranger.dial(book["alice"], context)
        await later.hello()
        there.near["bob"].send("alice", b"second")
        await until(lambda: here.ears["alice"].of("bob") == [b"first", b"second"])
        assert here.ears["alice"].reasons("bob") == []
        for each in (stranger, again, later):
            each.close()
        await here.close()
        await there.close()

    run(scene)


def test_penalties_grow_and_are_forgiven(realm: Realm) -> None:
    limits = LinkLimits(penalty_s=10.0, penalty_most_s=35.0, penalties=2)
    penalties, now = Penalties(limits), [0.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sealcast.overlay.peers.net.penalties.time.monotonic", lambda: now[0])
        for length in (10.0, 20.0, 35.0, 35.0):
            penalties.add("mallory")
            now[0] += length - 0.1
            assert penalties.out("mallory")
            now[0] += 0.2
            assert not penalties.out("mallory")
        now[0] += 36.0
        penalties.add("mallory")
        now[0] += 10.1
        assert not penalties.out("mallory")
        for name in ("a", "b", "c"):
            penalties.add(name)
        assert [penalties.out(name) for name in ("a", "b", "c")] == [False, True, True], "only so many are remembered"


# --- those who take their time ------------------------------------------------------------------------


def test_a_connection_that_says_nothing_ends(realm: Realm) -> None:
    async def scene() -> None:
        here = Process(realm, {}, replace(QUICK, handshake_s=0.5))
        here.add("alice")
        silent = socket.create_connection((here.book["alice"].host, here.port))
        await until(lambda: sum(here.listener.counts.values()) == 1)
        silent.settimeout(60.0)
        assert silent.recv(1) == b""
        silent.close()
        await here.close()

    run(scene)


def test_a_handshake_without_a_hello_ends(realm: Realm) -> None:
    async def scene() -> None:
        here = Process(realm, {})
        alice = here.add("alice")
        stranger = await Stranger.dial(here.book["alice"], tls_of(realm, "mallory").client)
        await until(lambda: alice.counts["ended:silent"] == 1)
        assert here.ears["alice"].ups == []
        stranger.close()
        await here.close()

    run(scene)


def test_a_frame_that_comes_byte_by_byte_ends_the_link(realm: Realm) -> None:
    async def scene() -> None:
        here = Process(realm, {})
        alice = here.add("alice")
        stranger = await Stranger.dial(here.book["alice"], tls_of(realm, "mallory").client)
        await stranger.hello()
        for byte in frame(FrameKind.MESSAGE, bytes(200)):
            stranger.say(bytes([byte]))
            await asyncio.sleep(0.05)
            if alice.counts["ended:slow"]:
                break
        assert alice.counts["ended:slow"] == 1 and here.ears["alice"].messages == []
        stranger.close()
        await here.close()

    run(scene)


def test_a_peer_without_a_sign_of_life_is_given_up(realm: Realm) -> None:
    async def scene() -> None:
        here = Process(realm, {})
        alice = here.add("alice")
        stranger = await Stranger.dial(here.book["alice"], tls_of(realm, "mallory").client)
        await stranger.hello()
        await until(lambda: here.ears["alice"].reasons("mallory") == [LinkReason.SILENT])
        assert alice.links == []
        stranger.close()
        await here.close()

    run(scene)


def test_a_peer_that_takes_nothing_is_given_up(realm: Realm) -> None:
    async def scene() -> None:
        here = Process(realm, {}, replace(QUICK, stall_s=0.5, silence_s=30.0))
        alice = here.add("alice")
        stranger = await Stranger.dial(here.book["alice"], tls_of(realm, "mallory").client)
        await stranger.hello()
        stranger.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(200):
            alice.send("mallory", bytes(1 << 16))
        await until(lambda: here.ears["alice"].reasons("mallory") == [LinkReason.STALLED])
        stranger.close()
        await here.close()

    run(scene)


def test_a_flood_of_pings_that_takes_no_answer_fills_nothing(realm: Realm) -> None:
    async def scene() -> None:
        here = Process(realm, {}, replace(QUICK, stall_s=30.0))
        alice = here.add("alice")
        stranger = await Stranger.dial(here.book["alice"], tls_of(realm, "mallory").client)
        await stranger.hello()
        stranger.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(20):
            stranger.say(frame(FrameKind.PING, bytes(8)) * 1_000)
            await asyncio.sleep(0)
        await asyncio.sleep(0.5)
        assert len(alice._queue("mallory")._signals) <= 16
        stranger.close()
        await here.close()

    run(scene)


def test_strangers_who_only_connect_keep_nobody_out_for_long(realm: Realm) -> None:
    async def scene() -> None:
        limits = replace(QUICK, unproven_per_address=8, handshake_s=0.5)
        book: dict[str, PeerAddress] = {}
        here, there = Process(realm, book, limits), Process(realm, book)
        here.add("alice")
        bob = there.add("bob")
        silent = [socket.create_connection((book["alice"].host, here.port)) for _ in range(40)]
        await until(lambda: here.listener.counts[LinkReason.FULL] >= 30)
        bob.send("alice", b"through the crowd")
        await until(lambda: here.ears["alice"].of("bob") == [b"through the crowd"])
        for each in silent:
            each.close()
        await here.close()
        await there.close()

    run(scene)


def test_links_are_limited_by_address(realm: Realm) -> None:
    async def scene() -> None:
        here = Process(realm, {}, replace(QUICK, per_address=2))
        alice = here.add("alice")
        strangers = []
        for name in ("bob", "carol"):
            strangers.append(await Stranger.dial(here.book["alice"], tls_of(realm, name).client))
            await strangers[-1].hello()
        await until(lambda: alice.links == ["bob", "carol"])
        await refused(here.book["alice"], tls_of(realm, "mallory").client)
        assert here.listener.counts[LinkReason.FULL] == 1 and alice.links == ["bob", "carol"]
        for each in strangers:
            each.close()
        await here.close()

    run(scene)


def test_one_entity_has_one_link(realm: Realm) -> None:
    async def scene() -> None:
        here = Process(realm, {})
        alice = here.add("alice")
        strangers = []
        for _ in range(5):
            strangers.append(await Stranger.dial(here.book["alice"], tls_of(realm, "mallory").client))
            await strangers[-1].hello()
        for each in strangers[:-1]:
            assert await each.told() == LinkReason.DUPLICATE
        assert alice.links == ["mallory"] and here.ears["alice"].ups == ["mallory"]
        strangers[-1].say(frame(FrameKind.MESSAGE, b"the last one counts"))
        await until(lambda: here.ears["alice"].of("mallory") == [b"the last one counts"])
        for each in strangers:
            each.close()
        await here.close()

    run(scene)
