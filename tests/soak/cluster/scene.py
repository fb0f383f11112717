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
from typing import Any, Final, NamedTuple, Self

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
#: How often publishers are allowed a little more.
_TICK_S: Final = 0.25


class Load(NamedTuple):
    """What each publisher of a topic publishes in one step of a campaign."""

    frames: int
    #: Events in each of them.
    frame: int


class Scene:
    """Clients, a standing run and machines, in one directory."""

    def __init__(self, root: Path, dice: Random, carrier: str, loads: Mapping[str, Load]) -> None:
        self._root, self._dice, self._loads, self._topics = root, dice, loads, tuple(loads)
        self._held = ExitStack()
        self.machines = Machines(root, carrier)
        self._own = root / "clients" / OWN
        self._journals, self._logs = self._own / "journals", root / "logs"
        for path in (self._journals, self._logs):
            path.mkdir(parents=True)
        self.done = Counter[str]()
        #: Of each fault in order: deliveries that were due at that moment, seconds until the machine was back, and from
        #: then until everything was delivered.
        self.recovered: list[tuple[str, int, float, float]] = []
        #: How far each publisher of a topic may go now, and at the end of this step.
        self._allowed = self._goals = dict.fromkeys(self._topics, 0)
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
        make = ("make", self.realm, registry, machines.carrier.address, machines.own / "homes", *self._topics)
        machines.run("clients", "-m", "tests.soak.cluster.realm", *make)
        machines.give_homes(*BROKERS)
        self.actors = Actors(machines.environment, machines.within("clients"))
        self._held.callback(self.actors.close)
        within = machines.within("driver")
        self.standing = Standing(self.realm, self._logs, machines.environment, machines.options(), within)
        self._held.callback(self.standing.close)
        self._allow(self._allowed)
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
            frame=self._loads[topic].frame,
            again=True,
            **more,
        )

    def _allow(self, numbers: Mapping[str, int]) -> None:
        """Each publisher of a topic may publish up to so many events."""
        self._allowed = dict(numbers)
        for topic, number in numbers.items():
            new = self._journals / "new"
            new.write_text(str(number))
            new.rename(self._journals / f"{topic}-allowance")

    def _next_step(self) -> None:
        self._goals = {
            topic: goal + self._loads[topic].frames * self._loads[topic].frame for topic, goal in self._goals.items()
        }

    def _pass(self, seconds: float, part: float) -> None:
        """Lets so long pass, and meanwhile publishers go on evenly through a part of what is left of this step."""
        began, first = time.monotonic(), self._allowed
        while True:
            gone = min(1.0, (time.monotonic() - began) / seconds)
            self._allow({topic: n + int((self._goals[topic] - n) * part * gone) for topic, n in first.items()})
            if gone == 1.0:
                return
            time.sleep(min(_TICK_S, seconds))

    # --- faults ---------------------------------------------------------------------------------------

    def start(self) -> bool:
        """A step without a fault, until everything is delivered: from then on everything is up."""
        self._next_step()
        self._allow(self._goals)
        return self.catch_up("the start")

    def do(self, fault: str) -> None:
        """A step with one fault. Events are published before it and while the machine is away."""
        who, how = fault.split(" ", 1)
        name = self._dice.choice(WORKERS) if who == "worker" else who
        self._next_step()
        self._pass(self._dice.uniform(0.5, 6.0), 0.5)
        due, began = sum(judge(self._journals, topic, True).lost for topic in self._topics), time.monotonic()
        if not due:
            self._findings.append(f"nothing was on its way at: {fault}")
        if how == "killed":
            self.machines.kill(name)
        else:
            self.machines.cut(name)
        self._pass(self._dice.uniform(*AWAY_S[how]), 1.0)
        if how == "cut off":
            self.machines.heal(name)
        elif name == "driver":
            self.standing.kill_all()  # it is gone; what it said is looked at
            self.standing.start()
        else:
            self.machines.start_again(name)
        back = time.monotonic()
        self.done[fault] += 1
        self.catch_up(fault)
        self.recovered.append((fault, due, round(back - began, 1), round(time.monotonic() - back, 1)))

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
        for name in PUBLISHERS:
            sent = Published(self._journals / f"{topic}-publisher-{name}")
            if sent.next < self._goals[topic] or sent.doubtful:
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
            if verdict.events < len(PUBLISHERS) * self._goals[topic] or verdict.doubtful:
                findings.append(f"{topic}: {verdict.events} of {len(PUBLISHERS) * self._goals[topic]} were published")
        return verdicts, findings


def told(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
