"""Text of others that is shown to people: on a terminal, on a page."""

from __future__ import annotations


def safe(text: str) -> str:
    """Text that a terminal or a browser shows and does not obey: whatever is not printable but lines and tabs, such as
    escape sequences and marks that turn the direction of writing, stands there as its code point."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)
