"""A cluster campaign: machines that lose their power or their cable while events pass, and what is found afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self

from tests.cli.shell import SEALCAST
from tests.pipeline.drivers import ROOT
from tests.soak.actors import Actors
from tests.soak.cluster.machines import BROKERS, OWN, WORKERS, Machines
from tests.soak.cluster.search import search
from tests.soak.journal import Published
from tests.soak.judge import Verdict, judge
from tests.soak.standing import Standing
from tests.soak.world import PUBLISHERS, SHARES

VICTIMS: Final = ("carrier", "worker", "driver", "database")
#: Each of them loses its power, and each its cable.
FAULTS: Final = tuple(f"{who} {how}" for how in ("killed", "cut off") for who in VICTIMS)
#: How long a machine is away, in seconds. Cables are out for longer than anybody waits for an answer (30 s).
AWAY_S: Final = {"killed": (0.0, 5.0), "cut off": (35.0, 50.0)}
#: How long it may take after a fault until everything that was acknowledged has been delivered.
RECOVERY_S: Final = 900.0
_LOOK_S: Final = 2.0


class Scene:
    """Clients, a standing run and machines, in one directory."""

    def __init__(self, root: Path, dice: Random, carrier: str, topics: tuple[str, ...]) -> None:
        self._root, self._dice, self._topics = root, dice, topics
        self._held = ExitStack()
        self.machines = Machines(root, carrier)
        self._own = root / "clients" / OWN
        self._journals, self._logs = self._own / "journals", root / "logs"
        for path in (self._journals, self._logs):
            path.mkdir(parents=True)
        self.done = Counter[str]()
        #: Seconds from when a machine was back until everything was delivered, of each fault in order.
        self.recovered: list[tuple[str, float, float]] = []
        self.searched, self.leaks, self.planted = 0, list[str](), list[str]()
        self.checked: dict[str, Any] = {}
        self._findings: list[str] = []

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._held.close()

    # --- those who take part ------------------------------------------------------------------------

    def _begin(self) -> None:
        machines = self._held.enter_context(self.machines)
        self.realm = machines.own / "realm"  # on every machine that has one
        registry = machines.postgres.registry(machines.postgres.schema())
        make = ("make", self.realm, registry, machines.carrier.address, machines.own / "home", *self._topics)
        machines.run("clients", "-m", "tests.soak.cluster.realm", *make)
        machines.give_homes(*BROKERS)
        self.actors = Actors(machines.environment, machines.within("clients"))
        self._held.callback(self.actors.close)
        within = machines.within("driver")
        self.standing = Standing(self.realm, self._logs, machines.environment, machines.options(), within)
        self._held.callback(self.standing.close)
        self.allow(dict.fromkeys(self._topics, 0))
        for who in self._everyone():
            self._start(*who)
        self.standing.start()

    def _everyone(self) -> list[tuple[str, str, str]]:
        publishers = [("publisher", topic, name) for topic in self._topics for name in PUBLISHERS]
        return publishers + [("subscriber", t, name) for t in self._topics for name in SHARES[t].subscribers]

    def _start(self, role: str, topic: str, name: str, **more: Any) -> None:
        own = self.machines.own
        self.actors.start(
            role,
            topic,
            name,
            realm=str(self.realm),
            journal=str(own / "journals" / f"{topic}-{role}-{name}"),
            out=str(own / f"{topic}-{role}-{name}.out"),
            allowance=str(own / "journals" / f"{topic}-allowance"),
            frame=SHARES[topic].frame,
            again=True,
            **more,
        )

    def allow(self, numbers: Mapping[str, int]) -> None:
        """Each publisher of a topic may publish up to so many events."""
        self._allowed = dict(numbers)
        for topic, number in numbers.items():
            new = self._journals / "new"
            new.write_text(str(number))
            new.rename(self._journals / f"{topic}-allowance")

    # --- faults ---------------------------------------------------------------------------------------

    def do(self, fault: str) -> None:
        """One fault while events pass; then everything that was allowed is published and delivered."""
        who, how = fault.split(" ", 1)
        name = self._dice.choice(WORKERS) if who == "worker" else who
        time.sleep(self._dice.uniform(0.5, 6.0))
        began = time.monotonic()
        if how == "killed":
            self.machines.kill(name)
            time.sleep(self._dice.uniform(*AWAY_S[how]))
            if name == "driver":
                self.standing.kill_all()  # it is gone; what it said is looked at
                self.standing.start()
            else:
                self.machines.start_again(name)
        else:
            self.machines.cut(name)
            time.sleep(self._dice.uniform(*AWAY_S[how]))
            self.machines.heal(name)
        back = time.monotonic()
        self.done[fault] += 1
        self.catch_up(fault)
        self.recovered.append((fault, round(back - began, 1), round(time.monotonic() - back, 1)))

    def catch_up(self, after: str) -> bool:
        """Until all that was allowed is published and delivered; whether it came so far."""
        deadline = time.monotonic() + RECOVERY_S
        while time.monotonic() < deadline:
            self.standing.look()
            if all(map(self._delivered, self._topics)):
                return True
            time.sleep(_LOOK_S)
        waiting = {topic: judge(self._journals, topic, True).lost for topic in self._topics}
        told = self.standing.driver.told()[-2_000:]
        self._findings.append(f"after {after}, not everything had come within {RECOVERY_S:.0f} s: {waiting} {told}")
        return False

    def _delivered(self, topic: str) -> bool:
        frame = SHARES[topic].frame
        for name in PUBLISHERS:
            sent = Published(self._journals / f"{topic}-publisher-{name}")
            if sent.next + frame <= self._allowed[topic] or sent.doubtful:
                return False
        return not judge(self._journals, topic, True).lost

    # --- the end ----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Everybody reads to the end, in good order; then `sealcast check`, and the search of every disk."""
        self.standing.look()
        self.standing.stop()
        self.standing.drain()
        for who in self._everyone():
            self.actors.kill(*who)
        for role, topic, name in [who for who in self._everyone() if who[0] == "subscriber"]:
            self._start(role, topic, name, once=True)
            if code := self.actors.wait(role, topic, name):
                self._findings.append(f"{name} could not read {topic} to its end: {code}")
        self._check()
        self._search()

    def _check(self) -> None:
        done = subprocess.run(
            [*self.machines.within("clients"), *SEALCAST, "check", "--json", "--realm", str(self.realm)],
            capture_output=True,
            text=True,
            env={**os.environ, **self.machines.environment},
            cwd=ROOT,
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

    def _search(self) -> None:
        """Every disk: work directories of executors, segments or streams of the carrier, pages of the database."""
        found = self.machines.run("clients", "-m", "tests.soak.cluster.realm", "secrets", self.realm)
        with self.machines.postgres.connect() as connection:
            connection.execute("CHECKPOINT")  # its pages, and not its log alone
        result = search(self._root, self.machines.postgres.directory, json.loads(found))
        self.searched, self.leaks, self.planted = result.size, result.leaks, result.planted
        self._findings += [f"{what} lies open in {path}" for path, what in result.leaks_by_file]
        self._findings += [f"the search found nothing of what was planted in {path}" for path in result.blind]

    def judged(self) -> tuple[dict[str, Verdict], list[str]]:
        """A verdict for each topic, and whatever should not be."""
        verdicts = {topic: judge(self._journals, topic, True) for topic in self._topics}
        findings = [*self._findings, *self.standing.findings]
        for topic, verdict in verdicts.items():
            findings += [f"{topic}: {text}" for text in verdict.findings]
            if verdict.events < 2 * self._allowed[topic] or verdict.doubtful:
                findings.append(f"{topic}: {verdict.events} of {2 * self._allowed[topic]} events were published")
        return verdicts, findings


def told(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
