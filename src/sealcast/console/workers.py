"""Threads that look at the realm for pages, so that nobody's page waits for another's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from sealcast.clients.realm import Realm
from sealcast.errors import Busy

_T = TypeVar("_T")
THREADS: Final = 4
#: Requests that may wait for a thread.
QUEUED: Final = 64


class PageWorkers:
    """A few threads, each with a handle of its own on the realm."""

    def __init__(self, realm: Realm) -> None:
        self._realm = realm
        self._own = threading.local()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="console")
        self._waiting = 0

    async def run(self, work: Callable[[Realm], _T]) -> _T:
        """Does something with the realm; Busy when too much waits already."""
        if self._waiting >= QUEUED:
            raise Busy("too much is asked of this console at once", hint="try again in a moment")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._with_realm, work)
        finally:
            self._waiting -= 1

    def _with_realm(self, work: Callable[[Realm], _T]) -> _T:
        realm = getattr(self._own, "realm", None)
        if realm is None:
            realm = self._own.realm = self._realm.reopen()
        return work(realm)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
