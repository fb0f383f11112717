"""A gateway that lies: the real one, with something between its application and the wire.

It has all that a gateway has: its key, its certificate, the realm's files. What it does not have is anybody else's key.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import pytest

from sealcast.gateway import serving
from sealcast.gateway.app import CONNECTION, GatewayApp
from sealcast.gateway.hub import Hub
from sealcast.gateway.pages import Pages
from sealcast.trust.certificates.profile import parse
from sealcast.wire import cbor


@dataclass
class Request:
    """One request, and what the honest gateway would answer to it."""

    hub: Hub
    method: str
    path: str
    query: dict[str, str]
    caller: str
    body: bytes
    _ask: Callable[[dict[str, str]], Awaitable[tuple[int, list[tuple[bytes, bytes]], bytes]]]

    async def honest(self, **query: int) -> Any:
        """The value of the honest answer; with other parameters than were asked for, if any are given."""
        _, _, body = await self._ask({**self.query, **{name: str(value) for name, value in query.items()}})
        return cbor.decode(body) if body else None

    @property
    def last(self) -> str:
        return self.path.rsplit("/", 1)[-1]


#: What is answered instead: a value for CBOR, bytes for bytes, an int for a refusal of that number; None for the truth.
Lie = Callable[[Request], Awaitable[Any]]


async def the_truth(request: Request) -> Any:
    return None


class Liar:
    """Whatever lie is told now."""

    def __init__(self) -> None:
        self.lie: Lie = the_truth
        #: What every answer says that the newest version of the registry is; None for the truth.
        self.version: int | None = None
        #: What is sent to whoever follows a ledger, and then the stream ends; without it there are no streams, so that
        #: clients ask, and are lied to.
        self.stream: list[bytes] | None = None
        #: Whether the stream goes on in silence after that. A client whose stream has ended asks again before it reads,
        #: and may never look at what the stream said.
        self.holds = False

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Every gateway that starts meanwhile has the liar before it."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(serving, "GatewayApp", self.app)
            yield

    def app(self, hub: Hub, pages: Pages | None = None) -> Any:
        honest = GatewayApp(hub, pages)

        async def answer(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await honest(scope, receive, send)
                return
            if scope["path"].endswith("/follow"):
                await self._follow(receive, send)
                return
            raw = await _body(receive)
            query = {name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()}

            async def ask(asked: dict[str, str]) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
                text = "&".join(f"{name}={value}" for name, value in asked.items()).encode()
                return await _collected(honest, {**scope, "query_string": text}, raw)

            shown = scope[CONNECTION].certificate
            request = Request(hub, scope["method"], scope["path"], query, parse(shown).name if shown else "", raw, ask)
            said = await self.lie(request)
            if said is None:
                status, headers, body = await ask(query)
            else:
                status = said if isinstance(said, int) else 200
                body = said if isinstance(said, bytes) else b"{}" if isinstance(said, int) else cbor.encode(said)
                kind = b"application/octet-stream" if isinstance(said, bytes) else b"application/cbor"
                newest = str(hub.newest.version).encode()
                headers = [(b"content-type", kind), (b"sealcast-version", newest)]
            headers = [(n, v) for n, v in headers if n != b"content-length"]
            if self.version is not None:
                headers = [(n, v) for n, v in headers if n != b"sealcast-version"]
                headers.append((b"sealcast-version", str(self.version).encode()))
            headers.append((b"content-length", str(len(body)).encode()))
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

        return answer

    async def _follow(self, receive: Any, send: Any) -> None:
        status, kind = (404, b"application/problem+json") if self.stream is None else (200, b"application/cbor-seq")
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        for part in self.stream or ():
            await send({"type": "http.response.body", "body": part, "more_body": True})
        while self.holds and (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.body", "body": b"{}" if self.stream is None else b""})


async def _body(receive: Any) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _collected(app: Any, scope: Any, body: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    given, status, headers, parts = [body], 500, list[tuple[bytes, bytes]](), list[bytes]()

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": given.pop() if given else b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], list(message["headers"])
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return status, headers, b"".join(parts)
