"""The pages, by their paths. What goes wrong becomes a page that says what and what to do."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from sealcast.clients.realm import Realm
from sealcast.console import event, filters, overview, rights, sees, topic
from sealcast.console.aside import Aside
from sealcast.console.asked import FormFields, asked_of, viewer_of
from sealcast.console.confirming import Confirmations
from sealcast.console.guard import COOKIE, Guard, LoopbackDoor, Refuse, cookie_of
from sealcast.console.html import Markup, element
from sealcast.console.live import LivePages, Render
from sealcast.console.pages import PageLink, page, part, said
from sealcast.console.papers import Papers
from sealcast.console.responses import Responses
from sealcast.console.rights import Acting
from sealcast.console.viewer import Viewer
from sealcast.console.visits import Visits
from sealcast.console.workers import PageWorkers
from sealcast.errors import Misuse, NotFound, SealcastError
from sealcast.gateway.problems import status_of

#: The files that pages are drawn with, and what each is.
_KINDS: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_ASSET: Final = re.compile(r"[a-z]+\.(css|js|svg)", re.ASCII)
#: The script says so when it wants an answer for a part of a page.
PART_HEADER: Final = "sealcast-part"
_log: Final = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


class Console:
    """Everything that pages are made from: threads that look at the realm, and the looks that all share."""

    def __init__(
        self,
        realm: Realm,
        *,
        prefix: str = "",
        figures: Path | None = None,
        tell: Callable[[str], None] = lambda words: None,
    ) -> None:
        """`figures` is where experiments of the lab put what they make; `tell` is told what was changed."""
        self._confirmations, self._tell = Confirmations(), tell
        self.responses = Responses(realm.paths.root)
        self.workers = PageWorkers(realm)
        self._held = ExitStack()
        kept = figures or Path(self._held.enter_context(TemporaryDirectory(prefix="sealcast-figures-")))
        self.papers = Papers(kept)
        self.live = LivePages(self.workers)
        self.link = PageLink(prefix)
        self.aside = Aside()

    async def close(self) -> None:
        await self.live.close()
        self.workers.close()
        self.aside.close()
        self.papers.close()
        self._held.close()

    # --- the first pages ------------------------------------------------------------------------------

    async def overview(self, request: Request) -> Response:
        viewer, look = viewer_of(request), await self.live.newest()
        return page("Overview", viewer, overview.shown(look, viewer, self.link), link=self.link, live="live/overview")

    async def topic(self, request: Request) -> Response:
        viewer, look, name = viewer_of(request), await self.live.newest(), request.path_params["topic"]
        last = await self.workers.run(lambda realm: topic.refusals(realm, name)) if name in look.state.topics else []
        made = topic.shown(look, name, viewer, self.link, last)
        return page(f"Topic {name}", viewer, made, link=self.link, live=f"live/topics/{name}")

    async def live_overview(self, request: Request) -> Response:
        viewer = viewer_of(request)
        return self._stream(f"overview {viewer}", lambda look: overview.parts(look, viewer, self.link))

    async def live_topic(self, request: Request) -> Response:
        viewer, name = viewer_of(request), request.path_params["topic"]
        look = await self.live.newest()
        if name not in look.state.topics or not viewer.may_see(look.state, name):
            raise NotFound(f"there is no topic {name!r} that you may see")
        return self._stream(f"topic {name} {viewer}", lambda look: topic.parts(look, name, viewer))

    # --- pages that are asked for something -----------------------------------------------------------

    async def sees(self, request: Request) -> Response:
        asked, viewer = await asked_of(request), viewer_of(request)
        state = await self.workers.run(lambda realm: realm.state())
        sample = sees.ViewedSample.of(asked, state, viewer)
        result = await self.aside.run(sees.looked, sample)
        if _wants_part(request):
            return HTMLResponse(sees.result_part(sample, result))
        return page("Who sees what", viewer, sees.shown(sample, result, state, viewer, self.link), link=self.link)

    async def filters(self, request: Request) -> Response:
        asked, viewer = await asked_of(request), viewer_of(request)

        def tried(realm: Realm) -> tuple[filters.TypedFilter, Markup, list[str]]:
            state = realm.state()
            typed = filters.TypedFilter(asked, state, viewer)
            return typed, filters.result_part(realm, typed, viewer), viewer.topics(state)

        typed, result, topics = await self.workers.run(tried)
        if _wants_part(request):
            return HTMLResponse(result)
        return page("Filters", viewer, filters.shown(typed, result, topics, self.link), link=self.link)

    async def event(self, request: Request) -> Response:
        asked, viewer = await asked_of(request), viewer_of(request)
        made = await self.workers.run(lambda realm: event.shown(realm, asked, viewer, self.link))
        return page("An event", viewer, made, link=self.link)

    async def rights(self, request: Request) -> Response:
        asked, viewer = await asked_of(request), viewer_of(request)
        made = await self.workers.run(lambda realm: rights.shown(realm, asked, viewer, self.link))
        return page("Rights", viewer, made, link=self.link)

    async def revoke(self, request: Request) -> Response:
        return await self._act(request, rights.revoked)

    async def compromise(self, request: Request) -> Response:
        return await self._act(request, rights.compromised)

    async def _act(self, request: Request, act: Callable[[Realm, FormFields, Acting], Markup | str]) -> Response:
        """What only an administrator does: a dry run, or what a dry run's token confirms. The guard has seen that a
        page of ours asks. A name that comes back is that of an entity whose stolen keys are to be responded to."""
        asked, viewer = await asked_of(request), _administrator(request)
        by = Acting(cookie_of(request.headers), self._confirmations, self.link, self._tell)
        made = await self.workers.run(lambda realm: act(realm, asked, by))
        if not isinstance(made, Markup):
            self.responses.start(made)
            made = rights.begun(made, self.link)
        return HTMLResponse(made) if _wants_part(request) else page("Rights", viewer, made, link=self.link)

    async def response(self, request: Request) -> Response:
        viewer, entity = _administrator(request), request.path_params["entity"]
        shown = part("response", self.responses.part(entity))
        at = f"live/responses/{entity}"
        return page(f"Response to the compromise of {entity}", viewer, shown, link=self.link, live=at)

    async def live_response(self, request: Request) -> Response:
        _, entity = _administrator(request), request.path_params["entity"]
        return self._stream(f"response {entity}", lambda look: {"response": self.responses.part(entity)})

    async def lab(self, request: Request) -> Response:
        viewer = viewer_of(request)
        return page("Lab", viewer, self.papers.shown(self.link, runs=viewer.administers), link=self.link)

    async def experiment(self, request: Request) -> Response:
        viewer, name = viewer_of(request), "{paper}/{figure}".format(**request.path_params)
        if request.method == "POST":
            _administrator(request)
            self.papers.start(name)
        return page("Lab", viewer, self.papers.one(name, self.link, runs=viewer.administers), link=self.link)

    async def figure(self, request: Request) -> Response:
        return Response(self.papers.figure(request.path_params["name"]), media_type="image/png")

    def _stream(self, name: str, render: Render) -> Response:
        return StreamingResponse(self.live.watch(name, render), media_type="text/event-stream")

    def routes(self) -> list[Route]:
        return [
            _get("/", self.overview),
            _get("/live/overview", self.live_overview),
            _get("/topics/{topic}", self.topic),
            _get("/live/topics/{topic}", self.live_topic),
            _get("/sees", self.sees),
            _get("/filters", self.filters),
            _get("/event", self.event),
            _get("/rights", self.rights),
            Route("/rights/revoke", self.revoke, methods=["POST"]),
            Route("/rights/compromise", self.compromise, methods=["POST"]),
            _get("/rights/responses/{entity}", self.response),
            _get("/live/responses/{entity}", self.live_response),
            _get("/lab", self.lab),
            _get("/lab/figures/{name}", self.figure),
            Route("/lab/{paper}/{figure}", self.experiment, methods=["GET", "POST"]),
            _get("/assets/{name}", asset),
        ]


def application(console: Console, more: Iterable[Route] = ()) -> ASGIApp:
    """The pages of a console, without anybody who guards them."""
    handlers: Mapping[type[Exception], Callable[[Request, Exception], Response]] = {
        SealcastError: _refused(console.link),
        HTTPException: _refused(console.link),
        Exception: _refused(console.link),
    }
    return Starlette(routes=[*console.routes(), *more], exception_handlers=handlers)


def refusing(prefix: str = "") -> Refuse:
    """Makes the page for who is not let in."""
    return lambda status, what, todo: HTMLResponse(said("Not let in", what, todo, prefix=prefix), status)


def guarded(console: Console, visits: Visits, viewer: Viewer, hosts: frozenset[str]) -> ASGIApp:
    """The pages of a console on loopback: for whoever came by a link."""

    async def opened(request: Request) -> Response:
        cookie = visits.enter(request.path_params["token"])
        if cookie is None:
            todo = "Press Enter in the terminal where `sealcast console` runs, for another one."
            return HTMLResponse(said("This link has been used", "A link works once, for ten minutes.", todo), 403)
        # Not a redirect: the browser would follow it as part of a visit from elsewhere, without the strict cookie.
        answer = HTMLResponse(said("Welcome", "You are let in.", None).replace("<head>", f"<head>{_REFRESH}", 1))
        answer.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", path="/")
        return answer

    return Guard(application(console, [_get("/open/{token}", opened)]), LoopbackDoor(hosts, visits, viewer), refusing())


_REFRESH: Final = element("meta", http_equiv="refresh", content="0;url=/")


def _administrator(request: Request) -> Viewer:
    viewer = viewer_of(request)
    if not viewer.administers:
        raise Misuse("this is for the realm's administrator")
    return viewer


def _wants_part(request: Request) -> bool:
    """Whether the script asks, for a part of a page that is open."""
    return request.headers.get(PART_HEADER) is not None


def _get(path: str, handler: Handler) -> Route:
    return Route(path, handler, methods=["GET"])


async def asset(request: Request) -> Response:
    """A file of this package. It does not change while the process lives."""
    name = request.path_params["name"]
    if not _ASSET.fullmatch(name):
        raise NotFound("there is no such file")
    file = resources.files("sealcast.console") / "assets" / name
    if not file.is_file():
        raise NotFound("there is no such file")
    kind = _KINDS[name.rpartition(".")[2]]
    return Response(file.read_bytes(), media_type=kind, headers={"cache-control": "private, max-age=60"})


def _refused(link: PageLink) -> Callable[[Request, Exception], Response]:
    def answer(request: Request, error: Exception) -> Response:
        todo: str | None
        if isinstance(error, HTTPException):
            status, what, todo = error.status_code, "There is no such page.", "Start at the overview."
        elif isinstance(error, SealcastError):
            status, what, todo = status_of(error), error.message, error.hint
        else:
            # A fault of ours: where, goes to the log, and what was sent does not.
            _log.error("a page failed: %s", type(error).__name__)
            status, what, todo = 500, "A fault in the console.", "Please report it, with what you did."
        if request.headers.get("accept") == "text/event-stream":
            return PlainTextResponse(what, status)
        if _wants_part(request):
            return HTMLResponse(element("p", what, f" {todo}" if todo else "", class_="bad", role="alert"), status)
        body = [element("p", what, class_="bad", role="alert"), element("p", todo) if todo else None]
        return page("Refused", viewer_of(request), *body, link=link, status=status)

    return answer
