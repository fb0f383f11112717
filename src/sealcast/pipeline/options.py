"""Options of the data sources, which Spark hands over as text."""

from __future__ import annotations

from collections.abc import Mapping

from sealcast.errors import Misuse


def positive(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not int(text):
        raise Misuse(f"option {name} is a whole number from 1 up, not {text!r}")
    return int(text)
