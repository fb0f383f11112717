"""The metrics page of commands that run for good: the same options, and the same page, whatever is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import talk
from sealcast.errors import extras_named

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

PrometheusPort = Annotated[
    int | None,
    typer.Option("--prometheus", metavar="PORT", help="Serve metrics on 127.0.0.1:PORT; port 0 takes a free one."),
]
PrometheusToken = Annotated[
    Path | None,
    typer.Option(
        "--prometheus-token", metavar="FILE", help="Show metrics to those alone who send the token in this file."
    ),
]
#: Shows what a registry counts, as long as the block runs; nothing, where nobody asked for metrics.
ShownMetrics = Callable[[Callable[[], "CollectorRegistry"]], AbstractContextManager[None]]


def asked_for(port: int | None, token: Path | None) -> ShownMetrics:
    """What the options ask for. A token that is none is refused now."""
    if port is None and token is None:
        return _nothing
    # The package is there for those who want metrics.
    with extras_named("metrics"):
        from sealcast.broker.metrics_page import read_token, serve

    secret = read_token(token)

    @contextmanager
    def show(made: Callable[[], CollectorRegistry]) -> Iterator[None]:
        if port is None:
            yield
            return
        with serve(made(), port, secret) as page:
            talk.note(f"metrics on http://127.0.0.1:{page.port}/metrics")
            yield

    return show


@contextmanager
def _nothing(made: Callable[[], CollectorRegistry]) -> Iterator[None]:
    yield


def counting(
    name: str, help: str, labels: tuple[str, ...], look: Callable[[], dict[tuple[str, ...], int]]
) -> CollectorRegistry:
    """A registry of one counter, as it is when somebody looks."""
    from prometheus_client import CollectorRegistry

    from sealcast.broker.metrics_page import CountsCollector

    registry = CollectorRegistry()
    registry.register(CountsCollector(name, help, labels, look))
    return registry
