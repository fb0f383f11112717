"""Draws the picture of each protection: one event on its way, and what each party sees of it. All in one style.

    python docs/site/pictures.py        writes docs/protections/*.svg; a test compares them

A row of a party is open (it reads this), compared (it tells whether two are equal, or which match) or sealed.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Final, Literal, NamedTuple

HERE: Final = Path(__file__).parents[1] / "protections"
State = Literal["open", "compared", "sealed"]
_FILL: Final[dict[State, str]] = {"open": "#ffe3b3", "compared": "#d3e8fa", "sealed": "#e3e5e8"}
_SIGN: Final[dict[State, str]] = {"open": "reads", "compared": "compares", "sealed": "sealed"}
_BOX, _GAP, _TOP, _ROW, _MARGIN = 196, 64, 74, 46, 16


_STYLE: Final = (
    "<style>text{font-family:system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1c2733}"
    ".t{font-size:17px;font-weight:600}.n{font-size:15px;font-weight:600}.r{font-size:12px;fill:#4b5a69}"
    ".v{font-size:13px;font-family:ui-monospace,Menlo,Consolas,monospace}.a{font-size:11px;fill:#4b5a69}</style>"
)


class Row(NamedTuple):
    what: str
    shown: str
    state: State


class Party(NamedTuple):
    name: str
    role: str
    rows: tuple[Row, Row, Row]


class Picture(NamedTuple):
    title: str
    parties: tuple[Party, ...]
    #: What travels from each party to the next.
    arrows: tuple[str, ...]
    below: str


def _party(
    name: str, role: str, attributes: Row | tuple[str, State], filter: tuple[str, State], payload: tuple[str, State]
) -> Party:
    return Party(name, role, (Row("attributes", *attributes[-2:]), Row("filter", *filter), Row("payload", *payload)))


_EVENT, _FILTER, _PAYLOAD = "IBM, 118.00", "symbol = 'IBM'", "buy 500"
_PUBLISHER: Final = _party(
    "publisher", "makes the event", (_EVENT, "open"), ("(not shown)", "sealed"), (_PAYLOAD, "open")
)
_READER: Final = _party(
    "subscriber", "asked for it, may read it", (_EVENT, "open"), (_FILTER, "open"), (_PAYLOAD, "open")
)
_THIEF: Final = "Whoever steals the disk, or listens on the way, has sealed bytes of everything."

PICTURES: Final[dict[str, Picture]] = {
    "endpoint": Picture(
        "endpoint: a trusted broker seals each event for its group",
        (
            _PUBLISHER,
            _party(
                "end-point broker",
                "trusted: matches and seals",
                (_EVENT, "open"),
                (_FILTER, "open"),
                (_PAYLOAD, "open"),
            ),
            _READER,
        ),
        ("sealed to the broker", "sealed for the group"),
        _THIEF,
    ),
    "payload": Picture(
        "payload: brokers match on attributes, only readers open payloads",
        (
            _PUBLISHER,
            _party("broker", "trusted with attributes", (_EVENT, "open"), (_FILTER, "open"), ("8f 3a c1 …", "sealed")),
            _READER,
        ),
        ("payload sealed for readers", "handed on as it came"),
        "The key center gives readers the key of the epoch. No broker ever has it.",
    ),
    "searchable": Picture(
        "searchable: brokers match sealed filters against sealed labels",
        (
            _PUBLISHER,
            _party(
                "broker",
                "must not collude with a user",
                ("labels: a7, 1c, e0", "compared"),
                ("sealed label: 1c", "compared"),
                ("8f 3a c1 …", "sealed"),
            ),
            _READER,
        ),
        ("labels under own keys", "handed on as it came"),
        "The broker learns which filters an event matches. With a user's half of the key it would learn the labels.",
    ),
    "layered": Picture(
        "layered: each broker takes one layer off, and others stay on",
        (
            _PUBLISHER,
            _party(
                "root broker",
                "curious",
                ("label under 2 layers", "compared"),
                ("row under 2 layers", "compared"),
                ("8f 3a c1 …", "sealed"),
            ),
            _party(
                "leaf broker",
                "curious",
                ("label under 2 layers", "compared"),
                ("row under 2 layers", "compared"),
                ("8f 3a c1 …", "sealed"),
            ),
            _READER,
        ),
        ("3 layers", "peel, put on", "peel"),
        "Brokers see that two labels are equal, never which. Neighbours that collude take more layers off.",
    ),
    "attribute": Picture(
        "attribute: no broker; a key opens what carries its credentials",
        (
            _PUBLISHER,
            _party(
                "peer",
                "carries it on",
                ("4d 90 17 …", "sealed"),
                ("(never sees one)", "sealed"),
                ("8f 3a c1 …", "sealed"),
            ),
            _READER,
        ),
        ("sealed for credentials", "carried on"),
        "The key center gives a subscriber keys for its filter. They open the events that match, and no others.",
    ),
}


def draw(picture: Picture) -> str:
    count = len(picture.parties)
    width = 2 * _MARGIN + count * _BOX + (count - 1) * _GAP
    height = _TOP + 60 + 3 * _ROW + 58
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(picture.title)}">',
        f"<title>{escape(picture.title)}</title>",
        _STYLE,
        f'<rect width="{width}" height="{height}" rx="10" fill="#ffffff" stroke="#c9d2db"/>',
        f'<text class="t" x="{_MARGIN}" y="34">{escape(picture.title)}</text>',
    ]
    for n, party in enumerate(picture.parties):
        x = _MARGIN + n * (_BOX + _GAP)
        lines += _box(party, x)
        if n + 1 < count:
            lines += _arrow(x + _BOX, picture.arrows[n])
    lines += [
        f'<text class="r" x="{_MARGIN}" y="{height - 44}">{escape(picture.below)}</text>',
        *_legend(height - 18),
        "</svg>",
        "",
    ]
    return "\n".join(lines)


def _box(party: Party, x: int) -> list[str]:
    lines = [
        f'<rect x="{x}" y="{_TOP - 20}" width="{_BOX}" height="{60 + 3 * _ROW}" rx="8" '
        'fill="#f6f8fa" stroke="#8a99a8"/>',
        f'<text class="n" x="{x + 12}" y="{_TOP + 2}">{escape(party.name)}</text>',
        f'<text class="r" x="{x + 12}" y="{_TOP + 19}">{escape(party.role)}</text>',
    ]
    for n, row in enumerate(party.rows):
        y = _TOP + 30 + n * _ROW
        lines += [
            f'<rect x="{x + 8}" y="{y}" width="{_BOX - 16}" height="{_ROW - 6}" rx="5" fill="{_FILL[row.state]}"/>',
            f'<text class="r" x="{x + 16}" y="{y + 15}">{row.what}: {_SIGN[row.state]}</text>',
            f'<text class="v" x="{x + 16}" y="{y + 32}">{escape(row.shown)}</text>',
        ]
    return lines


def _arrow(x: int, caption: str) -> list[str]:
    y = _TOP + 30 + 3 * _ROW // 2
    words, rows = caption.split(), [""]
    for word in words:
        if len(rows[-1]) + len(word) > 10 and rows[-1]:
            rows.append("")
        rows[-1] = f"{rows[-1]} {word}".strip()
    texts = [
        f'<text class="a" x="{x + _GAP // 2}" y="{y - 10 - 13 * (len(rows) - 1 - n)}" text-anchor="middle">'
        f"{escape(row)}</text>"
        for n, row in enumerate(rows)
    ]
    line = f'<path d="M{x + 6} {y} h{_GAP - 18}" stroke="#4b5a69" stroke-width="2" fill="none"/>'
    head = f'<path d="M{x + _GAP - 14} {y - 5} l10 5 l-10 5 z" fill="#4b5a69"/>'
    return [*texts, line, head]


def _legend(y: int) -> list[str]:
    lines, x = [], _MARGIN
    for state, text in (
        ("open", "reads it"),
        ("compared", "compares it, cannot read it"),
        ("sealed", "sealed, or not there"),
    ):
        lines.append(
            f'<rect x="{x}" y="{y - 10}" width="14" height="12" rx="3" fill="{_FILL[state]}" stroke="#8a99a8"/>'
        )  # type: ignore[index]
        lines.append(f'<text class="r" x="{x + 20}" y="{y}">{text}</text>')
        x += 40 + 7 * len(text)
    return lines


def main() -> None:
    for name, picture in PICTURES.items():
        (HERE / f"{name}.svg").write_text(draw(picture))


if __name__ == "__main__":
    main()
