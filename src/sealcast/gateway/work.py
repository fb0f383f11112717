"""A bounded pool for what waits for disks: requests side by side share one sync of the log (`log.embedded`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sealcast.errors import Busy
from sealcast.log.closing import Closing

T = TypeVar("T")


class Workers(Closing):
    """So many threads, and so many requests that may wait for one."""

    def __init__(self, threads: int, queued: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="sealcast gateway")
        self._most, self._under_way = threads + queued, 0

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` gives, done by one of the threads; Busy when too much waits already."""
        if self._under_way >= self._most:
            raise Busy("the gateway has too much to do", hint="try again a little later")
        self._under_way += 1
        done = asyncio.get_running_loop().run_in_executor(self._pool, work)
        done.add_done_callback(self._ended)
        # Shielded: who hangs up does not take back what is being written.
        return await asyncio.shield(done)

    def _ended(self, done: asyncio.Future[T]) -> None:
        self._under_way -= 1
        if not done.cancelled():
            done.exception()  # looked at, also when nobody waits for it any more

    @property
    def under_way(self) -> int:
        return self._under_way

    def close(self) -> None:
        self._pool.shutdown(wait=True)
