"""HTML and SVG as values. Text is escaped where it becomes markup, and there is no other way to make any.

    element("td", name, class_="name")    an element; children that are text are escaped
    Markup                                what `element` and `join` return; nobody else makes one

Names of topics, values of attributes and what hostile publishers sent reach pages through here, so that none of it can
be anything but text. Marks that turn the direction of writing, and other things that a browser would obey, are shown as
their code points, as on the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Final, TypeAlias

from sealcast.errors import Bug
from sealcast.model.shown import safe

_NAME: Final = re.compile(r"[a-z][a-zA-Z0-9-]*", re.ASCII)
#: Elements without an end.
_VOID: Final = frozenset({"meta", "link", "input", "br", "hr", "img"})
#: Attributes that name something to fetch or to run: only these may be set, and only to paths of ours.
_ADDRESSES: Final = frozenset({"href", "src", "action", "data-live", "data-to", "formaction"})
_PATH: Final = re.compile(r"[/#?](?![/\\])")
#: What would run, or would be style that the content security policy drops anyway.
_FORBIDDEN: Final = re.compile(r"on.*|style|srcdoc", re.ASCII)


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Child: TypeAlias = "Markup | str | int | float | Iterable[Child] | None"
Attribute: TypeAlias = "str | int | float | bool | None"


def text(value: str) -> Markup:
    """Text of anybody's, as markup that shows it."""
    return Markup(escape(safe(value), quote=True))


def join(*children: Child) -> Markup:
    """Children one after the other. None is nothing."""
    parts = list[str]()
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            parts.append(child)
        elif isinstance(child, str):
            parts.append(text(child))
        elif isinstance(child, int | float):
            parts.append(f"{child:,}")
        else:
            parts.append(join(*child))
    return Markup("".join(parts))


def element(tag: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """An element. An underscore in an attribute's name is a hyphen, one at its end is left out (`class_`); None and
    False leave the attribute out, True gives it no value."""
    if not _NAME.fullmatch(tag):
        raise Bug(f"{tag!r} is no element")
    head = "".join(_attribute(key, value) for key, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{tag}{head}>")
    return Markup(f"<{tag}{head}>{join(*children)}</{tag}>")


def _attribute(key: str, value: Attribute) -> str:
    name = key.rstrip("_").replace("_", "-")
    if not _NAME.fullmatch(name) or _FORBIDDEN.fullmatch(name):
        raise Bug(f"{name!r} is no attribute of a page")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    if name in _ADDRESSES and not _PATH.match(str(value)):
        raise Bug(f"{name} leads away: {value!r}")
    return f' {name}="{text(str(value))}"'


def document(title: str, *body: Child, language: str = "en", prefix: str = "") -> str:
    """A whole page."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="dark light"),
        element("title", f"{title} · Sealcast"),
        element("link", rel="icon", href=f"{prefix}/assets/icon.svg", type="image/svg+xml"),
        element("link", rel="stylesheet", href=f"{prefix}/assets/console.css"),
        element("script", src=f"{prefix}/assets/console.js", defer=True),
    )
    return "<!doctype html>" + element("html", head, element("body", *body), lang=language)
