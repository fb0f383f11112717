"""Options of the data sources, which Spark hands over as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sealcast.errors import Misuse
from sealcast.trust import layout


@dataclass(frozen=True, slots=True)
class Client:
    """Who reads or writes what: names, which may travel in a plan. Keys stay in the entity's own file."""

    realm: str
    topic: str
    entity: str

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Client:
        missing = [name for name in ("realm", "topic", "as") if not options.get(name)]
        if missing:
            raise Misuse(
                f'format("sealcast") needs the option{"s" if len(missing) > 1 else ""} {", ".join(missing)}',
                hint='.option("realm", DIR).option("topic", TOPIC).option("as", ENTITY)',
            )
        return cls(options["realm"], options["topic"], options["as"])

    @property
    def outbox(self) -> Path:
        """Where frames are staged on this machine."""
        return layout.find(self.realm).topic(self.topic).root / "outbox"


def positive(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not int(text):
        raise Misuse(f"option {name} is a whole number from 1 up, not {text!r}")
    return int(text)


def switch(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise Misuse(f"option {name} is true or false, not {text[:60]!r}")
    return text == "true"
