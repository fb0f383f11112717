"""One client's way to a gateway: HTTPS over TLS 1.3 with the client's own certificate.

    deadlines     every request ends: connected within CONNECT_S, answered within its own time
    backoff       after a failure nobody knocks again at once: twice as long each time, up to MOST_BACKOFF_S, and each
                  client for a random part of it, so that a thousand clients do not come back together
    retries       a request is repeated until its deadline. Every one may be: frames, posts and transactions are
                  recognised when they come twice, and control topics are made under the client's own ids

urllib3 keeps the connections and speaks HTTP. It retries nothing itself, follows no redirect and decodes nothing.
Answers are read up to a bound that the caller gives.

The context that proves who we are, and the check of who answers, are given by whoever has keys and trust
(`trust.gateway_site`). Nothing here knows a key.
"""

from __future__ import annotations

import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

import urllib3
from urllib3.connection import HTTPSConnection
from urllib3.exceptions import HTTPError, NewConnectionError
from urllib3.exceptions import SSLError as PoolSslError

from sealcast.errors import FrameRejected, Unavailable
from sealcast.log.closing import Closing
from sealcast.primitives.secrets import Unpicklable
from sealcast.transports import problems
from sealcast.transports.address import GatewayAddress
from sealcast.transports.problems import GatewayRefused, GatewayUnreachable
from sealcast.wire import cbor

CBOR: Final = "application/cbor"
VERSION_HEADER: Final = "sealcast-version"
CONNECT_S: Final = 5.0
#: For an answer, beside what a long-poll waits by itself.
ANSWER_S: Final = 30.0
#: How long a request that may be repeated is tried.
DEADLINE_S: Final = 60.0
FIRST_BACKOFF_S: Final = 0.1
MOST_BACKOFF_S: Final = 15.0
MAX_ANSWER_BYTES: Final = 64 << 20
MAX_PROBLEM_BYTES: Final = 64 << 10
MAX_ITEMS: Final = 1 << 20
_CONNECTIONS: Final = 8
#: Whoever waits for an answer asks after this many seconds whether the other end is still there, and this often. A
#: machine that took the gateway's address over answers that it knows of no such connection.
_ALIVE_S: Final = 4
_ALIVE_PROBES: Final = 2


@dataclass(frozen=True, slots=True)
class Ways:
    """How a client proves who it is, and finds out who answers."""

    #: A context that shows the client's newest certificate and believes the realm's root alone.
    context: Callable[[], ssl.SSLContext]
    #: Raises for a gateway's certificate that does not count.
    prove: Callable[[bytes], None]
    #: The version of the registry that the client goes by, for a gateway that gets it from elsewhere, too; 0 for none.
    version: Callable[[], int] = lambda: 0


class Connection(Closing, Unpicklable):
    """One entity's connections to one gateway. Threads may share it; a child process makes its own pool."""

    def __init__(self, address: GatewayAddress, ways: Ways, *, deadline_s: float = DEADLINE_S) -> None:
        self.address, self._ways, self._deadline_s = address, ways, deadline_s
        self._lock = threading.Lock()
        self._pool: tuple[int, urllib3.HTTPSConnectionPool] | None = None
        self._failures = 0
        self._not_before = 0.0
        #: Why it could not be reached the last time.
        self._trouble = "it has troubles of its own"
        #: The newest version of the registry that any answer named: the gateway's word, a reason to look and no more.
        self.version_named = 0
        #: When it last answered, by this process's clock.
        self.heard = float("-inf")

    # --- asking -------------------------------------------------------------------------------------

    def get(
        self,
        path: str,
        query: Mapping[str, int | str] | None = None,
        *,
        wait_s: float = 0.0,
        patience_s: float | None = None,
    ) -> Any:
        """The value of an answer in CBOR. With `wait_s` the gateway may wait so long before it answers."""
        asked = dict(query or {})
        if wait_s >= 1:
            asked["wait"] = int(wait_s)
        return self._decoded(self._repeated("GET", _with(path, asked), None, wait_s, patience_s=patience_s))

    def get_bytes(self, path: str, most: int) -> bytes:
        """An answer that is bytes, at most so many."""
        return self._repeated("GET", path, None, 0.0, most)

    def send(self, method: str, path: str, body: object = None, *, patience_s: float | None = None) -> Any:
        """Sends what may be sent twice; the value of the answer. Tried for `patience_s`, else until the deadline."""
        data = None if body is None else cbor.encode(body)
        return self._decoded(self._repeated(method, path, data, 0.0, patience_s=patience_s))

    @contextmanager
    def stream(self, path: str, query: Mapping[str, int | str], silence_s: float) -> Iterator[Streamed]:
        """An answer without end, part by part; it ends when nothing comes for `silence_s`. It is tried once."""
        headers = {"accept": f"{CBOR}-seq, {problems.MEDIA_TYPE}"}
        try:
            answer = self._connections().urlopen(
                "GET",
                _with(path, query),
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_S, read=silence_s),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
        except (HTTPError, OSError, ssl.SSLError) as error:
            raise self._unreachable(_why(error)) from None
        try:
            if answer.status != 200:
                raise problems.error_of(answer.status, _read(answer, MAX_PROBLEM_BYTES) or b"", str(self.address))
            self._heard(answer.headers.get(VERSION_HEADER))
            yield Streamed(answer, self)
        finally:
            answer.close()

    def close(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None and pool[0] == os.getpid():
            pool[1].close()

    def renew(self) -> None:
        """Connects anew from now on: with a newer certificate."""
        self.close()

    @property
    def is_down(self) -> bool:
        """Whether it failed a moment ago, and is left alone for a while."""
        return time.monotonic() < self._not_before

    # --- inside -------------------------------------------------------------------------------------

    def _repeated(
        self,
        method: str,
        path: str,
        data: bytes | None,
        wait_s: float,
        most: int = MAX_ANSWER_BYTES,
        patience_s: float | None = None,
    ) -> bytes:
        until = time.monotonic() + (self._deadline_s + wait_s if patience_s is None else patience_s)
        self._connections()  # keys that cannot be read are no trouble of the gateway's, and are not tried again
        while True:
            pause = self._not_before - time.monotonic()
            if pause > 0:
                if time.monotonic() + pause > until:
                    raise self._unreachable(self._trouble)
                time.sleep(pause)
            try:
                return self._once(method, path, data, ANSWER_S + wait_s, most)
            except Unavailable as error:
                # Others say what is wrong, and are answers: a full queue, a full disk, an older version.
                if type(error) not in (GatewayUnreachable, Unavailable) or time.monotonic() >= until:
                    raise
                if type(error) is Unavailable:
                    self._failed()

    def _once(self, method: str, path: str, data: bytes | None, answer_s: float, most: int) -> bytes:
        headers = {"accept": f"{CBOR}, application/octet-stream, {problems.MEDIA_TYPE}"}
        if data is not None:
            headers["content-type"] = CBOR
        if known := self._ways.version():
            headers[VERSION_HEADER] = str(known)
        pool = self._connections()
        try:
            answer = pool.urlopen(
                method,
                path,
                body=data,
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_S, read=answer_s),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            body = _read(answer, most)
        except (HTTPError, OSError, ssl.SSLError) as error:
            self._failed()
            if (untrusted := _untrusted(error)) is not None:
                raise GatewayRefused(
                    "certificate",
                    f"whoever answers at {self.address} does not prove that it is this realm's gateway: {untrusted}",
                    hint="is this its address? Nothing was sent",
                ) from None
            self._trouble = _why(error)
            raise self._unreachable(self._trouble) from None
        self._heard(answer.headers.get(VERSION_HEADER))
        if body is None:
            raise Unavailable(f"{self.address} answers with more than {most} bytes")
        if 200 <= answer.status < 300:
            return body
        raise problems.error_of(answer.status, body[:MAX_PROBLEM_BYTES], str(self.address))

    def _connections(self) -> urllib3.HTTPSConnectionPool:
        with self._lock:
            if self._pool is None or self._pool[0] != os.getpid():
                pool = urllib3.HTTPSConnectionPool(
                    self.address.host,
                    self.address.port,
                    maxsize=_CONNECTIONS,
                    ssl_context=self._ways.context(),
                    socket_options=_alive(),
                )
                pool.ConnectionCls = _proving(self._ways.prove)
                self._pool = os.getpid(), pool
            return self._pool[1]

    def _heard(self, version: str | None) -> None:
        self._failures, self._not_before, self.heard = 0, 0.0, time.monotonic()
        if version is not None and version.isascii() and version.isdigit() and len(version) < 19:
            self.version_named = int(version)

    def _failed(self) -> None:
        self._failures += 1
        longest = min(MOST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(self._failures - 1, 16))
        # Full jitter: any part of it, so that clients that lost a gateway together come back one by one.
        self._not_before = time.monotonic() + random.uniform(0, longest)

    def _unreachable(self, why: str) -> GatewayUnreachable:
        return GatewayUnreachable(
            f"the gateway {self.address} cannot be reached: {why}",
            hint="is it running, and is this its address? It is tried again with the next call",
        )

    def _decoded(self, body: bytes) -> Any:
        if not body:
            return None
        try:
            return cbor.decode(body, max_bytes=MAX_ANSWER_BYTES, max_items=MAX_ITEMS)
        except FrameRejected as error:
            raise Unavailable(
                f"{self.address} answers with what is no deterministic CBOR: {error.message}",
                hint="is something else listening there?",
            ) from None


class Streamed:
    """The parts of an answer without end."""

    def __init__(self, answer: urllib3.BaseHTTPResponse, connection: Connection) -> None:
        self._answer, self._connection = answer, connection

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._answer.read_chunked(decode_content=False)
        except (HTTPError, OSError, ssl.SSLError, ValueError, AttributeError) as error:
            # The last two are what a response says whose connection another thread has closed.
            raise self._connection._unreachable(_why(error)) from None

    def close(self) -> None:
        """From another thread: whoever reads sees the end."""
        sock = getattr(self._answer.connection, "sock", None)
        if isinstance(sock, socket.socket):
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


def path_of(*names: str | bytes) -> str:
    """A path under /v1, each name quoted."""
    return "/v1/" + "/".join(quote(name, safe="") for name in names)


def _with(path: str, query: Mapping[str, int | str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _read(answer: urllib3.BaseHTTPResponse, most: int) -> bytes | None:
    """The whole body; None, and the connection is given up, when it has more bytes than that."""
    parts, size = list[bytes](), 0
    while part := answer.read(most + 1 - size, decode_content=False):
        parts.append(part)
        size += len(part)
        if size > most:
            answer.close()
            return None
    answer.release_conn()
    return b"".join(parts)


def _alive() -> list[tuple[int, int, int]]:
    """Options of a connection that notices within seconds that nobody is at its other end."""
    options = [*HTTPSConnection.default_socket_options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    named = {"TCP_KEEPIDLE": _ALIVE_S, "TCP_KEEPINTVL": _ALIVE_S, "TCP_KEEPCNT": _ALIVE_PROBES}
    # Not every system has all of them by these names.
    return options + [
        (socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in named.items() if hasattr(socket, name)
    ]


def _proving(prove: Callable[[bytes], None]) -> type[HTTPSConnection]:
    """Connections that are used only when the certificate of whoever answers counts."""

    class ProvenConnection(HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            shown = self.sock.getpeercert(binary_form=True) if isinstance(self.sock, ssl.SSLSocket) else None
            try:
                if shown is None:
                    raise GatewayRefused("certificate", "the gateway showed no certificate")
                prove(shown)
            except BaseException:
                self.close()
                raise

    return ProvenConnection


def _untrusted(error: BaseException) -> str | None:
    """Why OpenSSL does not believe the certificate that was shown; None when that is not what went wrong."""
    seen: BaseException | None = error
    for _ in range(4):
        if isinstance(seen, ssl.SSLCertVerificationError):
            return seen.verify_message or "its certificate does not verify"
        reason = getattr(seen, "reason", None)
        inner = reason if isinstance(reason, BaseException) else next(iter(getattr(seen, "args", ())), None)
        seen = inner if isinstance(inner, BaseException) else None
    return None


def _why(error: Exception) -> str:
    """Without addresses of objects and tracebacks."""
    reason = getattr(error, "reason", None) or error
    if isinstance(reason, PoolSslError | ssl.SSLError):
        return f"TLS: {reason}"
    if isinstance(reason, NewConnectionError):
        return "nobody listens there, or the way is cut"
    return f"{type(reason).__name__}"
