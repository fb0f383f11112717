"""Bytes as people look at them: rows of sixteen, with what is readable in them marked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final

from sealcast.console.html import Markup, element, join

_WIDTH: Final = 16
#: Bytes that are shown of one thing, and how many of them before the first word that is found.
SHOWN: Final = 224
_BEFORE: Final = 32


def dump(data: bytes, words: Mapping[str, bytes], label: str) -> Markup:
    """The beginning of some bytes, or what is around the first word that stands in them as it is."""
    marks = _marks(data, words)
    first = next((at for at, name in enumerate(marks) if name), 0)
    start = max(0, first - _BEFORE) // _WIDTH * _WIDTH if first >= SHOWN - _BEFORE else 0
    end = min(len(data), start + SHOWN)
    rows = [_row(data, marks, at, min(at + _WIDTH, end)) for at in range(start, end, _WIDTH)]
    found = sorted({name for name in marks if name})
    said = f"{label}: {len(data):,} bytes; " + (
        f"readable in them: {', '.join(found)}" if found else "nothing readable"
    )
    left = [(start, "before"), (len(data) - end, "after")]
    cut = ", ".join(f"{count:,} bytes {where}" for count, where in left if count)
    return join(
        element("pre", join(*rows), class_="hex", tabindex=0, role="img", aria_label=said),
        element("p", cut, class_="cut") if cut else None,
    )


def _marks(data: bytes, words: Mapping[str, bytes]) -> list[str]:
    """Of each byte: the name of the word that it is part of, or nothing."""
    marks = [""] * len(data)
    for name, word in words.items():
        at = data.find(word)
        while at >= 0:
            marks[at : at + len(word)] = [name] * len(word)
            at = data.find(word, at + len(word))
    return marks


def _row(data: bytes, marks: list[str], start: int, end: int) -> Markup:
    pad = "   " * (_WIDTH - (end - start))
    hexed = join(*_runs(marks, start, end, lambda a, b: data[a:b].hex(" ")))
    shown = join(*_runs(marks, start, end, lambda a, b: _ascii(data[a:b]), between=""))
    return join(element("span", f"{start:06x}  ", class_="at"), hexed, f"{pad}  ", shown, "\n")


def _runs(marks: list[str], start: int, end: int, words: object, between: str = " ") -> Iterator[Markup | str]:
    """Neighbouring bytes with the same mark, as one element."""
    assert callable(words)
    at = start
    for name, group in groupby(marks[start:end]):
        size = len(list(group))
        text = str(words(at, at + size))
        if at > start:
            yield between
        yield element("mark", text, title=name) if name else element("span", text, class_="sealed")
        at += size


def _ascii(data: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in data)
