"""What a broker knows of topics, on stable storage: a restart forgets nothing that was learnt.

REALM/brokers/NAME/knowledge      CBOR, and its SHA-256; written beside its place, synced and renamed into it
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, FrameRejected
from sealcast.log import files
from sealcast.overlay.knowledge import Action, Knowledge, Learnt, Outcome, Source
from sealcast.wire import cbor

FORMAT: Final = 1
MAX_BYTES: Final = 64 << 20
_CHECK_BYTES: Final = 32


class KnowledgeStore:
    """One broker's. Any number of processes may share it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        files.make_directory(path.parent)

    def read(self) -> Knowledge:
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return Knowledge()
        except OSError as error:
            raise files.trouble(error, self.path, "reading") from error
        body, check = raw[:-_CHECK_BYTES], raw[-_CHECK_BYTES:]
        if hashlib.sha256(body).digest() != check:
            raise self._corrupt()
        try:
            return _decode(cbor.decode(body, max_bytes=MAX_BYTES, max_depth=4, max_items=MAX_BYTES))
        except (FrameRejected, ValueError, TypeError, KeyError):
            raise self._corrupt() from None

    def update(self, rule: Callable[[Knowledge], Outcome]) -> tuple[Action, ...]:
        """What a rule says is to be done; what it knows then is durable before this returns."""
        with files.locked(self.path.with_suffix(".lock")):
            before = self.read()
            step = rule(before)
            if step.knowledge != before:
                body = cbor.encode(_encode(step.knowledge))
                files.replace_file(self.path, body + hashlib.sha256(body).digest())
            return step.actions

    def _corrupt(self) -> Corrupt:
        return Corrupt(f"{self.path} is not as it was written", hint="remove it: what it said is learnt again")


def _encode(known: Knowledge) -> list[object]:
    return [
        FORMAT,
        [[topic, str(how.source), how.by] for topic, how in known.secure.items()],
        [[topic, list(names)] for topic, names in known.plain.items()],
        [],
    ]


def _decode(body: object) -> Knowledge:
    match body:
        case [1, list(secure), list(plain), list()]:
            return Knowledge(
                {topic: Learnt(Source(source), by) for topic, source, by in secure},
                {topic: tuple(names) for topic, names in plain},
            )
        case _:
            raise ValueError(FORMAT)
