"""sealcast topic: create, alter, delete, list, show, find, advertise."""

from __future__ import annotations

import json as jsonlib
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from sealcast.cli import carrier as carriers
from sealcast.cli import deletion, epochs, overlay, owners, talk
from sealcast.cli import topic_options as options
from sealcast.cli.times import moment, span
from sealcast.errors import SchemaRejected
from sealcast.trust.certificates.roles import Role

if TYPE_CHECKING:
    from sealcast.model.protection import Protection
    from sealcast.model.schema import Attribute, Schema
    from sealcast.trust.realm.machine import RealmState, Term, TopicState
    from sealcast.trust.realm.parameters import KeyParameters
    from sealcast.trust.realm.topics import Terms, Topic

app = talk.Commands("Create, alter, delete, list, show, find and advertise topics.")


class NewTopic(TypedDict, total=False):
    """What `topic create` passes on."""

    partitions: int
    protection: Protection
    access: str
    center: str
    parameters: KeyParameters
    owner: str
    group_keys: str
    nodes: int | None
    fan_out: int | None


_SCHEMA_HELP = (
    """A JSON file, or - for stdin: {"attributes": [{"name", "type", "min", "max", "step", "max_length"}]}."""
)


@app.command(epilog="Example: sealcast topic create quotes --schema quotes.json")
def create(
    name: Annotated[str, typer.Argument(help="A new name.")],
    schema: Annotated[str, typer.Option(metavar="FILE", help=_SCHEMA_HELP)],
    partitions: options.PartitionsOption = 1,
    protection: options.ProtectionOption = "endpoint",
    access: options.AccessOption = "granted",
    center: options.CenterOption = "center",
    owner: options.OwnerOption = "",
    key_size: options.KeySizeOption = "256",
    token_hash: options.TokenHashOption = "sha-256",
    key_lifetime: options.KeyLifetimeOption = "30d",
    messages_per_key: options.MessagesPerKeyOption = "4294967296",
    token_lifetime: options.TokenLifetimeOption = "1d",
    grace: options.GraceOption = "5m",
    max_skew: options.MaxSkewOption = "5m",
    stale_after: options.StaleAfterOption = "1d",
    keep_frames: options.KeepFramesOption = "7d",
    keep_pieces: options.KeepPiecesOption = "always",
    past_keys: options.PastKeysOption = "kept",
    group_keys: options.GroupKeysOption = "mosaic",
    layers: options.LayersOption = None,
    group: options.GroupOption = None,
    nodes: options.NodesOption = None,
    pad: options.PadOption = False,
    slot_labels: options.SlotLabelsOption = None,
    reader_labels: options.ReaderLabelsOption = None,
    seal_attributes: options.SealAttributesOption = None,
    tag_bits: options.TagBitsOption = None,
    fresh_trapdoors: options.FreshTrapdoorsOption = False,
    retain: options.RetainOption = None,
    fan_out: options.FanOutOption = None,
    profile: options.ProfileOption = None,
    epoch: options.EpochOption = None,
    reuse_headers: options.ReuseHeadersOption = False,
    sessions: options.SessionsOption = False,
    joint: options.JointOption = False,
    routing: options.RoutingOption = False,
    split: options.SplitOption = None,
    tags: options.TagsOption = None,
    carrier: options.CarrierOption = None,
) -> None:
    """Create a topic with a schema: the typed attributes that filters can ask for.

    Types are int, float, decimal, string, bool and timestamp. Bounds are inclusive. Spans of time are written 90s, 15m,
    12h, 30d, 4w or 1y. A layered topic gets a tree of brokers (`sealcast overlay show`), unless you give --nodes 0. An
    attribute topic has no brokers: run `sealcast peer run` where the keys of its publishers and subscribers are.

    Nobody may publish or subscribe before `sealcast grant` says so, unless you give --access members. `sealcast topic
    alter` changes that later.
    """
    given = dict(locals())  # the options, by their names
    only = {"--nodes": (nodes, "overlay"), "--fan-out": (fan_out, "overlay"), "--epoch": (epoch, "peers")}
    asked: NewTopic = {"parameters": options.parameters(given), "nodes": nodes, "fan_out": fan_out}
    asked |= {"protection": overlay.wanted(protection, options.settings(given), only), "group_keys": group_keys}
    asked |= {"partitions": partitions, "access": access, "center": center, "owner": owner}
    here = talk.open_realm(home_of=Role.KEY_CENTER)
    if carrier is not None:
        here.state().carrier(carrier)  # before anything is made
    here.create_topic(name, read_schema(schema), **asked)
    if carrier is not None:
        here.move_topic(name, carrier)
    _created(here.state(), name)


def _created(state: RealmState, name: str) -> None:
    """Says what a new topic is, and what to do next."""
    topic = state.topic(name)
    protection = topic.protection
    lines = [f"topic {name!r} created ({topic.access}, {talk.counted(topic.partitions, 'partition')})"]
    if topic.access == "granted" and not talk.given.json:
        talk.note(f"nobody may use it yet: sealcast grant {name} ENTITY publish subscribe")
    if protection.overlay:
        lines.append(f"{protection.summary}; {len(state.overlay(name).parents)} brokers: sealcast overlay show {name}")
    if protection.peers:
        lines.append(f"{protection.summary}; publishers and subscribers carry it themselves: sealcast peer run")
        _note_texts(topic)
    talk.answer(describe(state, state.topic_state(name)), *lines)


def _note_texts(topic: Topic) -> None:
    """Every event of an attribute topic pays for the longest text that it could have."""
    from sealcast.protections.attribute.settings import unbounded_texts

    for attribute, positions in unbounded_texts(topic).items():
        talk.note(
            f"{attribute!r} has no max_length: every event carries {positions} sealed positions for it. "
            "With a max_length it carries fewer, and is sealed and opened faster"
        )


@app.command(epilog="Example: sealcast topic alter quotes --access granted")
def alter(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    access: Annotated[str | None, typer.Option(help="granted or members: see `topic create`.")] = None,
    schema: Annotated[
        str | None, typer.Option(metavar="FILE", help="The next version of its schema: a JSON file, or - for stdin.")
    ] = None,
    keep_frames: Annotated[
        str | None,
        typer.Option(metavar="SPAN|SIZE", help="Remove committed frames beyond this age or size: see `topic create`."),
    ] = None,
    keep_pieces: Annotated[
        str | None,
        typer.Option(metavar="SPAN|SIZE", help="Remove sealed events beyond this age or size: see `topic create`."),
    ] = None,
    past_keys: Annotated[
        str | None,
        typer.Option(metavar="kept|forgotten", help="Whether brokers forget past keys: see `topic create`."),
    ] = None,
) -> None:
    """Change whom a topic lets in, from the next batch on, its schema, what it keeps and for how long, or who forgets.

    What was granted or revoked by name stays as it is. Subscriptions of those who are no longer let in stay, too, but
    deliver nothing. Where readers hold a key, a new epoch begins. Frames that were removed do not come back.
    Brokers can forget what they are handed from the next epoch on (`sealcast topic rotate` begins one).

    A new version of the schema can add attributes after those that there are, and widen domains. Events from before
    stay readable, with NULL for what they lack, and filters go on as they are. Anything else is refused, with why. On
    searchable and layered topics domains stay as they are, and on attribute ones the whole schema does.
    """
    if all(each is None for each in (access, keep_frames, keep_pieces, past_keys, schema)):
        raise typer.BadParameter("say what changes: --access, --schema, --keep-frames, --keep-pieces or --past-keys")
    here = talk.open_realm()
    before = _may(here.state(), name)
    frames = {} if keep_frames is None else options.kept("frames", keep_frames)
    pieces = {} if keep_pieces is None else options.kept("pieces", keep_pieces)
    with options.as_typed():
        next_schema = None if schema is None else read_schema(schema)
        here.alter_topic(name, access, past_keys=past_keys, schema=next_schema, **frames, **pieces)
    state = here.state()
    after, about = _may(state, name), state.topic(name)
    document = {"topic": name, "access": str(about.access), "frames_kept_s": about.parameters.frames_kept_s}
    document |= {"past_keys": about.parameters.past_keys, "pieces_kept_s": about.parameters.pieces_kept_s}
    document |= {"pieces_kept_bytes": about.parameters.pieces_kept_bytes}
    document |= {"frames_kept_bytes": about.parameters.frames_kept_bytes}
    document |= {"schema_version": len(about.earlier_schemas) + 1}
    document |= {"let_in": sorted(after - before), "shut_out": sorted(before - after)}
    whom = "every member" if about.access == "members" else "those who were granted a right"
    talk.answer(
        document | {"version": state.version},
        f"topic {name!r} is for {whom}, and keeps frames {_kept(about)} (version {state.version})",
        *([f"its schema is at version {len(about.earlier_schemas) + 1}"] if schema is not None else []),
        *([f"sealed events are kept {_pieces_kept(about)}"] if about.parameters.pieces_end else []),
        *_forgets(state, name),
        *([f"no longer let in: {', '.join(sorted(before - after))}"] if before - after else []),
    )


def _kept(topic: Topic) -> str:
    """How long frames are kept, in words."""
    where = ", in its publishers' own logs" if topic.protection.peers else ""
    return _in_words(topic.frames_kept_us, topic.parameters.frames_kept_bytes) + where


def _pieces_kept(topic: Topic) -> str:
    """How long sealed events are kept, how many, and where, in words. Where that is longer than was asked, why."""
    words, kept = _in_words(topic.pieces_kept_us, topic.parameters.pieces_kept_bytes), topic.pieces_kept_us
    if kept is not None and kept > 1_000_000 * topic.parameters.pieces_kept_s:
        words += ", as long as their frames (--keep-frames)"
    return f"{words}, in each reader's own inbox" if topic.protection.peers else words


def _in_words(kept: int | None, most: int) -> str:
    from sealcast.trust.realm.parameters import NO_LIMIT

    for_long = "for good" if kept is None else f"for {span(kept // 1_000_000)} at most"
    return for_long if most >= NO_LIMIT else f"{for_long}, and {most:,} bytes of them"


def _forgets(state: RealmState, name: str) -> list[str]:
    """Whether its brokers forget keys of past epochs, and which of them cannot forget those of the present one."""
    if not state.topic(name).parameters.forgets:
        return []
    from sealcast.trust.keys.receiving import lasting_keys

    lasting = lasting_keys(state, name)
    told = f", but not those of the present one: {', '.join(lasting)}; sealcast topic rotate {name}" if lasting else ""
    return [f"its brokers forget keys of past epochs{told}"]


def _may(state: RealmState, topic: str) -> set[str]:
    return {name for name in state.entities if state.rights_of(topic, name)}


app.command(epilog="Example: sealcast topic register orders --schema quotes.json --as alice --set key_bits=192")(
    owners.register
)
app.command(epilog="Example: sealcast topic rotate quotes")(epochs.rotate)
app.command(epilog="Example: sealcast topic delete quotes --dry-run")(deletion.delete)
app.command(epilog="Example: sealcast topic serve quotes broker-2")(epochs.serve)
app.command(epilog="Example: sealcast topic move quotes --to kafka --yes")(carriers.move)


@app.command("list", epilog="Example: sealcast topic list --json")
def list_() -> None:
    """List all topics."""
    state = talk.open_realm(afar=True).state()
    _show_many(state, list(state.topics.values()), "no topics yet: sealcast topic create NAME --schema FILE")


@app.command(epilog="Example: sealcast topic find 'market.*; venue=NYSE' --as alice")
def find(
    query: Annotated[
        str, typer.Argument(help="market.* or /market/*, tag=value or tag=*, @attribute:type, or a plain word.")
    ],
    entity: Annotated[
        str | None,
        typer.Option("--as", metavar="ENTITY", help="Ask the discovery nodes, as this entity [default: the registry]."),
    ] = None,
    what: Annotated[str, typer.Option(help="topic, key-center, broker, discovery or any; with --as.")] = "topic",
) -> None:
    """Find topics by path, by tags, by the attributes of their schema, or by a word.

    With --as, every discovery node is asked for what that entity may find, and the owners' signatures are verified.
    Without it, all topics of the registry are searched.
    """
    from sealcast.cli import offers

    here = talk.open_realm(afar=True)
    if entity is not None:
        offers.find(here, query, entity, what)
        return
    state = here.state()
    with talk.about_filter(query):
        found = offers.in_registry(state, query)
    _show_many(state, found, f"no topic has {query!r} in its name or attributes")


@app.command(
    epilog="Example: sealcast topic advertise quotes --as center --tag venue=NYSE --restrict 'right=subscribe'"
)
def advertise(
    name: Annotated[str, typer.Argument(help="The topic.")],
    entity: Annotated[str, typer.Option("--as", metavar="ENTITY", help="The owner; without one, its key center.")],
    tag: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A tag to find it by; can be repeated.")
    ] = None,
    restrict: Annotated[
        str | None,
        typer.Option(
            metavar="WHO",
            help="Who may find it: open, name=a,b, role=broker, right=subscribe, joined by & and |"
            " [default: open for members, right=publish,subscribe where rights are granted].",
        ),
    ] = None,
    live: Annotated[str, typer.Option(metavar="SPAN", help="How long the advertisement lasts: 12h, 30d, 1y.")] = "1y",
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Withdraw the advertisement.")] = False,
) -> None:
    """Advertise a topic on every discovery node, signed by its owner; or withdraw what was advertised."""
    from sealcast.cli import offers

    here = talk.open_realm(afar=True)
    if withdraw:
        done = offers.withdraw(here, name, entity)
    else:
        done = offers.advertise(here, name, entity, tag or [], restrict, live)
    talk.answer(done, f"topic {name!r} {'withdrawn' if withdraw else 'advertised'} by {entity!r}")


@app.command(epilog="Example: sealcast topic show quotes")
def show(name: Annotated[str, typer.Argument(metavar="TOPIC")]) -> None:
    """Show one topic: its attributes, its rights, its subscribers."""
    state = talk.open_realm(afar=True).state()
    found = state.topic_state(name)
    if talk.emitted(describe(state, found)):
        return
    topic = found.topic
    talk.pairs(
        [
            ("topic", topic.name),
            ("id", topic.id.hex()),
            ("protection", topic.protection.name),
            *(overlay.summary(state, name) or [("group keys", topic.group_keys)]),
            ("access", topic.access),
            ("partitions", topic.partitions),
            ("epoch", f"{topic.epoch}, since {moment(topic.epoch_starts[-1])}"),
            ("key center", topic.center),
            ("keys", f"{topic.parameters.algorithm}, {topic.parameters.key_bits} bits"),
            ("frames", f"kept {_kept(topic)}"),
            ("sealed events", f"kept {_pieces_kept(topic)}"),
            *[("past keys", told) for told in _forgets(state, name)],
            *overlay.readers(state, name),
            ("schema version", len(topic.earlier_schemas) + 1),
            ("attributes", "\n".join(_attribute(a) for a in topic.schema.attributes)),
        ]
    )
    exceptions = [(n, ", ".join(sorted(t)) or "nothing", *_terms(t)) for n, t in found.terms.items()]
    if exceptions:
        talk.say("")
        talk.table(["entity", "may", "from", "until", "template"], exceptions, "")


def read_schema(file: str) -> Schema:
    """A schema from a JSON file, numbers kept exact."""
    from sealcast.model.schema import Schema

    text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    try:
        body = jsonlib.loads(text, parse_float=Decimal)
    except ValueError as error:
        raise SchemaRejected(
            f"{file} is not JSON: {error}",
            hint='a schema is {"attributes": [{"name": "price", "type": "int"}, ...]}',
        ) from None
    return Schema.from_json(body)


def _readers(state: RealmState, found: TopicState) -> dict[str, int | None]:
    """How many there are, as `status` counts them. In a tree, readers stand at brokers, and their filters are known to
    themselves alone."""
    topic = found.topic
    if topic.protection.overlay:
        placed = state.overlay(topic.name).places
        may = sum(state.may_subscribe(topic.name, name) for name in placed)
        return {"subscribers": len(placed), "authorised": may, "subscriptions": None}
    may = len(list(state.authorised_slots(topic.name)))
    return {"subscribers": len(found.slots), "authorised": may, "subscriptions": len(found.subscriptions)}


def describe(state: RealmState, found: TopicState) -> dict[str, object]:
    from sealcast.trust.keys.receiving import lasting_keys

    topic = found.topic
    return {
        "topic": topic.name,
        "id": topic.id.hex(),
        "protection": topic.protection.name,
        "group_keys": topic.group_keys,
        "access": str(topic.access),
        "partitions": topic.partitions,
        "epoch": topic.epoch,
        **_readers(state, found),
        "rights": {entity: sorted(terms) for entity, terms in found.terms.items()},
        "terms": {entity: {right: term_json(t) for right, t in terms.items()} for entity, terms in found.terms.items()},
        "center": topic.center,
        "owner": topic.owner or None,
        "brokers": sorted({broker for _, broker in found.topic_keys}),
        "parameters": topic.parameters.to_json(),
        "lasting_keys": lasting_keys(state, topic.name),
        "epoch_started": moment(topic.epoch_starts[-1]),
        "schema": topic.schema.to_json(),
        "schema_version": len(topic.earlier_schemas) + 1,
        "earlier_schemas": [each.to_json() for each in topic.earlier_schemas],
        "settings": topic.protection.to_json(),
        "nodes": dict(found.nodes),
        "carried": {b: place._asdict() for (t, b), place in state.carried.items() if t == topic.name},
    }


def term_json(term: Term) -> dict[str, object]:
    until = None if term.until_us is None else moment(term.until_us)
    return {"from": moment(term.not_before_us), "until": until, "template": term.template}


def _terms(terms: Terms) -> tuple[str, str, str]:
    """From, until and template, each once when all rights have the same."""
    shown = [term_json(term) for term in terms.values()]
    return tuple(  # type: ignore[return-value]
        ", ".join(dict.fromkeys(str(t[f] or "taken away") for t in shown)) for f in ("from", "until", "template")
    )


def _show_many(state: RealmState, found: list[TopicState], empty: str) -> None:
    rows = [
        (
            t.topic.name,
            t.topic.protection.name,
            t.topic.access,
            t.topic.partitions,
            _readers(state, t)["subscriptions"] if not t.topic.protection.overlay else "-",
            ", ".join(f"{a.name} {a.type}" for a in t.topic.schema.attributes),
        )
        for t in found
    ]
    columns = ["topic", "protection", "access", "partitions", "subscriptions", "attributes"]
    talk.answer_table({"topics": [describe(state, t) for t in found]}, columns, rows, empty)


def _attribute(attribute: Attribute) -> str:
    from sealcast.model.schema import value_to_json

    words = [attribute.name, str(attribute.type)]
    for name in ("min", "max"):
        bound = getattr(attribute, name)
        if bound is not None:
            words.append(f"{name} {value_to_json(bound)}")
    if attribute.step is not None:
        words.append(f"step {attribute.step}" + (" ms" if attribute.type == "timestamp" else ""))
    if attribute.max_length is not None:
        words.append(f"max_length {attribute.max_length}")
    return " ".join(words)
