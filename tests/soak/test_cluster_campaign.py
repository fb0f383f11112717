"""The kill campaign on a cluster, most of it in the soak: machines lose power and cables while 100,000 events pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.network.hosts import missing
from tests.soak.cluster.campaign import FRAMES, TOPICS, loads, run_cluster
from tests.soak.cluster.machines import CARRIERS
from tests.soak.cluster.scene import FAULTS
from tests.soak.world import PUBLISHERS, SHARES

EVENTS = 100_000
SEED = 1


@pytest.mark.parametrize("events", [1, 5_000, EVENTS, 10_000_000])
def test_every_topic_has_frames_to_publish_in_every_step(events: int) -> None:
    steps = len(FAULTS) + 1
    made = loads(TOPICS, events, steps)
    assert tuple(made) == TOPICS
    assert sum(each.frames * each.frame for each in made.values()) * steps * len(PUBLISHERS) >= events
    for topic, each in made.items():
        assert each.frames >= FRAMES and 1 <= each.frame <= SHARES[topic].frame


@pytest.mark.soak
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_machines_die_and_are_cut_off_and_nothing_is_lost_doubled_or_leaked(tmp_path: Path, carrier: str) -> None:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    found = run_cluster(tmp_path / "machines", carrier, SEED, EVENTS, TOPICS, FAULTS)
    print(found)
    assert not found["findings"]
    assert sum(found["faults"].values()) == len(FAULTS)
    topics = found["topics"].values()
    assert sum(topic["events"] for topic in topics) >= EVENTS
    for kind in ("lost", "doubled", "out_of_order", "unexpected"):
        assert sum(topic[kind] for topic in topics) == 0, kind
    assert not found["leaks"] and found["planted"]
