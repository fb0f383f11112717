"""The kill campaign on a cluster: Kafka or NATS, PostgreSQL, and Spark standalone with two workers, each on a machine
of its own (machines.py), which lose their power and their cables in turn while events pass.

    python -m tests.soak.cluster.campaign --carrier kafka --seed 1 --events 100000 --results cluster.json

A seed draws the order of the faults, the victims among the workers, and the moments. It needs root, for namespaces.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.network.hosts import missing
from tests.soak.campaign import add, quota
from tests.soak.cluster.machines import CARRIERS
from tests.soak.cluster.scene import FAULTS, Scene, told

#: Those whose ledgers are on carriers.
TOPICS: Final = ("endpoint", "payload", "searchable")


def run_cluster(
    directory: Path, carrier: str, seed: int, events: int, topics: tuple[str, ...], faults: tuple[str, ...]
) -> dict[str, Any]:
    """Each fault once, from the realm to the verdict."""
    began, dice = time.monotonic(), Random(seed)
    with Scene(directory, dice, carrier, topics) as scene:
        planned = dice.sample(faults, len(faults))
        steps = len(planned) + 1  # the first part passes without a fault: everything is up then
        for done in range(steps):
            scene.allow({topic: quota(topic, topics, events, done + 1, steps) for topic in topics})
            told(f"{time.monotonic() - began:6.1f} s  {planned[done - 1] if done else 'start'}")
            if done:
                scene.do(planned[done - 1])
                told(f"{time.monotonic() - began:6.1f} s      away, until delivered: {scene.recovered[-1][1:]}")
            elif not scene.catch_up("the start"):
                break
        told(f"{time.monotonic() - began:6.1f} s  the end")
        scene.finish()
        verdicts, findings = scene.judged()
        return {
            "seed": seed,
            "carrier": carrier,
            "planned": {"events": events, "topics": list(topics), "faults": planned},
            "seconds": round(time.monotonic() - began),
            "faults": dict(scene.done),
            "recovered": scene.recovered,
            "starts": scene.standing.starts,
            "gave_up": dict(scene.standing.gave_up),
            "failed_topics": dict(scene.standing.failures()),
            "topics": {topic: verdict.as_json() for topic, verdict in verdicts.items()},
            "bytes_searched": scene.searched,
            "planted": len(scene.planted),
            "leaks": scene.leaks,
            "check": scene.checked,
            "findings": findings,
        }


def main() -> None:
    asked = argparse.ArgumentParser(prog="python -m tests.soak.cluster.campaign", description=__doc__)
    asked.add_argument("--carrier", choices=list(CARRIERS), default="kafka")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--events", type=int, default=100_000)
    asked.add_argument("--topic", action="append", choices=TOPICS, help="[default: all]")
    asked.add_argument("--fault", action="append", choices=FAULTS, help="[default: each]")
    asked.add_argument("--results", type=Path, default=Path("cluster.json"))
    asked.add_argument("--keep", type=Path, help="a new directory, which stays")
    given = asked.parse_args()
    if (reason := missing()) is not None:
        sys.exit(reason)
    about = (given.carrier, given.seed, given.events, tuple(given.topic or TOPICS), tuple(given.fault or FAULTS))
    if given.keep is not None:
        found = run_cluster(given.keep, *about)
    else:
        with tempfile.TemporaryDirectory(prefix="cluster-") as directory:
            found = run_cluster(Path(directory), *about)
    add(given.results, found)
    print(json.dumps(found, indent=1))
    sys.exit(bool(found["findings"]))


if __name__ == "__main__":
    main()
