"""Rights and audit: who could read what, when and why; and taking rights away, with a dry run first."""

from __future__ import annotations

from typing import Final

from sealcast.clients.realm import Realm
from sealcast.console.asked import FormFields
from sealcast.console.attention import shown_day
from sealcast.console.html import Child, Markup, element, join
from sealcast.console.pages import PageLink, badge, section, table
from sealcast.console.viewer import Viewer
from sealcast.errors import Misuse
from sealcast.lab.drill import preview
from sealcast.trust.realm.audit import RealmHistory, RightHeld, history
from sealcast.trust.realm.changes import Right

MAX_ROWS: Final = 300


def shown(realm: Realm, asked: FormFields, viewer: Viewer, link: PageLink) -> Markup:
    state = realm.state()
    entity, topic = asked("entity") or None, asked("topic") or None
    if entity is not None:
        state.entity(entity)
    if topic is not None:
        state.topic(topic)
    found = history(realm.registry.changes(), entity=entity, topic=topic)
    rights = _held(found, asked("at"))
    rows = [_row(each) for each in rights[:MAX_ROWS]]
    left = len(rights) - len(rows)
    return join(
        section("Whose", _form(list(state.entities), list(state.topics), asked, link)),
        section(
            "Who could read and publish what",
            table("Rights", ("entity", "topic", "right", "from", "until", "because of", "ended by"), rows, "Nobody."),
            element("p", f"... and {left:,} more: narrow it down, or sealcast audit") if left > 0 else None,
        ),
        _acting(asked, link) if viewer.administers else None,
        element("div", id="done", aria_live="polite"),
    )


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


def revoked(realm: Realm, asked: FormFields, link: PageLink) -> Markup:
    """Takes a right away, if that was meant; else says what it would do."""
    state = realm.state()
    topic, entity = state.topic(asked("topic")).name, state.entity(asked("entity")).name
    if asked("right") not in set(Right):
        raise Misuse(f"{asked('right')!r} is no right", hint="publish or subscribe")
    right = Right(asked("right"))
    held = right in state.terms_of(topic, entity)
    if not held:
        return section("Nothing to do", element("p", f"{entity} has no right to {right} on {topic}."))
    if asked("meant") == "yes":
        version = realm.revoke(topic, entity, [right]).version
        words = f"{entity} may not {right} on {topic} any more, from the next batch on (registry version {version})."
        return section("Done", element("p", badge("done", "good"), f" {words}"))
    ends = [s.id for s in state.subscriptions_of(topic) if s.subscriber == entity] if right is Right.SUBSCRIBE else []
    lines = [f"From the next batch on, {entity} may not {right} on {topic}."]
    lines += [f"Subscription {id} stays, and delivers nothing until the right comes back." for id in ends]
    lines += ["What it was sent before, it keeps. A grant gives the right back."]
    fields = {"topic": topic, "entity": entity, "right": str(right), "meant": "yes"}
    form = element(
        "form",
        *(element("input", type="hidden", name=name, value=value) for name, value in fields.items()),
        element("p", element("button", f"Revoke {right} of {entity}", class_="danger")),
        action=link("rights", "revoke"),
        method="post",
        data_to="#done",
    )
    return section("This would happen", element("ul", *(element("li", words) for words in lines)), form)


def compromised(realm: Realm, asked: FormFields) -> Markup:
    """What responding to stolen keys would do. It is done by the command, which asks, and proves what came of it."""
    entity = realm.state().entity(asked("entity")).name
    planned = preview(realm, entity)
    plan = planned.plan
    if plan.done:
        return section("Nothing left to do", element("p", f"{entity} was dealt with."))
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
    todo = join(
        "It cannot be undone, and takes Spark. To do it, and prove it: ",
        element("code", f"sealcast compromise {entity}"),
    )
    return section("This would happen", element("ul", *(element("li", words) for words in lines)), element("p", todo))
