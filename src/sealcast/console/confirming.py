"""What cannot be taken back is confirmed with a token that the dry run gave, and that is good once.

A token is bound to the browser's session, to what is to be done, and to the lines that the dry run showed. Another
site cannot know it, so that it cannot be forged, also where every other check failed. And nobody confirms one thing and
gets another, because somebody changed the realm between the two.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from secrets import token_urlsafe
from typing import Final, NamedTuple

from sealcast.errors import Misuse

TOKEN_BYTES: Final = 32
#: How long a dry run may be looked at.
GOOD_S: Final = 600.0
#: Dry runs that wait to be confirmed; the oldest go.
MAX_WAITING: Final = 256
MAX_TEXT: Final = 128


class Act(NamedTuple):
    """One thing that somebody is about to do."""

    #: The browser's session.
    session: str
    what: str
    #: To whom, on which topic.
    on: tuple[str, ...]
    #: What the dry run said.
    shown: tuple[str, ...]


class Confirmations:
    """The tokens of one console, by digest, in memory."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        #: What each is good for, and until when, the oldest first.
        self._waiting = dict[bytes, tuple[Act, float]]()

    def token(self, act: Act) -> str:
        """Of a dry run that is shown now."""
        made = token_urlsafe(TOKEN_BYTES)
        with self._lock:
            self._waiting[_digest(made)] = act, self._clock() + GOOD_S
            while len(self._waiting) > MAX_WAITING:
                del self._waiting[next(iter(self._waiting))]
        return made

    def spend(self, token: str, act: Act) -> None:
        """Refuses unless the token was given for exactly this. It is worth nothing afterwards."""
        with self._lock:
            found = self._waiting.pop(_digest(token), None)
        known, until = found if found is not None else (None, 0.0)
        if known is not None and known != act and known._replace(shown=act.shown) == act:
            raise Misuse("the realm has changed since this was shown", hint="look at it again, then confirm")
        if known != act or until <= self._clock():
            raise Misuse("this was not confirmed", hint="look first at what it would do, and confirm that")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text[:MAX_TEXT].encode()).digest()
