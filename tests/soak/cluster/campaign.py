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
from math import ceil
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.network.hosts import missing
from tests.soak.campaign import add
from tests.soak.cluster.machines import CARRIERS
from tests.soak.cluster.scene import FAULTS, Load, Scene, told
from tests.soak.world import PUBLISHERS, SHARES

#: All that have brokers.
TOPICS: Final = ("endpoint", "payload", "layered", "searchable")
#: Frames of a publisher in each step, at least: some before a fault, and some meanwhile.
FRAMES: Final = 8


def run_cluster(
    directory: Path, carrier: str, seed: int, events: int, topics: tuple[str, ...], faults: tuple[str, ...]
) -> dict[str, Any]:
    """Each fault once, from the realm to the verdict."""
    began, dice = time.monotonic(), Random(seed)
    steps = len(faults) + 1  # the first part passes without a fault: everything is up then
    with Scene(directory, dice, carrier, loads(topics, events, steps)) as scene:
        planned = dice.sample(faults, len(faults))
        told(f"{time.monotonic() - began:6.1f} s  start")
        for fault in planned if scene.start() else ():
            told(f"{time.monotonic() - began:6.1f} s  {fault}")
            scene.do(fault)
            told(f"{time.monotonic() - began:6.1f} s      due, away, until delivered: {scene.recovered[-1][1:]}")
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


def loads(topics: tuple[str, ...], events: int, steps: int) -> dict[str, Load]:
    """What each topic takes of the events, at least: whole frames in every step, and several, however few events."""
    whole = sum(SHARES[topic].events for topic in topics)
    found = {}
    for topic in topics:
        share = SHARES[topic]
        part = ceil(events * share.events / whole / steps / len(PUBLISHERS))
        frames = max(FRAMES, ceil(part / share.frame))
        found[topic] = Load(frames, ceil(part / frames))
    return found


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
