"""Figures 4 to 10 of paper 004: what one message takes from publisher to subscriber, with and without its security.

One publisher, one broker, one subscriber and one message at a time, as in the paper; payloads of 1 byte to 64 KiB, AES
keys of 128, 192 and 256 bits, and the same path in the clear (`plain`); and, as the paper has it, payloads that the
publisher seals and no broker opens (`payload`). Each case is run 15 times, all cases in turn so
that they see the same machine; outliers are left out (`samples`).

    publisher    checks and encodes the event, seals it, signs it, adds its token, and appends it durably
    broker       checks token and signature, opens it, matches it, seals it for its group, and commits it durably
    subscriber   finds it, opens it, verifies the publisher's signature

A party's overhead is its time with security less its time without. Time is CPU time: all parties are in one process on
one machine, so that nothing waits for anything but the processor, and neither a network nor a disk, nor whoever else
uses the machine, hides what security costs. The paper's milliseconds are of other machines and a network, and its
figures are pictures without a table: what is compared is what its text says of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import combinations, product
from math import hypot
from typing import Final

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Bug
from sealcast.lab import scratch
from sealcast.lab.opyrchal.measure import cpu_seconds
from sealcast.lab.pallickara.broker import LabBroker
from sealcast.lab.pallickara.plain import PlainPath
from sealcast.lab.pallickara.samples import RULE, Sample, sample, within, without_outliers
from sealcast.lab.report import Curve, Panel, Report, Row, Told, columns
from sealcast.model.event import Event
from sealcast.model.protection import Endpoint, Payload, Protection
from sealcast.model.schema import Schema
from sealcast.primitives.aead import NONCE_BYTES, SealingKey
from sealcast.primitives.secrets import Secret
from sealcast.protections.frame_steps import MatchingStep
from sealcast.protections.steps import StepName
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.parameters import KeyParameters

NAME: Final = "pallickara/end-to-end"
SCHEMA: Final = Schema.from_json({"attributes": [{"name": "number", "type": "int", "min": 0}]})
FILTER: Final = "number >= 0"
BITS: Final = (128, 192, 256)
PLAIN: Final = "no security"
KINDS: Final = (PLAIN, *(f"AES-{bits}" for bits in BITS))
#: Beside the paper's figures, which do not say who opens what on the way: its own protection of payloads.
SEALED: Final = f"payload, AES-{BITS[-1]}"
MEASURED: Final = (*KINDS, SEALED)
#: Which of the paper's figures shows a kind's delay.
FIGURE: Final = {PLAIN: 4, "AES-128": 5, "AES-192": 7, "AES-256": 9}
PARTIES: Final = ("publisher", "broker", "subscriber")
PAYLOADS: Final = tuple(2**n for n in range(17))
QUICK_PAYLOADS: Final = PAYLOADS[::4]
RUNS: Final = 15
WARM: Final = 2
#: A difference is one if it is more than this many of its standard errors.
ERRORS: Final = 2.0
CIPHER_SECONDS: Final = 0.2
_ROOM: Final = 256 << 20

#: CPU seconds of each party, run by run.
Runs = Sequence[tuple[float, float, float]]
#: (kind, bytes of payload)
Case = tuple[str, int]
Send = Callable[[Event], tuple[float, float, float]]
_cells: Final = columns(
    *("cell", "payload", "printed", "measured", "of", "deviation", *PARTIES),
    *(*(f"{party}_overhead" for party in PARTIES), "left_out", "agrees"),
)


# --- one message ----------------------------------------------------------------------------------------


def _secured(realm: Realm, topic: str, open_: ExitStack) -> Send:
    publisher = open_.enter_context(Publisher(realm, topic, "publisher"))
    broker = open_.enter_context(LabBroker(realm, topic))
    subscriber = open_.enter_context(Subscriber(realm, topic, "subscriber"))
    return _way(publisher.publish_one, broker.turn, lambda: [event.payload for event in subscriber.poll(1)])


def _way(publish: Callable[[Event], object], turn: Callable[[], object], read: Callable[[], list[bytes]]) -> Send:
    def send(event: Event) -> tuple[float, float, float]:
        began = time.process_time()
        publish(event)
        published = time.process_time()
        turn()
        delivered = time.process_time()
        got = read()
        opened = time.process_time()
        if got != [event.payload]:  # a measurement of something that does not work measures nothing
            raise Bug("what the lab's subscriber opened is not what its publisher published")
        return published - began, delivered - published, opened - delivered

    return send


def ways(realm: Realm, open_: ExitStack) -> dict[str, Send]:
    """Prepares a way for a message of each kind, all of them in one realm."""
    realm.enrol_many(["publisher", "subscriber"])
    made: dict[str, Send] = {}
    topics: list[tuple[str, str, int, Protection]] = [(f"AES-{bits}", f"aes-{bits}", bits, Endpoint()) for bits in BITS]
    for kind, topic, bits, protection in (*topics, (SEALED, "payload", BITS[-1], Payload())):
        realm.create_topic(
            topic, SCHEMA, parameters=KeyParameters(key_bits=bits), protection=protection, access="members"
        )
        realm.subscribe(topic, "subscriber", FILTER)
        made[kind] = _secured(realm, topic, open_)
    step = MatchingStep.of(StepName(str(realm.paths.root), f"aes-{BITS[0]}"))
    table = step.at(step.version()).table
    plain = open_.enter_context(PlainPath(realm.paths.root / "plain", SCHEMA, table))
    return {PLAIN: _way(plain.publish, plain.turn, plain.read), **made}


def measure(payloads: Sequence[int], runs: int, told: Told) -> dict[Case, Runs]:
    """Measures all cases in turn, again and again: a machine that is busy for a while is so for all of them."""
    found: dict[Case, list[tuple[float, float, float]]] = {case: [] for case in product(MEASURED, payloads)}
    bodies = {payload: Secret.random(payload).reveal() for payload in payloads}
    with scratch.realm(_ROOM) as realm, ExitStack() as open_:
        send, number = ways(realm, open_), 0
        for run in range(-WARM, runs):
            for payload in payloads:
                # Whoever comes first finds colder caches than the next: everyone does, in turn.
                turn = number % len(MEASURED)
                for kind in (*MEASURED[turn:], *MEASURED[:turn]):
                    spent = send[kind](Event({"number": number}, bodies[payload]))
                    if run >= 0:
                        found[kind, payload].append(spent)
                number += 1
            told(max(0, run + 1), runs)
    return dict(found)


# --- the cipher alone -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cipher:
    """CPU seconds to seal and to open a payload, under a key that is expanded already."""

    bits: int
    payload: int
    seconds: float


def cipher(bits: int, payload: int, seconds: float) -> Cipher:
    key, nonce, body = SealingKey(Secret.random(), b"lab", bits), bytes(NONCE_BYTES), Secret.random(payload).reveal()

    def both() -> None:
        key.open(nonce, key.commitment, key.seal(nonce, body))

    return Cipher(bits, payload, cpu_seconds(both, seconds))


# --- the report -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Delay:
    """One case: seconds in all, and of each party."""

    whole: Sample
    party: Mapping[str, Sample]


def delay(runs: Runs) -> Delay:
    """The means of a case. A run is left out as a whole, by how long the message took in all."""
    totals = [sum(run) for run in runs]
    kept = set(within(totals))
    good = [run for run, total in zip(runs, totals, strict=True) if total in kept]
    return Delay(without_outliers(totals), {name: sample([run[i] for run in good]) for i, name in enumerate(PARTIES)})


def run(quick: bool, told: Told) -> Report:
    payloads = QUICK_PAYLOADS if quick else PAYLOADS
    found = measure(payloads, RUNS, told)
    seconds = CIPHER_SECONDS / 10 if quick else CIPHER_SECONDS
    return report(found, [cipher(bits, payload, seconds) for bits in BITS for payload in (payloads[0], payloads[-1])])


def report(found: Mapping[Case, Runs], ciphers: Sequence[Cipher]) -> Report:
    delays = {case: delay(runs) for case, runs in found.items()}
    payloads = sorted({payload for _, payload in found})
    said = claims(delays, payloads)
    rows = [*said, *(_row(case, delays) for case in delays), *map(_cipher_row, ciphers)]
    return Report(NAME, rows, all(row["agrees"] for row in said), _notes(delays, payloads, ciphers), _panels(delays))


def claims(delays: Mapping[Case, Delay], payloads: Sequence[int]) -> list[Row]:
    """What the paper's text says of its figures, and whether it holds."""
    return [_secured_costs_more(delays, payloads), _larger_keys(delays, payloads)]


def _claim(words: str, holds: int, of: int, agrees: bool) -> Row:
    """The row of a claim in the paper's text: in how many of the cases that could be checked it holds."""
    return _cells(cell=words, printed=None, measured=holds, of=of, agrees=agrees)


def _row(case: Case, delays: Mapping[Case, Delay]) -> Row:
    kind, payload = case
    mine, plain = delays[case], delays[PLAIN, payload]
    overheads = {f"{p}_overhead": _ms(mine.party[p].mean - plain.party[p].mean) for p in PARTIES}
    return _cells(
        cell=f"figure {FIGURE[kind]}: {kind}" if kind in FIGURE else kind,
        payload=payload,
        measured=_ms(mine.whole.mean),
        deviation=_ms(mine.whole.deviation),
        **{p: _ms(mine.party[p].mean) for p in PARTIES},
        **(overheads if kind != PLAIN else {}),
        left_out=mine.whole.outliers,
    )


def _cipher_row(found: Cipher) -> Row:
    return _cells(cell=f"AES-{found.bits} alone, CPU", payload=found.payload, measured=round(1e3 * found.seconds, 6))


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 4)


def _secured_costs_more(delays: Mapping[Case, Delay], payloads: Sequence[int]) -> Row:
    cases = list(product(KINDS[1:], payloads))
    holds = sum(delays[kind, p].whole.mean > delays[PLAIN, p].whole.mean for kind, p in cases)
    return _claim("delivery costs more with security than without", holds, len(cases), holds == len(cases))


def _larger_keys(delays: Mapping[Case, Delay], payloads: Sequence[int]) -> Row:
    pairs = [(small, large, p) for small, large in combinations(KINDS[1:], 2) for p in payloads]
    holds = sum(not dearer(delays[large, p].whole, delays[small, p].whole) for small, large, p in pairs)
    words = "a larger AES key does not necessarily cost more"
    return _claim(words, holds, len(pairs), 2 * holds > len(pairs))


def dearer(one: Sample, other: Sample) -> bool:
    """Is a mean above another by more than chance explains?"""
    return one.mean - other.mean > ERRORS * hypot(one.error, other.error)


def _notes(delays: Mapping[Case, Delay], payloads: Sequence[int], ciphers: Sequence[Cipher]) -> list[str]:
    least, most = payloads[0], payloads[-1]
    runs = delays[PLAIN, least].whole
    told = [
        "milliseconds of CPU time; the figures are pictures, the text prints no number of them, and machines, network "
        "and signatures (1024-bit RSA with SHA-1 there, Ed25519 here) are others: compared is what the text says",
        f"{runs.kept + runs.outliers} runs a case; {RULE}; "
        f"of all runs {sum(d.whole.outliers for d in delays.values())} were",
        "a larger key counts as dearer where its mean is above by more than "
        f"{ERRORS:.0f} standard errors of the difference; the claim holds if it does in most pairs",
    ]
    for payload in (least, most):
        plain = delays[PLAIN, payload].whole.mean
        for kind in (k for k in (KINDS[1], KINDS[-1], SEALED) if (k, payload) in delays):
            mine = delays[kind, payload]
            extra = {p: mine.party[p].mean - delays[PLAIN, payload].party[p].mean for p in PARTIES}
            shares = ", ".join(f"{p} {extra[p] / sum(extra.values()):.0%}" for p in PARTIES)
            told.append(
                f"{_bytes(payload)}, {kind}: {_ms(mine.whole.mean)} ms against {_ms(plain)} ms without security; "
                f"of what it adds, {shares}"
            )
    biggest = [c for c in ciphers if c.payload == max(c.payload for c in ciphers)]
    alone = ", ".join(f"{1e6 * c.seconds:.1f} us with {c.bits} bits" for c in biggest)
    share = biggest[-1].seconds / delays[KINDS[-1], most].whole.mean
    told.append(
        f"the cipher alone, to seal and open {_bytes(most)} once, takes {alone}: with the largest key "
        f"{share:.2%} of what the message takes, so that a difference between keys cannot be seen there"
    )
    told.append("what security adds is more than ciphers: signatures, replay windows, groups and keys for them, proofs")
    return told


def _bytes(count: int) -> str:
    return f"{count >> 10} KiB" if count >= 1024 else f"{count} byte{'' if count == 1 else 's'}"


# --- pictures -------------------------------------------------------------------------------------------


def _panels(delays: Mapping[Case, Delay]) -> list[Panel]:
    panels = []
    for kind in KINDS:
        panels.append(_delay_panel(kind, delays))
        if kind != PLAIN:
            panels.append(_overhead_panel(kind, delays))
    kinds = dict.fromkeys(kind for kind, _ in delays)
    every = [_line(kind, {p: d.whole.mean for (k, p), d in delays.items() if k == kind}) for kind in kinds]
    return [
        panels[0],
        Panel("figures 4, 5, 7 and 9 together", _X, _Y, every, log_x=True),
        *panels[1:],
    ]


_X: Final = "bytes of payload"
_Y: Final = "milliseconds of CPU time"


def _delay_panel(kind: str, delays: Mapping[Case, Delay]) -> Panel:
    mine = {p: d.whole for (k, p), d in delays.items() if k == kind}
    lines = [
        _line("mean", {p: s.mean for p, s in mine.items()}),
        _line("standard deviation", {p: s.deviation for p, s in mine.items()}),
    ]
    return Panel(f"figure {FIGURE[kind]}: end to end, {kind}", _X, _Y, lines, log_x=True)


def _overhead_panel(kind: str, delays: Mapping[Case, Delay]) -> Panel:
    mine = {p: d for (k, p), d in delays.items() if k == kind}
    lines = [
        _line(party, {p: d.party[party].mean - delays[PLAIN, p].party[party].mean for p, d in mine.items()})
        for party in PARTIES
    ]
    return Panel(f"figure {FIGURE[kind] + 1}: overhead, {kind}", _X, _Y, lines, log_x=True)


def _line(label: str, points: Mapping[int, float]) -> Curve:
    return Curve(label, list(points), [1e3 * y for y in points.values()])
