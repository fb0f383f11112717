"""The registry as a gateway goes by it: looked at by one thread, for all requests.

Requests are judged by the state that was seen last. It is rarely older than LOOK_S and never older than ASK_S, and
whoever changes the registry through this gateway is answered after the gateway has seen that change itself.

Asking a database costs a hundred times as much as asking when its file was written. So a registry in a file is asked
when that has changed, and every ASK_S in any case: two changes within one tick of the file clock look like one.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from sealcast.errors import SealcastError, Unavailable
from sealcast.log.closing import Closing
from sealcast.trust.certificates.certificate import Trust
from sealcast.trust.handles import OpenRealm
from sealcast.trust.realm.state import RealmState

LOOK_S: Final = 0.02
ASK_S: Final = 0.25
#: After the registry could not be read.
TROUBLE_S: Final = 1.0


class SeenRealm(NamedTuple):
    """The realm at one version, and whom it believes then."""

    state: RealmState
    trust: Trust


class NewestRegistry(Closing):
    """What was seen last, and whoever waits for more. Made and asked on the event loop; one thread looks."""

    def __init__(self, realm: OpenRealm, told: Callable[[str], None]) -> None:
        self._realm, self._told = realm, told
        state = realm.state()
        self.seen = SeenRealm(state, realm.trust(state))
        #: Why the registry cannot be read now.
        self.trouble: SealcastError | None = None
        self._loop = asyncio.get_running_loop()
        self._moved = asyncio.Event()
        #: When the registry's files were written, as it was last asked, and when that was.
        self._stamped: tuple[object, float] = None, 0.0
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
                if self._unwritten() and self.trouble is None:
                    pass
                elif self._realm.registry.version() != self.version or self.trouble is not None:
                    state = self._realm.state()
                    self._tell(SeenRealm(state, self._realm.trust(state)), None)
            except Unavailable as error:
                # A server that is restarted, a disk that is full: it passes. What is corrupt is no better tomorrow,
                # and readiness says so as long as it is.
                self._told(error.message)
                self._tell(self.seen, error)
                pause = TROUBLE_S
            self._look.wait(pause)
            self._look.clear()

    def _unwritten(self) -> bool:
        """Whether the registry is a file that nobody wrote to since it was asked, a moment ago."""
        address, now = self._realm.registry.address, time.monotonic()
        if not isinstance(address, Path):
            return False
        stamps = _stamp(address), _stamp(address.with_name(f"{address.name}-wal"))
        known, asked = self._stamped
        if stamps == known and now - asked < ASK_S:
            return True
        self._stamped = stamps, now
        return False

    def _tell(self, seen: SeenRealm, trouble: SealcastError | None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, seen, trouble)

    def _take(self, seen: SeenRealm, trouble: SealcastError | None) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        self.seen, self.trouble = seen, trouble
        moved.set()


def _stamp(path: Path) -> tuple[int, int] | None:
    """When a file was written, and how long it is; None for one that is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
