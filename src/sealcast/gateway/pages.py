"""The console's pages, which another process makes: the gateway carries them, and says who asks.

That process opens frames and makes keys, and this one must not (docs/adr/0058). Between them is a Unix socket in a
directory that their user alone may enter. Of a browser's request, the headers below travel, and the name of its sender
by the certificate that was judged; whatever a browser says of that name itself is left behind.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import httptools

from sealcast.errors import Unavailable
from sealcast.gateway.asked import CallerConnection
from sealcast.gateway.problems import Refusal
from sealcast.telemetry.logs import JsonLog

PREFIX: Final = "/console"
CALLER: Final = "sealcast-caller"
MAX_FORM_BYTES: Final = 64 << 10
#: What a page costs, in requests of the usual kind, by the first part of its path. What recomputes a batch or makes a
#: realm of its own costs a second of a processor, and a caller gets two of them a second at the most.
COSTS: Final = {"assets": 1, "live": 5, "sees": 250, "event": 250}
COST: Final = 25
#: How long pages may take, and how long a page that moves says nothing at the most.
ANSWER_S: Final = 90.0
SILENCE_S: Final = 60.0
#: After the pages' process has ended, it is started again: the first time at once, then later and later.
AGAIN_S: Final = (0.1, 1.0, 5.0, 30.0)
_TRAVEL: Final = (b"accept", b"content-type", b"host", b"origin", b"sec-fetch-site", b"sealcast-part")
_BACK: Final = frozenset({b"connection", b"date", b"keep-alive", b"server", b"transfer-encoding"})
_TARGET: Final = re.compile(rb"/[!-~]*")
_CHUNK: Final = 1 << 16
_BACKLOG: Final = 256


def is_page(path: str) -> bool:
    return path == PREFIX or path.startswith(f"{PREFIX}/")


def cost_of(path: str) -> int:
    return COSTS.get(path.removeprefix(PREFIX).lstrip("/").partition("/")[0], COST)


class CarriedPage:
    """An answer of the pages' process as it comes in: what httptools calls while it parses."""

    def __init__(self, reader: asyncio.StreamReader, connection: CallerConnection) -> None:
        self._reader, self._connection = reader, connection
        self._parser = httptools.HttpResponseParser(self)
        self._parts = list[bytes]()
        self._begun = self._whole = False
        self.headers = list[tuple[bytes, bytes]]()

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() not in _BACK:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._begun = True

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        self._whole = True

    @property
    def status(self) -> int:
        return int(self._parser.get_status_code())

    @property
    def moves(self) -> bool:
        """Whether it goes on for as long as the page is open."""
        return any(value.startswith(b"text/event-stream") for name, value in self.headers if name == b"content-type")

    async def begin(self) -> None:
        while not self._begun:
            await self._more(ANSWER_S)

    async def parts(self) -> AsyncIterator[bytes]:
        """The body, as it comes; it ends early when the gateway is to stop."""
        while True:
            taken, self._parts = self._parts, []
            for part in taken:
                yield part
            if self._whole or self._connection.leaving:
                return
            if not self._parts:
                await self._more(SILENCE_S)

    async def _more(self, seconds: float) -> None:
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                self._connection.waits.add(limit)
                data = await self._reader.read(_CHUNK)
        except TimeoutError:
            if self._connection.leaving:
                self._whole = True
                return
            raise Unavailable("the console does not answer") from None
        finally:
            self._connection.waits.discard(limit)
        if not data:
            raise Unavailable("the console ended in the middle of an answer")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            raise Unavailable("the console's answer cannot be read") from None


class Pages:
    """The pages' process, and the way to it. Made on the event loop, and used there."""

    def __init__(self, realm: Path, hosts: Iterable[str], administrators: Iterable[str], log: JsonLog) -> None:
        """`hosts` are the names that the gateway answers at; administrators are entities that see the whole realm."""
        self._given = {
            "realm": str(realm),
            "hosts": sorted(host.lower() for host in hosts),
            "administrators": sorted(administrators),
        }
        self._log = log
        self._directory = tempfile.TemporaryDirectory(prefix="sealcast-pages-")  # of mode 0700
        self._path = str(Path(self._directory.name) / "pages")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(self._path)
        self._socket.listen(_BACKLOG)
        self._process: asyncio.subprocess.Process | None = None
        self._keeping = asyncio.ensure_future(self._keep())

    @asynccontextmanager
    async def ask(
        self, method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]], body: bytes, caller: str,
        connection: CallerConnection,
    ) -> AsyncIterator[CarriedPage]:  # fmt: skip
        """One page. `target` is path and query, as the browser sent them."""
        if not _TARGET.fullmatch(target):
            raise Refusal(400, "path", "this path cannot be read")
        wanted = target.removeprefix(PREFIX.encode())
        carried = [(name, value) for name, value in headers if name in _TRAVEL]
        carried += [(CALLER.encode(), caller.encode()), (b"connection", b"close")]
        if body:
            carried.append((b"content-length", b"%d" % len(body)))
        head = b"".join(b"%s: %s\r\n" % field for field in carried)
        try:
            reader, writer = await asyncio.open_unix_connection(self._path)
        except OSError:
            raise Unavailable("the console cannot be reached") from None
        try:
            writer.write(b"%s %s HTTP/1.1\r\n%s\r\n%s" % (method.encode("ascii"), wanted, head, body))
            with suppress(ConnectionError):  # it may answer before it has read everything
                await writer.drain()
            page = CarriedPage(reader, connection)
            await page.begin()
            yield page
        finally:
            writer.close()

    async def _keep(self) -> None:
        """The process is there for as long as the gateway is."""
        given, ends = json.dumps({**self._given, "fd": self._socket.fileno()}), 0
        while True:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "sealcast.console.behind",
                given,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=(self._socket.fileno(),),
            )
            status = await self._process.wait()
            self._log.write("console", message="the console's process ended, and is started again", status=status)
            await asyncio.sleep(AGAIN_S[min(ends, len(AGAIN_S) - 1)])
            ends += 1

    async def close(self) -> None:
        """Ends the process in good order."""
        self._keeping.cancel()
        process = self._process
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(10):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        self._socket.close()
        self._directory.cleanup()
