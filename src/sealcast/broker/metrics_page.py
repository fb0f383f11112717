"""A page of metrics for Prometheus, served while something runs. Whatever is counted, the page is the same.

It is on loopback and shows counts, by topic and broker, and never the name of an entity. With a token, it is for those
who have it: Prometheus sends it as `Authorization: Bearer TOKEN` (docs/adr/0031-metrics-page.md).
"""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from sealcast.errors import Misuse, Unavailable
from sealcast.log import files
from sealcast.log.closing import Closing
from sealcast.primitives.secrets import Secret

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

MIN_TOKEN_BYTES: Final = 16
MAX_TOKEN_BYTES: Final = 1_024
_SCHEME: Final = b"Bearer "


def serve(registry: CollectorRegistry, port: int, token: Secret | None = None) -> MetricsPage:
    """On loopback only: publishing it further is a reverse proxy's business, with its own access control."""
    app = make_wsgi_app(registry)
    try:
        server = make_server(
            "127.0.0.1", port, app if token is None else _guarded(app, token), _Threads, handler_class=_Silent
        )
    except OSError as error:
        raise Unavailable(
            f"metrics cannot be served on 127.0.0.1:{port}: {error.strerror}", hint="choose another port"
        ) from error
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    return MetricsPage(server.server_port, server.shutdown, server.server_close, thread.join)


def read_token(path: Path | None) -> Secret | None:
    """What a file has as its only line; Misuse if others may read it, or it is too short to be a secret."""
    if path is None:
        return None
    with files.named(path, "reading"), path.open("rb") as file:
        mode, raw = stat.S_IMODE(path.stat().st_mode), file.read(MAX_TOKEN_BYTES + 1).strip()
    if mode & 0o077:
        raise Misuse(f"{path} may be read by others (mode {mode:04o})", hint=f"chmod 600 {path}")
    if not MIN_TOKEN_BYTES <= len(raw) <= MAX_TOKEN_BYTES or not raw.isascii() or len(raw.split()) != 1:
        raise Misuse(
            f"{path} has no token: {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} characters without a space",
            hint=f"make one: openssl rand -hex 32 > {path}",
        )
    return Secret(raw)


class CountsCollector(Collector):
    """One counter whose numbers somebody else keeps."""

    def __init__(
        self, name: str, help: str, labels: Sequence[str], look: Callable[[], Mapping[tuple[str, ...], int]]
    ) -> None:
        """`look` gives the numbers as they are now, by the values of the labels."""
        self._name, self._help, self._labels, self._look = name, help, labels, look

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self._name, self._help, labels=self._labels)
        for values, count in sorted(self._look().items()):
            family.add_metric(values, count)
        yield family


def _guarded(app: WSGIApplication, token: Secret) -> WSGIApplication:
    """The page for those who show the token, and nothing for everybody else."""

    expected = Secret(_SCHEME + token.reveal())

    def checked(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        shown = str(environ.get("HTTP_AUTHORIZATION", "")).encode("latin-1", "replace")
        if Secret(shown or b"nothing") != expected:  # in constant time
            start_response("401 Unauthorized", [("WWW-Authenticate", "Bearer"), ("Content-Length", "0")])
            return []
        return app(environ, start_response)

    return checked


class _Threads(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    #: Whoever connects and says nothing is let go.
    timeout = 10

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is said of who looks at the page."""


class MetricsPage(Closing):
    """A metrics page being served; closed when the block ends."""

    def __init__(self, port: int, *closing: Callable[[], None]) -> None:
        self.port = port
        self._closing = closing

    def close(self) -> None:
        for step in self._closing:
            step()
        self._closing = ()
