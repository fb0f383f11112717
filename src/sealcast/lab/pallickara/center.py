"""A key center and who asks it, for experiments: what a request takes, and where that time goes.

Everything travels over control topics as it does between machines: signed, sealed to its recipient, queued, journalled.
Center and asker are one process, so that no network and no waiting is in the numbers, which are CPU time. A center
answers each entity so many times a second and no oftener; the realm's clock is therefore the lab's, and a second of it
passes between two requests.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from sealcast.lab import scratch
from sealcast.lab.pallickara.parts import REST, MeasuredRun, Parts
from sealcast.lab.report import Curve, Panel
from sealcast.trust.deployment import Realm
from sealcast.trust.registry import now_us

#: Function -> the part that its time counts for. What is in none of them (encoding requests, the service's accounts,
#: reading the registry's newest version) is the rest.
PARTS: Final[Mapping[str, str]] = {
    "sealcast.control.asking:seal": "sealing the request",
    "sealcast.log.control_topics:ControlPlane.post": "queues and journal",
    "sealcast.log.control_topics:ControlPlane.read": "queues and journal",
    "sealcast.log.control_topics:ControlPlane.take": "queues and journal",
    "sealcast.control.journal:ServiceJournal.commit": "queues and journal",
    "sealcast.control.journal:ServiceJournal.sent": "queues and journal",
    "sealcast.control.service:open_request": "validating the request",
    "sealcast.control.center.rules:Rules.decide": "deciding",
    "sealcast.trust.keys.issuing:Issuer.opening": "generating keys",
    "sealcast.trust.keys.issuing:Issuer.missing_pair_keys": "generating keys",
    "sealcast.trust.keys.minting:token_for": "signing the token",
    "sealcast.trust.registry:Registry.transact": "registry commit",
    "sealcast.control.service:seal": "sealing the reply",
    "sealcast.control.asking:open_reply": "opening the reply",
}
ORDER: Final = (*dict.fromkeys(PARTS.values()), REST)
_ROOM: Final = 64 << 20
_SECOND_US: Final = 1_000_000


class Clock:
    """The realm's time, which stands still until `later` moves it."""

    def __init__(self) -> None:
        self._now_us = now_us()

    def __call__(self) -> int:
        return self._now_us

    def later(self, seconds: int = 1) -> None:
        self._now_us += seconds * _SECOND_US


@contextmanager
def realm(*names: str) -> Iterator[tuple[Realm, Clock]]:
    """Makes a realm of these entities, whose time is the lab's clock."""
    with scratch.realm(_ROOM) as made:
        clock = Clock()
        ours = Realm(made.paths.root, clock=clock)
        ours.enrol_many(names)
        yield ours, clock


def ask(request: Callable[[], object], clock: Clock, parts: Parts) -> MeasuredRun:
    """Measures one request, a second of the realm's time after the one before."""
    clock.later()
    return parts.measured(request)


def shares(runs: Sequence[MeasuredRun]) -> dict[str, tuple[float, float]]:
    """The mean seconds of each part that took any time, and its share of the whole. The shares add up to one."""
    means = {part: statistics.fmean(run.parts.get(part, 0.0) for run in runs) for part in ORDER}
    whole = sum(means.values())
    return {part: (mean, mean / whole) for part, mean in means.items() if mean > 0}


def shares_panel(title: str, of: str, runs: Mapping[str, Sequence[MeasuredRun]]) -> Panel:
    """Draws the shares, one curve for each label."""
    found = {label: shares(each) for label, each in runs.items()}
    used = [part for part in ORDER if any(part in mine for mine in found.values())]
    places = list(range(len(used)))
    lines = [
        Curve(label, places, [100 * mine.get(part, (0.0, 0.0))[1] for part in used]) for label, mine in found.items()
    ]
    return Panel(title, "", of, lines, ticks=used)
