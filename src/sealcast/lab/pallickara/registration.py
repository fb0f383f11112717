"""Figures 2 and 3 of paper 004: registering a secure topic with AES keys of 128, 192 and 256 bits, run by run, and
where the time goes.

As in the paper, finding where the center listens is not in these numbers (`pallickara/discovery` is about that). Each
size of key has a realm, a center and an owner of its own, so that each has initial runs. The figures are pictures; what
is compared is what the text says of them: that initial runs tend to cost a little more than later ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from sealcast.control.at_hand import services_at_hand
from sealcast.control.correspondence import Correspondent
from sealcast.control.requests import register_topic
from sealcast.lab.pallickara import center
from sealcast.lab.pallickara.end_to_end import BITS, SCHEMA
from sealcast.lab.pallickara.parts import MeasuredRun, watched
from sealcast.lab.pallickara.samples import RULE, Sample, without_outliers
from sealcast.lab.report import Curve, Panel, Report, Row, Told, columns

NAME: Final = "pallickara/registration"
RUNS: Final = 50
QUICK_RUNS: Final = 15
#: Initial runs.
FIRST: Final = 1
_cells: Final = columns("cell", "part", "printed", "measured", "deviation", "first_run", "share", "left_out", "agrees")


def measure(runs: int, told: Told) -> dict[int, list[MeasuredRun]]:
    """That many topics for each size of key, registered one after the other by one owner, from its first request on.

    The sizes take turns, so that all of them see the same machine.
    """
    found: dict[int, list[MeasuredRun]] = {bits: [] for bits in BITS}
    with ExitStack() as open_:
        owners = {}
        for bits in BITS:
            realm, clock = open_.enter_context(center.realm("owner"))
            owner = Correspondent(realm, realm.identity("owner"), at_hand=services_at_hand(realm))
            owners[bits] = open_.enter_context(owner), clock
        parts = open_.enter_context(watched(center.PARTS))
        for number in range(runs):
            for bits, (owner, clock) in owners.items():
                given = {"key_bits": bits}
                register = partial(register_topic, owner, f"topic-{number}", SCHEMA, parameters=given)
                found[bits].append(center.ask(register, clock, parts))
            told(number + 1, runs)
    return found


def run(quick: bool, told: Told) -> Report:
    return report(measure(QUICK_RUNS if quick else RUNS, told))


# --- the report -----------------------------------------------------------------------------------------


def report(found: Mapping[int, Sequence[MeasuredRun]]) -> Report:
    later = {bits: without_outliers([run.seconds for run in runs[FIRST:]]) for bits, runs in found.items()}
    rows = [
        *(_whole(bits, runs, later[bits]) for bits, runs in found.items()),
        *(row for bits, runs in found.items() for row in _parts(bits, runs[FIRST:])),
    ]
    notes = [
        "milliseconds of CPU time; the paper's figures print no numbers, and its milliseconds would be of machines of "
        "2005 and of a network",
        "compared is that initial runs cost more than later ones: agrees, for a size of key, if its first run took "
        "longer than the mean of the later ones; our first run opens the center's secrets, queues and journal",
        f"later runs: {RULE}",
        _sizes(later),
    ]
    agrees = all(row["agrees"] for row in rows if row["agrees"] is not None)
    shares = {f"AES-{bits}": runs[FIRST:] for bits, runs in found.items()}
    figure_3 = center.shares_panel("figure 3: where the time goes", "% of a registration", shares)
    return Report(NAME, rows, agrees, notes, [_figure_2(found), figure_3])


def _sizes(later: Mapping[int, Sample]) -> str:
    said = ", ".join(
        f"{1e3 * s.mean:.2f} ms (standard error {1e3 * s.error:.2f}) at {b} bits" for b, s in later.items()
    )
    return f"size of the key: {said}; a key is derived and sealed to the brokers, at any size by the same steps"


def _whole(bits: int, runs: Sequence[MeasuredRun], later: Sample) -> Row:
    first = max(run.seconds for run in runs[:FIRST])
    return _cells(
        cell=f"figure 2: AES-{bits}",
        part="all of it",
        measured=_ms(later.mean),
        deviation=_ms(later.deviation),
        first_run=_ms(first),
        left_out=later.outliers,
        agrees=first > later.mean,
    )


def _parts(bits: int, runs: Sequence[MeasuredRun]) -> list[Row]:
    return [
        _cells(cell=f"figure 3: AES-{bits}", part=part, measured=_ms(mean), share=round(share, 4))
        for part, (mean, share) in center.shares(runs).items()
    ]


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 4)


def _figure_2(found: Mapping[int, Sequence[MeasuredRun]]) -> Panel:
    lines = [
        Curve(f"AES-{bits}", list(range(1, len(runs) + 1)), [1e3 * run.seconds for run in runs])
        for bits, runs in found.items()
    ]
    return Panel("figure 2: registering a topic", "run", "milliseconds of CPU time", lines)
