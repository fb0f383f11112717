"""A realm on several hosts: what runs for good on each, its clients, and what the hosts and processes go through.

The realm, its gateway and its services are on the host `gate`. Everybody else joins from a host of its own, as people
do, and has nothing but a home there. Clients write down what they do (tests/soak/journal.py), outside of all hosts, and
are judged by that (tests/soak/judge.py), beside `sealcast check`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.network.hosts import Host, Network
from tests.network.machine import Daemon
from tests.soak.journal import Published
from tests.soak.judge import Verdict, judge
from tests.soak.standing import search_path
from tests.soak.world import FILTERS, SCHEMA

PORT: Final = 7443
PUBLISHER: Final = "ann"
READERS: Final = ("low", "high")
#: How long everything may take to arrive after the last fault, on a busy machine.
ARRIVAL_S: Final = 300.0
#: Events of a frame, and how long the publisher rests after it: some hundred events a second, whatever is cut.
FRAME: Final = 20
PAUSE_S: Final = 0.1
#: Events before the first fault, and after the last.
EVENTS_AROUND: Final = 200
LONGEST_CUT_S: Final = 8.0
WITHOUT_END: Final = 10**9
REPOSITORY: Final = Path(__file__).parents[2]


class Deployment:
    """One realm with one topic, by the name of its protection."""

    def __init__(self, network: Network, journals: Path, protection: str) -> None:
        journals.mkdir()
        self.network, self.topic, self._journals = network, protection, journals
        self.gate, self.address = network["gate"], f"sealcast://{network['gate'].address}:{PORT}"
        #: What runs for good: how it is started, and its present life.
        self._started: dict[str, tuple[Host, Sequence[object], str]] = {}
        self._daemons: dict[str, Daemon] = {}
        self._clients: dict[tuple[str, str], Daemon] = {}
        #: Where each entity's home is.
        self._homes: dict[str, Host] = {}
        self._allowed = 0

    # --- the realm ------------------------------------------------------------------------------------

    def found(self, *options: str) -> None:
        """A realm with its topic, a gateway and the services, on `gate`."""
        gate = self.gate
        gate.step("init", "realm")
        gate.environment["SEALCAST_REALM"] = str(gate.directory / "realm")
        (gate.directory / "schema.json").write_text(json.dumps(SCHEMA.to_json()))
        kind = ("--protection", self.topic, "--access", "members", *options)
        gate.step("topic", "create", self.topic, "--schema", "schema.json", *kind)
        gate.step("entity", "enrol", "door", "--role", "gateway", "--host", gate.address)
        self.run("gateway", gate, "gateway", "--listen", f"{gate.address}:{PORT}", ready="started")
        self.run("serve", gate, "serve", ready="serving")

    def join(self, host: Host, name: str, *options: str) -> None:
        """Somebody comes to the realm from a host. All of one host share a home."""
        code = self.gate.step("entity", "invite", name, *options).strip()
        host.step("join", self.address, "--code", "-", "--home", "home", stdin=code + "\n")
        host.environment["SEALCAST_REALM"] = str(host.directory / "home")
        self._homes[name] = host

    def broker(self, host: Host, name: str) -> None:
        """A broker on a host of its own, with a gateway before it. It runs once it has a place to serve."""
        door = f"{name}-door"
        self.join(host, name, "--role", "broker")
        self.join(host, door, "--role", "gateway", "--host", host.address)
        self.run(door, host, "gateway", "--listen", f"{host.address}:{PORT}", ready="started")
        host.step("broker", "reach", name, f"sealcast://{host.address}:{PORT}")

    def subscribe(self, name: str, *options: str) -> None:
        self._homes[name].step("subscription", "add", self.topic, "--as", name, "--filter", FILTERS[name], *options)

    # --- what runs --------------------------------------------------------------------------------------

    def run(self, name: str, host: Host, *arguments: object, ready: str) -> None:
        """A command that runs for good, under a name."""
        self._started[name] = host, arguments, ready
        self._daemons[name] = host.sealcast(*arguments, log=f"{name}.log")
        self._daemons[name].wait_for(ready)

    def restart(self, *names: str) -> None:
        """All of them die at once, as by `kill -9`, with everything that they started; and come back."""
        for name in names:
            assert self._daemons[name].process.poll() is None, self.told()
            self._daemons[name].kill()
        for name in names:
            host, arguments, ready = self._started[name]
            self.run(name, host, *arguments, ready=ready)

    def client(self, role: str, name: str, **more: Any) -> Daemon:
        """A publisher or a subscriber, by tests/soak/actors.py, at its home."""
        host, note = self._homes[name], f"{self.topic}-{role}-{name}"
        asked = {
            "role": role, "topic": self.topic, "name": name, "realm": str(host.directory / "home"), "wait": 1.0,
            "journal": str(self._journals / note), "out": str(self._journals / f"{note}.out"),
            "allowance": str(self._allowance), "frame": FRAME, "pause": PAUSE_S, **more,
        }  # fmt: skip
        script = "import json, sys; from tests.soak.actors import child; child(json.loads(sys.argv[1]))"
        host.environment["PYTHONPATH"] = search_path(REPOSITORY)
        started = host.start(sys.executable, "-c", script, json.dumps(asked), log=f"{note}.log")
        self._clients[role, name] = started
        return started

    @property
    def _allowance(self) -> Path:
        return self._journals / "allowance"

    def allow(self, number: int = WITHOUT_END) -> None:
        """The publisher may publish up to so many events. It stops where it is, if it is further."""
        self._allowed, new = number, self._journals / "new"
        new.write_text(str(number))
        new.rename(self._allowance)

    # --- what they go through ---------------------------------------------------------------------------

    def endure(self, seed: int, cuts: int, deaths: Sequence[Sequence[str]]) -> Verdict:
        """So many cuts at random moments, of random cables; in some of these moments, some die at once and come back.
        Events are published before it, all the time, and afterwards."""
        dice = Random(seed)
        self.allow(EVENTS_AROUND)
        self.arrive()
        self.allow()
        die_at = dict(zip(sorted(dice.sample(range(cuts), len(deaths))), deaths, strict=True))
        for moment in range(cuts):
            dying, cut_first = die_at.get(moment, ()), dice.random() < 0.5
            time.sleep(dice.uniform(0.0, 2.0))
            if not cut_first:
                self.restart(*dying)
            cable = self.network[dice.choice(sorted(self.network))]
            cable.cut()
            if cut_first:
                self.restart(*dying)
            time.sleep(dice.uniform(0.2, LONGEST_CUT_S))
            cable.heal()
        during = self.published().next
        self.allow(during + EVENTS_AROUND)
        self.arrive()
        verdict = self._finish()
        (self._journals / "verdict.json").write_text(json.dumps(verdict.as_json()))
        assert verdict.ok, (verdict, self.told())
        assert EVENTS_AROUND < during < verdict.events, "events were published before, during and after"
        return verdict

    # --- what is seen from the outside ------------------------------------------------------------------

    def published(self) -> Published:
        return Published(self._journals / f"{self.topic}-publisher-{PUBLISHER}")

    def judged(self) -> Verdict:
        return judge(self._journals, self.topic, ordered=True, publishers=(PUBLISHER,), subscribers=READERS)

    def arrive(self) -> None:
        """Until all that may be published is, and has come to everybody who is to have it."""
        until = time.monotonic() + ARRIVAL_S
        while self.published().next + FRAME <= self._allowed or self.judged().lost or not self.judged().deliveries:
            assert time.monotonic() < until, self.told()
            assert not [who for who, client in self._clients.items() if client.process.poll() is not None], self.told()
            time.sleep(0.5)

    def _finish(self) -> Verdict:
        """Ends the clients, has everybody read to the end once more, and judges."""
        for client in self._clients.values():
            client.kill()
        for reader in READERS:
            assert self.client("subscriber", reader, once=True).process.wait(ARRIVAL_S) == 0, self.told()
        (said,) = [json.loads(self._homes[PUBLISHER].step("confirm", self.topic, "--as", PUBLISHER, "--json"))]
        assert said["committed"] and not said["waiting"] and not said["lost"], said
        for name, (host, _, _) in self._started.items():
            assert self._daemons[name].process.poll() is None, self.told()
            assert "Traceback" not in (host.directory / f"{name}.log").read_text(), self.told()
        return self.judged()

    def checked(self, host: Host, *, waiting: int = 0) -> dict[str, Any]:
        """What `sealcast check` says of the brokers of a host."""
        said = json.loads(host.step("check", "--json"))
        assert said["ok"] and (said["events"] or said["deliveries"]) and said["waiting_frames"] == waiting, said
        return said

    def told(self) -> str:
        """Everybody's last words, for whoever has to find out."""
        files = sorted([*self.network.directory.glob("*/*.log"), *self._journals.glob("*.out")])
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in files)
