"""What the broker sees, and what you see: one event of the user's making, under a protection, at every party.

The event really goes its way, in a realm of its own that is gone afterwards (`lab.seen`). The page shows what each
party then has, as bytes, and marks what is readable in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from sealcast.console.asked import FormFields
from sealcast.console.hexdump import dump
from sealcast.console.html import Child, Markup, element, join
from sealcast.console.pages import PageLink, badge, pairs, section, table
from sealcast.console.samples import (
    EXAMPLE,
    EXAMPLE_PAYLOAD,
    PAYLOAD,
    event_of,
    fields,
    first_values,
    matching,
    unmatching,
)
from sealcast.console.topic import explained
from sealcast.console.viewer import Viewer
from sealcast.errors import Misuse, Rejected
from sealcast.lab.seen import SeenBy, SeenByAll, seen
from sealcast.model.event import Event
from sealcast.model.protection import PROTECTIONS, Protection
from sealcast.model.schema import Schema
from sealcast.trust.realm.state import RealmState

#: In a form. An event of a topic may be larger; here one looks at it.
MAX_PAYLOAD: Final = 2_048
_SYMBOL: Final = {"reads": "●", "closed": "○"}


@dataclass(frozen=True, slots=True)
class ViewedSample:
    """What a user asks to see."""

    topic: str
    schema: Schema
    protection: Protection
    values: dict[str, str]
    payload: str
    filter: str
    #: Whether the filter follows the event, because nobody wrote one.
    follows: bool

    @classmethod
    def of(cls, asked: FormFields, state: RealmState, viewer: Viewer) -> ViewedSample:
        name = asked("topic")
        if name and not viewer.may_see(state, name):
            name = ""
        topic = state.topic(name) if name else None
        schema = EXAMPLE if topic is None else topic.schema
        chosen = asked("protection") or (topic.protection.name if topic is not None else next(iter(PROTECTIONS)))
        if chosen not in PROTECTIONS:
            raise Misuse(f"there is no protection {chosen!r}")
        own = topic is not None and type(topic.protection) is PROTECTIONS[chosen]
        protection = topic.protection if topic is not None and own else PROTECTIONS[chosen]()
        typed = {each.name: asked(f"a.{each.name}") for each in schema.attributes}
        values = typed if any(typed.values()) else first_values(schema)
        payload = asked("payload", PAYLOAD if topic is not None else EXAMPLE_PAYLOAD)[:MAX_PAYLOAD]
        return cls(name, schema, protection, values, payload, asked("filter"), not asked("filter"))

    def event(self) -> Event:
        return event_of(self.schema, self.values, self.payload)


class RefusedSample(NamedTuple):
    """Why an event cannot go its way."""

    message: str
    hint: str | None


def looked(sample: ViewedSample) -> SeenByAll | RefusedSample:
    """The sample's way, or why it cannot go it. It is done in a process of its own (`aside`)."""
    try:
        event = sample.event()
        text = sample.filter or matching(sample.schema, event)
        if not text:
            raise Misuse("an event without attributes matches nothing", hint="fill in an attribute, or write a filter")
        return seen(sample.protection, sample.schema, event, text, unmatching(sample.schema, event))
    except (Rejected, Misuse) as refused:
        return RefusedSample(refused.message, refused.hint)


def shown(
    sample: ViewedSample, result: SeenByAll | RefusedSample, state: RealmState, viewer: Viewer, link: PageLink
) -> Markup:
    return join(
        element(
            "p",
            "Make an event, choose a protection, and see what each party has of it. The event really goes its way, "
            "with real keys, in a realm that exists for this look alone.",
            class_="lead",
        ),
        _form(sample, viewer.topics(state), link),
        element("div", result_part(sample, result), id="seen", aria_live="polite"),
    )


def _form(sample: ViewedSample, topics: list[str], link: PageLink) -> Markup:
    chosen = sample.protection.name
    radios = [
        element(
            "label",
            element("input", type="radio", name="protection", value=name, checked=name == chosen),
            element("span", name),
            class_="choice",
        )
        for name in PROTECTIONS
    ]
    options = [element("option", "an example", value="", selected=not sample.topic)]
    options += [element("option", name, value=name, selected=name == sample.topic) for name in topics]
    choose = element(
        "form",
        element(
            "div",
            element("label", "Attributes as in topic", element("select", *options, name="topic", id="topic")),
            element("button", "Use", class_="quiet"),
            class_="row",
        ),
        action=link("sees"),
        method="get",
    )
    form = element(
        "form",
        element("input", type="hidden", name="topic", value=sample.topic),
        element("fieldset", element("legend", "Protection"), element("div", *radios, class_="choices")),
        element(
            "div",
            *fields(sample.schema, sample.values),
            element("label", "payload", element("input", name="payload", value=sample.payload, maxlength=MAX_PAYLOAD)),
            element(
                "label",
                "the reader's filter",
                element("input", name="filter", value=sample.filter, placeholder="one that matches the event"),
            ),
            class_="row",
        ),
        element("p", element("button", "Publish it")),
        action=link("sees"),
        method="get",
        data_to="#seen",
        data_choosing=True,
    )
    return element("section", element("h2", "Your event"), choose, form)


def result_part(sample: ViewedSample, result: SeenByAll | RefusedSample) -> Markup:
    """What is exchanged when another protection is chosen."""
    if isinstance(result, RefusedSample):
        hint = element("p", result.hint) if result.hint else None
        told = element("p", f"{sample.protection.name}: {result.message}", class_="bad", role="alert")
        return section("This cannot be", told, hint)
    carriers = [party for party in result.parties if party.role in ("broker", "peer")]
    reader = next(party for party in result.parties if party.role == "subscriber")
    thief = result.parties[-1]
    name = "peer" if any(party.role == "peer" for party in carriers) else "broker"
    return join(
        _matrix(sample, result),
        element(
            "div",
            section(f"What the {name} sees", *(_carrier(party, result) for party in carriers)),
            section("What you see", _reader(reader)),
            class_="sides",
        ),
        section(
            "What a thief of the disk sees",
            element("h3", thief.held[-1].what),
            dump(thief.held[-1].data, result.words, thief.held[-1].what),
            lead=f"{thief.held[0].what}, all but private keys, searched for the words of the event and of the filter: "
            + (f"{', '.join(thief.found)} found." if thief.found else "none of them is anywhere."),
        ),
        section("Who can learn what", explained(result.told), lead=f"It trusts {result.told.trusted}."),
    )


def _matrix(sample: ViewedSample, result: SeenByAll) -> Markup:
    event = result.parties[0]
    names = [each.name for each in sample.schema.attributes if each.name in (event.attributes or {})]
    rows = [
        (
            party.who,
            *(
                _cell(party, reads)
                for reads in (*(_reads(party, n) for n in names), _opens(party, event), _asks(party))
            ),
        )
        for party in result.parties
    ]
    legend = "● reads it   ○ cannot: sealed, and not found by a search of all its bytes"
    return section(
        f"Under {result.protection.name}",
        table("Who reads what of this event", ("party", *names, "payload", "filter"), rows, ""),
        element("p", legend, class_="lead"),
    )


def _reads(party: SeenBy, name: str) -> bool:
    return name in (party.attributes or {}) or name in party.found


def _opens(party: SeenBy, event: SeenBy) -> bool:
    return party.payload == event.payload or "payload" in party.found


def _asks(party: SeenBy) -> bool:
    return party.filter is not None or "filter" in party.found


def _cell(party: SeenBy, reads: bool) -> Markup:
    kind = "reads" if reads else "closed"
    tone = "own" if reads and party.role in ("publisher", "subscriber") else kind
    return element("span", element("span", _SYMBOL[kind], aria_hidden="true"), f" {kind}", class_=f"cell {tone}")


def _carrier(party: SeenBy, result: SeenByAll) -> Markup:
    bytes_: list[Child] = []
    for held in party.held:
        bytes_ += [
            element("h4", held.what, " ", badge(f"{len(held.data):,} bytes")),
            dump(held.data, result.words, held.what),
        ]
    return element("article", element("h3", party.who), _read(party), *bytes_, class_="party")


def _reader(party: SeenBy) -> Markup:
    return element("article", element("h3", party.who), _read(party), class_="party")


def _read(party: SeenBy) -> Markup:
    """What a party reads, as it reads it."""
    own = party.role in ("publisher", "subscriber")
    facts = [(name, _said(str(value), own)) for name, value in (party.attributes or {}).items()]
    if party.payload is not None:
        readable = party.payload.decode(errors="replace")
        sealed = element("span", f"{len(party.payload)} sealed bytes", class_="sealed")
        facts.append(("payload", _said(readable, own) if readable.isprintable() else sealed))
    if party.filter is not None:
        facts.append(("filter", _said(party.filter, own)))
    if not facts:
        return element("p", "It reads nothing of it.", class_="good")
    return pairs(facts)


def _said(words: str, own: bool) -> Markup:
    return element("mark", words, class_="own" if own else None)
