"""The sessions of an MQTT broker's clients, on stable storage: what each listens to, and how far it got.

    DIR/<digest of user and client id>.json    one session

A session is durable before its client is told that it exists, and a subscription before it is granted. How far a client
got is saved a little later: after a crash it gets a few events twice, and drops them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sealcast.errors import Corrupt, Rejected
from sealcast.log import files

FORMAT: Final = 1
#: Persistent sessions of one user, and of a broker. A client that makes up a new id each time would fill the disk.
MAX_PER_USER: Final = 64
MAX_SESSIONS: Final = 65_536


@dataclass(slots=True)
class Listening:
    """A topic that a client listens to: its QoS, and from which event on."""

    qos: int
    since: int
    #: One past the last event of it that was sent; what lies before may be a repetition.
    sent: int = 0


@dataclass(slots=True)
class Session:
    """One client of one user. Without persistence it ends with its connection."""

    user: str
    client_id: str
    persistent: bool
    #: The next event that it may have not had.
    cursor: int
    topics: dict[str, Listening] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.user}/{self.client_id}"

    def listen(self, topic: str, qos: int, since: int) -> None:
        """Listens to one more topic, from an event on that may lie before others that it had already."""
        for other in self.topics.values():
            other.since = max(other.since, self.cursor)
        self.topics[topic] = Listening(qos, since)
        self.cursor = min(self.cursor, since)


class Sessions:
    """All persistent sessions of one broker."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        files.make_directory(directory)
        self._known = {session.key: session for session in self._load()}
        self._saved = {key: session.cursor for key, session in self._known.items()}

    def __len__(self) -> int:
        return len(self._known)

    def open(self, user: str, client_id: str, *, clean: bool, end: int) -> tuple[Session, bool]:
        """The session of a client that connects, and whether it was there before. A clean one begins anew, and what
        there was is gone."""
        key = f"{user}/{client_id}"
        if clean:
            self._forget(key)
            return Session(user, client_id, False, end), False
        known = self._known.get(key)
        if known is not None:
            return known, True
        mine = sum(session.user == user for session in self._known.values())
        if mine >= MAX_PER_USER or len(self._known) >= MAX_SESSIONS:
            raise Rejected(f"{user!r} has {mine} sessions; {MAX_PER_USER} are allowed")
        made = self._known[key] = Session(user, client_id, True, end)
        self.save(made)
        return made, False

    def save(self, session: Session) -> None:
        """Durably, as it is now; a session that is not persistent is not saved."""
        if not session.persistent or self._known.get(session.key) is not session:
            return
        body = {
            "format": FORMAT,
            "user": session.user,
            "client": session.client_id,
            "cursor": session.cursor,
            "topics": {topic: [each.qos, each.since] for topic, each in session.topics.items()},
        }
        files.replace_file(self._path(session.key), json.dumps(body).encode())
        self._saved[session.key] = session.cursor

    def moved(self) -> list[Session]:
        """Those whose cursors moved since they were saved."""
        return [session for key, session in self._known.items() if self._saved.get(key) != session.cursor]

    def _forget(self, key: str) -> None:
        if self._known.pop(key, None) is not None:
            self._saved.pop(key, None)
            self._path(key).unlink(missing_ok=True)
            files.sync_directory(self._directory)

    def _path(self, key: str) -> Path:
        return self._directory / f"{hashlib.sha256(key.encode()).hexdigest()}.json"

    def _load(self) -> Iterator[Session]:
        for path in sorted(self._directory.glob("*.json")):
            try:
                session = _parsed(json.loads(path.read_bytes()))
            except (ValueError, KeyError, TypeError, AttributeError):
                raise Corrupt(
                    f"{path} is not the session that was saved", hint="remove it: its client begins anew"
                ) from None
            if self._path(session.key) != path:
                raise Corrupt(f"{path} is another client's session", hint="restore the directory from a copy")
            yield session


def _parsed(body: Any) -> Session:
    if body["format"] != FORMAT:
        raise ValueError("another format")
    topics = {str(topic): Listening(int(qos), int(since)) for topic, (qos, since) in body["topics"].items()}
    return Session(str(body["user"]), str(body["client"]), True, int(body["cursor"]), topics)
