"""sealcast serve: the realm's key centers, brokers' desks and discovery nodes, as far as their keys are here."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sealcast.cli import talk
from sealcast.cli.epochs import Messages
from sealcast.cli.metrics import PrometheusPort, PrometheusToken, asked_for, counting
from sealcast.errors import Corrupt, Unavailable

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from sealcast.control.desk import More
    from sealcast.control.reception import Reception
    from sealcast.control.running import Running

app = talk.Commands(no_args_is_help=False)

IDLE_S: Final = 0.02
#: How often schedules are looked at: keys that are due, and what askers have left behind.
TICK_S: Final = 10.0
TROUBLE_S: Final = 1.0


@app.command(daemon=True, epilog="Example: sealcast serve --realm market")
def serve(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME...]", help="Which key centers, brokers and discovery nodes.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Answer everything that is queued, and stop.")] = False,
    restrict: Annotated[
        str | None, typer.Option(metavar="WHO", help='Who may find key centers, such as "name=desk-* | role=broker".')
    ] = None,
    prometheus: PrometheusPort = None,
    prometheus_token: PrometheusToken = None,
) -> None:
    """Answer requests for tokens, keys, subscriptions and advertisements, until Ctrl-C.

    You do not need this in a realm whose keys are all in its directory: there, commands answer their own requests. It
    is for realms whose key centers and brokers keep their keys to themselves. It replaces topics' keys on schedule.
    A server that is killed leaves nothing half done. When it is started again, it answers what was asked meanwhile.

    A key center, a broker or a discovery node on a machine of its own is served in the home that it joined from. It
    listens on a random topic as all do, so that nobody learns where it is.
    """
    from sealcast.control.center.service import FOUND_BY
    from sealcast.control.discovery.restrictions import Restrictions
    from sealcast.control.reception import Reception
    from sealcast.control.running import Running
    from sealcast.model.protection import PROTECTIONS
    from sealcast.overlay.brokers import requests_of
    from sealcast.protections.port import broker_side, center_rules

    here = talk.open_realm(afar=True)
    show = asked_for(prometheus, prometheus_token)
    found_by = FOUND_BY if restrict is None else Restrictions.parse(restrict)
    stop = _Stop()
    asked = [requests_of, *(broker_side(kind()).requests for kind in PROTECTIONS.values())]

    def more(name: str) -> More:
        return {kind: answer for requests in asked for kind, answer in requests(here, name).items()}

    with (
        Running(here, names or None, found_by=found_by, more=more, center_more=center_rules) as running,
        ExitStack() as held,
    ):
        running.start()
        reception = None if names else Reception.here(here)
        if reception is not None:
            held.enter_context(reception)
            talk.note("the reception enrols whoever has an invitation's code")
        for served in running.services:
            talk.note(f"{served.what} {served.name!r} listens on {served.service.topic.hex()}")
        held.enter_context(show(lambda: metrics_of(running, reception)))
        sealed = Messages(here)
        rotated = running.rotate_due(sealed.counts())
        if once:
            running.drain()
            while reception is not None and reception.turn():
                pass
        else:
            talk.note("serving; Ctrl-C stops in good order")
            rotated |= _serve(running, reception, sealed, stop)
        services = _services(running, reception)
    _answer(services, rotated)


def _answer(services: list[dict[str, Any]], rotated: Mapping[str, str]) -> None:
    columns = ["service", "name", "answered", "otherwise"]
    names_shown = ["" if s["name"] == s["what"] else s["name"] for s in services]
    rows = [
        (s["what"], name, s["counts"].get("answered", 0), _others(s["counts"]))
        for s, name in zip(services, names_shown, strict=True)
    ]
    talk.answer_table({"services": services, "rotated": rotated}, columns, rows, "nothing was served")


def _services(running: Running, reception: Reception | None) -> list[dict[str, Any]]:
    """Who served, and what became of the requests."""
    found: list[dict[str, Any]] = [
        {"what": str(s.what), "name": s.name, "topic": s.service.topic.hex(), "counts": dict(s.counts)}
        for s in running.services
    ]
    if reception is not None and reception.counts:
        counts = {("answered" if what == "joined" else what): n for what, n in reception.counts.items()}
        found.append({"what": "reception", "name": "reception", "topic": None, "counts": counts})
    return found


def metrics_of(running: Running, reception: Reception | None) -> CollectorRegistry:
    """What became of requests, by service. Who asked is nobody's business."""

    def look() -> dict[tuple[str, ...], int]:
        found = dict[tuple[str, ...], int]()
        for each in running.services:
            found |= {(str(each.what), each.name, outcome): n for outcome, n in dict(each.counts).items()}
        joins = dict(reception.counts) if reception is not None else {}
        return found | {("reception", "reception", outcome): n for outcome, n in joins.items()}

    labels = ("service", "name", "outcome")
    return counting("sealcast_service_requests", "Requests to services, and what became of them", labels, look)


class _Stop:
    """Ctrl-C, or a polite request from elsewhere: the turn that is under way ends first."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: object) -> None:
        self.asked = True


def _serve(running: Running, reception: Reception | None, sealed: Messages, stop: _Stop) -> dict[str, str]:
    rotated, tick = dict[str, str](), time.monotonic() + TICK_S
    while not stop.asked:
        try:
            taken = running.turn() + (reception.turn() if reception is not None else 0)
            if time.monotonic() >= tick:
                due = running.rotate_due(sealed.counts())
                for topic, why in due.items():
                    talk.note(f"topic {topic!r} has new keys: {why}")
                rotated |= due
                running.sweep()
                tick = time.monotonic() + TICK_S
        except Corrupt:
            raise
        except Unavailable as error:
            # A registry that is restarted, a disk that is full: it passes, and nothing was half done.
            talk.warn(error.message)
            time.sleep(TROUBLE_S)
            continue
        if not taken:
            time.sleep(IDLE_S)
    return rotated


def _others(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{what} {count:,}" for what, count in sorted(counts.items()) if what != "answered")
