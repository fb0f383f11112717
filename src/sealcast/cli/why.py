"""sealcast why: why an event did or did not reach a subscriber."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from sealcast.cli import talk
from sealcast.errors import Misuse

if TYPE_CHECKING:
    from sealcast.model.event import Position
    from sealcast.protections.witness.answer import WhyAnswer
    from sealcast.trust.realm.machine import RealmState

app = talk.Commands()

#: Of filters that did not match, so many are shown; those that matched all are.
SHOWN: Final = 8
_RESULT: Final = {True: "true", False: "false", None: "unknown"}
_HOW: Final = {
    "direct": "under the one key used",
    "content key": "under a key of its own, wrapped for each reader",
}


@app.command(epilog="Example: sealcast why quotes/0/17/3 alice")
def why(
    event: Annotated[
        str, typer.Argument(metavar="EVENT", help="TOPIC/partition/offset/row, or what `pub` and `sub` print.")
    ],
    subscriber: Annotated[str, typer.Argument(metavar="SUBSCRIBER")],
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="If EVENT does not name it [default: the only one].")
    ] = None,
) -> None:
    """Say why an event did or did not reach a subscriber: admitted, matched, authorised, sealed, delivered.

    The answer is worked out again, for the batch that handled the event and the version it was pinned to, at every
    broker that it passed. Needs the secrets of brokers that read, since it opens the event. Where brokers cannot read,
    it says how far the event came on its way.
    """
    from sealcast.protections.port import witness_side

    here = talk.open_realm()
    state = here.state()
    name, position = _event(event, topic, state)
    answer = witness_side(state.topic(name).protection).why(here, name, position, subscriber)
    if not talk.emitted(answer.to_json()):
        _show(answer)


def _event(text: str, topic: str | None, state: RealmState) -> tuple[str, Position]:
    from sealcast.model.event import Position

    named, _, rest = text.partition("/") if text.count("/") == 3 else ("", "", text)
    if named and topic is not None and named != topic:
        raise Misuse(f"{text!r} is an event of {named!r}, not of {topic!r}")
    name = named or topic
    if name is None:
        if len(state.topics) != 1:
            raise Misuse(f"the realm has {len(state.topics)} topics", hint=f"say which: sealcast why TOPIC/{rest} ...")
        name = next(iter(state.topics))
    return state.topic(name).name, Position.parse(rest)


def _show(answer: WhyAnswer) -> None:
    verdict = answer.verdict.replace("-", " ")
    talk.say(f"event {answer.topic}/{answer.event}, {answer.subscriber}: {verdict}: {answer.because}\n")
    rows = [*_path(answer), *_decisions(answer)]
    if rows:
        talk.pairs(rows)
    for note in answer.notes:
        talk.note(note)
    if answer.verdict == "waiting":
        talk.note("the pipeline takes it: sealcast run --once")
    if answer.verdict == "not-handed-on":
        talk.note("a broker cannot say why no row was hit: it knows neither the filters nor the event")
    if answer.verdict == "wrong":
        talk.warn("see what else is wrong: sealcast check")


def _path(answer: WhyAnswer) -> list[tuple[str, object]]:
    """Where it came by."""
    from sealcast.protections.witness.answer import moment

    rows: list[tuple[str, object]] = []
    if answer.publisher is not None and answer.published_at is not None:
        when = f"{moment(answer.published_at)}, number {answer.sequence}, in epoch {answer.epoch}"
        where = "" if answer.admitted_at == answer.publisher else f", at broker {answer.admitted_at}"
        rows.append(("published", f"by {answer.publisher}, {when}{where}"))
    if answer.batch is not None:
        batch = answer.batch
        when = f"committed {moment(batch.committed_at)}, under version {batch.version} of the registry"
        rows.append(("batch", f"record {batch.record} of the ledger of {batch.broker}, {when}\n{batch.piece}"))
    if answer.batch is None or len(answer.hops) > 1:
        for hop in answer.hops:
            by = f"by version {hop.table_version} of its table, in record {hop.record}"
            rows.append((hop.broker, f"handed it on to {hop.handed_on_to}, {by}"))
    return rows


def _decisions(answer: WhyAnswer) -> list[tuple[str, object]]:
    """What was decided of it."""
    rows: list[tuple[str, object]] = []
    if answer.refused is not None:
        return [("admitted", "no")]
    if answer.authorised is not None:
        rows += [("admitted", "yes: it passed every check"), ("may read", "yes" if answer.authorised else "no")]
    rows += _filters(answer)
    rows += [("", text) for text in answer.other_times]
    if answer.sealing is not None:
        sealing = answer.sealing
        counts = f"{talk.counted(sealing.encryptions, 'encryption')}, {talk.counted(sealing.readers, 'reader')}"
        rows.append(("sealed", f"{_HOW[sealing.mode]}: {counts}"))
    elif answer.authorised is not None:
        rows.append(("sealed", "for nobody"))
    return rows


def _filters(answer: WhyAnswer) -> list[tuple[str, object]]:
    """Those that matched, and some of those that did not."""
    ordered = sorted(answer.interests, key=lambda interest: interest.part.result is not True)
    shown = max(SHOWN, sum(interest.part.result is True for interest in ordered))
    rows: list[tuple[str, object]] = [
        (i.id, "\n".join([f"{_RESULT[i.part.result]}: {i.filter}", *i.part.render()])) for i in ordered[:shown]
    ]
    left = len(ordered) - shown
    return [*rows, ("", f"... and {left:,} more, none of which is true")] if left > 0 else rows
