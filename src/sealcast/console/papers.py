"""The lab: the papers' tables and figures, as `sealcast lab run --json --out DIR` makes them, and run on demand.

An experiment runs in a process of its own, as the command does it, on Spark, one at a time. What it made lies in the
console's directory of figures, where what was made before is found again.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sealcast.console.html import Child, Markup, element, join
from sealcast.console.pages import PageLink, badge, section, table
from sealcast.errors import Busy, NotFound
from sealcast.lab.experiments import EXPERIMENTS, find

FIGURE: Final = re.compile(r"[a-z0-9-]+\.png", re.ASCII)
_COMMAND: Final = "from sealcast.cli.main import main; main()"
MAX_ROWS: Final = 200
#: Of a document that an experiment wrote.
MAX_BYTES: Final = 8 << 20
_SAID: Final = 400


class Papers:
    """Experiments and what they made."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        #: Why the last run of an experiment failed.
        self._failed = dict[str, str]()

    def start(self, name: str) -> None:
        """Begins a quick run; Busy while another one runs."""
        find(name)
        if self._running is not None:
            raise Busy(f"{self._running} runs already", hint="one experiment at a time: reload in a minute")
        self._running = name
        self._task = asyncio.ensure_future(self._run(name))

    async def _run(self, name: str) -> None:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _COMMAND, "lab", "run", name, "--quick", "--json", "--out", str(self._directory),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, err = await self._process.communicate()
            if self._process.returncode:
                self._failed[name] = err.decode(errors="replace")[-_SAID:]
                return
            self._failed.pop(name, None)
            fresh = self._directory / f".{stem(name)}.json"
            fresh.write_bytes(out)
            os.replace(fresh, self._directory / f"{stem(name)}.json")
        finally:
            self._running = None

    def close(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    # --- pages ----------------------------------------------------------------------------------------

    def shown(self, link: PageLink, *, runs: bool) -> Markup:
        """All experiments."""
        rows: list[tuple[Child, ...]] = []
        for name, experiment in EXPERIMENTS.items():
            found = self._found(name)
            state: Child = "-"
            if name == self._running:
                state = badge("running", "wait")
            elif found is not None:
                state = badge("agrees", "good") if found.get("agrees") else badge("disagrees in places", "wait")
            rows.append((link.to(name, "lab", *name.split("/")), experiment.summary, state))
        lead = "The tables and figures of the papers that the protections come from, made again."
        return section("Experiments", table("Experiments", ("experiment", "what", "result"), rows, "none"), lead=lead)

    def one(self, name: str, link: PageLink, *, runs: bool) -> Markup:
        """One experiment, with its figure."""
        experiment, found = find(name), self._found(name)
        form = element(
            "form",
            element("p", element("button", "Run it, quickly")),
            action=link("lab", *name.split("/")),
            method="post",
        )
        parts: list[Child] = [element("p", experiment.summary, class_="lead")]
        if name == self._running:
            parts.append(element("p", badge("running", "wait"), " on Spark; reload in a minute.", role="status"))
        elif runs:
            parts.append(form)
        if name in self._failed:
            parts.append(element("p", self._failed[name], class_="bad"))
        if found is None:
            return join(*parts, element("p", f"Nothing yet. Also: sealcast lab run {name} --out DIR", class_="empty"))
        if (self._directory / f"{stem(name)}.png").is_file():
            words = f"Figure of {name}: {experiment.summary}. The table below has its numbers."
            parts.append(element("img", src=link("lab", "figures", f"{stem(name)}.png"), alt=words, class_="figure"))
        agrees = badge("agrees", "good") if found.get("agrees") else badge("disagrees in places", "wait")
        notes = [element("li", str(note)) for note in found.get("notes") or ()]
        return join(
            section(name, *parts, element("p", agrees), element("ul", *notes)), _numbers(found.get("rows") or ())
        )

    def figure(self, name: str) -> bytes:
        """A picture that an experiment drew."""
        path = self._directory / name
        if not FIGURE.fullmatch(name) or not path.is_file():
            raise NotFound("there is no such figure")
        return path.read_bytes()

    def _found(self, name: str) -> Mapping[str, Any] | None:
        path = self._directory / f"{stem(name)}.json"
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return None
        try:
            found = json.loads(path.read_bytes())
        except ValueError:
            return None
        return found if isinstance(found, dict) else None


def stem(name: str) -> str:
    """As `lab run --out` names files."""
    return name.replace("/", "-")


def _numbers(rows: Sequence[Mapping[str, Any]]) -> Markup:
    if not rows:
        return Markup()
    columns = list(rows[0])
    shown = [[_word(row.get(name)) for name in columns] for row in rows[:MAX_ROWS]]
    return section("Its numbers", table("Rows", columns, shown, ""))


def _word(value: object) -> Child:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    return value if isinstance(value, int | float) else str(value)
