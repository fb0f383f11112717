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
from typing import Final

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
        return parse(mark.read_bytes(), str(mark))
    except FileNotFoundError:
        raise NotFound(f"{mark} does not exist", hint=f"make a realm: sealcast init {mark.parent}") from None


def parse(raw: bytes, where: str) -> tuple[NodeAddress, ...]:
    """The nodes that the bytes of a mark list."""
    try:
        nodes = json.loads(raw).get(_FIELD, [])
        found = tuple(
            NodeAddress(str(n["name"]), bytes.fromhex(n["topic"]), bytes.fromhex(n["certificate"])) for n in nodes
        )
        if len(found) > MAX_NODES:
            raise ValueError(_FIELD)
        return found
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Corrupt(
            f"{where} does not list discovery nodes as it should", hint="restore the file from a copy"
        ) from None


def write(mark: Path, nodes: Iterable[NodeAddress]) -> None:
    """List these nodes, each in place of one of the same name."""
    with files.locked(mark.with_name(".realm.lock")):
        known = {node.name: node for node in (*read(mark), *nodes)}
        body = {**json.loads(mark.read_bytes()), _FIELD: [node.to_json() for node in known.values()]}
        files.replace_file(mark, json.dumps(body, indent=2).encode() + b"\n")
