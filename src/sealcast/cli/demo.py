"""`sealcast demo`: the main job, end to end, and a report that proves it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import talk

if TYPE_CHECKING:
    from sealcast.lab.demo import DemoReport
    from sealcast.pipeline.metrics import FinishedBatch

app = talk.Commands(no_args_is_help=False, shared=talk.JSON_ONLY)
#: Desks that the report shows; the others are in the sums.
SHOWN_DESKS = 10


@app.command(epilog="Example: sealcast demo --events 5000 --desks 100")
def demo(
    events: Annotated[int, typer.Option(min=100, max=1_000_000, help="Events that the exchanges publish.")] = 12_000,
    desks: Annotated[int, typer.Option(min=1, max=5_000, help="Subscribers, each with a filter of its own.")] = 300,
    seed: Annotated[int, typer.Option(help="The seed of the day's events; another one makes another day.")] = 2026,
) -> None:
    """Run a day of market data in miniature: published, sealed, delivered and opened, with attackers at the door.

    Everything is real: Spark's streaming job, the durable log, every key. It runs in a temporary realm that is removed
    afterwards. The report shows who got what, what it cost, what was refused and why, and what outsiders could open.
    """
    from sealcast.lab import scratch
    from sealcast.lab.demo import DemoDay, Size
    from sealcast.pipeline.session import keeps_classes

    with scratch.realm(need_bytes=256 << 20) as realm, _counters(quiet=talk.given.json) as hear:
        report = DemoDay(realm, Size(events=events, desks=desks, seed=seed), talk.note, hear).run()
    if not talk.emitted(report.as_json()):
        _show(report)
    if keeps_classes():
        talk.note("writing down what Java has loaded, so that Spark starts faster from now on ...")
    if not report.as_it_should:
        talk.note("The demo did not come out as it should: please report this.")
        raise typer.Exit(1)


@contextmanager
def _counters(*, quiet: bool) -> Iterator[Callable[[FinishedBatch], None]]:
    """Live counters on a terminal; without one, or for machines, silence."""
    if quiet or not sys.stderr.isatty():
        yield lambda batch: None
        return
    from collections import Counter

    totals: Counter[str] = Counter()
    with talk.console(stderr=True).status("") as status:

        def hear(batch: FinishedBatch) -> None:
            totals.update(batch.counts)
            refused = sum(n for name, n in totals.items() if name.startswith("rejected_"))
            status.update(
                f"batch {batch.number}: {totals['admitted']:,} admitted, {refused} refused, "
                f"{totals['deliveries']:,} deliveries, {totals['encryptions']:,} encryptions"
            )

        yield hear


def _show(report: DemoReport) -> None:
    busiest = sorted(report.desks, key=lambda desk: -desk.opened)
    shown = [*busiest[: SHOWN_DESKS - 3], *busiest[-3:]]
    talk.say("Who got what\n")
    talk.table(
        ["desk", "filter", "should get", "opened", "wrong"],
        [(d.name, d.filter, d.wanted, d.opened, d.wrong) for d in shown],
        "nobody subscribed",
    )
    talk.say(f"... and {len(report.desks) - len(shown)} more desks. All of them opened {report.opened:,} events,")
    talk.say(f"{report.wrong} of them wrong: an oracle evaluated every filter on every event.\n")
    talk.say("What was refused, and why\n")
    talk.table(
        ["reason", "attempt", "events"],
        [(str(a.reason), a.story, a.events) for a in report.attacks],
        "nothing",
    )
    talk.say("\nWhat outsiders opened\n")
    talk.table(
        ["who", "", "keys tried", "opened"],
        [(o.name, o.story, o.tried, o.opened) for o in report.outsiders],
        "nobody tried",
    )
    talk.say("")
    per_event = report.encryptions / max(1, report.matched)
    talk.pairs(
        [
            ("published", f"{report.published:,} events, hostile ones included"),
            ("admitted", f"{report.admitted:,} in {report.batches} micro-batches"),
            ("delivered", f"{report.deliveries:,} times to {sum(d.opened > 0 for d in report.desks)} desks"),
            (
                "encryptions",
                f"{per_event:.1f} per event that somebody wanted, keys handed out included "
                f"({report.deliveries / max(1, report.matched):.1f} without group keys)",
            ),
            ("opened", f"{report.opened:,} by those they were for, {report.opened_by_outsiders} by outsiders"),
            ("took", ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in report.seconds.items())),
        ]
    )
