"""sealcast compromise: respond at once when somebody's keys may be in the wrong hands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import talk
from sealcast.trust.certificates.lists import Cause

if TYPE_CHECKING:
    from sealcast.lab.drill import DrillReport

app = talk.Commands()


@app.command(epilog="Example: sealcast compromise mallory")
def compromise(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="An entity, a broker or a key center.")],
    cause: Annotated[Cause, typer.Option(help="The cause that the revocation list gives.")] = Cause.KEY_COMPROMISE,
    center: Annotated[
        str | None, typer.Option(metavar="NAME", help="For a key center: the one that takes its topics [default: any].")
    ] = None,
    others: Annotated[
        int, typer.Option(metavar="N", min=0, help="How many others try what they can do, before and after.")
    ] = 20,
    master: Annotated[
        str, typer.Option(metavar="MASTER", help="Where Spark runs, if it is needed to seal again.")
    ] = "local[*]",
) -> None:
    """Respond to a compromise: revoke, give new keys to everybody else, and seal again what waits to be read.

    In one transaction, the entity's certificates are revoked, its subscriptions end, and every topic that it could use
    gets a new epoch, with new keys and tokens for all who may still use it. Deliveries that the old keys can open are
    sealed again under the new ones, for those who may still read them, and the old pieces are removed. Nobody loses an
    event or gets one twice. Before and after, everybody really tries what it can do; the table shows the results.

    If this command is interrupted, run it again: it continues. A key center's topics move to another center, which is
    made if there is none. Subscribers of a compromised broker move to other brokers that serve their topics; events
    that it had admitted but not sealed yet do not reach them.
    """
    from sealcast.lab.drill import drill
    from sealcast.pipeline.session import session

    here = talk.open_realm()
    report = drill(here, entity, cause=cause, center=center, others=others, spark=lambda: session(master))
    if not talk.emitted(as_json(report)):
        _say(report)
    if report.over is False or not report.unharmed:
        talk.warn("something is not as it should be: see the table, and run this again if batches were under way")
        raise typer.Exit(1)


def as_json(report: DrillReport) -> dict[str, object]:
    done, plan = report.response, report.response.plan
    cells = dict.fromkeys((*report.before, *report.after))
    return {
        "entity": report.entity,
        "version": done.version,
        "revocation_list": done.list,
        "done_before": plan.done,
        "continued": report.continued,
        "subscriptions_ended": list(plan.subscriptions),
        "topics": [{"topic": t.topic, "epoch": t.epoch + 1, "why": t.why, "center": t.center} for t in plan.topics],
        "pair_keys": done.pair_keys,
        "tokens": done.tokens,
        "brokers": done.brokers,
        "unserved": list(done.unserved),
        "resealed": [
            {"topic": d.topic, "epoch": d.epoch, "pieces": d.pieces, "deliveries": d.deliveries}
            | {"kept": d.kept, "removed": d.removed}
            for d in report.resealed
        ],
        "moved": [{"topic": topic, "subscriber": who, "broker": to} for topic, who, to in report.moved],
        "matrix": [
            {"entity": entity, "topic": topic}
            | {
                when: cell.as_json()
                for when, found in (("before", report.before), ("after", report.after))
                if (cell := found.get((entity, topic)))
            }
            for entity, topic in cells
        ],
        "tried": not report.untried,
        "lasting": list(report.lasting),
        "over": report.over,
        "unharmed": report.unharmed,
    }


def _say(report: DrillReport) -> None:
    from sealcast.lab.matrix import rows

    done, plan = report.response, report.response.plan
    if plan.done:
        talk.say(f"{report.entity!r} is revoked, and none of its keys is valid (version {done.version})")
    else:
        talk.say(
            f"{report.entity!r} is revoked by list {done.list}, at version {done.version}; "
            f"{talk.counted(len(plan.subscriptions), 'subscription')} ended"
        )
    for each in plan.topics:
        moved = f", managed by {each.center!r} now" if each.center else ""
        talk.say(f"topic {each.topic!r} is in epoch {each.epoch + 1} ({each.why}){moved}")
    if plan.topics:
        talk.say(
            f"{talk.counted(done.pair_keys, 'new pair key')}, {talk.counted(done.tokens, 'new token')} "
            "for those who may still use them"
        )
    for again in report.resealed:
        kept = f"; {again.kept} stay as they are, because their frames are no longer kept" if again.kept else ""
        talk.say(
            f"topic {again.topic!r}: {talk.counted(again.pieces, 'piece')} sealed again, for {again.deliveries} "
            f"deliver{'ies' if again.deliveries != 1 else 'y'}, and {again.removed} removed{kept}"
        )
    for topic, subscriber, broker in report.moved:
        talk.say(f"topic {topic!r}: {subscriber!r} is at broker {broker!r} now")
    for topic in done.unserved:
        talk.warn(f"no broker has the new key of topic {topic!r}: sealcast topic serve {topic} BROKER")
    if report.untried:
        talk.warn(f"the keys of {report.entity!r} are not on this machine, so nobody tried them")
    for topic in report.lasting:
        talk.warn(
            f"topic {topic!r} is carried by peers: what was sealed for {report.entity!r} in earlier epochs stays open "
            "to whoever has its keys, and cannot be sealed again"
        )
    columns = ["entity", "topic", "opened before", "opened after", "publishes before", "publishes after"]
    talk.table(columns, list(rows(report.before, report.after)), "nobody has anything to try")
