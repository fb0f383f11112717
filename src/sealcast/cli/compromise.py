"""sealcast compromise: respond at once when somebody's keys may be in the wrong hands."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import completing, talk
from sealcast.trust.certificates.lists import Cause

if TYPE_CHECKING:
    from sealcast.lab.drill import DrillReport, Preview
    from sealcast.lab.matrix import AccessCell
    from sealcast.trust.admin.overlays import Rising

app = talk.Commands()


@app.command(epilog="Example: sealcast compromise mallory")
def compromise(
    entity: Annotated[
        str,
        typer.Argument(
            metavar="ENTITY", help="An entity, a broker or a key center.", autocompletion=completing.everybody
        ),
    ],
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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask. Revoking and removing cannot be undone.")] = False,
) -> None:
    """Respond to a compromise: revoke, give new keys to everybody else, and seal again what waits to be read.

    In one transaction, the entity's certificates are revoked, its subscriptions end, and every topic that it could use
    gets a new epoch, with new keys and tokens for all who may still use it. Deliveries that the old keys can open are
    sealed again under the new ones, for those who may still read them, and the old pieces are removed. Then frames that
    the old keys open are removed, too; they cannot be replayed any more. Nobody loses an event or gets one twice.

    Before and after, everybody really tries what it can do; the table shows the results. What cannot be taken back is
    named, and the command exits with 1. Where the entity's keys are not on this machine, nobody can try them: whatever
    they could open counts as open, and is sealed again or removed just the same.

    If this command is interrupted, run it again: it continues. A key center's topics move to another center, which is
    made if there is none. Subscribers of a compromised broker move to other brokers that serve their topics; events
    that it had admitted but not sealed yet do not reach them.
    """
    from sealcast.lab.drill import drill, preview
    from sealcast.pipeline.session import session
    from sealcast.trust.admin.overlays import rising
    from sealcast.trust.realm.compromise import filters_known

    here = talk.open_realm()
    if dry_run or not yes:
        planned = preview(here, entity, center=center)
        nearer = rising(here.state(), entity)
        lines = [*_preview_lines(planned), *map(_nearer, nearer)]
        if dry_run:
            document = _preview_as_json(planned) | {"nearer": [each._asdict() for each in nearer]}
            talk.answer(document, *lines, empty="there is nothing left to do")
            return
        if not planned.plan.done:
            talk.confirm(*lines)
    report = drill(
        here, entity, cause=cause, center=center, others=others, spark=lambda: session(master, short_lived=True)
    )
    known = filters_known(here.state(), entity)
    if not talk.emitted(as_json(report) | {"filters_known": known}):
        _say(report)
        for topic, count in known.items():
            talk.note(f"topic {topic!r}: whoever has these keys knows {talk.counted(count, 'filter')}, for good")
    if not report.over or not report.unharmed:
        talk.warn("it is not over: see above and in the table, and run this again if batches were under way")
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
        "forgotten": [asdict(each) for each in report.forgotten],
        "nearer": [each._asdict() for each in done.rising],
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
        "elsewhere": list(report.elsewhere),
        "over": report.over,
        "unharmed": report.unharmed,
    }


def _preview_as_json(planned: Preview) -> dict[str, object]:
    plan = planned.plan
    return {
        "entity": plan.entity,
        "dry_run": True,
        "done_before": plan.done,
        "revoke": plan.revoke,
        "subscriptions_end": list(plan.subscriptions),
        "topics": [asdict(each) for each in plan.topics],
        "new_center": planned.new_center,
        "pieces": planned.pieces,
        "frames": planned.frames,
        "lasting": list(planned.lasting),
    }


def _preview_lines(planned: Preview) -> list[str]:
    """What would be done, a line each."""
    plan = planned.plan
    lines = [f"{plan.entity!r} is revoked, for good"] if plan.revoke else []
    lines += [f"subscription {id!r} ends" for id in plan.subscriptions]
    lines += [f"key center {planned.new_center!r} is made"] if planned.new_center else []
    for each in plan.topics:
        topic, to = f"topic {each.topic!r}", f", under center {each.center!r}" if each.center else ""
        lines.append(f"{topic} gets epoch {each.epoch + 1}{to}: {each.why}")
        if pieces := planned.pieces.get(each.topic, 0):
            lines.append(f"{topic}: {talk.counted(pieces, 'piece')} sealed again, old ones removed")
        if frames := planned.frames.get(each.topic, 0):
            lines.append(
                f"{topic}: frames with {talk.counted(frames, 'message')} removed; they cannot be replayed then"
            )
    lines += [f"topic {topic!r}: what lies there cannot be sealed again, and stays open" for topic in planned.lasting]
    return lines


def _nearer(each: Rising) -> str:
    """What a reader should know whose broker moves up."""
    text = f"topic {each.topic!r}: {each.subscriber!r} comes nearer to publishers, {each.hops} hops instead of"
    deeper = f"; deeper: sealcast overlay place {each.topic} {each.subscriber} --at BROKER"
    return f"{text} {each.hops_before}{deeper if each.hops < each.wanted else ''}"


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
        kept = f"; {again.kept} stay as they are, because nobody here can open them" if again.kept else ""
        talk.say(
            f"topic {again.topic!r}: {talk.counted(again.pieces, 'piece')} sealed again, for {again.deliveries} "
            f"deliver{'ies' if again.deliveries != 1 else 'y'}, and {again.removed} removed{kept}"
        )
    for gone in report.forgotten:
        talk.say(f"topic {gone.topic!r}: {talk.counted(gone.removed, 'frame')} removed at broker {gone.broker!r}")
        if gone.left:
            talk.warn(
                f"topic {gone.topic!r}: the stolen keys still open {talk.counted(gone.left, 'message')} in frames at "
                f"broker {gone.broker!r}: {gone.why}"
            )
    for topic, subscriber, broker in report.moved:
        talk.say(f"topic {topic!r}: {subscriber!r} is at broker {broker!r} now")
    for reader in done.rising:
        talk.warn(_nearer(reader))
    for topic in done.unserved:
        talk.warn(f"no broker has the new key of topic {topic!r}: sealcast topic serve {topic} BROKER")
    if report.untried:
        talk.warn(
            f"the keys of {report.entity!r} are not on this machine, so nobody tried them: what they could open counts "
            "as opened in the table"
        )
    for topic in report.lasting:
        talk.warn(
            f"topic {topic!r}: {_what_lasts(report.after[report.entity, topic])} stays open to whoever has the keys of "
            f"{report.entity!r}: no broker opens it, so nobody can seal it again"
        )
    for place in report.elsewhere:
        talk.warn(f"not tried: {place}")
    columns = ["entity", "topic", "opened before", "opened after", "publishes before", "publishes after"]
    talk.table(columns, list(rows(report.before, report.after)), "nobody has anything to try")


def _what_lasts(found: AccessCell) -> str:
    if found.queued:
        return f"what waits in MQTT brokers' logs ({talk.counted(found.queued, 'message')})"
    if found.routed:
        return f"which way events of earlier epochs went ({talk.counted(found.routed, 'event')})"
    return "what was sealed for it in earlier epochs" + (f" ({found.opened} deliveries)" if found.opened else "")
