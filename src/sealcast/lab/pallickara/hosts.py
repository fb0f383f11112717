"""Paper 004 on four hosts, as its Figure 1 has them: figures 4, 5, 7 and 9, and discovery and tokens on that network.

    A  key center          joined with a code; makes the keys of the topics
    B  discovery node      joined with a code; says on which topic the center listens, and not where
    C  broker              with the realm, its gateway and its desk
    D  clients             publisher and subscriber, so that one clock stamps both ends

Hosts are network namespaces of this machine with a switch between them (`lab.hosts`): parties share no loopback, and no
directory. Time is of the clock on the wall, as in the paper: from a message handed to the publisher to the message
opened by the subscriber, over HTTPS through the broker's gateway; in the clear, over TCP (`plain`). `end_to_end` has
each party's share in CPU time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any, Final

from sealcast.errors import Unavailable
from sealcast.lab import scratch
from sealcast.lab.hosts import Cables, missing
from sealcast.lab.pallickara import end_to_end, token
from sealcast.lab.pallickara.discovery import PRINTED as DISCOVERY_MS
from sealcast.lab.pallickara.end_to_end import FIGURE, KINDS, PAYLOADS, PLAIN, QUICK_PAYLOADS, RUNS, Delay
from sealcast.lab.pallickara.samples import RULE, Sample, sample, without_outliers
from sealcast.lab.report import Curve, Panel, Report, Row, Told, columns

NAME: Final = "pallickara/hosts"
HOSTS: Final = {"center": "A", "discovery": "B", "broker": "C", "clients": "D"}
QUICK_RUNS: Final = 5
_ROOM: Final = 512 << 20
_STOP_S: Final = 5.0

#: (kind, bytes of payload)
Case = tuple[str, int]
_cells: Final = columns("cell", "payload", "printed", "measured", "of", "deviation", "publish", "left_out", "agrees")


class _Party:
    """A process on a host."""

    def __init__(self, argv: Sequence[str], **told: object) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True)
        self.tell(told)

    def tell(self, what: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def said(self) -> dict[str, Any]:
        """What it says next."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Unavailable("a host of the lab fell silent; what it said on stderr stands above")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()


class Hosts:
    """Four hosts, and the parties that were started on them."""

    def __init__(self, directory: Path, open_: ExitStack) -> None:
        self._open, self._directory = open_, directory
        self._cables = open_.enter_context(Cables(tuple(HOSTS)))
        for name in HOSTS:
            (directory / name).mkdir()

    def address(self, host: str) -> str:
        return self._cables.of[host].address

    def start(self, host: str, party: str, **told: object) -> _Party:
        hidden = [self._directory / name for name in HOSTS if name != host]
        words = ("-m", "sealcast.lab.pallickara.parties", party, self._directory / host, self.address(host))
        made = _Party(self._cables.of[host].inside([sys.executable, *words], hidden), **told)
        self._open.callback(made.close)
        return made


def measure(payloads: Sequence[int], runs: int, tokens: int, told: Told) -> MeasuredTransits:
    """Starts all parties, and lets the clients measure."""
    if (reason := missing()) is not None:
        raise Unavailable(
            f"{NAME} needs four hosts, and there can be none here: {reason}",
            hint="run it as root, or on one host: sealcast lab run pallickara/end-to-end",
        )
    with scratch.directory(_ROOM) as directory, ExitStack() as open_:
        hosts = Hosts(directory, open_)
        codes = hosts.start("broker", "found").said()["codes"]
        at = hosts.start("broker", "gateway").said()["gateway"]
        hosts.start("broker", "reception").said()
        hosts.start("discovery", "node", gateway=at, codes=codes).said()
        hosts.start("broker", "desk").said()
        hosts.start("center", "center", gateway=at, codes=codes).said()
        asked = {"runs": runs, "payloads": list(payloads), "tokens": tokens, "broker": hosts.address("broker")}
        clients = hosts.start("clients", "clients", gateway=at, codes=codes, **asked)
        found = MeasuredTransits(clients.said()["discoveries"], clients.said()["tokens"])
        clients.said()
        # What is in the clear goes by the subscription that is there now.
        clients.tell(hosts.start("broker", "broker").said()["plain"])
        for done, case in enumerate(_until_done(clients), 1):
            found.add(case["kind"], case["payload"], *case["taken"])
            told(done, runs * len(payloads) * len(KINDS))
        return found


def _until_done(clients: _Party) -> Iterator[dict[str, Any]]:
    while "done" not in (said := clients.said()):
        yield said


class MeasuredTransits:
    """Seconds, run by run."""

    def __init__(self, discoveries: Sequence[float], tokens: Sequence[float]) -> None:
        self.discoveries, self.tokens = discoveries, tokens
        #: How long publishing took, and the whole transit.
        self.transits: dict[Case, list[tuple[float, float]]] = {}

    def add(self, kind: str, payload: int, publish: float, transit: float) -> None:
        self.transits.setdefault((kind, payload), []).append((publish, transit))

    def delays(self) -> dict[Case, Delay]:
        return {
            case: Delay(without_outliers([t for _, t in runs]), {"publish": sample([p for p, _ in runs])})
            for case, runs in self.transits.items()
        }


def run(quick: bool, told: Told) -> Report:
    began = time.monotonic()
    runs, tokens = (QUICK_RUNS, token.QUICK_RUNS) if quick else (RUNS, token.RUNS)
    found = measure(QUICK_PAYLOADS if quick else PAYLOADS, runs, tokens, told)
    return report(found, time.monotonic() - began)


# --- the report -----------------------------------------------------------------------------------------


def report(found: MeasuredTransits, seconds: float) -> Report:
    delays = found.delays()
    payloads = sorted({payload for _, payload in delays})
    claims = [_claimed(row) for row in end_to_end.claims(delays, payloads)]
    rows = [
        *claims,
        _cells(cell="discovery of the key center's topic", printed="250 to 500", **_ms(sample(found.discoveries))),
        _cells(cell="a topic's key and a token, mean", printed=f"{token.MEAN}", **_ms(sample(found.tokens))),
        *(_row(case, delays) for case in product(KINDS, payloads)),
    ]
    return Report(NAME, rows, all(row["agrees"] for row in claims), _notes(found, delays, seconds), [_panel(delays)])


def _claimed(row: Row) -> Row:
    return _cells(**{name: row[name] for name in ("cell", "printed", "measured", "of", "agrees")})


def _ms(found: Sample) -> dict[str, object]:
    return {
        "measured": round(1e3 * found.mean, 3),
        "deviation": round(1e3 * found.deviation, 3),
        "left_out": found.outliers,
    }


def _row(case: Case, delays: Mapping[Case, Delay]) -> Row:
    kind, payload = case
    mine = delays[case]
    publish = round(1e3 * mine.party["publish"].mean, 3)
    return _cells(cell=f"figure {FIGURE[kind]}: {kind}", payload=payload, publish=publish, **_ms(mine.whole))


def _notes(found: MeasuredTransits, delays: Mapping[Case, Delay], seconds: float) -> list[str]:
    low, high = DISCOVERY_MS
    least, most = min(p for _, p in delays), max(p for _, p in delays)
    said = ", ".join(
        f"{size:,} bytes {1e3 * delays[KINDS[-1], size].whole.mean:.1f} ms against "
        f"{1e3 * delays[PLAIN, size].whole.mean:.1f} ms in the clear"
        for size in (least, most)
    )
    return [
        f"hosts as in the paper's Figure 1: {', '.join(f'{letter} {name}' for name, letter in HOSTS.items())}; here "
        "they are network namespaces of one machine, there they were machines of 2005 on a campus and beyond",
        "milliseconds by the clock on the wall; the paper prints no number of its figures 4 to 10, only pictures: "
        "compared is what its text says of them",
        f"discovery: the paper prints {low:.0f} to {high:.0f} ms and an unnamed number of topics; here it is one. "
        f"A key and a token: it prints {token.MEAN} ms with a deviation of {token.DEVIATION} ms, of 100 requests with "
        f"a 256-bit key; here {len(found.tokens)} requests",
        f"{KINDS[-1]}: {said}",
        "the broker looks for work every millisecond, and everything is durable at the broker before it is answered "
        "or delivered; of its own, the paper does not say so",
        f"{RULE}; the whole run took {seconds:.0f} seconds",
    ]


def _panel(delays: Mapping[Case, Delay]) -> Panel:
    lines = []
    for kind in KINDS:
        mine = {payload: 1e3 * each.whole.mean for (of, payload), each in delays.items() if of == kind}
        lines.append(Curve(f"figure {FIGURE[kind]}: {kind}", list(mine), list(mine.values())))
    return Panel("transit on four hosts", "bytes of payload", "milliseconds, wall clock", lines, log_x=True)
