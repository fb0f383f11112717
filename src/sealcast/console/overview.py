"""The first page: what needs attention, every topic with its rate, what was refused, and who serves the realm."""

from __future__ import annotations

from collections import Counter

from sealcast.console import drawing
from sealcast.console.attention import Severity, attention, health
from sealcast.console.html import Child, Markup, element, join
from sealcast.console.live import Parts
from sealcast.console.looking import RealmLook, TopicLook
from sealcast.console.pages import PageLink, badge, part, section, table
from sealcast.console.viewer import Viewer

_TONE = {Severity.GOOD: "good", Severity.NOTICE: "", Severity.WARNING: "wait", Severity.FAILING: "bad"}


def parts(look: RealmLook, viewer: Viewer, link: PageLink) -> Parts:
    """The parts that move."""
    seen = frozenset(viewer.topics(look.state))
    topics = [topic for topic in look.topics if topic.name in seen]
    return {
        "numbers": _numbers(look, topics),
        "attention": _attention(look, viewer, seen, link),
        "topics": _topics(topics, link),
        "refused": _refused(topics),
        "health": _health(look, viewer),
    }


def shown(look: RealmLook, viewer: Viewer, link: PageLink) -> Markup:
    made = parts(look, viewer, link)
    return join(
        part("numbers", made["numbers"], class_="numbers"),
        section("What needs attention", part("attention", made["attention"], role="status")),
        section("Topics", part("topics", made["topics"])),
        section("Refused", part("refused", made["refused"]), lead="Events that admission refused, by reason."),
        section("Health", part("health", made["health"]), lead="Who serves the realm."),
    )


def _numbers(look: RealmLook, topics: list[TopicLook]) -> Markup:
    facts: list[tuple[str, Child]] = [
        ("topics", len(topics)),
        ("entities", sum(not who.revoked for who in look.state.entities.values())),
        ("events admitted", sum(topic.numbers.admitted for topic in topics)),
        ("deliveries", sum(topic.numbers.deliveries for topic in topics)),
        ("events a second", round(sum(topic.numbers.per_second for topic in topics), 2)),
        ("registry version", look.state.version),
    ]
    return element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in facts))


def _attention(look: RealmLook, viewer: Viewer, seen: frozenset[str], link: PageLink) -> Markup:
    found = [
        each
        for each in attention(look)
        if (viewer.everything if each.topic is None else each.topic in seen) and viewer.may_ask_about(each.entity)
    ]
    if not found:
        return element("p", badge("all well", "good"), " Nothing waits for anybody.")
    items = [
        element(
            "li",
            badge(each.level.word, _TONE[each.level]),
            " ",
            link.to(each.what, "topics", each.topic) if each.topic is not None else each.what,
            element("p", each.remedy, class_="remedy"),
        )
        for each in found
    ]
    return element("ul", *items, class_="attention")


def _topics(topics: list[TopicLook], link: PageLink) -> Markup:
    columns = ("topic", "protection", "rate", "events/s", "admitted", "delivered", "refused", "backlog", "lag")
    rows = [
        (
            link.to(topic.name, "topics", topic.name),
            badge(str(topic.topic.protection)),
            drawing.spark(topic.recent, f"events of {topic.name} in the last minute"),
            topic.numbers.per_second,
            topic.numbers.admitted,
            topic.numbers.deliveries,
            topic.numbers.refused,
            topic.numbers.backlog,
            topic.numbers.lag,
        )
        for topic in topics
    ]
    return table("Topics, over all their brokers", columns, rows, "No topics yet: sealcast topic create")


def _refused(topics: list[TopicLook]) -> Markup:
    counts = Counter[str]()
    for topic in topics:
        counts.update(topic.rejected)
    if not counts:
        return element("p", "Nothing was refused.", class_="empty")
    return drawing.bars(dict(counts.most_common()))


def _health(look: RealmLook, viewer: Viewer) -> Markup:
    rows: list[tuple[Child, ...]] = []
    for service in look.services:
        level, words = health(look, service)
        rows.append((service.who.name, service.kind, badge(level.word, _TONE[level]), words))
    if viewer.everything:
        free = f"{look.disk_free / 1e9:.0f} GB of {look.disk_total / 1e9:.0f} GB are free"
        rows.append((look.carrier, "carrier", badge("good", "good"), free))
    return table("Services of the realm", ("name", "what", "health", "why"), rows, "nobody")
