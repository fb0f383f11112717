"""sealcast audit: who could read and publish what, when and why, from the registry's history; and who did receive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sealcast.cli import completing, talk
from sealcast.cli.times import microseconds, moment
from sealcast.errors import Misuse
from sealcast.model.subscription import Subscription

if TYPE_CHECKING:
    from sealcast.protections.filter_texts import FilterTextsAtHand
    from sealcast.protections.witness.mailboxes import ReceivedDelivery
    from sealcast.trust.deployment import Realm
    from sealcast.trust.realm.audit import ChangeSpan, KeyHeld, Moment, RealmHistory, RightHeld, Subscribed

app = talk.Commands()


@app.command(epilog="Example: sealcast audit quotes --at 2026-08-01T09:30:00Z", no_args_is_help=False)
def audit(
    named: Annotated[str | None, typer.Argument(metavar="TOPIC", help="[default: all]")] = None,
    entity: Annotated[
        str | None, typer.Option(metavar="NAME", help="Show this entity alone.", autocompletion=completing.everybody)
    ] = None,
    topic: Annotated[str | None, typer.Option(metavar="TOPIC", help="The same as naming it.")] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME|VERSION", help="Show what held at a time, or at a registry version.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME|VERSION", help="Show only what still held then, or began later.")
    ] = None,
    received: Annotated[
        bool, typer.Option("--received", help="Also show who was sent how much, by the topics' ledgers.")
    ] = False,
) -> None:
    """Show who could read and publish what, when and why: every right as a span of time, and the changes that began and
    ended it.

    Publishers that equivocated are shown, with where both frames were: they signed two headers for one sequence number.

    With --json, the keys and tokens that went with it are shown, too. An entity that gets hold of sealed bytes can open
    what was sealed in the epochs whose keys it has. A subscription lives as long as its tokens.
    """
    from sealcast.trust.realm.audit import history

    if None not in (named, topic) and named != topic:
        raise typer.BadParameter(f"an audit is of one topic, or of all: {named!r} or {topic!r}")
    topic = named or topic
    here = talk.open_realm()
    state = here.state()
    if entity is not None:
        state.entity(entity)
    if topic is not None:
        state.topic(topic)
    found = history(here.registry.changes(), entity=entity, topic=topic)
    _narrow(found, at, since)
    counts = _received(here, entity, topic) if received else None
    lies = _equivocations(here, entity, topic)
    reports = _misrouted(here, entity, topic)
    if talk.emitted(_document(here, found, counts) | {"equivocations": lies, "misrouted": reports}):
        return
    talk.table(
        ["entity", "topic", "right", "from", "until", "because of", "ended by"],
        [_row(held) for held in found.rights],
        "nobody could do anything",
    )
    if counts is not None:
        talk.say("")
        talk.table(
            ["entity", "topic", "broker", "deliveries", "first", "last", "sealed again", "withdrawn", "replayed"],
            [tuple("" if value is None else value for value in row.values()) for row in counts],
            "nobody was sent anything",
        )
    if lies:
        talk.say("")
        talk.say("Publishers that signed two things for one number of one start; --json has both signed headers:")
        columns = ["entity", "topic", "broker", "boot", "sequence", "first", "second", "proven"]
        talk.table(columns, [[lie[name] for name in columns] for lie in lies], "")
    if reports:
        talk.say("")
        talk.say("Readers that got events which they did not ask for; a broker above them sent these on:")
        columns = ["entity", "topic", "broker", "at", "events", "signed"]
        talk.table(columns, [[each[name] for name in columns] for each in reports], "")


# --- which --------------------------------------------------------------------------------------------


def _narrow(found: RealmHistory, at: str | None, since: str | None) -> None:
    if at is not None:
        version, at_us = _point(found, at, "--at")
        found.rights = [held for held in found.rights if held.allows(version, at_us)]
        found.subscriptions = [made for made in found.subscriptions if made.span.includes(version)]
        found.keys = [key for key in found.keys if key.issued.version <= version]
    if since is not None:
        version, at_us = _point(found, since, "--since")
        found.rights = [
            h for h in found.rights if _lasts(h.span, version) and (h.until_us is None or h.until_us > at_us)
        ]
        found.subscriptions = [made for made in found.subscriptions if _lasts(made.span, version)]
        found.keys = [key for key in found.keys if key.ended is None or key.ended.version > version]


def _lasts(span: ChangeSpan, version: int) -> bool:
    return span.until is None or span.until.version > version


def _point(found: RealmHistory, text: str, option: str) -> tuple[int, int]:
    """A version and a time: of a version, the time it was made; of a time, the version that was in force."""
    if text.isascii() and text.isdigit():
        version = int(text)
        if not 1 <= version <= len(found.times):
            raise Misuse(f"{option}: the registry has versions 1 to {len(found.times)}, not {version}")
        return version, found.times[version - 1]
    at_us = microseconds(text, option)
    return found.version_at(at_us), at_us


# --- as people read it --------------------------------------------------------------------------------


def _row(held: RightHeld) -> tuple[object, ...]:
    template = "" if held.term.template == "*" else f", for {held.term.template}"
    shown = _right(held)
    return (
        *(shown[name] or "" for name in ("entity", "topic", "right", "from", "until")),
        f"{held.why}{template} (version {held.span.since.version}, {held.span.since.what})",
        _end(held),
    )


def _end(held: RightHeld) -> str:
    if held.span.until is not None and held.until_us == held.span.until.at_us:
        return f"version {held.span.until.version}, {held.span.until.what}"
    return "" if held.until_us is None else "its term"


# --- as programs read it ------------------------------------------------------------------------------


def _document(here: Realm, found: RealmHistory, counts: list[dict[str, Any]] | None) -> dict[str, object]:
    from sealcast.protections.filter_texts import FilterTextsAtHand

    texts = FilterTextsAtHand(here)
    document: dict[str, object] = {
        "version": len(found.times),
        "rights": [_right(held) for held in found.rights],
        "keys": [_key(key) for key in found.keys],
        "subscriptions": [_subscription(made, texts) for made in found.subscriptions],
        "revoked": [{"entity": gone.entity, "at": _moment(gone.at)} for gone in found.revoked],
    }
    return document if counts is None else document | {"received": counts}


def _moment(at: Moment | None) -> dict[str, object] | None:
    return None if at is None else {"version": at.version, "time": moment(at.at_us), "change": at.what}


def _right(held: RightHeld) -> dict[str, object]:
    until = held.until_us
    return {
        "entity": held.entity,
        "topic": held.topic,
        "right": str(held.right),
        "from": moment(held.from_us),
        "until": None if until is None else moment(until),
        "why": held.why,
        "template": held.term.template,
        "began": _moment(held.span.since),
        "ended": _moment(held.span.until),
    }


def _key(key: KeyHeld) -> dict[str, object]:
    about = {"entity": key.entity, "topic": key.topic, "epoch": key.epoch}
    return about | {"issued": _moment(key.issued), "epoch_ended": _moment(key.ended)}


def _subscription(made: Subscribed, texts: FilterTextsAtHand) -> dict[str, object]:
    stored = Subscription(made.id, made.topic, made.entity, made.filter)
    return {
        "subscription": made.id,
        "entity": made.entity,
        "topic": made.topic,
        # None where no key that is here opens it.
        "filter": texts.text(stored),
        "began": _moment(made.span.since),
        "ended": _moment(made.span.until),
        "tokens": [
            {
                "epoch": token.credential.epoch,
                "template": token.credential.template,
                "not_before": moment(token.credential.not_before_us),
                "expires": moment(token.credential.expires_us),
                "began": _moment(token.span.since),
                "ended": _moment(token.span.until),
            }
            for token in made.tokens
        ],
    }


# --- who did receive ----------------------------------------------------------------------------------


def _received(here: Realm, entity: str | None, topic: str | None) -> list[dict[str, Any]]:
    """By the ledgers that are on this machine: what lay and lies there for each, and what was replayed for it."""
    from sealcast.log.replays import Replays
    from sealcast.protections.port import witness_side
    from sealcast.protections.witness.mailboxes import ReceivedDelivery

    state, rows = here.state(), list[dict[str, Any]]()
    for name in state.topics if topic is None else [topic]:
        witness = witness_side(state.topic(name).protection)
        peers = state.topic(name).protection.peers  # then each subscriber has a ledger of its own
        for broker in state.slots_of(name) if peers else state.brokers():
            got, replayed = witness.received(here, name, broker), dict[str, int]()
            for each in Replays(here.journal(name, broker)).all():
                replayed[each.reader] = replayed.get(each.reader, 0) + each.events
            for who in dict.fromkeys((*got, *replayed)) if entity is None else [entity]:
                if who in got or who in replayed:
                    about = {"entity": who, "topic": name, "broker": broker}
                    rows.append(about | _counted(got.get(who, ReceivedDelivery()), replayed.get(who, 0)))
    return rows


def _equivocations(here: Realm, entity: str | None, topic: str | None) -> list[dict[str, Any]]:
    """By the notes that are on this machine. Both headers are verified again: a proof is one for whoever looks."""
    from sealcast.log.equivocations import Equivocations
    from sealcast.primitives.sign import VerifyKey
    from sealcast.wire import frame

    state, rows = here.state(), list[dict[str, Any]]()
    for name in state.topics if topic is None else [topic]:
        for broker in state.brokers():
            for lie in Equivocations(here.paths.topic(name, broker).root).all():
                if entity not in (None, lie.publisher):
                    continue
                parsed = [frame.parse_signed(place.signed) for place in (lie.first, lie.second)]
                known = state.entities.get(lie.publisher)
                proven = known is not None and all(
                    VerifyKey(known.verify_key).verify(each.to_be_signed, each.signature) for each in parsed
                )
                rows.append(
                    {
                        "entity": lie.publisher,
                        "topic": name,
                        "broker": broker,
                        "boot": lie.boot.hex(),
                        "sequence": lie.sequence,
                        "first": f"{lie.first.partition}/{lie.first.offset}",
                        "second": f"{lie.second.partition}/{lie.second.offset}",
                        "proven": proven,
                        "signed": [lie.first.signed.hex(), lie.second.signed.hex()],
                    }
                )
    return rows


def _misrouted(here: Realm, entity: str | None, topic: str | None) -> list[dict[str, Any]]:
    """By the reports that are on this machine. Each signature is verified again."""
    from sealcast.log.misrouted import MisroutedNotes
    from sealcast.primitives.sign import VerifyKey

    state, found = here.state(), list[dict[str, Any]]()
    for name in state.topics if topic is None else [topic]:
        for broker in state.brokers():
            for note in MisroutedNotes(here.paths.topic(name, broker).root).all():
                if entity not in (None, note.reader):
                    continue
                known = state.entities.get(note.reader)
                signed = known is not None and VerifyKey(known.verify_key).verify(note.said, note.signature)
                about = {"entity": note.reader, "topic": name, "broker": broker, "at": moment(note.at_us)}
                first = [{"publisher": p, "boot": boot.hex(), "sequence": n} for p, boot, n in note.events]
                found.append(about | {"events": note.count, "first": first, "signed": signed})
    return found


def _counted(got: ReceivedDelivery, replayed: int) -> dict[str, Any]:
    return {
        "deliveries": got.deliveries,
        "first": None if got.first_us is None else moment(got.first_us),
        "last": None if got.last_us is None else moment(got.last_us),
        "sealed_again": got.again,
        "withdrawn": got.withdrawn,
        "replayed": replayed,
    }
