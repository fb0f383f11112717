"""The filter playground: what a filter says, costs and matches, and which protections can express it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from sealcast.clients.realm import Realm
from sealcast.clients.subscriber import Subscriber
from sealcast.console.asked import FormFields
from sealcast.console.html import Child, Markup, element, join
from sealcast.console.pages import PageLink, badge, pairs, section, table
from sealcast.console.samples import EXAMPLE, event_of, first_values, matching
from sealcast.console.viewer import Viewer
from sealcast.errors import CannotOpen, FilterRejected, NotFound
from sealcast.filters.check import check
from sealcast.filters.evaluate import evaluate
from sealcast.filters.labels import label_filter
from sealcast.filters.parse import parse
from sealcast.filters.tree import Condition
from sealcast.filters.unparse import unparse
from sealcast.model.event import OpenedEvent, Position
from sealcast.model.protection import PROTECTIONS, Protection
from sealcast.model.schema import Schema, value_to_json
from sealcast.protections.port import client_side
from sealcast.trust.realm.changes import Access
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import FIRST_EPOCH, Topic

MAX_CHARACTERS: Final = 8_192
#: Events of the viewer's own mailbox that a filter is tried on.
TRIED: Final = 200
_SHOWN: Final = 20
_WIDTH: Final = 110


class TypedFilter:
    """A filter that somebody typed, for a topic or for the example."""

    def __init__(self, asked: FormFields, state: RealmState, viewer: Viewer) -> None:
        name = asked("topic")
        self.name = name if name and name in state.topics and viewer.may_see(state, name) else ""
        self.topic = state.topic(self.name) if self.name else _example()
        self.text = asked("filter")[:MAX_CHARACTERS]
        if not self.text:
            values = first_values(self.schema)
            self.text = matching(self.schema, event_of(self.schema, values, ""))

    @property
    def schema(self) -> Schema:
        return self.topic.schema


def shown(tried: TypedFilter, result: Markup, topics: list[str], link: PageLink) -> Markup:
    options = [element("option", "an example", value="", selected=not tried.name)]
    options += [element("option", name, value=name, selected=name == tried.name) for name in topics]
    form = element(
        "form",
        element("label", "Attributes as in topic", element("select", *options, name="topic")),
        element(
            "label",
            "Filter",
            element("textarea", tried.text, name="filter", rows=3, spellcheck="false", maxlength=MAX_CHARACTERS),
        ),
        element("p", element("button", "Try it")),
        action=link("filters"),
        method="get",
        data_to="#tried",
        data_typing=True,
    )
    schema = ", ".join(f"{each.name} {each.type}" for each in tried.schema.attributes)
    return join(
        section("Your filter", element("p", f"Attributes: {schema}", class_="lead"), form),
        element("div", result, id="tried", aria_live="polite"),
    )


def result_part(realm: Realm, tried: TypedFilter, viewer: Viewer) -> Markup:
    """What is exchanged while somebody types. Nothing of it is kept."""
    try:
        found = check(parse(tried.text), tried.schema)
    except FilterRejected as refused:
        return _refused(tried.text, refused)
    said = [badge("fits", "good"), " ", element("code", unparse(found.condition))]
    warned = [element("p", badge("note", "wait"), f" {each.message}") for each in found.warnings]
    return join(
        section("What it says", element("p", *said), *warned, _labels(found.condition, tried.schema)),
        section("Which protections can express it", _protections(tried), lead="And what each would reveal of it."),
        _matches(realm, tried, found.condition, viewer),
    )


def _refused(text: str, refused: FilterRejected) -> Markup:
    where = None
    if refused.at is not None:
        start = text.rfind("\n", 0, refused.at) + 1
        line = text[start : start + _WIDTH].split("\n")[0]
        where = element("pre", line, "\n", " " * (refused.at - start), "^", class_="hex", tabindex=0)
    hint = element("p", refused.hint) if refused.hint else None
    return section(
        "It does not fit", element("p", badge(refused.kind, "bad"), f" {refused.message}", role="alert"), where, hint
    )


def _labels(condition: Condition, schema: Schema) -> Markup:
    try:
        cost = label_filter(condition, schema).cost
    except FilterRejected as refused:
        return element("p", f"It cannot be written in labels: {refused.message}", class_="lead")
    facts: list[tuple[str, Child]] = [
        ("conjunctions", cost.conjunctions),
        ("slots", cost.slots),
        ("labels", cost.labels),
    ]
    return join(element("h3", "In labels"), pairs(facts))


def _protections(tried: TypedFilter) -> Markup:
    rows: list[tuple[Child, ...]] = []
    for name, kind in PROTECTIONS.items():
        own = tried.name and type(tried.topic.protection) is kind
        protection = tried.topic.protection if own else kind()
        side = client_side(protection)
        try:
            side.vet(tried.text, replace(tried.topic, protection=protection))
        except FilterRejected as refused:
            hint = element("p", refused.hint, class_="remedy") if refused.hint else None
            rows.append((name, badge("no", "bad"), join(refused.message, hint), "-"))
        else:
            rows.append(
                (name, badge("yes", "good"), side.cost(tried.text, tried.schema).words or "-", _reveals(protection))
            )
    return table("Protections", ("protection", "can", "cost, or why not", "who learns the filter"), rows, "")


def _reveals(protection: Protection) -> str:
    """Who learns what of a filter, by the facts that the model states of a protection."""
    if protection.brokers_read:
        return "its brokers read it; the registry has it sealed to them"
    if protection.peers:
        return "the key center, which issues keys for it; peers see tokens"
    if protection.overlay:
        return "nobody; brokers see how many labels it has and which are equal, under layers"
    return "nobody; brokers see how many sealed labels it has and which events it matches"


# --- events -----------------------------------------------------------------------------------------------


def _matches(realm: Realm, tried: TypedFilter, condition: Condition, viewer: Viewer) -> Markup:
    if viewer.reader is None:
        words = "Events are shown to readers alone, where their keys are: sealcast console --as NAME."
        return section("Which events it matches", element("p", words, class_="empty"))
    if not tried.name:
        return section("Which events it matches", element("p", "Choose a topic.", class_="empty"))
    events = recent(realm, tried.name, viewer.reader)
    hits = [each for each in events if evaluate(condition, dict(each.attributes), each.payload) is True]
    rows = [(f"{tried.name}/{each.position}", each.publisher, shown_values(each)) for each in reversed(hits[-_SHOWN:])]
    lead = f"{len(hits):,} of the last {len(events):,} events in {viewer.reader}'s mailbox."
    return section(
        "Which events it matches",
        table("Events that match", ("event", "publisher", "attributes"), rows, "None of them."),
        lead=lead,
    )


def recent(realm: Realm, topic: str, reader: str) -> list[OpenedEvent]:
    """The newest events of a reader's own mailbox, opened with its own keys. Its cursor stays where it is."""
    try:
        with Subscriber(realm, topic, as_=reader, from_=0, unopenable=_leave) as subscriber:
            return list(_last(subscriber))
    except NotFound:
        return []


def _leave(position: Position, error: CannotOpen) -> None:
    """An event that does not open is not shown."""


def _last(events: Subscriber) -> Iterator[OpenedEvent]:
    kept: list[OpenedEvent] = []
    for event in islice(events, 100 * TRIED):
        kept.append(event)
        if len(kept) > 2 * TRIED:
            del kept[:TRIED]
    yield from kept[-TRIED:]


def shown_values(event: OpenedEvent) -> Markup:
    return element("code", ", ".join(f"{name}={value_to_json(value)}" for name, value in event.attributes.items()))


def _example() -> Topic:
    return Topic("example", bytes(16), EXAMPLE, 1, next(iter(PROTECTIONS.values()))(), FIRST_EPOCH, Access.MEMBERS)
