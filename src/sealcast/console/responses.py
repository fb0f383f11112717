"""Responses to stolen keys: one at a time, as `sealcast compromise` does it, in a process of its own.

It goes on when the console ends: half a response is worse than none that anybody watches. Cut short all the same, it is
begun again and continues where it was.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

from sealcast.console.html import Child, Markup, element, join
from sealcast.console.pages import badge, table
from sealcast.errors import Busy, NotFound

_COMMAND: Final = "from sealcast.cli.main import main; main()"
#: Of a document that the command writes, and of what it says when it fails.
MAX_BYTES: Final = 16 << 20
_SAID: Final = 600
MAX_ROWS: Final = 200


class Responses:
    """What was begun from this console. Used on its event loop."""

    def __init__(self, realm: Path) -> None:
        self._realm = realm
        self._running: str | None = None
        self._task: asyncio.Task[None] | None = None
        #: What came of each: the document of the command, or what it said.
        self._done = dict[str, Mapping[str, Any] | str]()

    def start(self, entity: str) -> None:
        """Begins; Busy while another one is under way."""
        if self._running is not None:
            raise Busy(f"the response to {self._running} is under way", hint="wait until it is done")
        self._running = entity
        self._done.pop(entity, None)
        self._task = asyncio.ensure_future(self._run(entity))

    async def _run(self, entity: str) -> None:
        try:
            # Files and not pipes: the command is not stopped by a console that has gone.
            with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", _COMMAND, "compromise", entity, "--yes", "--json", "--realm",
                    str(self._realm), stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                )  # fmt: skip
                await process.wait()
                said = _read(out)
                try:
                    self._done[entity] = json.loads(said)
                except ValueError:
                    self._done[entity] = _read(err).decode(errors="replace")[-_SAID:]
        finally:
            self._running = None

    def part(self, entity: str) -> Markup:
        """How it stands with one of them."""
        if entity == self._running:
            return element("p", badge("under way", "wait"), " Nobody needs to wait here. It goes on by itself.")
        found = self._done.get(entity)
        if found is None:
            raise NotFound(f"no response to {entity!r} was begun here", hint="look at what it would do, under Rights")
        if isinstance(found, str):
            todo = element("code", f"sealcast compromise {entity}")
            return element("p", badge("failed", "bad"), f" {found} ", "It continues when it is begun again: ", todo)
        return _outcome(found)


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(MAX_BYTES)


def _outcome(found: Mapping[str, Any]) -> Markup:
    over, unharmed = bool(found["over"]), bool(found["unharmed"])
    lines: list[Child] = [f"{found['entity']} is revoked, by registry version {found['version']}."]
    lines += [f"Subscription {id} ended." for id in found["subscriptions_ended"]]
    lines += [f"Topic {each['topic']} is in epoch {each['epoch']}: {each['why']}." for each in found["topics"]]
    for each in found["resealed"]:
        words = f"{each['pieces']:,} pieces were sealed again, and {each['removed']:,} removed"
        lines.append(f"Topic {each['topic']}: {words}.")
    lines += [f"Topic {each['topic']}: {each['removed']:,} frames were removed." for each in found["forgotten"]]
    lines += [f"Topic {name}: what lies there cannot be sealed again, and stays open." for name in found["lasting"]]
    if not found["tried"]:
        lines.append("Its keys are not here, so that nobody tried them: what they could open counts as opened.")
    rows = [
        (each["entity"], each["topic"], *(_cell(each.get(when), what) for what in _TRIED for when in _WHEN))
        for each in found["matrix"][:MAX_ROWS]
    ]
    columns = ("entity", "topic", "opened before", "after", "publishes before", "after")
    return join(
        element(
            "p",
            badge("over", "good") if over else badge("not over", "bad"),
            " ",
            badge("others unharmed", "good") if unharmed else badge("others lost something", "bad"),
        ),
        element("ul", *(element("li", words) for words in lines)),
        table("What everybody could do, and can do now, as tried", columns, rows, "Nobody had anything to try."),
    )


_WHEN: Final = ("before", "after")
_TRIED: Final = ("opened", "publishes")


def _cell(cell: Mapping[str, Any] | None, what: str) -> Child:
    found = (cell or {}).get(what)
    return found if isinstance(found, int) and not isinstance(found, bool) else "-" if found is None else str(found)
