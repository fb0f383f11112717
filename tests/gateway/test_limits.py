"""What strangers and callers cannot use up: connections, time, bytes, patience."""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sealcast.control.budgets import Allowance
from sealcast.gateway.limits import DEFAULT_LIMITS, LARGE_BODY, MAX_HEAD_BYTES
from tests.gateway.world import AT, RunningGateway, make_realm, running

LIMITS = replace(DEFAULT_LIMITS, silence_s=600, head_s=1, body_s=1, silent=300, silent_per_address=300)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    realm = make_realm(tmp_path_factory.mktemp("small") / "market")
    with running(realm, tmp_path_factory.mktemp("clients"), LIMITS) as made:
        yield made


@contextlib.contextmanager
def silent(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Connections that say nothing."""
    with contextlib.ExitStack() as held:
        yield [held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(count)]


def connected(small: RunningGateway) -> ssl.SSLSocket:
    """A connection after its handshake, for what no HTTP library would send."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(small.root)
    while True:  # an address whose last attempt was bogus waits for some milliseconds
        with contextlib.suppress(OSError):
            raw = socket.create_connection(("127.0.0.1", small.port), timeout=60)
            return context.wrap_socket(raw, server_hostname="localhost")


def ends(connection: ssl.SSLSocket) -> bytes:
    """What comes until the other end closes."""
    found = b""
    with contextlib.suppress(OSError):
        while part := connection.recv(65_536):
            found += part
    return found


def test_silent_connections_keep_nobody_out(small: RunningGateway) -> None:
    alice = small.client("alice")
    with silent(small.port, 900):
        assert alice.get("/v1/realm").status == small.client("bob").get("/v1/realm").status == 200
        assert small.hub.metrics.value("sealcast_gateway_silent_connections") <= 300
    assert small.hub.metrics.value("sealcast_gateway_refused_connections_total", reason="silent") >= 600


@pytest.mark.soak
def test_ten_thousand_silent_connections_keep_nobody_out(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Both ends are in this process; the gateway lets go of all but so many of its own.
    wanted = 10_000 + DEFAULT_LIMITS.silent + 2_048
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"{wanted} files are needed, and {hard} may be opened")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        (tmp_path / "clients").mkdir()
        with running(make_realm(tmp_path / "market"), tmp_path / "clients") as made, silent(made.port, 10_000):
            for name in ("alice", "bob", "nyse"):
                assert made.client(name).get("/v1/registry/changes").status == 200
            assert made.hub.metrics.value("sealcast_gateway_silent_connections") <= DEFAULT_LIMITS.silent
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_head_that_never_ends_is_cut(small: RunningGateway) -> None:
    slow = connected(small)
    slow.sendall(b"GET /v1/realm HTTP/1.1\r\nhost: localhost\r\nx: ")
    assert b"200" not in ends(slow)
    said_nothing = connected(small)
    assert ends(said_nothing) == b""


def test_a_head_that_is_too_large_is_refused(small: RunningGateway) -> None:
    large = connected(small)
    with contextlib.suppress(OSError):
        large.sendall(b"GET /v1/realm HTTP/1.1\r\n" + b"".join(b"x-%d: %s\r\n" % (n, b"y" * 1000) for n in range(40)))
    assert ends(large).startswith(b"HTTP/1.1 400")
    assert MAX_HEAD_BYTES < 40_000


def test_bodies_have_a_size_and_a_time(small: RunningGateway) -> None:
    nyse = small.client("nyse")
    head = f"POST {AT}/frames HTTP/1.1\r\nhost: x\r\ncontent-type: application/cbor\r\n".encode()
    nyse.connection.connect()
    nyse.connection.sock.sendall(head + b"content-length: %d\r\n\r\n" % (LARGE_BODY + 1))
    assert b" 413 " in nyse.connection.sock.recv(100)
    slow = small.client("nyse")
    slow.connection.connect()
    slow.connection.sock.sendall(head + b"content-length: 1000\r\n\r\nabc")
    assert b" 408 " in slow.connection.sock.recv(100)


def test_what_is_no_http_is_no_traceback(small: RunningGateway) -> None:
    for said in (b"\x00\xff" * 50, b"GET\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        strange = connected(small)
        strange.sendall(said)
        assert b" 200 " not in ends(strange)
    assert "Traceback" not in small.log.getvalue() and '"fault"' not in small.log.getvalue()


def test_who_asks_too_much_waits(tmp_path: Path) -> None:
    (tmp_path / "clients").mkdir()
    few = replace(DEFAULT_LIMITS, caller=Allowance(per_second=1, burst=5), waiting=1)
    with running(make_realm(tmp_path / "market"), tmp_path / "clients", few) as made:
        alice, bob = made.client("alice"), made.client("bob")
        found = [alice.get("/v1/registry/changes") for _ in range(12)]
        assert found[0].status == 200 and found[-1].problem == "busy" and found[-1].headers["retry-after"]
        assert bob.get("/v1/registry/changes").status == 200, "another's budget is another's"


def test_addresses_with_bogus_handshakes_wait_longer_each_time(tmp_path: Path) -> None:
    (tmp_path / "clients").mkdir()
    with running(make_realm(tmp_path / "market"), tmp_path / "clients") as made:
        refused, began = 0, time.monotonic()
        while not refused and time.monotonic() - began < 120:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", made.port), timeout=60) as bogus:
                bogus.sendall(b"\x16\x03\x01\x00\x05hello-this-is-no-handshake")
                while bogus.recv(4_096):
                    pass
            refused = made.hub.metrics.value("sealcast_gateway_refused_connections_total", reason="bogus")
        assert refused, "bogus attempts are refused by and by"
        elsewhere = made.client("alice", address="127.0.0.9")
        assert elsewhere.get("/v1/realm").status == 200, "from elsewhere one gets in"


def test_the_log_names_routes_and_never_paths(small: RunningGateway) -> None:
    topic = "ab" * 16
    small.client("alice").get(f"/v1/control/{topic}", from_=3)
    while '"route": "control-read"' not in small.log.getvalue():
        time.sleep(0.01)  # its line is written after the answer; the test's own limit bounds this
    text = small.log.getvalue()
    assert '"caller": "alice"' in text
    assert topic not in text and "from=" not in text and "BEGIN" not in text


def test_lag_is_shown_by_topic_and_broker_and_never_by_reader(small: RunningGateway) -> None:
    from prometheus_client import generate_latest

    small.client("nyse").get(f"{AT}/frames")
    page = generate_latest(small.hub.metrics.registry).decode()
    assert 'sealcast_lag_frames{broker="broker",topic="quotes"}' in page
    assert not any(name in page for name in ("alice", "bob", "nyse"))
