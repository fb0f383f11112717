"""Each kind of fault of a campaign, as something that is done to those who take part in a slice."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Final

import psutil

from tests.soak import damage
from tests.soak.cast import Cast

#: How often each kind comes among a hundred. A start of Spark takes ten seconds of processor time, and a client's takes
#: a fraction of one: clients die more often.
FAULTS: Final = {
    "publisher killed": 27,
    "subscriber killed": 27,
    "peer killed": 6,
    "several clients killed": 14,
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
#: How many clients go at once, as when their machine does. Each is a kill of its own kind.
SEVERAL: Final = (4, 12)
#: The clock of all clients, or of the pipeline, is this far off for a while: as far as clocks of a realm may differ.
CLOCK_S: Final = (-200, -30, 30, 200)


def schedule(dice: Random, count: int, database: str) -> list[str]:
    """The kinds of all faults of a slice, in order."""
    kinds = {kind: n for kind, n in FAULTS.items() if kind != "database killed" or database == "postgres"}
    return dice.choices(list(kinds), list(kinds.values()), k=count)


class Slice(Cast):
    """A cast, and what is done to it."""

    def do(self, kind: str) -> None:
        """One fault, at a moment of its own."""
        time.sleep(self._dice.uniform(0.0, 0.4))
        if self._brokered:
            self.standing.look()
        acts: dict[str, Callable[[], object]] = {
            "publisher killed": lambda: self._kill_one("publisher"),
            "subscriber killed": lambda: self._kill_one("subscriber"),
            "peer killed": lambda: self._kill_one("peer"),
            "several clients killed": self._kill_several,
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

    def _kill_several(self) -> bool:
        """Clients of any kind, of any topic, at one moment; then all are started again. False: each was counted."""
        everyone = self._everyone()
        gone = self._dice.sample(everyone, min(len(everyone), self._dice.randint(*SEVERAL)))
        for who in gone:
            self.actors.kill(*who)
            self.done[f"{who[0]} killed"] += 1
        for who in gone:
            self._start(*who)
        return False

    def _down(self, kill: Callable[[], bool]) -> bool:
        """Most die at work, and some while they start."""
        if self._dice.random() < 0.7:
            self.standing.wait_for_batch()
            time.sleep(self._dice.uniform(0.0, 2.0))
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
