"""Those who take part in one slice of a campaign, from their realm to the end, when all of it is judged."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

from sealcast.model.protection import PROTECTIONS
from tests.cli.shell import SEALCAST
from tests.soak import world
from tests.soak.actors import Actors
from tests.soak.journal import Published
from tests.soak.judge import Verdict, judge, leaks
from tests.soak.standing import PATIENCE_S, Standing, search_path
from tests.soak.world import PUBLISHERS, SHARES
from tests.trust.postgres import Server


class Cast:
    """Clients, peers, a database and a standing run, in one directory."""

    def __init__(self, directory: Path, dice: Random, topics: tuple[str, ...], database: str) -> None:
        self._dice, self._topics = dice, topics
        self._held = ExitStack()
        self._root = directory
        self.realm, self._journals, self._logs = directory / "realm", directory / "journals", directory / "logs"
        self._temporary = directory / "tmp"
        self._faults = {name: directory / "faults" / name for name in ("clients", "pipeline")}
        for path in (self._journals, self._logs, self._temporary, *self._faults.values()):
            path.mkdir(parents=True)
        self.done = Counter[str]()
        self.searched, self.leaks = 0, list[str]()
        self.checked: dict[str, Any] = {}
        self._findings: list[str] = []
        self._server: Server | None = None
        if database == "postgres":
            self._server = Server()
            self._held.callback(self._server.close)
            self._server.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._held.close()

    # --- those who take part ------------------------------------------------------------------------

    def begin(self) -> None:
        environment = {"SEALCAST_UNLOCK_KEY": str(self._root / "unlock.key"), "TMPDIR": str(self._temporary)}
        url = None
        if self._server is not None:
            schema = self._server.schema()
            url, environment["SEALCAST_REGISTRY_URL"] = (
                self._server.url(schema, password=None),
                self._server.url(schema),
            )
        self._environment = environment
        self._held.enter_context(_set({name: value for name, value in environment.items() if name != "TMPDIR"}))
        world.create(self.realm, self._topics, url)
        armed = {"PYTHONPATH": search_path(Path(__file__).parent / "faults")}
        self.actors = Actors({**environment, **armed, "SOAK_FAULTS": str(self._faults["clients"])})
        self._held.callback(self.actors.close)
        run = {**environment, **armed, "SOAK_FAULTS": str(self._faults["pipeline"])}
        self.standing = Standing(self.realm, self._logs, run)
        self._held.callback(self.standing.close)
        self.allow(dict.fromkeys(self._topics, 0))
        for role, topic, name in self._everyone():
            self._start(role, topic, name)
        if self._brokered:
            self.standing.start()

    @property
    def _brokered(self) -> list[str]:
        return [topic for topic in self._topics if not PROTECTIONS[topic]().peers]

    def _everyone(self) -> list[tuple[str, str, str]]:
        found = []
        for topic in self._topics:
            readers = SHARES[topic].subscribers
            found += [("publisher", topic, name) for name in PUBLISHERS]
            found += [("subscriber", topic, name) for name in readers]
            if PROTECTIONS[topic]().peers:
                found += [("peer", topic, name) for name in (*PUBLISHERS, *readers)]
        return found

    def _start(self, role: str, topic: str, name: str, **more: Any) -> None:
        journal = self._journals / f"{topic}-{role}-{name}"
        self.actors.start(
            role,
            topic,
            name,
            realm=str(self.realm),
            journal=str(journal),
            out=str(self._logs / f"{topic}-{role}-{name}.out"),
            allowance=str(self._allowance(topic)),
            frame=SHARES[topic].frame,
            **more,
        )

    def _allowance(self, topic: str) -> Path:
        return self._journals / f"{topic}-allowance"

    def allow(self, numbers: dict[str, int]) -> None:
        """Each publisher of a topic may publish up to so many events."""
        for topic, number in numbers.items():
            temporary = self._journals / "new"
            temporary.write_text(str(number))
            temporary.rename(self._allowance(topic))

    # --- the end ----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Lets everything arrive, without faults, and has everybody read to the end."""
        self._wait_for_publishers()
        for who in [who for who in self._everyone() if who[0] == "publisher"]:
            self.actors.kill(*who)
        if self._brokered:
            self.standing.look()
            self.standing.stop()
            self._search(self._temporary, self._logs)
            self.standing.drain()
        for topic in self._topics:
            if topic not in self._brokered:
                self._wait_for_peers(topic)
        for who in [who for who in self._everyone() if who[0] != "publisher"]:
            self.actors.kill(*who)
        for role, topic, name in [who for who in self._everyone() if who[0] == "subscriber"]:
            self._start(role, topic, name, once=True)
            if code := self.actors.wait(role, topic, name):
                self._findings.append(f"{name} could not read {topic} to its end: {code}")
        self._check()
        self._search(self.realm, self._temporary, self._logs)

    def _wait_for_publishers(self) -> None:
        """Until they have published what they may."""
        deadline = time.monotonic() + PATIENCE_S
        for _, topic, name in [who for who in self._everyone() if who[0] == "publisher"]:
            allowed, frame = int(self._allowance(topic).read_text()), SHARES[topic].frame
            journal = self._journals / f"{topic}-publisher-{name}"
            while Published(journal).next + frame <= allowed and time.monotonic() < deadline:
                if self._brokered:
                    self.standing.look()
                time.sleep(0.5)

    def _wait_for_peers(self, topic: str) -> None:
        """Until its subscribers have all that was acknowledged, and nothing more comes."""
        deadline, before = time.monotonic() + PATIENCE_S, -1
        while time.monotonic() < deadline:
            verdict = judge(self._journals, topic, False)
            if not verdict.lost and verdict.deliveries == before:
                return
            before = verdict.deliveries
            time.sleep(3.0)

    def _check(self) -> None:
        done = subprocess.run(
            [*SEALCAST, "check", "--json", "--realm", str(self.realm)],
            capture_output=True,
            text=True,
            env={**os.environ, **self._environment},
            check=False,
        )
        try:
            said = json.loads(done.stdout)
        except ValueError:
            self._findings.append(f"check ended with {done.returncode}: {done.stderr[-1000:]}")
            return
        self.checked = {name: value for name, value in said.items() if name not in ("topics", "problems")}
        if done.returncode or not said["ok"] or said["waiting_frames"]:
            self._findings.append(f"check: {json.dumps(self.checked)} {json.dumps(said.get('problems', []))[:2000]}")

    def _search(self, *directories: Path) -> None:
        searched, found = leaks(*directories)
        self.searched += searched
        self.leaks += found
        self._findings += [f"a payload lies open in {path}" for path in found]

    def judged(self) -> tuple[dict[str, Verdict], list[str]]:
        """A verdict for each topic, and whatever should not be."""
        verdicts = {topic: judge(self._journals, topic, topic in self._brokered) for topic in self._topics}
        findings = [*self._findings, *self.standing.findings]
        for topic, verdict in verdicts.items():
            findings += [f"{topic}: {text}" for text in verdict.findings]
            if not any(Published(self._journals / f"{topic}-publisher-{name}").next for name in PUBLISHERS):
                findings.append(f"{topic}: nothing was published")
        return verdicts, findings


@contextmanager
def _set(variables: dict[str, str]) -> Iterator[None]:
    """Sets variables of the environment of this process, for as long as a slice lasts."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
