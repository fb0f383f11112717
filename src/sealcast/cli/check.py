"""sealcast check: prove from the ledger that nothing was lost, doubled, out of order or unexpected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from sealcast.cli import talk

if TYPE_CHECKING:
    from sealcast.protections.endpoint.audit import Report

app = typer.Typer(**{**talk.SETTINGS, "no_args_is_help": False})

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
)


@app.command(epilog="Example: sealcast check quotes")
def check(
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]...", help="[default: all]")] = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="Ask the reference evaluator, event by event: slow, and on its own.")
    ] = False,
    realm: talk.RealmOption = None,
    json: talk.JsonOption = False,
) -> None:
    """Check what was delivered: read every frame again, admit it again, ask every filter again, and compare.

    Also verified: the ledger's chain and its authenticity, the digest of every piece, all counts, and that each
    delivery opens for its receiver. Needs the broker's secrets. Exit code 1 if anything is wrong.

    Of a layered topic nobody can ask the filters again: there every hop is routed again by the table of its time, as
    far as brokers' keys are here, and mailboxes are checked for order, repetition and signatures. What that leaves open
    is said.
    """
    from sealcast.cli.layered_audit import LayeredAudit
    from sealcast.overlay.relay import brokers_here
    from sealcast.protections.endpoint.audit import Audit
    from sealcast.trust.layout import FIRST_BROKER

    here = talk.open_realm(realm)
    state = here.state()
    names = [state.topic(name).name for name in topics] if topics else sorted(state.topics)
    audits: list[Audit | LayeredAudit] = [
        Audit(here, name, broker=broker, by_reference=reference)
        for name in names
        for broker in brokers_here(here, state)
        if state.topic(name).protection.brokers_read
        if broker == FIRST_BROKER or here.paths.topic(name, broker).ledger.exists()
    ]
    audits += [LayeredAudit(here, name) for name in names if not state.topic(name).protection.brokers_read]
    reports: list[Report] = []
    with talk.progress("checking", sum(audit.frames() for audit in audits)) as bar:
        for audit in audits:
            reports.append(
                audit.run((lambda frames: None) if bar is None else lambda n: bar.advance(bar.task_ids[0], n))
            )
    if json:
        talk.emit(_document(reports))
    else:
        _show(reports)
    if not all(report.ok for report in reports):
        raise typer.Exit(1)


def _document(reports: list[Report]) -> dict[str, object]:
    bodies = {report.topic: report.as_json() for report in reports}
    sums = {name: sum(int(str(body[name] or 0)) for body in bodies.values()) for name in SUMS}
    problems = [
        {"topic": report.topic, "kind": str(p.kind), "message": p.message}
        for report in reports
        for p in report.problems
    ]
    return {"ok": all(report.ok for report in reports), **sums, "problems": problems, "topics": bodies}


def _show(reports: list[Report]) -> None:
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
        described = len(report.problems)
        found = sum(report.found.values())
        if found > described:
            talk.say(f"{report.topic}: ... and {found - described:,} more")
        if report.waiting:
            talk.note(f"{report.topic}: {report.waiting:,} frames wait for the pipeline: sealcast run --once")
        if report.unchecked:
            talk.note(f"{report.topic}: {report.unchecked:,} frames are no longer kept, and cannot be checked")
        for gap in getattr(report, "gaps", ()):
            talk.note(f"{report.topic}: not judged: {gap}")
