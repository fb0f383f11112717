"""Options of the data sources, which Spark hands over as text."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sealcast.errors import Misuse, NotFound
from sealcast.trust import layout
from sealcast.trust.handles import EntityRealm


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

    def here(self) -> EntityRealm:
        """The realm, or a home of it, on this machine: the driver's, or a worker's."""
        try:
            return EntityRealm(self.realm)
        except NotFound as error:
            raise NotFound(
                f"{error.message}, on {socket.gethostname()}",
                hint="the driver and each worker need the realm's directory or a home under one absolute path; where "
                f"the realm is: sealcast worker-home DIR --as {self.entity}",
            ) from None

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
