"""`tariq/primitives`: what encrypting, decrypting, signing and verifying cost, for 1 to 16 attributes of 9 labels each.

Paper 003 has four tables of this. The first counts operations; the others give throughput, milliseconds for publishers
and subscribers, and their CPU utilisation, on a curve and a machine of its time. They are pictures in the paper, so
that no number of theirs can be compared. What can be compared is what it says in words, and what its protocol comes to:

    operations   in closed form, and as a pairing that counts them found them
    in words     costs grow in the order of the attributes; verification costs more than signing, as it takes pairings

Forms: `paper` is profile P, with a pairing for each tag and the paper's signature; `paper, cached` remembers pairings;
`A` is our default, with keyed tags and signatures that tell nothing of their signer. Hashed labels are remembered in
all of them, as they are the same for a whole epoch. A share is that of one core at 10 events a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sealcast.lab.report import Curve, Panel, Report, Row, Told, columns
from sealcast.lab.tariq.topic import DEPTH, SchemeTopic, Work, counted, decrypting, encrypting, signing, verifying
from sealcast.primitives.pairing import available, named, random_scalar
from sealcast.protections.attribute.scheme import Profile, PublicParameters, SealOptions, TagKind
from sealcast.protections.attribute.scheme.naming import TAG_M

NAME: Final = "tariq/primitives"
ATTRIBUTES: Final = tuple(range(1, 17))
SOME: Final = (1, 2, 4, 8, 16)
QUICK: Final = (1, 2, 4)
ROUNDS: Final = 7
QUICK_ROUNDS: Final = 2
RATE: Final = 10
LABELS: Final = DEPTH + 1
#: How far a cost may be from a straight line through its neighbours' and still grow in the order of attributes.
NEAR: Final = 0.35
PAPER, CACHED, OURS = "paper", "paper, cached", "A"
#: What is counted, in the order in which it is told.
COUNTED: Final = ("pairing", "power", "times1", "times2")
_STATED: Final = ("cell", "library", "form", "attributes", "printed", "computed", "measured", "agrees")
_cells: Final = columns(*_STATED, "milliseconds", "per second", "share")


@dataclass(frozen=True, slots=True)
class PrimitiveCost:
    """One operation of one form: what it computes, by the closed form and as it was counted, and its CPU seconds."""

    operation: str
    form: str
    library: str
    attributes: int
    computed: Mapping[str, int]
    counted: Mapping[str, int]
    seconds: float


# --- what it should compute -------------------------------------------------------------------------------------------


def closed_form(operation: str, form: str, d: int, powers: bool) -> dict[str, int]:
    """Pairings (Miller loops), GT powers, and multiplications in G1 and G2. Where the library has no GT power, a point
    is multiplied and paired instead."""
    n = LABELS
    match operation, form:
        case "encrypt", "A":
            found = {"power": 1, "times1": d * n + d + 1}
        case "encrypt", "paper":
            found = {"pairing": d * n, "power": 1, "times1": d * n, "times2": 2 * d + 1}
        case "encrypt", _:
            found = {"power": d * n + 1, "times1": d * n, "times2": d + 1}
        case "sign", "paper":
            found = {"times1": d}
        case "sign", _:
            found = {"times1": 2 * d, "times2": 2 * d}
        case "decrypt", _:
            found = {"pairing": 2 * d + 1}
        case _:  # the first equation of a batch is not raised to anything
            found = {"pairing": d + 3, "times1": 2 * d - 1, "times2": d - 1}
    if not powers and (raised := found.pop("power", 0)):
        found["pairing"] = found.get("pairing", 0) + raised
        found["times1"] += raised
    return {name: found[name] for name in COUNTED if found.get(name)}


# --- what it does compute ---------------------------------------------------------------------------------------------


def paper_signing(topic: SchemeTopic) -> Work:
    """S1 = Prp1 + b_i M(message), and nothing else: S2 is Prp2 and S3 is CT_i."""

    def work(parameters: PublicParameters) -> Callable[[], object]:
        pairing = parameters.pairing
        keys = [parameters.equations.own1(one.first) for one in topic.publisher_key.credentials]

        def run() -> object:
            hashed = pairing.hash1(b"message", TAG_M)
            return [pairing.encode1(pairing.plus1(key, pairing.times1(hashed, random_scalar()))) for key in keys]

        return run

    return work


def works(library: str, d: int) -> Iterator[tuple[str, str, SchemeTopic, Work]]:
    """Every operation of every form. The paper's peers know which credential opens an event, so that decryption tests
    no tags: as with ours, where this takes no pairing."""
    names = tuple(f"attribute {number:02}" for number in range(d))
    ours = SchemeTopic(Profile.A, TagKind.KEYED, names, library)
    paper = SchemeTopic(Profile.P, TagKind.PAPER, names, library)
    keyed = SchemeTopic(Profile.P, TagKind.KEYED, names, library)
    yield "encrypt", OURS, ours, encrypting(ours)
    yield "encrypt", PAPER, paper, encrypting(paper, SealOptions(cached_pairings=False))
    if named(library).powers:
        yield "encrypt", CACHED, paper, encrypting(paper)
    yield "sign", OURS, ours, signing(ours)
    yield "sign", PAPER, paper, paper_signing(paper)
    yield "decrypt", OURS, ours, decrypting(ours)
    yield "decrypt", PAPER, keyed, decrypting(keyed)
    yield "verify", OURS, ours, verifying(ours)


def measure(library: str, d: int, rounds: int) -> Iterator[PrimitiveCost]:
    for operation, form, topic, work in works(library, d):
        spent = counted(topic, work)
        found = {name: spent[name] for name in COUNTED if spent[name]}
        ready = work(topic.parameters)
        ready()
        seconds = min(_once(ready) for _ in range(rounds))
        computed = closed_form(operation, form, d, named(library).powers)
        yield PrimitiveCost(operation, form, library, d, computed, found, seconds)


def _once(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


# --- the report -------------------------------------------------------------------------------------------------------


def run(quick: bool, told: Told) -> Report:
    points = [(library, d) for library in available() for d in _attributes(library, quick)]
    found: list[PrimitiveCost] = []
    for done, (library, d) in enumerate(points):
        told(done, len(points))
        found += measure(library, d, QUICK_ROUNDS if quick else ROUNDS)
    told(len(points), len(points))
    return report(found)


def _attributes(library: str, quick: bool) -> Sequence[int]:
    if quick:
        return QUICK
    return ATTRIBUTES if library == "fast" else SOME


def report(found: Sequence[PrimitiveCost]) -> Report:
    rows = [*map(_row, found), *_together(found), *_claims(found)]
    notes = (
        "the paper's tables are pictures without text: `printed` is empty, and closed forms stand in `computed`",
        f"{LABELS} labels an attribute; milliseconds are CPU time of the best round, ratios mean more than times",
        f"share: of one core at {RATE} events a second, each fresh; docs/adr/0020-pairings.md says what reuse saves",
        "pairings are Miller loops: portable multiplies them before one final exponentiation, fast has one for each",
    )
    return Report(NAME, rows, all(bool(row["agrees"]) for row in rows), notes, _panels(found))


def _row(cost: PrimitiveCost) -> Row:
    return _cells(
        cell=f"{cost.operation}, d = {cost.attributes}",
        library=cost.library,
        form=cost.form,
        attributes=cost.attributes,
        computed=_told(cost.computed),
        measured=_told(cost.counted),
        agrees=cost.computed == cost.counted,
        **_times(cost.seconds),
    )


def _times(seconds: float) -> dict[str, object]:
    return {
        "milliseconds": round(seconds * 1e3, 3),
        "per second": round(1 / seconds, 1),
        "share": round(seconds * RATE, 4),
    }


def _told(spent: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in spent.items()) or "nothing"


def _by(found: Sequence[PrimitiveCost], library: str, form: str) -> dict[tuple[str, int], float]:
    """Seconds by operation and attributes; the paper's own form of what it has none of is ours."""
    costs = {(c.operation, c.attributes): c.seconds for c in found if (c.library, c.form) == (library, OURS)}
    return costs | {(c.operation, c.attributes): c.seconds for c in found if (c.library, c.form) == (library, form)}


def _together(found: Sequence[PrimitiveCost]) -> Iterator[Row]:
    """Tables 3 and 4: what an event costs its publisher, and each of its subscribers."""
    for library in dict.fromkeys(cost.library for cost in found):
        for form in (PAPER, OURS):
            seconds = _by(found, library, form)
            for who, parts in (("publisher", ("encrypt", "sign")), ("subscriber", ("decrypt", "verify"))):
                for d in sorted({cost.attributes for cost in found if cost.library == library}):
                    whole = sum(seconds[part, d] for part in parts)
                    yield _cells(
                        cell=f"{who}, d = {d}", library=library, form=form, attributes=d, agrees=True, **_times(whole)
                    )


def _claims(found: Sequence[PrimitiveCost]) -> Iterator[Row]:
    """What the paper says in words."""
    for library in dict.fromkeys(cost.library for cost in found):
        paper = _by(found, library, PAPER)
        counts = sorted({cost.attributes for cost in found if cost.library == library})
        slower = [d for d in counts if paper["verify", d] > paper["sign", d]]
        yield _cells(
            cell="verification costs more than signing",
            library=library,
            form=PAPER,
            printed="the cost of verification is high",
            measured=f"for {len(slower)} of {len(counts)} numbers of attributes",
            agrees=slower == counts,
        )
        for operation in ("encrypt", "decrypt"):
            low, high = counts[0], counts[-1]
            grown = paper[operation, high] / paper[operation, low]
            computed = _grown(operation, low, high, named(library).powers)
            yield _cells(
                cell=f"{operation}: d = {high} over d = {low}",
                library=library,
                form=PAPER,
                printed="in the order of subscribed attributes",
                computed=f"{computed:.2f}",
                measured=f"{grown:.2f}",
                agrees=abs(grown / computed - 1) <= NEAR,
            )


def _grown(operation: str, low: int, high: int, powers: bool) -> float:
    """How many times as many pairings one has as the other."""
    many, few = (closed_form(operation, PAPER, d, powers)["pairing"] for d in (high, low))
    if operation == "decrypt" and not powers:
        many, few = many + _FINAL, few + _FINAL
    return many / few


#: What a final exponentiation costs beside a Miller loop where there is one for the whole product: it does not grow.
_FINAL: Final = 2


def _panels(found: Sequence[PrimitiveCost]) -> list[Panel]:
    def lines(library: str) -> list[Curve]:
        kinds = dict.fromkeys((cost.operation, cost.form) for cost in found if cost.library == library)
        curves = []
        for operation, form in kinds:
            own = [c for c in found if (c.library, c.operation, c.form) == (library, operation, form)]
            label = f"{operation}, {form}"
            curves.append(Curve(label, [c.attributes for c in own], [c.seconds * 1e3 for c in own]))
        return curves

    return [
        Panel(f"cost, {library} library", "attributes d", "CPU milliseconds", lines(library), log_x=True, log_y=True)
        for library in dict.fromkeys(cost.library for cost in found)
    ]
