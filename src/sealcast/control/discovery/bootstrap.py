"""Where a realm's discovery nodes listen: the one thing that has to be known before anything can be found.

    realm.json   {..., "discovery": [{"name", "topic", "certificate"}, ...]}

The file is public and proves nothing: what a node answers is sealed and signed under a certificate that the realm's
authority issued to a discovery node of that name, and everything it hands out is signed by its owner. A file that was
altered can keep one from finding, as a file that was deleted can.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sealcast.errors import Corrupt, NotFound
from sealcast.log import files

MAX_NODES: Final = 64
_FIELD: Final = "discovery"


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """One node: its name, where it listens, and its certificate."""

    name: str
    topic: bytes
    certificate: bytes

    def to_json(self) -> dict[str, str]:
        return {"name": self.name, "topic": self.topic.hex(), "certificate": self.certificate.hex()}


def read(mark: Path) -> tuple[NodeAddress, ...]:
    """The nodes that a realm's mark lists."""
    try:
        nodes = _body(mark).get(_FIELD, [])
        found = tuple(
            NodeAddress(str(n["name"]), bytes.fromhex(n["topic"]), bytes.fromhex(n["certificate"])) for n in nodes
        )
        if len(found) > MAX_NODES:
            raise ValueError(_FIELD)
        return found
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Corrupt(
            f"{mark} does not list discovery nodes as it should", hint="restore the file from a copy"
        ) from None


def write(mark: Path, nodes: Iterable[NodeAddress]) -> None:
    """List these nodes, each in place of one of the same name."""
    with files.locked(mark.with_name(".realm.lock")):
        known = {node.name: node for node in (*read(mark), *nodes)}
        body = {**_body(mark), _FIELD: [node.to_json() for node in known.values()]}
        files.replace_file(mark, json.dumps(body, indent=2).encode() + b"\n")


def _body(mark: Path) -> Any:
    try:
        return json.loads(mark.read_bytes())
    except FileNotFoundError:
        raise NotFound(f"{mark} does not exist", hint=f"make a realm: sealcast init {mark.parent}") from None
