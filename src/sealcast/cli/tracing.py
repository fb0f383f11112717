"""The option --traces, for the commands whose work is a part of an event's way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sealcast.telemetry.traces import Traces

TracesTo = Annotated[
    str | None,
    typer.Option(
        "--traces",
        metavar="URL",
        envvar="SEALCAST_TRACES",
        help="Send traces to this OTLP collector, such as http://127.0.0.1:4318/v1/traces.",
    ),
]


@contextmanager
def traces_to(url: str | None) -> Iterator[Traces | None]:
    """Traces that go there while the block lasts; None without an address."""
    if not url:
        yield None
        return
    from sealcast.telemetry.traces import Traces

    with Traces.to_collector(url) as traces:
        yield traces
