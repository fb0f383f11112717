"""sealcast why: why an event did or did not reach a subscriber."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sealcast.cli import layered_why, talk
from sealcast.errors import Misuse

if TYPE_CHECKING:
    from datetime import datetime

    from sealcast.filters.explain import Part
    from sealcast.model.event import Position
    from sealcast.protections.endpoint.reasons import Answer
    from sealcast.trust.realm.machine import RealmState

app = typer.Typer(**talk.SETTINGS)

#: Of filters that did not match, so many are shown; those that matched all are.
SHOWN: Final = 8


@app.command(epilog="Example: sealcast why quotes/0/17/3 alice")
def why(
    event: Annotated[
        str, typer.Argument(metavar="EVENT", help="TOPIC/partition/offset/row, or what `pub` and `sub` print.")
    ],
    subscriber: Annotated[str, typer.Argument(metavar="SUBSCRIBER")],
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="If EVENT does not name it [default: the only one].")
    ] = None,
    realm: talk.RealmOption = None,
    json: talk.JsonOption = False,
) -> None:
    """Say why an event did or did not reach a subscriber: admitted, matched, authorised, sealed, delivered.

    The answer is worked out again, for the batch that handled the event and the version it was pinned to. Needs the
    broker's secrets, since it opens the event. On a layered topic, whose brokers cannot read, it says how far the event
    came on its way.
    """
    from sealcast.protections.endpoint.reasons import Reasons

    here = talk.open_realm(realm)
    name, position = _event(event, topic, here.state())
    if not here.state().topic(name).protection.brokers_read:
        found = layered_why.why(here, name, position, subscriber)
        talk.emit(found) if json else layered_why.show(found)
        return
    reasons = Reasons(here, name)
    try:
        answer = reasons.why(position, subscriber)
    finally:
        reasons.close()
    if json:
        talk.emit(_document(answer))
    else:
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


# --- for machines -----------------------------------------------------------------------------------------


def _document(answer: Answer) -> dict[str, Any]:
    from sealcast.broker.gate import CHECK
    from sealcast.model.schema import value_to_json

    batch, refused, sealing = answer.batch, answer.refused, answer.sealing
    return {
        "topic": answer.topic,
        "event": str(answer.event),
        "subscriber": answer.subscriber,
        "verdict": str(answer.verdict),
        "because": answer.because,
        "publisher": answer.publisher,
        "published_at": _moment(answer.published_at) if answer.published_at else None,
        "sequence": answer.sequence,
        "batch": batch
        and {
            "record": batch.record,
            "query": batch.query,
            "batch": batch.number,
            "version": batch.version,
            "committed_at": _moment(batch.committed_at),
            "piece": batch.piece,
        },
        "refused": refused
        and {"check": CHECK[refused.reason], "reason": str(refused.reason), "detail": refused.detail},
        "attributes": answer.attributes and {n: value_to_json(v) for n, v in answer.attributes.items()},
        "authorised": answer.authorised,
        "subscriptions": [
            {"id": i.id, "filter": i.filter, "result": i.part.result, "decided_by": _decided(i.part)}
            for i in answer.interests
        ],
        "other_times": list(answer.other_times),
        "sealed": sealing and {"mode": sealing.mode, "encryptions": sealing.encryptions, "readers": sealing.readers},
    }


def _decided(part: Part) -> list[dict[str, Any]]:
    return [{"text": p.text, "at": p.at, "end": p.end, "result": p.result} for p in part.decisions()]


# --- for people -------------------------------------------------------------------------------------------


def _show(answer: Answer) -> None:
    verdict = answer.verdict.replace("-", " ")
    talk.say(f"event {answer.topic}/{answer.event}, {answer.subscriber}: {verdict}: {answer.because}\n")
    rows: list[tuple[str, object]] = []
    if answer.publisher is not None and answer.published_at is not None:
        rows.append(("published", f"by {answer.publisher}, {_moment(answer.published_at)}, number {answer.sequence}"))
    if answer.batch is not None:
        batch = answer.batch
        when = f"committed {_moment(batch.committed_at)}, under version {batch.version} of the registry"
        rows.append(("batch", f"record {batch.record} of the ledger, {when}\n{batch.piece}"))
    if answer.refused is not None:
        rows.append(("admitted", "no"))
    elif answer.authorised is not None:
        rows.append(("admitted", "yes: it passed every check"))
        rows.append(("may read", "yes" if answer.authorised else "no"))
        rows += _filters(answer)
        rows += [("", text) for text in answer.other_times]
    if answer.sealing is not None:
        sealing = answer.sealing
        how = (
            "under the one key used" if sealing.mode == "direct" else "under a key of its own, wrapped for each reader"
        )
        rows.append(
            ("sealed", f"{how}: {_plural(sealing.encryptions, 'encryption')}, {_plural(sealing.readers, 'reader')}")
        )
    elif answer.authorised is not None:
        rows.append(("sealed", "for nobody"))
    if rows:
        talk.pairs(rows)
    if answer.verdict == "waiting":
        talk.note("the pipeline takes it: sealcast run --once")
    if answer.verdict == "wrong":
        talk.warn("see what else is wrong: sealcast check")


def _filters(answer: Answer) -> list[tuple[str, object]]:
    """Those that matched, and some of those that did not."""
    ordered = sorted(answer.interests, key=lambda interest: interest.part.result is not True)
    shown = max(SHOWN, sum(interest.part.result is True for interest in ordered))
    rows: list[tuple[str, object]] = [(i.id, "\n".join(i.part.render())) for i in ordered[:shown]]
    left = len(ordered) - shown
    return [*rows, ("", f"... and {left:,} more, none of which is true")] if left > 0 else rows


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def _moment(when: datetime) -> str:
    return when.isoformat().replace("+00:00", "Z")
