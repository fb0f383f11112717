"""sealcast check: prove from the ledger that nothing was lost, doubled, out of order or unexpected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from sealcast.cli import talk
from sealcast.cli.asked_topics import AlsoTopics, Topics, asked
from sealcast.trust.certificates.roles import Role

if TYPE_CHECKING:
    from sealcast.protections.witness.report import CheckReport

app = talk.Commands(no_args_is_help=False)

SUMS: Final = (
    "batches",
    "events",
    "deliveries",
    "lost",
    "duplicated",
    "out_of_order",
    "unexpected",
    "waiting_frames",
    "unchecked_frames",
    "removed_deliveries",
)


@app.command(epilog="Example: sealcast check quotes")
def check(
    topics: Topics = None,
    topic: AlsoTopics = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="Ask the reference evaluator, event by event: slow, and on its own.")
    ] = False,
) -> None:
    """Check what was delivered: do again what every broker did, and compare.

    Brokers' ledgers are verified: the chain, its authenticity, the digest of every piece, all counts, the order of
    deliveries. Where brokers read, every frame is admitted again, every filter is asked again, and each delivery must
    open for its receiver. Where they do not, every hop is routed again. That needs the brokers' secrets; what could not
    be judged without them, or at all, is said. Exit code 1 if anything is wrong.

    Of a broker on a machine of its own, it checks what that machine has: run it there, in the broker's home.
    """
    from sealcast.protections.port import witness_side

    here = talk.open_realm(home_of=Role.BROKER)
    state = here.state()
    names = sorted(asked(state, topics, topic))
    audits = [
        audit
        for name in names
        for audit in witness_side(state.topic(name).protection).audits(here, name, by_reference=reference)
    ]
    reports: dict[str, CheckReport] = {}
    with talk.progress("checking", sum(audit.size() for audit in audits)) as bar:
        for audit in audits:
            report = audit.run((lambda done: None) if bar is None else lambda n: bar.advance(bar.task_ids[0], n))
            reports[report.topic] = report
    if not talk.emitted(_document(list(reports.values()))):
        _show(list(reports.values()))
    if not all(report.ok for report in reports.values()):
        raise typer.Exit(1)


def _document(reports: list[CheckReport]) -> dict[str, object]:
    bodies = {report.topic: report.as_json() for report in reports}
    sums = {name: sum(int(str(body[name] or 0)) for body in bodies.values()) for name in SUMS}
    problems = [
        {"topic": report.topic, "kind": str(p.kind), "message": p.message}
        for report in reports
        for p in report.problems
    ]
    return {"ok": all(report.ok for report in reports), **sums, "problems": problems, "topics": bodies}


def _show(reports: list[CheckReport]) -> None:
    columns = ["topic", "batches", "events", "deliveries", "lost", "duplicated", "out of order", "unexpected", ""]
    rows = []
    for report in reports:
        body = report.as_json()
        numbers = ("?" if body[name] is None else body[name] for name in SUMS[:7])
        rows.append([report.topic, *numbers, "ok" if report.ok else "NOT OK"])
    talk.table(columns, rows, "no topics yet: sealcast topic create NAME --schema FILE")
    for report in reports:
        for problem in report.problems:
            talk.say(f"{report.topic}: {problem.kind}: {problem.message}")
        more = sum(report.found.values()) - len(report.problems)
        if more:
            talk.say(f"{report.topic}: ... and {more:,} more")
        if report.waiting:
            talk.note(f"{report.topic}: {report.waiting:,} frames wait for the pipeline: sealcast run --once")
        if report.unchecked:
            talk.note(f"{report.topic}: {report.unchecked:,} frames are no longer kept, and cannot be checked")
        if report.removed:
            talk.note(f"{report.topic}: {report.removed:,} deliveries were removed since, and cannot be checked")
        for gap in report.gaps:
            talk.note(f"{report.topic}: not judged: {gap}")
