"""Section 6.2 of paper 004: asking a key center for a topic's key and a token, a hundred times, with a 256-bit AES key.

The paper prints a mean of 102.27 ms, a standard deviation of 7.194 ms and a standard error of 0.7194 ms, over a network
of machines of 2005. They stand beside ours, CPU time and time by the clock on the wall, and are not compared. What can
be compared is how much one request differs from another, the standard deviation in means; by CPU time, because what
others do on a machine is not the scheme's doing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from sealcast.control.at_hand import services_at_hand
from sealcast.control.correspondence import Correspondent
from sealcast.control.requests import authorise, register_topic
from sealcast.control.wallet import Wallet
from sealcast.lab.pallickara import center
from sealcast.lab.pallickara.end_to_end import SCHEMA
from sealcast.lab.pallickara.parts import MeasuredRun, watched
from sealcast.lab.pallickara.samples import sample
from sealcast.lab.report import Curve, Look, Panel, Report, Told, columns
from sealcast.trust.layout import FIRST_CENTER
from sealcast.trust.realm.changes import Right

NAME: Final = "pallickara/token"
TOPIC: Final = "secured"
RUNS: Final = 100
QUICK_RUNS: Final = 20
#: Milliseconds, as printed.
MEAN: Final = 102.27
DEVIATION: Final = 7.194
ERROR: Final = 0.7194
#: Two spreads are alike if neither is more than so many times the other.
ALIKE: Final = 2.0
_cells: Final = columns("cell", "printed", "measured", "share", "agrees")


def measure(runs: int) -> list[MeasuredRun]:
    """One entity, which its topic's owner authorised, asks again and again. It is its center's acquaintance by then."""
    with center.realm("owner", "entity") as (realm, clock):
        with Correspondent(realm, realm.identity("owner"), at_hand=services_at_hand(realm)) as owner:
            register_topic(owner, TOPIC, SCHEMA, parameters={"key_bits": 256})
            authorise(owner, FIRST_CENTER, TOPIC, "entity", list(Right))
        with Wallet(realm, "entity", keep=False) as wallet:
            request = partial(wallet.ask, TOPIC, Right.PUBLISH)
            request()
            with watched(center.PARTS) as parts:
                return [center.ask(request, clock, parts) for _ in range(runs)]


def run(quick: bool, told: Told) -> Report:
    found = measure(QUICK_RUNS if quick else RUNS)
    told(1, 1)
    return report(found)


# --- the report -----------------------------------------------------------------------------------------


def report(runs: Sequence[MeasuredRun]) -> Report:
    found = sample([run.seconds for run in runs]).times(1e3)
    wall = sample([run.wall for run in runs]).times(1e3)
    spread, printed = found.deviation / found.mean, DEVIATION / MEAN
    agrees = max(spread, printed) <= ALIKE * min(spread, printed)
    rows = [
        _cells(cell="mean", printed=MEAN, measured=round(found.mean, 4)),
        _cells(cell="standard deviation", printed=DEVIATION, measured=round(found.deviation, 4)),
        _cells(cell="standard error", printed=ERROR, measured=round(found.error, 5)),
        _cells(
            cell="standard deviation, in means",
            printed=round(printed, 4),
            measured=round(spread, 4),
            agrees=agrees,
        ),
        _cells(cell="mean, by the clock on the wall", printed=MEAN, measured=round(wall.mean, 4)),
        _cells(
            cell="standard deviation, by the clock on the wall", printed=DEVIATION, measured=round(wall.deviation, 4)
        ),
        *(
            _cells(cell=part, measured=round(1e3 * mean, 4), share=round(share, 4))
            for part, (mean, share) in center.shares(runs).items()
        ),
    ]
    notes = [
        f"{len(runs)} requests, none left out; milliseconds of CPU time unless it says otherwise, of one process on "
        "one machine: not compared with those of the paper, whose center was a network away, in 2005",
        f"compared is the spread: agrees if neither is more than {ALIKE:.0f} times the other",
        f"{MEAN / found.mean:.1f} of ours take as long as one of the paper's",
    ]
    return Report(
        NAME,
        rows,
        agrees,
        notes,
        [_runs(runs), center.shares_panel("where the time goes", "% of a request", {"share": runs})],
    )


def _runs(runs: Sequence[MeasuredRun]) -> Panel:
    x = list(range(1, len(runs) + 1))
    lines = [
        Curve("a request", x, [1e3 * run.seconds for run in runs]),
        Curve("the paper's mean, all told", x, [MEAN] * len(x), Look.COMPUTED),
    ]
    return Panel("key and token, request by request", "request", "milliseconds of CPU time", lines, log_y=True)
