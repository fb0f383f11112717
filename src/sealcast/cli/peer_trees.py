"""The trees of a topic without brokers, as its running peers show them: rows, lines of text, or an SVG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sealcast.cli import forest, talk
from sealcast.cli.forest import Item

if TYPE_CHECKING:
    from sealcast.trust.deployment import Realm

COLUMNS: Final = ("peer", "topic", "address", "state", "links", "places", "waiting", "delivered", "passed on")

#: What a process says of one peer (`protections.attribute.peering.status`).
Shown = Mapping[str, Any]


def show(realm: Realm, topic: str | None, svg: Path | None) -> None:
    """The peers of a topic, or of all, as a table and as trees; with `svg`, drawn into that file, too."""
    from sealcast.protections.attribute.peering import status

    if topic is not None:
        realm.state().topic(topic)
    found = [each for each in status.all_here(realm) if topic is None or topic in each["topics"]]
    if svg is not None and topic is not None:
        draw(found, topic, svg)
    if talk.emitted({"peers": found, "svg": None if svg is None else str(svg)}):
        return
    rows = [row(each, name) for each in found for name in each["topics"] if topic in (None, name)]
    talk.table(COLUMNS, rows, "no peer runs on this machine: sealcast peer run")
    for name in dict.fromkeys(name for each in found for name in each["topics"] if topic in (None, name)):
        for line in lines(found, name):
            talk.say(line)
    if svg is not None:
        talk.note(f"drawn into {svg}")


def row(shown: Shown, topic: str) -> tuple[object, ...]:
    """One peer on one topic, for a table."""
    at = shown["topics"][topic]
    seats = at["seats"]
    placed = sum(1 for seat in seats if seat["root"] or seat["parent"] is not None)
    counts = at["counts"]
    state = ("rendezvous" if at["serves"] else "live") if shown["live"] else "gone"
    return (
        shown["entity"],
        topic,
        shown["address"],
        state,
        len(shown["links"]),
        f"{placed}/{len(seats)}",
        at["waiting"],
        counts.get("deliveries", 0),
        counts.get("events passed on", 0),
    )


def trees(found: Sequence[Shown], topic: str) -> list[Item]:
    """Each attribute's trees, the roots at the rendezvous. A peer may stand in several places, one for each label."""
    seats = [
        (shown["entity"], bool(shown["live"]), seat)
        for shown in found
        if topic in shown["topics"]
        for seat in shown["topics"][topic]["seats"]
    ]
    attributes = list(dict.fromkeys(seat["attribute"] for _, _, seat in seats))
    return [_attribute(attribute, [s for s in seats if s[2]["attribute"] == attribute]) for attribute in attributes]


def _attribute(attribute: str, seats: Sequence[tuple[str, bool, Shown]]) -> Item:
    top = Item("publisher", attribute, "attribute")
    children = dict[str | None, list[tuple[str, bool]]]()
    for name, live, seat in seats:
        above = None if seat["root"] else seat["parent"] or ""
        if (name, live) not in children.setdefault(above, []):
            children[above].append((name, live))
    seen = set[str]()

    def below(parent: str | None, item: Item) -> None:
        for name, live in sorted(children.get(parent, ())):
            kind = "revoked" if not live else "root" if parent is None else "reader"
            note = "gone" if not live else "rendezvous" if parent is None else "peer"
            made = Item(kind, name, note)
            item.below.append(made)
            if name not in seen:  # of a peer with several places, those below it are drawn once
                seen.add(name)
                below(name, made)

    below(None, top)
    for name, live in sorted(children.get("", ())):
        top.below.append(Item("more", name, "searches for a place") if live else Item("revoked", name, "gone"))
    known = {name for name, _, _ in seats}
    for parent in sorted(p for p in children if p and p not in known):
        made = Item("more", parent, "elsewhere")
        top.below.append(made)
        below(parent, made)
    return top


def lines(found: Sequence[Shown], topic: str) -> Iterable[str]:
    for tree in trees(found, topic):
        yield from forest.lines(tree)


def draw(found: Sequence[Shown], topic: str, path: Path) -> None:
    """All trees in one picture."""
    everything = Item("publisher", topic, "", trees(found, topic))
    live = sum(1 for shown in found if topic in shown["topics"] and shown["live"])
    path.write_text(forest.svg(everything, f"{topic}: {live} live peers"), encoding="utf-8")
