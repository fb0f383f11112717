"""sealcast doctor: is this machine fit, and what to do if not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sealcast.cli import talk

if TYPE_CHECKING:
    from sealcast.pipeline.fitness import Finding

app = talk.Commands(no_args_is_help=False)

_COLOUR: Final = {"ok": "32", "warn": "33", "fail": "31;1"}


@app.command(epilog="Example: sealcast doctor --no-spark")
def doctor(
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Start Spark and run a small job.")] = True,
) -> None:
    """Try everything that Sealcast needs of this machine, and say what is missing and what to do about it.

    This also looks at the realm, or at the working directory if there is no realm. In the home of somebody who joined
    from here and runs no broker, Spark is not needed and not asked for. The exit code is 1 if something would not work.
    """
    from sealcast.pipeline.fitness import Finding, Level, examine
    from sealcast.trust.certificates.roles import Role

    around, findings, client = talk.realm_around(), list[Finding](), False
    if around is not None and not around.site.here:
        client = not talk.has_joined(around, Role.BROKER)
        around = None  # a client's home: what there is to examine is where the realm is
    for finding in examine(None if around is None else around.paths.root, spark=spark, client=client, told=_waiting):
        findings.append(finding)
        if not talk.given.json:
            _show(finding)
    fit = not any(finding.level is Level.FAIL for finding in findings)
    checks = [{"check": f.check, "level": str(f.level), "found": f.found, "advice": f.advice} for f in findings]
    talk.answer({"fit": fit, "checks": checks}, f"\nthis machine is {'fit' if fit else 'not fit yet'}")
    if not fit:
        raise typer.Exit(1)


def _waiting(check: str) -> None:
    if check == "spark" and sys.stderr.isatty():
        talk.note("starting Spark ...")


def _show(finding: Finding) -> None:
    word = talk.coloured(f"{finding.level:<4}", _COLOUR[finding.level], sys.stdout)
    talk.say(f"  {finding.check:<16}  {finding.found}", word)
    if finding.advice is not None:
        talk.say(f"{'':<24}-> {finding.advice}")
