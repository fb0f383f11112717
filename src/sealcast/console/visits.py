"""Who has been let in: a link that works once, and the sessions that were made with one.

A link's token is exchanged for a cookie, and is worth nothing afterwards: what stays in a browser's history, a shell's
scrollback or a log opens nothing. The process keeps digests of both and neither itself, in memory only, so that all
visits end with it.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from secrets import token_urlsafe
from typing import Final

TOKEN_BYTES: Final = 32
#: How long a link waits to be opened, and how long a session lasts without a request.
LINK_S: Final = 600.0
SESSION_S: Final = 12 * 3600.0
#: Browsers at once, and links that wait; the oldest go.
MAX_SESSIONS: Final = 64
MAX_LINKS: Final = 8
#: Nothing longer is looked at.
MAX_TEXT: Final = 128


class Visits:
    """The links and sessions of one console."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: Until when each is good, by digest, the oldest first.
        self._links = dict[bytes, float]()
        self._sessions = dict[bytes, float]()

    def link(self) -> str:
        """The token of a new link."""
        return self._made(self._links, LINK_S, MAX_LINKS)

    def enter(self, token: str) -> str | None:
        """The cookie of a new session, for the token of a link that nobody has used; None for any other."""
        with self._lock:
            until = self._links.pop(_digest(token), None)
        if until is None or until <= self._clock():
            return None
        return self._made(self._sessions, SESSION_S, MAX_SESSIONS)

    def knows(self, cookie: str) -> bool:
        """Whether a cookie is of a session that lasts. It lasts longer for it."""
        digest, now = _digest(cookie), self._clock()
        with self._lock:
            until = self._sessions.pop(digest, None)
            if until is None or until <= now:
                return False
            self._sessions[digest] = now + SESSION_S
        return True

    def leave(self, cookie: str) -> None:
        """Ends a session."""
        with self._lock:
            self._sessions.pop(_digest(cookie), None)

    def _made(self, among: dict[bytes, float], seconds: float, most: int) -> str:
        token = token_urlsafe(TOKEN_BYTES)
        with self._lock:
            among[_digest(token)] = self._clock() + seconds
            while len(among) > most:
                del among[next(iter(among))]
        return token


def _digest(text: str) -> bytes:
    # Looked up by digest: how long that takes says nothing of the tokens that are good.
    return hashlib.sha256(text[:MAX_TEXT].encode()).digest()
