"""From a request to its answer. An ASGI application over the table of routes; Starlette matches paths.

In this order: (1) the route; (2) who asks, by the newest registry; (3) whether it may ask so much; (4) parameters and
body, in their limits of size and time; (5) the endpoint, which decides whether it may have what it asks for; (6) the
answer, sent as fast as the other end takes it. Whatever is refused on the way is a problem document, and so is a fault
of ours: the reason for that is in the log, and never in the answer.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.routing import Match, Route
from starlette.types import Message, Receive, Scope, Send

from sealcast.control.budgets import Budgets
from sealcast.errors import Bug, Misuse, SealcastError
from sealcast.gateway import problems
from sealcast.gateway.asked import (
    Answer,
    ApiCall,
    BytesAnswer,
    CallerConnection,
    CborAnswer,
    NoAnswer,
    StreamAnswer,
    TextAnswer,
)
from sealcast.gateway.bodies import received
from sealcast.gateway.callers import Caller
from sealcast.gateway.hub import Hub
from sealcast.gateway.pages import MAX_FORM_BYTES, PREFIX, CarriedPage, Pages, cost_of, is_page
from sealcast.gateway.problems import Refusal
from sealcast.gateway.routes import CBOR, ENDPOINTS, SEGMENTS, ApiRoute
from sealcast.gateway.shapes import read_body
from sealcast.wire import cbor

#: Where the connection stands in the scope of a request.
CONNECTION: Final = "sealcast.connection"
VERSION_HEADER: Final = b"sealcast-version"
_SECOND_US: Final = 1_000_000
#: So much of a body costs as much as one more request.
_BYTES_PER_REQUEST: Final = 1 << 18
_MAX_PARAMETERS: Final = 16
_SEGMENT: Final = {name: re.compile(pattern, re.ASCII) for name, pattern in SEGMENTS.items()}
_ANYBODY: Final = Caller("", frozenset())


@dataclass(slots=True)
class _Request:
    """What is known of a request by now, for its answer and its line in the log."""

    connection: CallerConnection
    address: str
    endpoint: ApiRoute | None = None
    page: bool = False
    caller: Caller = _ANYBODY
    status: int = 0
    received: int = 0
    sent: int = 0


class GatewayApp:
    """The application."""

    def __init__(self, hub: Hub, pages: Pages | None = None) -> None:
        """`pages` are those of the console, for a gateway that has them."""
        self._hub, self._pages = hub, pages
        #: A path once, with its endpoints by method.
        self._routes: list[tuple[Route, dict[str, ApiRoute]]] = []
        for path in dict.fromkeys(endpoint.path for endpoint in ENDPOINTS):
            methods = {endpoint.method: endpoint for endpoint in ENDPOINTS if endpoint.path == path}
            self._routes.append((Route(path, _no_endpoint, methods=list(methods)), methods))
        self._callers, self._addresses = Budgets(hub.limits.caller), Budgets(hub.limits.address)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise Bug(f"a gateway does not speak {scope['type']}")
        begin, client = time.monotonic(), scope.get("client")
        request = _Request(scope[CONNECTION], client[0] if client else "?")
        try:
            if self._pages is not None and is_page(scope["path"]):
                await self._page(self._pages, scope, receive, send, request)
            else:
                answer = await self._answer(scope, receive, request)
                await self._send(send, request, answer)
        except SealcastError as error:
            await self._refuse(send, request, error)
        except Exception as error:  # noqa: BLE001  (a fault of ours: nobody outside sees more of it than that it was one)
            self._hub.log.write("fault", route=_name(request), message=f"{type(error).__name__}: {_where(error)}")
            await self._refuse(send, request, Bug("a fault"))
        self._done(request, time.monotonic() - begin)

    # --- (1) to (5) ---------------------------------------------------------------------------------

    async def _answer(self, scope: Scope, receive: Receive, request: _Request) -> Answer:
        endpoint, path = self._route(scope)
        request.endpoint = endpoint
        hub, headers = self._hub, Headers(scope=scope)
        _be_no_browser(headers)
        if request.connection.certificate:
            await hub.come_to(headers.get(VERSION_HEADER.decode()))
        if not endpoint.public:
            request.caller = self._judge(request)
        self._charge(request, endpoint.cost)
        query = _query(endpoint, scope["query_string"])
        body = None
        if endpoint.body is not None:
            raw = await self._body(endpoint, headers, receive, request)
            self._charge(request, len(raw) // _BYTES_PER_REQUEST)
            body = await self._decoded(endpoint, raw)
        asked = ApiCall(request.caller, path, query, body, request.connection)
        with hub.waiting(request.caller) if query.get("wait") else nullcontext():
            try:
                return await endpoint.answer(hub, asked)
            except Refusal as error:
                if endpoint.public and error.status == 403:
                    self._addresses.bogus(request.address, self._now())
                raise

    # --- pages --------------------------------------------------------------------------------------

    async def _page(self, pages: Pages, scope: Scope, receive: Receive, send: Send, request: _Request) -> None:
        """A page of the console, for whom the certificate names. The console itself judges where the browser was."""
        request.page = True
        request.caller = self._judge(request)
        path, method, headers = scope["path"], scope["method"], Headers(scope=scope)
        self._charge(request, cost_of(path))
        if method not in ("GET", "POST"):
            raise Refusal(405, "method", "pages are asked with GET and POST")
        if path == PREFIX:
            await send(self._start(request, 308, [(b"location", f"{PREFIX}/".encode())]))
            await send({"type": "http.response.body", "body": b""})
            return
        body = await self._received(MAX_FORM_BYTES, headers, receive, request) if method == "POST" else b""
        query = scope["query_string"]
        target = scope["raw_path"] + (b"?" + query if query else b"")
        fields = cast(list[tuple[bytes, bytes]], scope["headers"])
        async with pages.ask(method, target, fields, body, request.caller.name, request.connection) as page:
            with self._hub.waiting(request.caller) if page.moves else nullcontext():
                await self._carry(send, request, page)

    async def _carry(self, send: Send, request: _Request, page: CarriedPage) -> None:
        await send(self._start(request, page.status, page.headers))
        async for part in page.parts():
            # A page that is open ends with the right to open it: by what the registry says, or by the clock.
            self._judge(request)
            await send({"type": "http.response.body", "body": part, "more_body": True})
            request.sent += len(part)
            if request.connection.gone:
                return
        await send({"type": "http.response.body", "body": b""})

    def _route(self, scope: Scope) -> tuple[ApiRoute, dict[str, str]]:
        for route, methods in self._routes:
            match, child = route.matches({**scope, "root_path": ""})
            if match is Match.NONE:
                continue
            path = cast(dict[str, str], child["path_params"])
            if not all(_SEGMENT[name].fullmatch(value) for name, value in path.items()):
                continue
            endpoint = methods.get(scope["method"])
            if endpoint is None:
                raise Refusal(405, "method", f"this is asked with {', '.join(sorted(methods))}")
            return endpoint, path
        raise Refusal(404, "not-found", "there is nothing under this path", hint="the endpoints: GET /openapi.json")

    def _judge(self, request: _Request) -> Caller:
        try:
            return self._hub.callers.judge(request.connection.certificate)
        except Refusal as error:
            if error.reason != "missing":
                self._addresses.bogus(request.address, self._now())
            raise

    def _charge(self, request: _Request, cost: int) -> None:
        if not cost:
            return
        budgets, key = (
            (self._callers, request.caller.name) if request.caller.name else (self._addresses, request.address)
        )
        now = self._now()
        verdict = budgets.spend(key, now, cost)
        if not verdict.admitted:
            late = (verdict.retry_at_us - now) / _SECOND_US
            raise Refusal(429, "busy", f"too many requests: the next one in {late:.1f} seconds", hint="ask less often")
        if request.caller.name:
            budgets.good(key)

    async def _body(self, endpoint: ApiRoute, headers: Headers, receive: Receive, request: _Request) -> bytes:
        if headers.get("content-type", CBOR).partition(";")[0].strip().lower() != CBOR:
            raise Refusal(415, "media-type", f"bodies are {CBOR}")
        if headers.get("content-encoding"):
            raise Refusal(415, "media-type", "bodies are sent as they are, without a content encoding")
        return await self._received(endpoint.max_body, headers, receive, request)

    async def _received(self, most: int, headers: Headers, receive: Receive, request: _Request) -> bytes:
        def count(size: int) -> None:
            request.received = size

        return await received(receive, most, self._hub.limits, headers.get("content-length", "0"), count)

    async def _decoded(self, endpoint: ApiRoute, raw: bytes) -> Any:
        shape = endpoint.body
        assert shape is not None
        if len(raw) < _BYTES_PER_REQUEST:
            return read_body(shape, raw, endpoint.max_body)
        return await self._hub.workers.run(lambda: read_body(shape, raw, endpoint.max_body))

    # --- (6) ----------------------------------------------------------------------------------------

    async def _send(self, send: Send, request: _Request, answer: Answer) -> None:
        match answer:
            case CborAnswer():
                await self._whole(send, request, 200, CBOR, cbor.encode(answer.value))
            case TextAnswer():
                await self._whole(send, request, answer.status, answer.media_type, answer.body)
            case NoAnswer():
                await self._whole(send, request, 204, None, b"")
            case BytesAnswer():
                size = [(b"content-length", str(answer.size).encode())]
                await self._parts(send, request, size, answer.parts)
            case StreamAnswer():
                with self._hub.waiting(request.caller):
                    await self._parts(send, request, [], answer.items)

    async def _whole(self, send: Send, request: _Request, status: int, kind: str | None, body: bytes) -> None:
        headers = [] if kind is None else [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
        await send(self._start(request, status, headers))
        await send({"type": "http.response.body", "body": body})
        request.sent = len(body)

    async def _parts(
        self, send: Send, request: _Request, headers: list[tuple[bytes, bytes]], parts: AsyncIterator[bytes]
    ) -> None:
        assert request.endpoint is not None
        kind = (request.endpoint.media_type or CBOR).encode()
        async with aclosing(parts):  # type: ignore[type-var]
            await send(self._start(request, 200, [(b"content-type", kind), *headers]))
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
                request.sent += len(part)
                if request.connection.gone:
                    return
        await send({"type": "http.response.body", "body": b""})

    async def _refuse(self, send: Send, request: _Request, error: SealcastError) -> None:
        started = request.status
        status, body = problems.described(error)
        if status >= 500 and not isinstance(error, Refusal):
            self._hub.log.write("trouble", route=_name(request), message=error.message, status=status)
        if started:
            # Too late for a number: the answer ends before it is whole, which every client notices.
            request.connection.abort()
            return
        headers = [(b"content-type", problems.MEDIA_TYPE.encode()), (b"content-length", b"%d" % len(body))]
        if status in (429, 503):
            headers.append((b"retry-after", b"%d" % problems.RETRY_S))
        if status in (408, 413):
            headers.append((b"connection", b"close"))
        await send(self._start(request, status, headers))
        await send({"type": "http.response.body", "body": body})
        request.sent = len(body)

    def _start(self, request: _Request, status: int, headers: list[tuple[bytes, bytes]]) -> Message:
        request.status = status
        version = (VERSION_HEADER, b"%d" % self._hub.newest.version)
        return {"type": "http.response.start", "status": status, "headers": [version, *headers]}

    def _done(self, request: _Request, seconds: float) -> None:
        route = _name(request)
        self._hub.metrics.answered(route, request.status, seconds, request.received, request.sent)
        if self._hub.log.requests:
            self._hub.log.write(
                "request",
                route=route,
                status=request.status,
                caller=request.caller.name,
                address=request.address,
                milliseconds=round(seconds * 1e3, 3),
                received=request.received,
                sent=request.sent,
            )

    def _now(self) -> int:
        # Not the realm's clock, which may be set: budgets count how long it was since.
        return time.monotonic_ns() // 1_000


def _be_no_browser(headers: Headers) -> None:
    """A browser shows its user's certificate also when a page of another site makes it ask. No client of ours says
    where it was sent from, and browsers do: what one sends here is not looked at. Pages of the console have forms."""
    if headers.get("origin") is not None or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Refusal(403, "origin", "a page of a browser asked for this", hint="pages are under /console/")


def _name(request: _Request) -> str:
    if request.page:
        return "console"
    return "none" if request.endpoint is None else request.endpoint.name


def _where(error: BaseException) -> str:
    """The line of ours that failed: no message, which may hold what was sent."""
    trace, found = error.__traceback__, "?"
    while trace is not None:
        found = f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


async def _no_endpoint(*_: object) -> None:
    raise Bug("endpoints are called by the application")


def _query(endpoint: ApiRoute, raw: bytes) -> dict[str, int | str | None]:
    try:
        given = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, strict_parsing=bool(raw), max_num_fields=_MAX_PARAMETERS
        )
    except (ValueError, UnicodeDecodeError):
        raise Misuse("the query cannot be read") from None
    values, known = dict(given), {each.name for each in endpoint.query}
    if len(values) != len(given) or not values.keys() <= known:
        raise Misuse(f"the parameters here are {', '.join(sorted(known)) or 'none'}, each once")
    return {each.name: each.read(values.get(each.name)) for each in endpoint.query}
