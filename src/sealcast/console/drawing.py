"""Pictures as SVG: the path of an event, a tree of brokers, a line of rates. Each says in words what it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from sealcast.console.html import Markup, element, join
from sealcast.trust.realm.overlays import Overlay

_BOX_W: Final = 132
_BOX_H: Final = 92
_GAP: Final = 26
#: Brokers of a tree that are drawn; a table has them all.
MAX_DRAWN: Final = 64


class PathStep(NamedTuple):
    """One of the seven steps."""

    name: str
    number: str
    unit: str
    note: str = ""
    #: `bad` where something was lost on the way, `wait` where something waits.
    tone: str = ""


def path(steps: Sequence[PathStep], broker_from: int = 1, broker_to: int = 5) -> Markup:
    """The steps from publisher to subscriber, with a bracket under those that brokers do."""
    width, parts = len(steps) * (_BOX_W + _GAP) - _GAP, list[Markup]()
    for index, step in enumerate(steps):
        x = index * (_BOX_W + _GAP)
        tone = f" {step.tone}" if step.tone else ""
        parts += [
            element("rect", x=x, y=4, width=_BOX_W, height=_BOX_H, rx=10, class_=f"box{tone}"),
            _words(x + _BOX_W / 2, 26, step.name, "step-name"),
            _words(x + _BOX_W / 2, 54, step.number, "step-number"),
            _words(x + _BOX_W / 2, 72, step.unit, "step-unit"),
            _words(x + _BOX_W / 2, 88, step.note, f"step-note{tone}"),
        ]
        if index:
            parts.append(_arrow(x - _GAP + 3, x - 3, 4 + _BOX_H / 2))
    left, right = broker_from * (_BOX_W + _GAP), (broker_to + 1) * (_BOX_W + _GAP) - _GAP
    y = _BOX_H + 14
    parts.append(element("path", d=f"M{left} {y}v8H{right}v-8", class_="bracket"))
    parts.append(_words((left + right) / 2, y + 26, "what carries the topic: brokers, or its peers", "step-unit"))
    said = "; ".join(f"{step.name}: {step.number} {step.unit}" + f", {step.note}" * bool(step.note) for step in steps)
    return svg(width, _BOX_H + 48, said, *parts, class_="path")


def tree(overlay: Overlay, note: Callable[[str], str]) -> Markup:
    """The brokers of an overlay with those who stand below them; `note` has a line for each broker."""
    shown = overlay.downwards()[:MAX_DRAWN]
    places, parts, row = dict[str, tuple[float, float]](), list[Markup](), 0
    for name in shown:
        x, y = 170.0 * (overlay.depth(name) - 1), 58.0 * row
        places[name] = (x, y)
        row += 1
        above = overlay.parents[name]
        if above in places:
            parts.append(_elbow(places[above], (x, y)))
        guests = overlay.subscribers(name)
        parts += [
            element("rect", x=x, y=y, width=150, height=46, rx=8, class_="box"),
            _words(x + 75, y + 19, _short(name), "step-name"),
            _words(x + 75, y + 36, note(name), "step-unit"),
        ]
        if guests:
            listed = ", ".join(guests[:4]) + (f" and {len(guests) - 4} more" if len(guests) > 4 else "")
            parts.append(element("text", f"→ {listed}", x=x + 160, y=y + 28, class_="guests"))
    said = "; ".join(
        f"{name} below {overlay.parents[name] or 'publishers'}, with {len(overlay.subscribers(name))} subscribers"
        for name in shown
    )
    depth = max((overlay.depth(name) for name in shown), default=1)
    return svg(170 * depth + 260, max(1, row) * 58, f"Overlay tree. {said}", *parts, class_="tree")


def spark(values: Sequence[int], said: str) -> Markup:
    """A small line of what happened in the last looks."""
    width, height, most = 120, 26, max(values, default=0)
    if len(values) < 2:
        return svg(width, height, said, element("path", d=f"M0 {height - 2}H{width}", class_="line"), class_="spark")
    step = width / (len(values) - 1)
    at = [(i * step, height - 2 - (height - 6) * (value / most if most else 0)) for i, value in enumerate(values)]
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in at)
    return svg(width, height, said, element("path", d=f"M{line}", class_="line"), class_="spark")


def bars(counts: Mapping[str, int]) -> Markup:
    """How often each of some things happened, as bars with their numbers."""
    most, parts = max(counts.values(), default=1), list[Markup]()
    for row, (name, count) in enumerate(counts.items()):
        y = row * 26
        parts += [
            element("text", name, x=0, y=y + 17, class_="bar-name"),
            element("rect", x=150, y=y + 5, width=max(2, round(220 * count / most)), height=14, rx=3, class_="bar"),
            element("text", f"{count:,}", x=160 + round(220 * count / most), y=y + 17, class_="bar-number"),
        ]
    said = "; ".join(f"{name} {count:,}" for name, count in counts.items())
    return svg(470, max(1, len(counts)) * 26, said, *parts, class_="bars")


def svg(width: float, height: float, said: str, *parts: Markup, class_: str = "") -> Markup:
    """A picture, with what it says to whoever cannot see it."""
    return element(
        "svg",
        element("title", said),
        join(parts),
        viewBox=f"-2 -2 {width + 4:g} {height + 4:g}",
        role="img",
        class_=class_,
        preserveAspectRatio="xMinYMin meet",
    )


def _words(x: float, y: float, words: str, class_: str) -> Markup:
    return element("text", words, x=f"{x:g}", y=f"{y:g}", text_anchor="middle", class_=class_)


def _arrow(start: float, end: float, y: float) -> Markup:
    return element("path", d=f"M{start:g} {y:g}H{end:g}m-6 -5l6 5l-6 5", class_="arrow")


def _elbow(above: tuple[float, float], below: tuple[float, float]) -> Markup:
    (x, y), (to_x, to_y) = above, below
    return element("path", d=f"M{x + 20:g} {y + 46:g}V{to_y + 23:g}H{to_x:g}", class_="arrow")


def _short(name: str) -> str:
    return name if len(name) <= 20 else f"{name[:9]}…{name[-9:]}"
