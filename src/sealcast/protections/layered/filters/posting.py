"""What a keeper has to tell its parent: posted in the order of its turns, at least once, under numbers that follow from
the log, so that the parent takes each once.

    filters/pushed      how many turns' filters have been posted; written after: it may say too few, never too many

Should the file be lost, everything is posted again and nothing comes of it.
"""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Final

from sealcast.errors import Busy, Corrupt
from sealcast.log import files
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.layered.filters import posts as posting
from sealcast.protections.layered.filters.posts import Numbered
from sealcast.protections.layered.filters.records import Upwards
from sealcast.protections.layered.filters.table import TableLog
from sealcast.transports.problems import GatewayUnreachable
from sealcast.trust.handles import OpenRealm
from sealcast.trust.keys.identity import Identity

#: Numbers of one turn's posts to one tree: more filters than a turn has.
PARTS: Final = 1 << 20
_VERSION_BYTES: Final = 8


class Pusher(Unpicklable):
    """Posts what a broker's turns say has to go up."""

    def __init__(self, realm: OpenRealm, topic: str, identity: Identity, log: TableLog) -> None:
        self._realm, self._topic, self._identity, self._log = realm, topic, identity, log
        self._path = realm.paths.topic(topic, identity.name).filters / "pushed"
        self._waiting: deque[tuple[int, list[Upwards]]] = deque()
        #: Turns looked through so far.
        self._looked = self._pushed()

    def behind(self) -> int:
        """Turns with something to say that has not been posted."""
        return len(self._waiting)

    def push(self) -> int:
        """How many filters went up. Less than all when the parent does not keep up, or cannot be reached."""
        self._look()
        if not self._waiting:
            return 0
        told, done = 0, self._waiting[0][0]
        try:
            while self._waiting:
                index, up = self._waiting[0]
                self._post(index, up)
                told += sum(len(each.filters) for each in up)
                self._waiting.popleft()
                done = index + 1
        except (Busy, GatewayUnreachable):
            return told
        finally:
            self._mark(done if self._waiting else self._looked)
        return told

    def _post(self, index: int, up: list[Upwards]) -> None:
        for parent in dict.fromkeys(each.parent for each in up):
            number = (index + 1) * PARTS
            what = [Numbered(each.tree, each.filters, number) for each in up if each.parent == parent]
            posting.post_many(self._realm, self._topic, self._identity, parent, what)

    def _look(self) -> None:
        """The turns that were taken since."""
        version = self._log.version()
        if self._looked < version:
            self._waiting.extend(self._log.upwards(self._looked, version))
            self._looked = version

    def _pushed(self) -> int:
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return 0
        if len(raw) != 2 * _VERSION_BYTES or _check(raw[:_VERSION_BYTES]) != raw[_VERSION_BYTES:]:
            raise Corrupt(
                f"{self._path} does not say how far filters were passed on",
                hint="remove it: all are passed on again, and have no second effect",
            )
        return int.from_bytes(raw[:_VERSION_BYTES], "big")

    def _mark(self, version: int) -> None:
        raw = version.to_bytes(_VERSION_BYTES, "big")
        files.replace_file(self._path, raw + _check(raw))


def _check(raw: bytes) -> bytes:
    """Finds accidents: the file is its broker's own."""
    return hashlib.sha256(raw).digest()[:_VERSION_BYTES]
