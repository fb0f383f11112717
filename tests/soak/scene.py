"""One slice of a campaign at work: who runs in it, and each kind of fault as something that is done to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self

import psutil

from sealcast.model.protection import PROTECTIONS
from tests.cli.shell import SEALCAST
from tests.soak import damage, world
from tests.soak.actors import Actors
from tests.soak.journal import Published
from tests.soak.judge import Verdict, judge, leaks
from tests.soak.standing import PATIENCE_S, Standing, search_path
from tests.soak.world import FILTERS, PUBLISHERS, SHARES
from tests.trust.postgres import Server

#: How often each kind comes among a hundred. A start of Spark takes ten seconds of processor time, and a client's takes
#: a fraction of one: clients die more often.
FAULTS: Final = {
    "publisher killed": 27,
    "subscriber killed": 27,
    "peer killed": 6,
    "worker killed": 9,
    "driver killed": 2,
    "everything killed": 2,
    "JVM killed": 2,
    "publisher's disk full": 4,
    "subscriber's disk full": 3,
    "pipeline's disk full": 2,
    "client's sync failed": 3,
    "pipeline's sync failed": 2,
    "file cut": 1,
    "byte flipped": 4,
    "clock jumped": 2,
    "two runs at once": 1,
    "database killed": 3,
}
#: The clock of all clients, or of the pipeline, is this far off for a while: as far as clocks of a realm may differ.
CLOCK_S: Final = (-200, -30, 30, 200)


def schedule(dice: Random, count: int, database: str) -> list[str]:
    """The kinds of all faults of a slice, in order."""
    kinds = {kind: n for kind, n in FAULTS.items() if kind != "database killed" or database == "postgres"}
    return dice.choices(list(kinds), list(kinds.values()), k=count)


class Slice:
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
        os.environ.update({name: value for name, value in environment.items() if name != "TMPDIR"})
        self._environment = environment
        self._held.callback(lambda: os.environ.pop("SEALCAST_REGISTRY_URL", None))
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

    # --- faults -----------------------------------------------------------------------------------

    def do(self, kind: str) -> None:
        """One fault, at a moment of its own."""
        time.sleep(self._dice.uniform(0.0, 0.4))
        if self._brokered:
            self.standing.look()
        acts: dict[str, Callable[[], object]] = {
            "publisher killed": lambda: self._kill_one("publisher"),
            "subscriber killed": lambda: self._kill_one("subscriber"),
            "peer killed": lambda: self._kill_one("peer"),
            "publisher's disk full": lambda: self._kill_one("publisher", room=self._dice.choice([0, 1, 100, 30_000])),
            "subscriber's disk full": lambda: self._kill_one("subscriber", room=0),
            "client's sync failed": lambda: self._sync_fails("clients"),
            "pipeline's sync failed": lambda: self._sync_fails("pipeline"),
            "byte flipped": self._flip,
            "clock jumped": self._clock,
            "database killed": self._database,
            "worker killed": lambda: self.standing.kill_worker(self._dice),
            "driver killed": lambda: self._down(self.standing.kill_driver),
            "everything killed": lambda: self._down(self.standing.kill_all),
            "JVM killed": lambda: self._down(self.standing.kill_jvm),
            "pipeline's disk full": self._full_disk,
            "file cut": self._cut,
            "two runs at once": self.standing.second,
        }
        needs_run = kind in list(acts)[list(acts).index("worker killed") :] or kind == "pipeline's sync failed"
        if needs_run and not self._brokered:
            return
        if acts[kind]() is not False:
            self.done[kind] += 1

    def _kill_one(self, role: str, **more: Any) -> bool:
        """Kills one, and starts it again at once; with `room`, on a disk that is full."""
        those = [who for who in self._everyone() if who[0] == role]
        if not those:
            return False
        who = self._dice.choice(those)
        self.actors.kill(*who)
        self._start(*who, **more)
        return True

    def _down(self, kill: Callable[[], bool]) -> bool:
        if not kill():
            return False
        self._search(self._temporary, self._logs)
        self.standing.start()
        return True

    def _full_disk(self) -> bool:
        if not self.standing.limit_files(self._dice.choice([0, 1_000, 16_384, 200_000])):
            return False
        time.sleep(self._dice.uniform(0.5, 3.0))
        self.standing.limit_files(-1)
        return True

    def _sync_fails(self, whose: str) -> bool:
        flag = self._faults[whose] / "sync"
        flag.touch()
        deadline = time.monotonic() + 20.0
        while flag.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        taken = not flag.exists()
        flag.unlink(missing_ok=True)
        return taken

    def _clock(self) -> None:
        """Clients' or the pipeline's, for a second or two; forwards or backwards."""
        link = self._faults[self._dice.choice(["clients", "pipeline"])] / "clock"
        link.symlink_to(str(self._dice.choice(CLOCK_S) * 10**9))
        time.sleep(self._dice.uniform(0.5, 2.0))
        link.unlink()

    def _flip(self) -> bool:
        files = damage.damageable(self.realm)
        if not files:
            return False
        try:
            restore = damage.flip(self._dice.choice(files), self._dice)
        except FileNotFoundError:
            return False  # it was collected meanwhile
        time.sleep(self._dice.uniform(0.2, 2.0))
        restore()
        return True

    def _cut(self) -> bool:
        """A file is cut while nobody runs; whoever starts meets it; then it is whole again."""
        self.standing.kill_all()
        everyone = self._everyone()
        for who in everyone:
            self.actors.kill(*who)
        restore = damage.cut(self._dice.choice(damage.damageable(self.realm)), self._dice)
        self.standing.start()
        readers = [who for who in everyone if who[0] == "subscriber"]
        for who in readers:
            self._start(*who)
        deadline = time.monotonic() + self._dice.uniform(5.0, 25.0)
        while time.monotonic() < deadline and self.standing.driver.process.poll() is None:
            time.sleep(0.05)
        restore()
        for who in everyone:
            if who not in readers:
                self._start(*who)
        return True

    def _database(self) -> None:
        """The server, as if its power went; or one of its processes, after which it recovers all of them."""
        assert self._server is not None and self._server._process is not None
        workers = psutil.Process(self._server._process.pid).children()
        ours = [each for each in workers if "127.0.0.1" in " ".join(each.cmdline())]
        if ours and self._dice.random() < 0.5:
            with suppress(psutil.NoSuchProcess):
                self._dice.choice(ours).kill()
        else:
            self._server.stop(signal.SIGQUIT)
            time.sleep(self._dice.uniform(0.0, 1.0))
            self._server.start()

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
        assert FILTERS
        return verdicts, findings
