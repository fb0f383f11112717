"""What every page has around its own part: the navigation, who looks, and pages that say what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote, urlencode

from starlette.responses import HTMLResponse

from sealcast.console import html
from sealcast.console.html import Attribute, Child, Markup, element
from sealcast.console.live import TROUBLE
from sealcast.console.viewer import Viewer

#: The pages of the navigation: path and name.
NAVIGATION: Final = (
    ("/", "Overview"),
    ("/sees", "Who sees what"),
    ("/event", "An event"),
    ("/filters", "Filters"),
    ("/rights", "Rights"),
    ("/lab", "Lab"),
)


class PageLink:
    """Addresses of our pages. `prefix` is where the console is mounted."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    def __call__(self, *segments: str) -> str:
        """The path of a page, whatever stands in a name."""
        return self.prefix + "/" + "/".join(quote(segment, safe="") for segment in segments)

    def asking(self, *segments: str, **query: str) -> str:
        """The path of a page with what is asked of it."""
        return f"{self(*segments)}?{urlencode(query)}"

    def to(self, label: Child, *segments: str, **attributes: Attribute) -> Markup:
        return element("a", label, href=self(*segments), **attributes)


def page(
    title: str, viewer: Viewer, *main: Child, link: PageLink, live: str | None = None, status: int = 200
) -> HTMLResponse:
    """A whole page. `live` is the channel whose parts move on it."""
    items = [
        element("li", element("a", name, href=link.prefix + path, aria_current="page" if name == title else None))
        for path, name in NAVIGATION
    ]
    header = element(
        "header",
        element("a", "Skip to the page", href="#main", class_="skip"),
        link.to(element("span", "Seal", element("b", "cast"), class_="logo"), class_="home", aria_label="Sealcast"),
        element("nav", element("ul", *items), aria_label="Pages"),
        element("p", viewer.shown, class_="viewer"),
        element("button", "Theme", type="button", id="theme", class_="quiet", title="Light, dark, or as the system is"),
    )
    body = element(
        "main",
        element("h1", title),
        element("div", id=TROUBLE, role="status") if live is not None else None,
        *main,
        id="main",
        tabindex="-1",
        data_live=link(*live.split("/")) if live is not None else None,
    )
    return HTMLResponse(html.document(title, header, body, prefix=link.prefix), status)


def part(id: str, *children: Child, **attributes: Attribute) -> Markup:
    """A part of a page that may be exchanged while the page is open."""
    return element("div", *children, id=id, **attributes)


def section(title: str, *children: Child, lead: str | None = None, id: str | None = None) -> Markup:
    return element(
        "section", element("h2", title), element("p", lead, class_="lead") if lead else None, *children, id=id
    )


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Child]], empty: str) -> Markup:
    """A table whose first column names the rows; `empty` is said instead when there are none."""
    found = list(rows)
    if not found:
        return element("p", empty, class_="empty")
    numeric = [all(_kind(row[i]) for row in found) for i in range(len(columns))]
    heads = zip(columns, numeric, strict=True)
    head = element(
        "tr", *(element("th", name, scope="col", class_="number" if right else None) for name, right in heads)
    )
    body = [
        element(
            "tr", element("th", row[0], scope="row"), *(element("td", cell, class_=_kind(cell)) for cell in row[1:])
        )
        for row in found
    ]
    shown = element("table", element("caption", caption), element("thead", head), element("tbody", *body))
    return element("div", shown, class_="wide", tabindex=0, role="region", aria_label=caption)


def _kind(cell: Child) -> str | None:
    return "number" if isinstance(cell, int | float) else None


def badge(words: str, tone: str = "") -> Markup:
    return element("span", words, class_=f"badge {tone}".strip())


def pairs(items: Iterable[tuple[str, Child]]) -> Markup:
    return element("dl", *((element("dt", name), element("dd", value)) for name, value in items))


def said(title: str, what: str, todo: str | None, *, prefix: str = "") -> str:
    """A page that needs no session: what is wrong, and what to do."""
    body = element("main", element("h1", title), element("p", what), element("p", todo) if todo else None, id="main")
    return html.document(title, body, prefix=prefix)
