"""What stands between a browser and the pages: the checks of every request, and the headers of every answer.

    (1) host      the name that this console was opened under, and no other: a page elsewhere whose name now leads to
                  this machine (DNS rebinding) is refused
    (2) site      what the browser says of where a request comes from: other sites ask for nothing here
    (3) origin    whatever changes something comes from a page of ours, which says so
    (4) who       on loopback: the cookie that a link was exchanged for (`visits`). Behind a gateway: the entity that
                  the gateway says, by the certificate of the connection (`behind`)

Browsers show a client certificate to whoever makes them ask, like a cookie without `SameSite`: behind a gateway,
checks (2) and (3) are all that keeps other sites out.

The cookie is `HttpOnly` and `SameSite=Strict`. Browsers send cookies to every port of a host; so each console has a
host name of its own, which nobody can guess (serving.py), and another server on this machine never gets its cookie.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http.cookies import CookieError, SimpleCookie
from typing import Final, NamedTuple, Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sealcast.console.viewer import Viewer
from sealcast.console.visits import Visits

COOKIE: Final = "sealcast-console"
VIEWER: Final = "sealcast.viewer"
#: Nothing comes from elsewhere, nothing inline runs, nothing is evaluated, nobody frames us, no form leads away. Text
#: becomes markup in one place of our script alone.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types sealcast"
)
HEADERS: Final[dict[str, str]] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
#: Paths that need no session: the link itself, and what every page is drawn with.
OPEN: Final = "/open/"
ASSETS: Final = "/assets/"
_READING: Final = frozenset({"GET", "HEAD"})
_OURS: Final = frozenset({"same-origin", "none"})


class NotLetIn(NamedTuple):
    """Why a request is not answered: a status, what is wrong, and what to do."""

    status: int
    what: str
    todo: str


Refuse = Callable[[int, str, str], ASGIApp]


class PageDoor(Protocol):
    """Where pages are reached, and by whom."""

    #: Of the pages' own origin.
    scheme: str
    #: Of paths that a link elsewhere may lead to: nothing happens by opening them.
    entrance: str

    def answers_at(self, host: str) -> bool:
        """Whether the pages are reached under this name."""

    def viewer(self, path: str, headers: Headers) -> Viewer | NotLetIn:
        """Who asks."""


class LoopbackDoor:
    """For whoever came by a link, on this machine."""

    scheme, entrance = "http", OPEN

    def __init__(self, hosts: frozenset[str], visits: Visits, viewer: Viewer) -> None:
        self._hosts, self._visits, self._viewer = hosts, visits, viewer

    def answers_at(self, host: str) -> bool:
        return host in self._hosts

    def viewer(self, path: str, headers: Headers) -> Viewer | NotLetIn:
        if path.startswith((OPEN, ASSETS)) or self._visits.knows(cookie_of(headers)):
            return self._viewer
        return NotLetIn(
            401,
            "This browser has not been let in, or its visit has ended.",
            "Use a fresh link: press Enter in the terminal where `sealcast console` runs, or start it again.",
        )


class Guard:
    """An ASGI application in front of another one."""

    def __init__(self, app: ASGIApp, door: PageDoor, refuse: Refuse) -> None:
        """`refuse` makes the page that says why: of a status, what is wrong, and what to do."""
        self._app, self._door, self._refuse = app, door, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        found = self._check(scope, Headers(scope=scope))
        if isinstance(found, NotLetIn):
            await self._refuse(*found)(scope, receive, with_headers(send))
            return
        scope[VIEWER] = found
        await self._app(scope, receive, with_headers(send))

    def _check(self, scope: Scope, headers: Headers) -> Viewer | NotLetIn:
        host, origin, site = (headers.getlist(name) for name in ("host", "origin", "sec-fetch-site"))
        path, reading = scope["path"], scope["method"] in _READING
        # (1)
        if len(host) != 1 or not self._door.answers_at(host[0]):
            return NotLetIn(421, "This console does not answer under that name.", "Use the address that it was given.")
        # (2) A link to the entrance may be clicked anywhere.
        if not self._enters(path, reading) and any(each not in _OURS for each in site):
            return NotLetIn(403, "Another site asked for this.", "Open the console itself.")
        # (3)
        if (origin or not reading) and origin != [f"{self._door.scheme}://{host[0]}"]:
            return NotLetIn(403, "This request does not come from a page of the console.", "Open the console itself.")
        # (4)
        return self._door.viewer(path, headers)

    def _enters(self, path: str, reading: bool) -> bool:
        entrance = self._door.entrance
        return reading and (path == entrance or (len(entrance) > 1 and path.startswith(entrance)))


def cookie_of(headers: Headers) -> str:
    """The session that a request names; empty for none."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def with_headers(send: Send) -> Callable[[Message], Awaitable[None]]:
    """Every answer has these headers. What never changes while the process lives may be kept, and says so itself."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
