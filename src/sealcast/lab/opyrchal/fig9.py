"""Figure 9 of paper 000: messages a second against encryptions per message, and what setting up keys has to do with it.

The paper encrypts eight bytes with DES under a varying number of keys, and says elsewhere that 500 different keys
leave as little as a tenth of the throughput of one. What a message costs is taken apart here:

    one     every encryption under the same expanded key
    kept    every encryption under a key of its own, all of them expanded beforehand
    new     every encryption under a key of its own, expanded for it and thrown away

New less kept is key set-up. With 3DES and AES a message is one block; `sealcast` is what the pipeline does, an event's
content key wrapped with AES-256-GCM under a key that is committed to. Times are CPU times of one core through the
library, from Python: that is what a message costs us, and an overhead that is the same for all ciphers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sealcast.lab.opyrchal.measure import cpu_seconds
from sealcast.lab.points import run_all
from sealcast.lab.report import Curve, Look, Panel, Report, Row, Told
from sealcast.primitives.aead import NONCE_BYTES, KeyRing, SealingKey
from sealcast.primitives.comparison import CIPHERS, BlockCipher
from sealcast.primitives.secrets import Secret

NAME: Final = "opyrchal/fig9"
OURS: Final = "sealcast"
ALL: Final = (*CIPHERS, OURS)
KEYS: Final = ("one", "kept", "new")
ENCRYPTIONS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 350, 500, 1_000)
QUICK: Final = (1, 10, 100, 500)
#: A time agrees with the law if it is within this share of it.
TOLERANCE: Final = 0.25
#: The paper's: so many keys, and the share of one key's throughput that is left.
PAPER_KEYS: Final = 500
PAPER_SHARE: Final = 0.1
#: Encryptions of the clustered cache and of the key tree on random groups, N = 1,000, C = 10,000 (figure 6).
CLUSTERED, KEY_TREE = 187, 359
SECONDS: Final = 0.5
QUICK_SECONDS: Final = 0.1
_NO_DATA: Final = b""


@dataclass(frozen=True, slots=True)
class MeasuredMessage:
    """One point: a message of so many encryptions, with keys as said."""

    cipher: str
    keys: str
    encryptions: int
    seconds: float


def measure(message: MeasuredMessage) -> float:
    """CPU seconds a message."""
    return cpu_seconds(_prepared(message), message.seconds)


def _prepared(message: MeasuredMessage) -> Callable[[], object]:
    different = 1 if message.keys == "one" else message.encryptions
    if message.cipher == OURS:
        return _wrapping(message, [Secret.random() for _ in range(different)])
    key_bytes, block_bytes = CIPHERS[message.cipher]
    keys = [Secret.random(key_bytes) for _ in range(different)]
    block, cipher = Secret.random(block_bytes).reveal(), message.cipher
    if message.keys == "new":
        return lambda: [BlockCipher(cipher, key).encrypt(block) for key in keys]
    ready = [BlockCipher(cipher, key).encrypt for key in keys]
    each = ready * (message.encryptions // len(ready))
    return lambda: [encrypt(block) for encrypt in each]


def _wrapping(message: MeasuredMessage, keys: Sequence[Secret]) -> Callable[[], object]:
    nonce, content = bytes(NONCE_BYTES), Secret.random()
    if message.keys == "new":
        return lambda: [SealingKey(key, _NO_DATA).wrap(nonce, content) for key in keys]
    ring = KeyRing([SealingKey(key, _NO_DATA) for key in keys])
    which = [at % len(keys) for at in range(message.encryptions)]
    raw = content.reveal()
    return lambda: ring.seal_under(which, nonce, raw)


# --- the law --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Law:
    """Seconds a message = fixed + each * encryptions: throughput falls as 1/(a + b e)."""

    fixed: float
    each: float

    def seconds(self, encryptions: float) -> float:
        return self.fixed + self.each * encryptions

    @classmethod
    def fitted(cls, encryptions: Sequence[float], seconds: Sequence[float]) -> Law:
        """Least squares of relative errors: a message of one encryption counts as much as one of a thousand."""
        e, t = np.asarray(encryptions, np.float64), np.asarray(seconds, np.float64)
        (fixed, each), *_ = np.linalg.lstsq(np.column_stack((1 / t, e / t)), np.ones(e.size), rcond=None)
        return cls(float(fixed), float(each))


Times = dict[tuple[str, str, int], float]


def run(quick: bool, told: Told) -> Report:
    seconds = QUICK_SECONDS if quick else SECONDS
    points = [MeasuredMessage(c, k, e, seconds) for c in ALL for k in KEYS for e in (QUICK if quick else ENCRYPTIONS)]
    found = run_all(points, measure, told, lambda point: point.encryptions)
    return report({(p.cipher, p.keys, p.encryptions): t for p, t in zip(points, found, strict=True)}, quick)


def report(times: Times, quick: bool) -> Report:
    """From seconds a message to rows, words and the picture."""
    counts = sorted({e for _, _, e in times})
    laws = {(c, k): Law.fitted(counts, [times[c, k, e] for e in counts]) for c in ALL for k in KEYS}
    rows = [_row(times, laws[c, k], c, k, e) for c, k, e in times]
    notes = [*_shape(times, laws, counts), *_set_up(times, counts), *_NOTES, *(_QUICK_NOTE if quick else [])]
    return Report(NAME, rows, all(row["agrees"] for row in rows), notes, _panels(times, laws, counts))


def _row(times: Times, law: Law, cipher: str, keys: str, encryptions: int) -> Row:
    seconds, computed = times[cipher, keys, encryptions], law.seconds(encryptions)
    set_up = (seconds - times[cipher, "kept", encryptions]) / encryptions if keys == "new" else None
    return {
        "cipher": cipher,
        "keys": keys,
        "encryptions": encryptions,
        "measured": round(1 / seconds, 1),
        "computed": round(1 / computed, 1) if computed > 0 else None,
        "microseconds": round(1e6 * seconds, 3),
        "set_up_microseconds": None if set_up is None else round(1e6 * set_up, 3),
        "agrees": abs(seconds - computed) <= TOLERANCE * seconds,
    }


def _shape(times: Times, laws: dict[tuple[str, str], Law], counts: Sequence[int]) -> list[str]:
    told = []
    for (cipher, keys), law in laws.items():
        worst = max(abs(law.seconds(e) / times[cipher, keys, e] - 1) for e in counts)
        told.append(
            f"{_label(cipher, keys)}: {1e6 * law.fixed:.2f} us a message and {1e6 * law.each:.3f} us an encryption; "
            f"throughput is 1/(a + b e) to within {100 * worst:.0f} %"
        )
    law = laws[OURS, "kept"]
    told.append(
        f"so encryptions are throughput: from {CLUSTERED} (clustered, N = 1,000, random) to {KEY_TREE} (key tree) it "
        f"falls to {law.seconds(CLUSTERED) / law.seconds(KEY_TREE):.2f} of what it was, "
        f"and {CLUSTERED}/{KEY_TREE} is {CLUSTERED / KEY_TREE:.2f}"
    )
    return told


def _set_up(times: Times, counts: Sequence[int]) -> list[str]:
    many = min(counts, key=lambda e: abs(e - PAPER_KEYS))

    def share(cipher: str, keys: str) -> str:
        return f"{100 * times[cipher, 'one', many] / times[cipher, keys, many]:.0f} %"

    return [
        f"{cipher}: {many} different keys leave {share(cipher, 'new')} of one key's throughput where each is set up "
        f"anew, {share(cipher, 'kept')} where they are kept expanded (the paper, DES: as low as {PAPER_SHARE:.0%})"
        for cipher in ALL
    ]


_NOTES: Final = (
    "DES itself is measured nowhere: no library that we use has it any more, and 3DES (which is in a module of the "
    "library for ciphers on their way out) is three passes of it; what the figure says does not depend on the cipher",
    "CPU time of one core, the quickest of several stretches; the paper's was a Pentium III at 550 MHz, so that shapes "
    "are compared and not messages a second",
)
_QUICK_NOTE: Final = ("quick: fewer points, shorter measurements",)


def _label(cipher: str, keys: str) -> str:
    return f"{cipher}, {keys} key" + ("" if keys == "one" else "s")


def _panels(times: Times, laws: dict[tuple[str, str], Law], counts: Sequence[int]) -> list[Panel]:
    throughput = [
        line
        for (c, k), law in laws.items()
        for line in (
            Curve(_label(c, k), counts, [1 / times[c, k, e] for e in counts]),
            Curve(_label(c, k), counts, [1 / law.seconds(e) for e in counts if law.seconds(e) > 0], Look.COMPUTED),
        )
        if len(line.x) == len(line.y)
    ]
    each = [Curve(_label(c, k), counts, [1e6 * times[c, k, e] / e for e in counts]) for c in ALL for k in KEYS]
    x = "encryptions per message"
    return [
        Panel(
            *("throughput", x, "messages a second of one core", throughput),
            log_x=True,
            log_y=True,
            looks={Look.COMPUTED: "1/(a + b e), fitted"},
        ),
        Panel("what an encryption costs", x, "CPU microseconds an encryption", each, log_x=True, log_y=True),
    ]
