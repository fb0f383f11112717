"""Grouped syncs: many appenders, one fsync. And what a failed one means.

A failed fsync is final for the handle that made it. The kernel may have thrown the pages away and marked them
clean, so that a second fsync would succeed and mean nothing. The failure is published (`generation` in the
frontier): nobody acknowledges what was in doubt, and the next writer cuts it off.
"""

from __future__ import annotations

import threading
from pathlib import Path

from sealcast.errors import Unavailable
from sealcast.log import files
from sealcast.log.frontier import Frontier
from sealcast.log.layout import Mark
from sealcast.log.recovery import End
from sealcast.log.segment import INDEX_EVERY_BYTES, Tail, note, path_of


class Syncer:
    """Makes a log durable up to a mark, with as few syncs as that takes."""

    def __init__(self, directory: Path, frontier: Frontier) -> None:
        self._directory = directory
        self._frontier = frontier
        self.lock = files.FileLock(directory / "sync.lock")
        self._turn = threading.Condition()
        self._leading = False
        self._durable = End(Mark(0, 0, 0, 0, b""), -1)
        self._failure: Unavailable | None = None
        self._noted = (-1, 0)
        self._tail = Tail(directory)

    def close(self) -> None:
        self.lock.close()
        self._tail.close()

    def check(self) -> None:
        """Raises when an earlier sync of this handle failed."""
        if self._failure is not None:
            raise Unavailable(
                f"an earlier sync failed, so this handle appends no more: {self._failure.message}",
                hint="check the disk, then open the log again",
            ) from self._failure

    def make_durable(self, wanted: End) -> None:
        """Return when everything before `wanted` is on stable storage and readers see it; raise when that is not so."""
        while True:
            with self._turn:
                self.check()
                if self._covered(wanted):
                    return
                if self._leading:
                    self._turn.wait()
                    continue
                self._leading = True
            try:
                self._lead(wanted)
            except Unavailable as failure:
                self._failure = self._failure or failure
                raise
            finally:
                with self._turn:
                    self._leading = False
                    self._turn.notify_all()

    def _covered(self, wanted: End) -> bool:
        if self._durable.generation > wanted.generation:
            raise Unavailable(
                f"{self._directory}: a sync failed before these records were durable, and they were thrown away",
                hint="append them again",
            )
        return self._durable.generation == wanted.generation and self._durable.mark.offset >= wanted.mark.offset

    def _lead(self, wanted: End) -> None:
        """Sync for everyone who has written by now, unless another process just did."""
        with self.lock, files.named(self._frontier.path, "reading"):
            state = self._frontier.read()
            target = wanted.mark
            if state.durable is not None:
                self._durable = End(state.durable.mark, state.durable.generation)
                if state.durable.generation != wanted.generation or state.durable.mark.offset >= target.offset:
                    return
            written = state.written
            if written is not None and written.generation == wanted.generation:
                target = max(target, written.mark, key=lambda mark: mark.offset)
            self._sync(target, wanted.generation)
            self._frontier.advance(target, wanted.generation)
            self._durable = End(target, wanted.generation)
            self._note(target)

    def _sync(self, target: Mark, generation: int) -> None:
        path = path_of(self._directory, target.segment)
        try:
            files.sync_data(self._tail.open(target.segment))
        except OSError as error:
            durable = self._durable.mark
            if durable.chain:
                self._frontier.advance(durable, generation + 1)
            raise files.trouble(error, path, "syncing") from error

    def _note(self, mark: Mark) -> None:
        segment, position = self._noted
        if segment != mark.segment or mark.position - position >= INDEX_EVERY_BYTES:
            note(self._directory, mark)
            self._noted = (mark.segment, mark.position)
