"""Parameter points, each a task of a Spark job: of any kind, and those of group key experiments.

A point says everything that its result depends on, the seed included: a simulated one gives the same numbers on any
machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sealcast.groupkeys.catalog import Setting, make
from sealcast.lab.groups import POPULAR_GROUPS, POPULAR_SHARE, popular_groups, random_groups
from sealcast.lab.report import Told
from sealcast.lab.tally import Tally, portions_of, tally

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Point:
    """One algorithm on one workload."""

    algorithm: str
    setting: Setting
    #: `random` or `popular`.
    distribution: str
    events: int
    warmup: int
    seed: int
    popular: int = POPULAR_GROUPS
    share: float = POPULAR_SHARE


def simulate(point: Point) -> Tally:
    """Runs a point in this process."""
    number, subscribers = point.warmup + point.events, point.setting.subscribers
    if point.distribution == "popular":
        words = popular_groups(number, subscribers, point.seed, point.popular, point.share)
    else:
        words = random_groups(number, subscribers, point.seed)
    return tally(make(point.algorithm, point.setting), portions_of(words), point.warmup)


def simulate_all(points: Sequence[Point], told: Told) -> list[Tally]:
    """Simulates every point, the longest first."""
    return run_all(points, simulate, told, _work)


def run_all(
    points: Sequence[P], run: Callable[[P], R], told: Told, work: Callable[[P], float] = lambda point: 0.0
) -> list[R]:
    """Runs every point as a Spark task of its own and returns results in the order of points.

    `work` estimates how long a point takes: a long task that starts last would leave all other cores waiting for it.
    """
    from sealcast.pipeline.session import session

    context = session(app_name="sealcast lab", short_lived=True).sparkContext
    order = sorted(range(len(points)), key=lambda i: -work(points[i]))
    tasks = context.parallelize([(i, points[i]) for i in order], max(1, len(points)))
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.5):
            tracker = context.statusTracker()
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            told(sum(stage.numCompletedTasks for stage in stages if stage is not None), len(points))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        found = dict(tasks.map(lambda task: (task[0], run(task[1]))).collect())
    finally:
        ended.set()
        watcher.join()
    told(len(points), len(points))
    return [found[i] for i in range(len(points))]


def _work(point: Point) -> int:
    return (point.events + point.warmup) * point.setting.subscribers
