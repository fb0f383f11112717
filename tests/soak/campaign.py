"""The crash campaign: many kills and faults, many events, every protection, through `sealcast run`.

    python -m tests.soak.campaign --seed 7 --faults 120 --events 120000 --results campaign.json
    python -m tests.soak.campaign --sum --results campaign.json

One slice is one realm with a topic per protection. Publishers, subscribers, peers and a standing `sealcast run` are
processes of their own. Faults come one after the other, drawn from the seed; then all is drained and judged. A slice
adds its results to the file. The same seed draws the same faults, victims, moments and bytes; what the operating system
makes of them in between is its own, as on any machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

from sealcast.model.protection import PROTECTIONS
from tests.soak.scene import FAULTS, Slice, schedule
from tests.soak.world import SHARES

MILLION: Final = 1_000_000


def run_slice(
    directory: Path, seed: int, faults: int, events: int, topics: tuple[str, ...], seconds: float, database: str
) -> dict[str, Any]:
    """One slice, from its realm to its verdict."""
    began, dice = time.monotonic(), Random(seed)
    with ExitStack() as held:
        scene = held.enter_context(Slice(directory, dice, topics, database))
        scene.begin()
        planned = schedule(dice, faults, database)
        for done, kind in enumerate(planned, 1):
            if time.monotonic() - began > seconds:
                break
            scene.allow({topic: quota(topic, topics, events, done, faults) for topic in topics})
            print(f"{time.monotonic() - began:6.1f} s  {kind}", file=sys.stderr, flush=True)
            scene.do(kind)
        print(f"{time.monotonic() - began:6.1f} s  the end", file=sys.stderr, flush=True)
        scene.finish()
        verdicts, findings = scene.judged()
        return {
            "seed": seed,
            "database": database,
            "planned": {"faults": faults, "events": events, "topics": list(topics), "seconds": seconds},
            "seconds": round(time.monotonic() - began),
            "faults": dict(scene.done),
            "starts": scene.standing.starts,
            "gave_up": dict(scene.standing.gave_up),
            "failed_topics": dict(scene.standing.failures()),
            "topics": {topic: verdict.as_json() for topic, verdict in verdicts.items()},
            "bytes_searched": scene.searched,
            "leaks": scene.leaks,
            "check": scene.checked,
            "findings": findings,
        }


def quota(topic: str, topics: tuple[str, ...], events: int, done: int, steps: int) -> int:
    """A topic's part of the events, by two publishers, after so many of the steps; no topic has less than a few frames
    in the end."""
    share = SHARES[topic]
    whole = sum(SHARES[each].events for each in topics)
    part = max(2 * share.frame, events * share.events // whole) // 2
    return int(part // share.frame * share.frame * done / steps)


# --- results --------------------------------------------------------------------------------------


def add(results: Path, found: dict[str, Any]) -> None:
    slices = json.loads(results.read_text())["slices"] if results.exists() else []
    temporary = results.with_suffix(".tmp")
    temporary.write_text(json.dumps({"slices": [*slices, found]}, indent=1))
    os.replace(temporary, results)


def summed(results: Path) -> dict[str, Any]:
    slices = json.loads(results.read_text())["slices"]
    faults, topics = Counter[str](), dict[str, Counter[str]]()
    for found in slices:
        faults.update(found["faults"])
        for topic, verdict in found["topics"].items():
            numbers = {name: value for name, value in verdict.items() if isinstance(value, int)}
            topics.setdefault(topic, Counter()).update(numbers)
    total = Counter[str]()
    for verdict in topics.values():
        total.update(verdict)
    return {
        "slices": len(slices),
        "seeds": [found["seed"] for found in slices],
        "seconds": sum(found["seconds"] for found in slices),
        "starts": sum(found["starts"] for found in slices),
        "faults": faults.total(),
        "faults_by_kind": dict(sorted(faults.items())),
        "events": total["events"],
        "deliveries": total["deliveries"],
        "lost": total["lost"],
        "doubled": total["doubled"],
        "out_of_order": total["out_of_order"],
        "unexpected": total["unexpected"],
        "handed_again": total["handed_again"],
        "doubtful": total["doubtful"],
        "doubtful_made": total["doubtful_made"],
        "leaks": sum(len(found["leaks"]) for found in slices),
        "bytes_searched": sum(found["bytes_searched"] for found in slices),
        "events_by_topic": {topic: found["events"] for topic, found in topics.items()},
        "findings": [f"seed {found['seed']}: {text}" for found in slices for text in found["findings"]],
    }


def main() -> None:
    told = argparse.ArgumentParser(prog="python -m tests.soak.campaign", description="One slice of the crash campaign.")
    told.add_argument("--seed", type=int, default=1)
    told.add_argument("--faults", type=int, default=100, help="kills and faults")
    told.add_argument("--events", type=int, default=100_000, help="events, over all topics")
    told.add_argument("--minutes", type=float, default=60.0, help="no fault is begun after so long")
    told.add_argument("--topic", action="append", choices=list(PROTECTIONS), help="[default: one per protection]")
    told.add_argument("--database", choices=["sqlite", "postgres"], help="of the registry [default: by the seed]")
    told.add_argument("--results", type=Path, default=Path("campaign.json"))
    told.add_argument("--keep", type=Path, help="a new directory for the slice, which stays")
    told.add_argument("--sum", action="store_true", help="sum up the results so far, and do nothing else")
    given = told.parse_args()
    if not given.sum:
        topics = tuple(given.topic or PROTECTIONS)
        database = given.database or ("sqlite", "postgres")[given.seed % 2]
        print(f"seed {given.seed}, {database}, {', '.join(topics)}; kinds: {', '.join(FAULTS)}", file=sys.stderr)
        about = (given.seed, given.faults, given.events, topics, given.minutes * 60, database)
        if given.keep is not None:
            add(given.results, run_slice(given.keep, *about))
        else:
            with tempfile.TemporaryDirectory(prefix="soak-") as found:
                add(given.results, run_slice(Path(found), *about))
    outcome = summed(given.results)
    print(json.dumps(outcome, indent=2))
    sys.exit(1 if outcome["findings"] else 0)


if __name__ == "__main__":
    main()
