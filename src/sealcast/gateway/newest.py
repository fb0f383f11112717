"""The registry as a gateway goes by it: looked at by one thread, for all requests.

Requests are judged by the state that was seen last. It is at most LOOK_S old, and whoever changes the registry through
this gateway is answered after the gateway has seen that change itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from sealcast.errors import SealcastError, Unavailable
from sealcast.log.closing import Closing
from sealcast.trust.certificates.certificate import Trust
from sealcast.trust.handles import OpenRealm
from sealcast.trust.realm.state import RealmState

LOOK_S: Final = 0.02
#: After the registry could not be read.
TROUBLE_S: Final = 1.0


class Seen(NamedTuple):
    """The realm at one version, and whom it believes then."""

    state: RealmState
    trust: Trust


class NewestRegistry(Closing):
    """What was seen last, and whoever waits for more. Made and asked on the event loop; one thread looks."""

    def __init__(self, realm: OpenRealm, told: Callable[[str], None]) -> None:
        self._realm, self._told = realm, told
        state = realm.state()
        self.seen = Seen(state, realm.trust(state))
        #: Why the registry cannot be read now.
        self.trouble: SealcastError | None = None
        self._loop = asyncio.get_running_loop()
        self._moved = asyncio.Event()
        self._look, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sealcast registry", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        return self.seen.state.version

    async def after(self, version: int) -> None:
        """Until there is something newer than a version."""
        while self.version <= version:
            await self._moved.wait()

    async def catch_up(self, version: int) -> None:
        """Until that version was seen: somebody has just written it."""
        self._look.set()
        await self.after(version - 1)

    def close(self) -> None:
        self._stop.set()
        self._look.set()
        self._thread.join()

    # --- inside -------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._stop.is_set():
            pause = LOOK_S
            try:
                if self._realm.registry.version() != self.version or self.trouble is not None:
                    state = self._realm.state()
                    self._tell(Seen(state, self._realm.trust(state)), None)
            except Unavailable as error:
                # A server that is restarted, a disk that is full: it passes. What is corrupt is no better tomorrow,
                # and readiness says so as long as it is.
                self._told(error.message)
                self._tell(self.seen, error)
                pause = TROUBLE_S
            self._look.wait(pause)
            self._look.clear()

    def _tell(self, seen: Seen, trouble: SealcastError | None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, seen, trouble)

    def _take(self, seen: Seen, trouble: SealcastError | None) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        self.seen, self.trouble = seen, trouble
        moved.set()
