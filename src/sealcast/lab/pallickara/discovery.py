"""What it costs to find topics: paper 004's "250 - 500 milliseconds", which "depends mainly on the number of matching
topics discovered".

An entity asks both discovery nodes of a realm, over their control topics, and verifies what they hand out: every
advertisement's signature and its owner's certificate. Two things are varied: how many topics match, and how many there
are. Whether the first is what matters is judged by a plane through all points: what a topic that matches adds, against
what one adds that does not. The paper's milliseconds are of a network and of machines of 2005 and are not compared.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Final

import numpy as np

from sealcast.control.discovery import advertisements, embedded
from sealcast.control.discovery.advertisements import DEFAULT_LIFETIME_US, Advertisement, What
from sealcast.control.discovery.client import Discovery
from sealcast.control.discovery.embedded import RealmDiscovery
from sealcast.errors import Bug
from sealcast.lab import scratch
from sealcast.lab.pallickara.samples import RULE, Sample, without_outliers
from sealcast.lab.report import Curve, Look, Panel, Report, Row, Told, columns
from sealcast.trust.deployment import Realm

NAME: Final = "pallickara/discovery"
#: Milliseconds, from and to.
PRINTED: Final = (250.0, 500.0)
MATCHES: Final = (1, 4, 16, 64, 256, 1_024)
STORED: Final = (64, 256, 1_024)
QUICK_MATCHES: Final = (1, 4, 16, 64)
QUICK_STORED: Final = (16, 64)
RUNS: Final = 10
QUICK_RUNS: Final = 5
_ROOM: Final = 64 << 20

#: (topics stored, of them matching)
Case = tuple[int, int]
_cells: Final = columns("cell", "stored", "matching", "printed", "measured", "other", "deviation", "left_out", "agrees")


class DiscoveryWorld:
    """A realm with two discovery nodes, somebody who advertises, and somebody who looks."""

    def __init__(self, realm: Realm, matches: Sequence[int]) -> None:
        realm.enrol_many(["owner", "seeker"])
        self._realm, self._matches = realm, matches
        self._owner = embedded.party(realm, realm.identity("owner"))

    def advertise(self, stored: int) -> None:
        """Lets every node keep so many topics. Topic i has a tag for each number of matches that it is among."""
        now = self._realm.clock()
        made = [self._signed(number, now) for number in range(stored)]
        for address in embedded.nodes(self._realm):
            service, node = embedded.node_service(self._realm, self._realm.discovery_node(address.name))
            with closing(service), closing(node):
                for data in made:
                    node.keep(data, now)

    def _signed(self, number: int, now: int) -> bytes:
        about = Advertisement(
            os.urandom(advertisements.ID_BYTES),
            What.TOPIC,
            f"topic-{number}",
            now,
            now,
            now + DEFAULT_LIFETIME_US,
            tags={tag(count): "yes" for count in self._matches if number < count},
        )
        return advertisements.sign(self._owner, self._realm.id, about)

    def seeker(self) -> RealmDiscovery:
        return RealmDiscovery(self._realm, self._realm.identity("seeker"))


def tag(matches: int) -> str:
    return f"Among-{matches}"


def find(seeker: Discovery, matches: int) -> float:
    """Finds that many topics; the CPU seconds of the one who looks and of both nodes."""
    began = time.process_time()
    found = seeker.find(f"{tag(matches)}=yes")
    spent = time.process_time() - began
    if len(found) != matches or any(len(each.nodes) < 2 for each in found):
        raise Bug(f"{len(found)} topics were found, of {matches} that match")
    return spent


def measure(matches: Sequence[int], stored: Sequence[int], runs: int, told: Told) -> dict[Case, list[float]]:
    """Measures all cases in turn, again and again, so that they see the same machine."""
    found: dict[Case, list[float]] = {(there, count): [] for there in stored for count in matches if count <= there}
    with ExitStack() as open_:
        seekers = {}
        for there in stored:
            world = DiscoveryWorld(open_.enter_context(scratch.realm(_ROOM)), matches)
            world.advertise(there)
            seekers[there] = open_.enter_context(world.seeker())
            find(seekers[there], min(matches))  # the nodes read what they keep when they are first asked
        for run in range(runs):
            for there, count in found:
                found[there, count].append(find(seekers[there], count))
            told(run + 1, runs)
    return found


def run(quick: bool, told: Told) -> Report:
    if quick:
        return report(measure(QUICK_MATCHES, QUICK_STORED, QUICK_RUNS, told))
    return report(measure(MATCHES, STORED, RUNS, told))


# --- the report -----------------------------------------------------------------------------------------


def plane(found: Mapping[Case, Sample]) -> tuple[float, float, float]:
    """Seconds of a discovery: what it always takes, what a matching topic adds, and what another one adds.

    By the relative error: otherwise only the longest would count.
    """
    cases = np.array([(1.0, count, stored - count) for stored, count in found], float)
    seconds = np.array([each.mean for each in found.values()])
    fitted, *_ = np.linalg.lstsq(cases / seconds[:, None], np.ones(len(seconds)), rcond=None)
    always, match, other = fitted.tolist()
    return always, match, other


def report(found: Mapping[Case, Sequence[float]]) -> Report:
    samples = {case: without_outliers(runs) for case, runs in found.items()}
    always, match, other = plane(samples)
    agrees = match > 0 and match > other
    claim = _cells(
        cell="microseconds that a topic adds if it matches, and if it does not",
        measured=round(1e6 * match, 2),
        other=round(1e6 * other, 2),
        agrees=agrees,
    )
    rows = [claim, *(_row(case, each) for case, each in samples.items())]
    low, high = (max(0, round((ms / 1e3 - always) / match)) if match > 0 else 0 for ms in PRINTED)
    notes = [
        "milliseconds of CPU time, but for the first row; the paper's 250 to 500 ms are of a network, of machines of "
        "2005, and of an unnamed number of topics: they are not compared. Compared is that the number of matching "
        "topics is what matters: a topic that matches adds more than one that does not",
        f"here {1e3 * always:.1f} ms, and {1e3 * match:.3f} ms a matching topic, which comes from two nodes and is "
        f"verified twice: 250 to 500 ms are {low:,} to {high:,} matching topics",
        RULE,
    ]
    return Report(NAME, rows, agrees, notes, [_panel(samples)])


def _row(case: Case, each: Sample) -> Row:
    stored, matching = case
    return _cells(
        cell="discovery",
        stored=stored,
        matching=matching,
        printed="250 to 500",
        measured=round(1e3 * each.mean, 3),
        deviation=round(1e3 * each.deviation, 3),
        left_out=each.outliers,
    )


def _panel(samples: Mapping[Case, Sample]) -> Panel:
    lines = []
    for stored in dict.fromkeys(there for there, _ in samples):
        mine = {count: 1e3 * each.mean for (there, count), each in samples.items() if there == stored}
        lines.append(Curve(f"{stored:,} stored", list(mine), list(mine.values())))
    x = sorted({float(count) for _, count in samples})
    lines += [Curve("printed", x, [ms] * len(x), Look.PRINTED) for ms in PRINTED]
    return Panel(
        "finding topics at two nodes",
        "matching topics",
        "milliseconds of CPU time",
        lines,
        log_x=True,
        log_y=True,
        looks={Look.PRINTED: "printed: 250 to 500"},
    )
