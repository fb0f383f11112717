"""A topic: its path as seven steps with numbers that move, its tree of brokers, subscriptions, epochs and rights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

from sealcast.clients.realm import Realm
from sealcast.console import drawing
from sealcast.console.attention import shown_day
from sealcast.console.drawing import PathStep
from sealcast.console.html import Child, Markup, element, join
from sealcast.console.live import Parts
from sealcast.console.looking import RealmLook, TopicLook
from sealcast.console.pages import PageLink, badge, pairs, part, section, table
from sealcast.console.viewer import Viewer
from sealcast.errors import NotFound
from sealcast.protections.port import Explanation, Party, witness_side
from sealcast.trust.realm.state import RealmState

#: Rows of one table; what is more, commands list.
MAX_ROWS: Final = 200
SHOWN_REFUSALS: Final = 20
_MAX_PARTIES: Final = 12


def parts(look: RealmLook, name: str, viewer: Viewer) -> Parts:
    """The parts that move."""
    topic = look.topic(name)
    if topic is None or not viewer.may_see(look.state, name):
        return {"path": element("p", "This topic is gone.", class_="bad")}
    return {
        "path": drawing.path(_steps(topic)),
        "rate": _rate(topic),
        "refused": _refused(topic),
        "tree": _tree(look.state, topic),
        "brokers": _brokers(topic),
        "lags": _lags(topic, viewer),
    }


def refusals(realm: Realm, name: str) -> list[dict[str, Any]]:
    """What was refused last. Much of it is what strangers wrote."""
    witness = witness_side(realm.state().topic(name).protection)
    return list(islice(chain.from_iterable(witness.refusals(realm, name)), SHOWN_REFUSALS))


def shown(look: RealmLook, name: str, viewer: Viewer, link: PageLink, last: Sequence[Mapping[str, Any]] = ()) -> Markup:
    """`last` is what was refused last, for those who see everything: much of it is about others."""
    state = look.state
    if look.topic(name) is None or not viewer.may_see(state, name):
        raise NotFound(f"there is no topic {name!r} that you may see")
    made = parts(look, name, viewer)
    told = witness_side(state.topic(name).protection).explain(state, name)
    return join(
        _about(state, name, link),
        section("Its path", part("path", made["path"], class_="wide"), part("rate", made["rate"])),
        section("Refused", part("refused", made["refused"]), _last_refused(last) if viewer.everything else None),
        section("Who carries it", part("tree", made["tree"], class_="wide"), part("brokers", made["brokers"])),
        section("Subscriptions", _subscriptions(state, name), part("lags", made["lags"])),
        section(
            "Epochs", _epochs(state, name), lead="Keys are replaced with each epoch; old ones open old events only."
        ),
        section("Rights, and when they end", _rights(look, name)),
        section("Who can learn what", explained(told), lead=f"This protection trusts {told.trusted}."),
    )


def _about(state: RealmState, name: str, link: PageLink) -> Markup:
    topic = state.topic(name)
    schema = ", ".join(f"{each.name} {each.type}" for each in topic.schema.attributes)
    facts: list[tuple[str, Child]] = [
        ("protection", join(badge(str(topic.protection)), " ", topic.protection.summary)),
        ("schema", schema),
        ("key center", topic.center),
        ("group keys", topic.group_keys),
        ("id", element("code", topic.id.hex())),
    ]
    sees = element("a", "What its brokers see, and what you see", href=link.asking("sees", topic=name), class_="button")
    return join(pairs(facts), element("p", sees))


def _steps(topic: TopicLook) -> list[PathStep]:
    n = topic.numbers
    waits = f"{n.backlog:,} wait" if n.backlog else ""
    lag = f"{n.lag:,} wait" if n.lag else ""
    refused = f"{n.refused:,} refused" if n.refused else ""
    readers = sum(facts.get("subscribers") or 0 for facts in topic.facts)
    return [
        PathStep("publish", f"{n.frames:,}", "frames", waits, "wait" if waits else ""),
        PathStep("admit", f"{n.admitted:,}", "events", refused, "bad" if refused else ""),
        PathStep("match", f"{n.matched:,}", "matched"),
        PathStep("group", f"{readers:,}", "subscribers"),
        PathStep("seal", f"{n.encryptions:,}", "encryptions"),
        PathStep("deliver", f"{n.deliveries:,}", "deliveries"),
        PathStep("open", f"{max(0, n.deliveries - n.lag):,}", "acknowledged", lag, "wait" if lag else ""),
    ]


def _rate(topic: TopicLook) -> Markup:
    words = f"{topic.numbers.per_second:,} events a second, over the last minute"
    return element("p", drawing.spark(topic.recent, words), " ", words)


def _refused(topic: TopicLook) -> Markup:
    if topic.trouble is not None:
        return element("p", topic.trouble.message, class_="bad")
    if not topic.rejected:
        return element("p", "Nothing was refused.", class_="empty")
    return drawing.bars(topic.rejected)


def _last_refused(last: Sequence[Mapping[str, Any]]) -> Markup | None:
    rows = [
        (each["at"], f"{each['partition']}/{each['offset']}", each["reason"], each["events"], each["detail"])
        for each in last
    ]
    return table("The last refusals", ("at", "frame", "reason", "events", "detail"), rows, "") if rows else None


def _tree(state: RealmState, topic: TopicLook) -> Markup:
    overlay = state.overlay(topic.name)
    if not overlay.parents:
        return Markup()
    by_broker = {facts["broker"]: facts for facts in topic.facts}
    return drawing.tree(overlay, lambda name: _hops(by_broker.get(name)))


def _hops(facts: Mapping[str, Any] | None) -> str:
    if facts is None:
        return "on another machine"
    hops = facts.get("hops") or {}
    return f"{hops.get('deliveries', 0):,} handed on, {hops.get('waiting_records', 0):,} wait"


def _brokers(topic: TopicLook) -> Markup:
    columns = ("at", "batches", "last batch", "backlog", "admitted", "delivered", "lag")
    rows = [
        (
            facts["broker"],
            facts.get("batches") or (facts.get("hops") or {}).get("batches") or 0,
            facts.get("last_batch_at") or (facts.get("hops") or {}).get("last_batch_at") or "never",
            facts.get("backlog") or 0,
            (facts.get("events") or {}).get("admitted") or 0,
            (facts.get("events") or {}).get("deliveries") or (facts.get("hops") or {}).get("deliveries") or 0,
            (facts.get("lag") or {}).get("total") or 0,
        )
        for facts in topic.facts[:MAX_ROWS]
    ]
    return table("Brokers, or peers, of the topic", columns, rows, "Nobody on this machine carries it.")


def _subscriptions(state: RealmState, name: str) -> Markup:
    subscriptions = list(state.subscriptions_of(name))
    credentials = state.credentials_of(name)
    rows: list[tuple[Child, ...]] = []
    for each in subscriptions[:MAX_ROWS]:
        held = credentials.get(each.id)
        ends = shown_day(held.expires_us) if held is not None else "-"
        rows.append((each.id, each.subscriber, state.home_of(name, each.subscriber), ends))
    left = len(subscriptions) - len(rows)
    more = element("p", f"... and {left:,} more: sealcast subscription list --topic {name}") if left > 0 else None
    empty = "No subscription stands in the registry. Where filters are their subscribers' own, it has none."
    return join(table("Live subscriptions", ("id", "subscriber", "at broker", "token ends"), rows, empty), more)


def _lags(topic: TopicLook, viewer: Viewer) -> Markup:
    lag = {who: n for facts in topic.facts for who, n in ((facts.get("lag") or {}).get("subscribers") or {}).items()}
    behind = sorted(((n, who) for who, n in lag.items() if n and viewer.may_ask_about(who)), reverse=True)[:MAX_ROWS]
    return table("Who is behind", ("subscriber", "events"), [(who, n) for n, who in behind], "Nobody is behind.")


def _epochs(state: RealmState, name: str) -> Markup:
    topic = state.topic(name)
    starts = list(enumerate(topic.epoch_starts, 1))[-MAX_ROWS:]
    rows = [
        (number, shown_day(at) if at else "with the topic", "now" if number == topic.epoch else "no longer")
        for number, at in starts
    ]
    return table("Epochs", ("epoch", "since", "in force"), reversed(rows), "none")


def _rights(look: RealmLook, name: str) -> Markup:
    rows = list(_terms(look, name))
    more = f"... and {len(rows) - MAX_ROWS:,} more: sealcast topic show {name}"
    left = element("p", more) if len(rows) > MAX_ROWS else None
    access = join("Access: ", badge(str(look.state.topic(name).access)))
    columns = ("entity", "may", "from", "until", "for events like")
    shown = table("Rights by name", columns, rows[:MAX_ROWS], "Nobody was given a right by name.")
    return join(element("p", access), shown, left)


def _terms(look: RealmLook, name: str) -> Iterator[tuple[Child, ...]]:
    for entity, terms in look.state.topic_state(name).terms.items():
        for right, term in terms.items():
            until = shown_day(term.until_us) if term.until_us is not None else "for good"
            ended = term.over(look.now_us) or look.state.entity(entity).revoked
            since = shown_day(term.not_before_us) if term.not_before_us else "the start"
            yield entity, str(right), since, badge("ended", "bad") if ended else until, element("code", term.template)
        if not terms:
            yield entity, "nothing", "", "", ""


def explained(told: Explanation) -> Markup:
    """Who learns what, as `sealcast explain` says it."""
    shown = [_party(party) for party in told.parties[:_MAX_PARTIES]]
    together = [_party(party) for party in told.coalitions]
    return join(
        element("div", *shown, class_="cards"),
        element("h2", "Who pools keys, and what it sees then") if together else None,
        element("div", *together, class_="cards") if together else None,
        element("h2", "What is left, knowingly"),
        element("ul", *(element("li", words) for words in told.left)),
    )


def _party(party: Party) -> Markup:
    return element(
        "article",
        element("h3", party.who),
        element("p", party.here, class_="lead") if party.here else None,
        element("ul", *(element("li", words, class_="learns") for words in party.learns)),
        element("ul", *(element("li", words, class_="cannot") for words in party.cannot)),
        class_="card",
    )
