"""A page of metrics for Prometheus, served while something runs. Whatever is counted, the page is the same."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, start_http_server

from sealcast.errors import Unavailable
from sealcast.log.closing import Closing


def serve(registry: CollectorRegistry, port: int) -> MetricsPage:
    """On loopback only: publishing it further is a reverse proxy's business, with its own access control."""
    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise Unavailable(
            f"metrics cannot be served on 127.0.0.1:{port}: {error.strerror}", hint="choose another port"
        ) from error
    return MetricsPage(server.server_port, server.shutdown, server.server_close, thread.join)


class MetricsPage(Closing):
    """A metrics page being served; closed when the block ends."""

    def __init__(self, port: int, *closing: Callable[[], None]) -> None:
        self.port = port
        self._closing = closing

    def close(self) -> None:
        for step in self._closing:
            step()
        self._closing = ()
