"""Rights and audit: who could read what, when and why; and taking rights away, with a dry run first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from sealcast.clients.realm import Realm
from sealcast.console.asked import FormFields
from sealcast.console.attention import shown_day
from sealcast.console.confirming import Act, Confirmations
from sealcast.console.html import Child, Markup, element, join
from sealcast.console.pages import PageLink, badge, section, table
from sealcast.console.viewer import Viewer
from sealcast.errors import Misuse, NotFound
from sealcast.lab.drill import Preview, preview
from sealcast.trust.realm.audit import RealmHistory, RightHeld, history
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.state import RealmState

MAX_ROWS: Final = 300


def shown(realm: Realm, asked: FormFields, viewer: Viewer, link: PageLink) -> Markup:
    state = realm.state()
    entity, topic = asked("entity") or None, asked("topic") or None
    if not viewer.everything:
        entity = viewer.own  # its own rights, whatever it asked for
    if entity is not None:
        state.entity(entity)
    if topic is not None:
        state.topic(topic)
        if not viewer.may_see(state, topic):
            raise NotFound(f"there is no topic {topic!r} that you may see")
    found = history(realm.registry.changes(), entity=entity, topic=topic)
    rights = _held(found, asked("at"))
    rows = [_row(each) for each in rights[:MAX_ROWS]]
    left = len(rights) - len(rows)
    return join(
        section("Whose", _form(_entities(state, viewer), viewer.topics(state), asked, link)),
        section(
            "Who could read and publish what",
            table("Rights", ("entity", "topic", "right", "from", "until", "because of", "ended by"), rows, "Nobody."),
            element("p", f"... and {left:,} more: narrow it down, or sealcast audit") if left > 0 else None,
        ),
        _acting(asked, link) if viewer.administers else None,
        element("div", id="done", aria_live="polite"),
    )


def _entities(state: RealmState, viewer: Viewer) -> list[str]:
    return list(state.entities) if viewer.everything or viewer.own is None else [viewer.own]


def _held(found: RealmHistory, at: str) -> list[RightHeld]:
    if not at:
        return list(found.rights)
    if not at.isascii() or not at.isdigit() or not 1 <= int(at) <= len(found.times):
        raise Misuse(f"the registry has versions 1 to {len(found.times)}, not {at!r}")
    version = int(at)
    return [held for held in found.rights if held.allows(version, found.times[version - 1])]


def _row(held: RightHeld) -> tuple[Child, ...]:
    until = "still" if held.until_us is None else shown_day(held.until_us)
    ended = held.span.until
    why = f"{held.why} (version {held.span.since.version})"
    return (
        held.entity,
        held.topic,
        badge(str(held.right)),
        shown_day(held.from_us),
        until,
        why if held.term.template == "*" else f"{why}, for {held.term.template}",
        "" if held.until_us is None else f"version {ended.version}, {ended.what}" if ended is not None else "its term",
    )


def _form(entities: list[str], topics: list[str], asked: FormFields, link: PageLink) -> Markup:
    return element(
        "form",
        element(
            "div",
            element("label", "Entity", element("input", name="entity", value=asked("entity"), list="entities")),
            element("datalist", *(element("option", value=name) for name in entities[:500]), id="entities"),
            element("label", "Topic", element("input", name="topic", value=asked("topic"), list="topics")),
            element("datalist", *(element("option", value=name) for name in topics[:500]), id="topics"),
            element(
                "label", "As of registry version", element("input", name="at", value=asked("at"), inputmode="numeric")
            ),
            element("button", "Show"),
            class_="row",
        ),
        action=link("rights"),
        method="get",
    )


def _acting(asked: FormFields, link: PageLink) -> Markup:
    revoke = element(
        "form",
        element(
            "div",
            element("label", "Topic", element("input", name="topic", value=asked("topic"), required=True)),
            element("label", "Entity", element("input", name="entity", value=asked("entity"), required=True)),
            element(
                "label",
                "Right",
                element("select", *(element("option", str(right), value=str(right)) for right in Right), name="right"),
            ),
            element("button", "Show what it would do"),
            class_="row",
        ),
        action=link("rights", "revoke"),
        method="post",
        data_to="#done",
    )
    stolen = element(
        "form",
        element(
            "div",
            element("label", "Entity, broker or key center", element("input", name="entity", required=True)),
            element("button", "Show what it would do"),
            class_="row",
        ),
        action=link("rights", "compromise"),
        method="post",
        data_to="#done",
    )
    return section(
        "Take something away",
        element("h3", "A right on a topic"),
        revoke,
        element("h3", "Everything, because keys were stolen"),
        stolen,
        lead="Each shows first what it would do, and does nothing before you say so.",
    )


# --- acts -------------------------------------------------------------------------------------------------


class Acting(NamedTuple):
    """Somebody who is about to do something: its session, and the tokens of dry runs."""

    session: str
    confirmations: Confirmations
    link: PageLink
    #: What is done is said where the console was started, too.
    tell: Callable[[str], None]


def revoked(realm: Realm, asked: FormFields, by: Acting) -> Markup:
    """Takes a right away, if that was confirmed; else says what it would do."""
    state = realm.state()
    topic, entity = state.topic(asked("topic")).name, state.entity(asked("entity")).name
    if asked("right") not in set(Right):
        raise Misuse(f"{asked('right')!r} is no right", hint="publish or subscribe")
    right = Right(asked("right"))
    held = right in state.terms_of(topic, entity)
    if not held:
        return section("Nothing to do", element("p", f"{entity} has no right to {right} on {topic}."))
    ends = [s.id for s in state.subscriptions_of(topic) if s.subscriber == entity] if right is Right.SUBSCRIBE else []
    lines = [f"From the next batch on, {entity} may not {right} on {topic}."]
    lines += [f"Subscription {id} stays, and delivers nothing until the right comes back." for id in ends]
    lines += ["What it was sent before, it keeps. A grant gives the right back."]
    act = Act(by.session, "revoke", (topic, entity, str(right)), tuple(lines))
    if asked("confirm"):
        by.confirmations.spend(asked("confirm"), act)
        version = realm.revoke(topic, entity, [right]).version
        words = f"{entity} may not {right} on {topic} any more, from the next batch on (registry version {version})."
        by.tell(words)
        return section("Done", element("p", badge("done", "good"), f" {words}"))
    fields = {"topic": topic, "entity": entity, "right": str(right), "confirm": by.confirmations.token(act)}
    button = element("p", element("button", f"Revoke {right} of {entity}", class_="danger"))
    return _would(lines, _confirming(fields, button, by.link("rights", "revoke")))


def compromised(realm: Realm, asked: FormFields, by: Acting) -> Markup | str:
    """What responding to stolen keys would do; or, if that was confirmed, the entity whose keys they are."""
    entity = realm.state().entity(asked("entity")).name
    planned = preview(realm, entity)
    if planned.plan.done:
        return section("Nothing left to do", element("p", f"{entity} was dealt with."))
    lines = _planned(entity, planned)
    act = Act(by.session, "compromise", (entity,), tuple(lines))
    if asked("confirm"):
        by.confirmations.spend(asked("confirm"), act)
        if asked("typed") != entity:
            raise Misuse("the name that you typed is another one", hint="look at it again, then type the name")
        by.tell(f"the response to the compromise of {entity} begins")
        return entity
    typed = element(
        "div",
        element(
            "label", f"Type {entity} to confirm", element("input", name="typed", required=True, autocomplete="off")
        ),
        element("button", f"Respond to the compromise of {entity}", class_="danger"),
        class_="row",
    )
    fields = {"entity": entity, "confirm": by.confirmations.token(act)}
    same = element("p", "The same as a command: ", element("code", f"sealcast compromise {entity}"))
    return _would(lines, join(_confirming(fields, typed, by.link("rights", "compromise")), same))


def _planned(entity: str, planned: Preview) -> list[str]:
    plan = planned.plan
    lines = [f"{entity} is revoked, for good."] if plan.revoke else []
    lines += [f"Subscription {id} ends." for id in plan.subscriptions]
    lines += [f"Key center {planned.new_center} is made."] if planned.new_center else []
    for each in plan.topics:
        lines.append(f"Topic {each.topic} gets epoch {each.epoch + 1}: {each.why}.")
        if planned.pieces.get(each.topic):
            lines.append(f"Topic {each.topic}: {planned.pieces[each.topic]:,} pieces are sealed again.")
        if planned.frames.get(each.topic):
            lines.append(f"Topic {each.topic}: frames with {planned.frames[each.topic]:,} messages are removed.")
    lines += [f"Topic {name}: what lies there cannot be sealed again, and stays open." for name in planned.lasting]
    return [*lines, "It cannot be undone. Everybody tries what it can do, before and after, and you see the results."]


def begun(entity: str, link: PageLink) -> Markup:
    """That a response is under way, and where to see what comes of it."""
    words = f" The response to the compromise of {entity} has begun. "
    to = link.to("See how it stands", "rights", "responses", entity)
    return section("Begun", element("p", badge("begun", "good"), words, to))


def _would(lines: list[str], form: Markup) -> Markup:
    return section("This would happen", element("ul", *(element("li", words) for words in lines)), form)


def _confirming(fields: Mapping[str, str], rest: Markup, to: str) -> Markup:
    hidden = (element("input", type="hidden", name=name, value=value) for name, value in fields.items())
    return element("form", *hidden, rest, action=to, method="post", data_to="#done")
