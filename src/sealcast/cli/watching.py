"""sealcast status --watch: how topics stand, as a table on the terminal that is drawn again and again.

It fits 80 columns: names that are too long are broken, numbers never are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sealcast.cli import talk
from sealcast.cli.stopping import stop_asked
from sealcast.errors import Misuse

if TYPE_CHECKING:
    from rich.table import Table

_NUMBERS: Final = ("backlog", "admitted", "per s", "delivered", "refused", "lag")


def watch(read: Callable[[], Sequence[Mapping[str, Any]]], seconds: float) -> None:
    """Draws what `read` finds every so many seconds, until Ctrl-C."""
    if not sys.stdout.isatty():
        raise Misuse("--watch draws on a terminal, and stdout is none", hint="for programs: sealcast status --json")
    from rich.live import Live

    with stop_asked() as stop, Live(console=talk.console(), auto_refresh=False) as live:
        while not stop.is_set():
            live.update(drawn(read()), refresh=True)
            stop.wait(seconds)


def drawn(documents: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each topic at each of its brokers. A dash stands for what is not counted there."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for name in ("topic", "broker"):
        shown.add_column(name, overflow="fold")
    for name in _NUMBERS:
        shown.add_column(name, justify="right", no_wrap=True)
    for found in documents:
        events, rates, refused = (found.get(name) or {} for name in ("events", "per_second", "rejected"))
        numbers = (
            found.get("backlog"),
            events.get("admitted"),
            rates.get("admitted"),
            events.get("deliveries"),
            sum(refused.values()),
            (found.get("lag") or {}).get("total"),
        )
        names = (talk.safe(str(found.get(name, "-"))) for name in ("topic", "broker"))
        shown.add_row(*names, *("-" if number is None else f"{number:,}" for number in numbers))
    return shown
