"""Links between honest peers: messages arrive in order and once, whoever dials; nobody waits for anybody slow."""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from sealcast.errors import Misuse
from sealcast.overlay.peers.net.frames import FrameKind, LinkReason, frame
from sealcast.overlay.peers.net.limits import LinkLimits
from sealcast.overlay.peers.net.queue import SendQueue
from sealcast.overlay.peers.net.tls import TlsIdentity
from sealcast.trust.deployment import Realm
from tests.overlay.links import QUICK, Process, Stranger, realm_of, run, tls_of, until

NAMES = ("alice", "bob", "carol", "dave")


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    return realm_of(tmp_path_factory.mktemp("links") / "realm", NAMES)


def numbered(count: int) -> list[bytes]:
    return [number.to_bytes(4, "big") for number in range(count)]


def test_messages_arrive_in_order_over_one_link(realm: Realm) -> None:
    async def scene() -> None:
        book = {}
        here, there = Process(realm, book), Process(realm, book)
        alice, bob = here.add("alice"), there.add("bob")
        for message in numbered(500):
            assert alice.send("bob", message)
        await until(lambda: len(there.ears["bob"].messages) == 500)
        assert there.ears["bob"].of("alice") == numbered(500)
        bob.send("alice", b"over the same link")
        await until(lambda: here.ears["alice"].of("bob") == [b"over the same link"])
        assert (alice.links, bob.links) == (["bob"], ["alice"])
        assert there.listener.counts["proven"] == 1 and here.listener.counts["proven"] == 0
        await here.close()
        await until(lambda: there.ears["bob"].reasons("alice") == [LinkReason.CLOSED])
        await there.close()

    run(scene)


@pytest.mark.parametrize("attempt", range(5))
def test_peers_who_dial_each_other_at_once_keep_one_link_and_lose_nothing(realm: Realm, attempt: int) -> None:
    async def scene() -> None:
        book = {}
        here, there = Process(realm, book), Process(realm, book)
        alice, bob = here.add("alice"), there.add("bob")
        for message in numbered(200):
            alice.send("bob", message)
            bob.send("alice", message)
            if attempt % 2:
                await asyncio.sleep(0)
        await until(lambda: len(here.ears["alice"].messages) == len(there.ears["bob"].messages) == 200)
        assert sorted(here.ears["alice"].of("bob")) == sorted(there.ears["bob"].of("alice")) == numbered(200)
        assert (here.ears["alice"].ups, there.ears["bob"].ups) == (["bob"], ["alice"])
        await here.close()
        await there.close()

    run(scene)


def test_identities_of_one_process_reach_each_other_without_a_connection(realm: Realm) -> None:
    async def scene() -> None:
        here = Process(realm, {})
        alice, bob = here.add("alice"), here.add("bob")
        for message in numbered(100):
            alice.send("bob", message)
        await until(lambda: here.ears["bob"].of("alice") == numbered(100))
        bob.send("alice", b"back")
        await until(lambda: here.ears["alice"].of("bob") == [b"back"])
        assert here.listener.counts["proven"] == 0
        await here.close()

    run(scene)


def test_a_peer_that_went_away_is_dialled_until_it_is_back(realm: Realm) -> None:
    async def scene() -> None:
        book = {}
        here, there = Process(realm, book), Process(realm, book)
        alice = here.add("alice")
        there.add("bob")
        alice.keep("bob")
        await until(lambda: alice.links == ["bob"])
        await there.close()
        await until(lambda: alice.links == [])
        alice.send("bob", b"while you were away")
        await asyncio.sleep(0.5)
        again = Process(realm, book)
        again.add("bob")
        await until(lambda: again.ears["bob"].of("alice") == [b"while you were away"])
        assert here.ears["alice"].ups == ["bob", "bob"]
        await here.close()
        await again.close()

    run(scene)


def test_nobody_is_dialled_for_ever(realm: Realm) -> None:
    async def scene() -> None:
        here = Process(realm, {}, replace(QUICK, give_up_s=0.3))
        alice = here.add("alice")
        alice.send("bob", b"to nobody")
        await until(lambda: here.ears["alice"].downs == [("bob", LinkReason.UNREACHABLE)])
        assert alice.counts["dropped"] == 1 and alice.waiting("bob") == 0
        await here.close()

    run(scene)


def test_a_process_that_began_anew_replaces_its_former_self(realm: Realm) -> None:
    """The old connection may look alive for as long as TCP likes: whoever has the key and says so has a new one."""

    async def scene() -> None:
        book = {}
        here, first = Process(realm, book), Process(realm, book)
        here.add("alice")
        bob = first.add("bob")
        bob.send("alice", b"first life")
        await until(lambda: here.ears["alice"].messages)
        second = Process(realm, book)
        again = second.add("bob")
        again.send("alice", b"second life")
        await until(lambda: here.ears["alice"].of("bob") == [b"first life", b"second life"])
        assert here.ears["alice"].ups == ["bob"]  # one peer, one link
        for each in (here, first, second):
            await each.close()

    run(scene)


def test_a_peer_that_reads_nothing_stalls_nobody_and_is_told_what_it_lost(realm: Realm) -> None:
    async def scene() -> None:
        book = {}
        limits = replace(QUICK, queue_bytes=1 << 20, silence_s=60.0, stall_s=60.0)
        here, there = Process(realm, book, limits), Process(realm, book)
        alice = here.add("alice")
        there.add("bob")
        slow = await Stranger.dial(book["alice"], tls_of(realm, "carol").client)
        await slow.hello()
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: "carol" in alice.links)
        big = os.urandom(64 << 10)
        sent = [alice.send("carol", big) for _ in range(400)]
        for message in numbered(300):
            alice.send("bob", message)
        await until(lambda: there.ears["bob"].of("alice") == numbered(300))
        for _ in range(200):
            sent.append(alice.send("carol", big))
            await asyncio.sleep(0)
        lost = sent.count(False)
        assert lost > 0 and alice.counts["dropped"] == lost and alice.waiting("carol") <= limits.queue_bytes
        slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
        got = told = 0
        while got + told < len(sent):
            kind, body = await slow.hear()
            got += kind is FrameKind.MESSAGE
            told += int.from_bytes(body, "big") if kind is FrameKind.DROPPED else 0
        assert (got, told) == (len(sent) - lost, lost)
        slow.close()
        await here.close()
        await there.close()

    run(scene)


def test_who_works_slowly_slows_down_who_sends_to_it_and_nobody_else(realm: Realm) -> None:
    async def scene() -> None:
        book = {}
        here, there, other = Process(realm, book), Process(realm, book), Process(realm, book)
        alice = here.add("alice")
        there.add("bob")
        other.add("carol")
        there.ears["bob"].pause_s = 0.02
        for message in numbered(50):
            alice.send("bob", message)
            alice.send("carol", message)
        await until(lambda: len(other.ears["carol"].messages) == 50)
        assert len(there.ears["bob"].messages) < 50
        await until(lambda: there.ears["bob"].of("alice") == numbered(50))
        for each in (here, there, other):
            await each.close()

    run(scene)


def test_links_live_by_heartbeats_alone(realm: Realm) -> None:
    async def scene() -> None:
        book = {}
        here, there = Process(realm, book), Process(realm, book)
        alice = here.add("alice")
        there.add("bob")
        alice.keep("bob")
        await until(lambda: alice.links == ["bob"])
        await asyncio.sleep(2 * QUICK.silence_s)
        assert alice.links == ["bob"] and here.ears["alice"].downs == []
        await here.close()
        await there.close()

    run(scene)


def test_a_renewed_certificate_is_shown_from_then_on(realm: Realm) -> None:
    async def scene() -> None:
        book = {}
        here, there = Process(realm, book), Process(realm, book)
        here.add("alice")
        there.add("dave")
        realm.renew("alice")
        identity = tls_of(realm, "alice")
        alice = here.near["alice"]
        alice.identity = identity
        here.listener.serve(book["alice"].door, identity, alice.arrived)
        there.near["dave"].send("alice", b"hello")
        await until(lambda: here.ears["alice"].of("dave") == [b"hello"])
        assert there.near["dave"]._links["alice"].peer.der == realm.state().entity("alice").certificate
        await here.close()
        await there.close()

    run(scene)


# --- keys, queues, limits -----------------------------------------------------------------------------


def test_a_private_key_is_on_disk_for_a_moment_encrypted_and_nobody_elses(
    realm: Realm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen = list[tuple[int, bytes]]()
    real = tempfile.NamedTemporaryFile

    def watched(*args: object, **kwargs: object) -> object:
        file = real(*args, **kwargs)  # type: ignore[call-overload]
        flush = file.flush

        def look() -> None:
            flush()
            path = Path(file.name)
            seen.append((stat.S_IMODE(path.stat().st_mode), path.read_bytes()))

        file.flush = look
        return file

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", watched)
    tls_of(realm, "alice")
    ((mode, content),) = seen
    assert mode == 0o600 and b"ENCRYPTED PRIVATE KEY" in content and b"BEGIN PRIVATE KEY" not in content
    assert list(tmp_path.iterdir()) == []


def test_a_certificate_must_be_about_the_keys_at_hand(realm: Realm) -> None:
    with pytest.raises(Misuse, match="not about the keys"):
        TlsIdentity(realm.identity("alice"), realm.state().entity("bob").certificate, realm.trust())


def test_a_queue_is_bounded_and_counts(realm: Realm) -> None:
    async def scene() -> None:
        queue = SendQueue(LinkLimits(queue_bytes=100, queue_messages=3))
        assert [queue.put(bytes(20)) for _ in range(5)] == [True, True, True, False, False]
        assert (len(queue), queue.dropped) == (3, 2)
        message = frame(FrameKind.MESSAGE, bytes(20))
        told = frame(FrameKind.DROPPED, (2).to_bytes(8, "big"))
        assert queue.take() == told + 3 * message
        assert queue.nbytes == 0 and queue.put(bytes(1_000)), "one message always finds room"
        assert not queue.put(bytes(1))
        assert queue.discard() == 1 and queue.dropped == 4
        for _ in range(100):
            queue.signal(frame(FrameKind.PONG, bytes(8)))
        assert len(queue.take()) < 16 * 13 + 20

    run(scene)


def test_limits_are_more_than_nothing() -> None:
    with pytest.raises(Misuse, match="queue_bytes"):
        LinkLimits(queue_bytes=0)
    with pytest.raises(Misuse, match="sign of life"):
        LinkLimits(heartbeat_s=20.0)
