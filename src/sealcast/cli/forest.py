"""The overlay of a layered topic as a picture: lines of text, or an SVG that needs nothing else.

Publishers stand on top, together: each is the root of a tree of its own, over the same brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from html import escape
from typing import TYPE_CHECKING, Final

from sealcast.model.dataclass import dataclass

if TYPE_CHECKING:
    from sealcast.trust.realm.overlays import Overlay
    from sealcast.trust.realm.state import RealmState

#: More readers than this at one broker are counted, not named: a picture is for people.
MAX_NAMED: Final = 8
_MAX_PUBLISHERS_NAMED: Final = 6

_CHARACTER, _HEIGHT, _GAP, _LEVEL, _MARGIN = 7.2, 30, 18, 84, 28
_STYLE: Final = """
  text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #1b2733; text-anchor: middle; }
  .link { fill: none; stroke: #9aa7b4; stroke-width: 1.4; }
  .publisher rect { fill: #fdf1dc; stroke: #c98a1b; } .root rect { fill: #d9e8fb; stroke: #2f6db5; }
  .broker rect { fill: #eef4fb; stroke: #6d9bcf; } .reader rect { fill: #e6f4ea; stroke: #4b9a62; }
  .more rect { fill: #ffffff; stroke: #9aa7b4; stroke-dasharray: 3 3; }
  .revoked rect { fill: #f6dddd; stroke: #b53a3a; }
  .note { fill: #5b6875; text-anchor: start; }
"""


@dataclass(frozen=True)
class Item:
    """Something in the picture, and what stands below it."""

    kind: str
    name: str
    note: str = ""
    below: list[Item] = field(default_factory=list)


def forest(state: RealmState, topic: str, *, everyone: bool = False) -> Item:
    """What is to be seen of a topic's overlay, under one item for all publishers."""
    overlay, layers = state.overlay(topic), state.topic(topic).protection.depth
    limit = len(overlay.places) if everyone else MAX_NAMED
    made: dict[str | None, list[Item]] = {None: []}
    for name in overlay.downwards():
        parent, depth = overlay.parents[name], overlay.depth(name)
        kind = "revoked" if state.entity(name).revoked else "root" if parent is None else "broker"
        words = [kind, f"depth {depth}", *(["reads, too"] if name in overlay.places else ())]
        item = Item(kind, name, ", ".join(words))
        made[parent].append(item)
        made[name] = item.below
    for name in overlay.parents:
        readers = [reader for reader in overlay.subscribers(name) if reader not in overlay.parents]
        hops = overlay.depth(name) + 1
        gone = [reader for reader in readers if not state.may_subscribe(topic, reader)]
        for reader in readers[:limit]:
            kind, note = ("revoked", "may not read") if reader in gone else ("reader", _reader(hops, layers))
            made[name].append(Item(kind, reader, note))
        if len(readers) > limit:
            made[name].append(Item("more", f"+ {len(readers) - limit}", _reader(hops, layers)))
    return Item("publisher", _publishers(state.publishers_of(topic)), "", made[None])


def lines(top: Item) -> Iterator[str]:
    """The picture as text."""
    drawn = list(_branches(top, "", ""))
    width = max((len(left) for left, note in drawn if note), default=0)
    for left, note in drawn:
        yield f"{left.ljust(width)}  {note}".rstrip()


def svg(top: Item, title: str) -> str:
    """The picture as an SVG document."""
    boxes = list(_placed(top))
    width = max(max(x + w / 2 for _, x, _, w, _ in boxes), len(title) * _CHARACTER) + _MARGIN
    height = max(y for _, _, y, _, _ in boxes) + _HEIGHT + _MARGIN
    links = "\n".join(_link(x, y, *above) for _, x, y, _, above in boxes if above is not None)
    drawn = "\n".join(_box(item, x, y, w) for item, x, y, w, _ in boxes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img">\n<title>{escape(title)}</title>\n'
        f'<style>{_STYLE}</style>\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f'<text class="note" x="{_MARGIN}" y="22">{escape(title)}</text>\n<g>{links}</g>\n{drawn}\n</svg>\n'
    )


def as_json(overlay: Overlay, state: RealmState, topic: str) -> dict[str, object]:
    """Everyone, not only those that a picture has room for."""
    about = state.topic(topic)
    return {
        "topic": topic,
        "protection": about.protection.name,
        "settings": about.protection.to_json(),
        "epoch": about.epoch,
        "generation": overlay.generation,
        "publishers": state.publishers_of(topic),
        "roots": list(overlay.roots),
        "brokers": [
            {
                "name": name,
                "under": overlay.parents[name],
                "depth": overlay.depth(name),
                "key": state.layer_key(topic, about.epoch, name) is not None,
                "revoked": state.entity(name).revoked,
            }
            for name in overlay.downwards()
        ],
        "subscribers": [
            {"name": name, "at": broker, "depth": overlay.depth(name)} for name, broker in overlay.places.items()
        ],
    }


# --- words --------------------------------------------------------------------------------------------


def _publishers(names: Sequence[str]) -> str:
    if not names:
        return "publishers: none yet"
    shown = ", ".join(names[:_MAX_PUBLISHERS_NAMED])
    return shown if len(names) <= _MAX_PUBLISHERS_NAMED else f"{shown} and {len(names) - _MAX_PUBLISHERS_NAMED} more"


def _reader(hops: int, layers: int) -> str:
    counted = f"{layers} layers" if hops >= layers else f"{hops} of {layers} layers: too near to the publishers"
    return f"subscriber, depth {hops}, {counted}"


# --- text ---------------------------------------------------------------------------------------------


def _branches(item: Item, before: str, stem: str) -> Iterator[tuple[str, str]]:
    yield before + item.name, item.note
    for number, child in enumerate(item.below, 1):
        last = number == len(item.below)
        yield from _branches(child, stem + ("└─ " if last else "├─ "), stem + ("   " if last else "│  "))


# --- SVG ----------------------------------------------------------------------------------------------

#: Item, the middle of its box, its top, its width, and the foot of the one above.
_Placed = tuple[Item, float, float, float, tuple[float, float] | None]


def _placed(top: Item) -> Iterator[_Placed]:
    """Each above the middle of what stands below it."""
    widths: dict[int, float] = {}

    def measure(item: Item) -> float:
        own = len(item.name) * _CHARACTER + 24
        below = sum(map(measure, item.below)) + _GAP * max(0, len(item.below) - 1)
        widths[id(item)] = max(own, below)
        return widths[id(item)]

    def place(item: Item, left: float, y: float, above: tuple[float, float] | None) -> Iterator[_Placed]:
        middle = left + widths[id(item)] / 2
        yield item, middle, y, len(item.name) * _CHARACTER + 24, above
        below = sum(widths[id(child)] for child in item.below) + _GAP * max(0, len(item.below) - 1)
        at = middle - below / 2
        for child in item.below:
            yield from place(child, at, y + _LEVEL, (middle, y + _HEIGHT))
            at += widths[id(child)] + _GAP

    measure(top)
    yield from place(top, _MARGIN, 40, None)


def _link(x: float, y: float, from_x: float, from_y: float) -> str:
    half = (from_y + y) / 2
    bend = f"C{from_x:.1f} {half:.1f} {x:.1f} {half:.1f} {x:.1f} {y:.1f}"
    return f'<path class="link" d="M{from_x:.1f} {from_y:.1f} {bend}"/>'


def _box(item: Item, x: float, y: float, width: float) -> str:
    corner = _HEIGHT / 2 if item.kind in ("reader", "more") else 6
    note = f"<title>{escape(item.note)}</title>" if item.note else ""
    return (
        f'<g class="{item.kind}">{note}<rect x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{_HEIGHT}" rx="{corner:g}" stroke-width="1.4"/>'
        f'<text x="{x:.1f}" y="{y + _HEIGHT / 2 + 4:.1f}">{escape(item.name)}</text></g>'
    )
