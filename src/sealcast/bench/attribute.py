"""Suite `attribute`: what the attribute protection's scheme costs, with the fast pairing library, d = 4 attributes of 9
labels (L = 8), profile A and keyed tags unless it says otherwise.

    decrypt          opening an event, from its bytes to its key, over the library's own calls that this takes
    verify           verifying an event's signature, likewise
    encrypt          making a header as the paper does (profile P, a pairing for each tag) over making ours
    encrypt-cached   the same over the paper's tags with remembered pairings, raised to a power
    route            testing a child's token with the paper's tags over testing ours, 11 tokens an event
    publish          sealing at its fastest (headers reused, frames of 1,000, one signature of a session's key each),
                     over an AEAD call for each payload; the share of reused headers is printed. Included: headers and
                     the session's certificate when they are first made, the hash tree and the session's signature of
                     each frame, and the seal of each event. Not included: labels of values, records, the frame's own
                     signature and the log, which every protection has (suite `pipeline`)

Library calls are counted while the work is done once, and then made again as often, and nothing else. `cores` is in
`attribute_cores`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from sealcast.bench.report import BenchRow, side_by_side
from sealcast.errors import Unavailable
from sealcast.lab.market import zipf
from sealcast.lab.tariq.topic import (
    EPOCH,
    SchemeTopic,
    Work,
    counted,
    decrypting,
    encrypting,
    labels,
    verifying,
)
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.pairing import available, random_scalar
from sealcast.primitives.secrets import Secret
from sealcast.protections.attribute import scheme
from sealcast.protections.attribute.scheme import (
    EventHeader,
    Profile,
    RoutingToken,
    SealOptions,
    TagKind,
)

ROUNDS: Final = 15
#: As many as a peer has children in the largest overlay of the paper: log2 of 2,048.
TOKENS: Final = 11
FRAME_EVENTS: Final = 1_000
FRAMES: Final = 100
LABEL_SETS: Final = 100
SKEW: Final = 1.1


def rows() -> Iterator[BenchRow]:
    """Unavailable where the fast library has no package: its calls are what everything is measured beside."""
    if "fast" not in available():
        raise Unavailable(
            "suite 'attribute' measures beside the fast pairing library, which is not installed here",
            hint="pymcl has packages for Python 3.11 and 3.12, on Linux with x86-64, macOS and Windows: run it there",
        )
    yield decrypt_row()
    yield verify_row()
    yield encrypt_row()
    yield encrypt_cached_row()
    yield route_row()
    yield publish_row()


# --- the library's own calls ------------------------------------------------------------------------------------------


def bare(spent: Mapping[str, int]) -> Callable[[], None]:
    """As many calls of the libraries themselves."""
    import pymcl
    from py_arkworks_bls12381 import G1Point

    k = pymcl.Fr.deserialize(random_scalar().to_bytes(32, "little"))
    left, right = pymcl.g1 * k, pymcl.g2 * k
    one, two, target = left.serialize(), right.serialize(), pymcl.pairing(left, right)
    calls: dict[str, Callable[[], Any]] = {
        "pairing": lambda: pymcl.pairing(left, right),
        "times1": lambda: left * k,
        "times2": lambda: right * k,
        "plus1": lambda: left + left,
        "plus2": lambda: right + right,
        "decode1": lambda: pymcl.G1.deserialize(one),
        "decode2": lambda: pymcl.G2.deserialize(two),
        "encode1": left.serialize,
        "encode2": right.serialize,
        "power": lambda: target**k,
        "hash1": lambda: G1Point.hash_to_curve(one, b"a tag of the bench"),
    }
    plan = [(calls[name], count) for name, count in spent.items() if name != "product"]

    def run() -> None:
        for call, count in plan:
            for _ in range(count):
                call()

    return run


def told(spent: Mapping[str, int]) -> str:
    return "the library's own calls: " + ", ".join(
        f"{count} {name}" for name, count in sorted(spent.items()) if name != "product" and count
    )


def _over_bare(name: str, topic: SchemeTopic, work: Work, rounds: int) -> BenchRow:
    spent = counted(topic, work)
    ours, reference = side_by_side(work(topic.parameters), bare(spent), rounds, min)
    return BenchRow(name, ours * 1e3, reference * 1e3, told(spent), ours / reference, "ms per event")


def decrypt_row(rounds: int = ROUNDS) -> BenchRow:
    topic = SchemeTopic()
    return _over_bare("decrypt", topic, decrypting(topic), rounds)


def verify_row(rounds: int = ROUNDS) -> BenchRow:
    topic = SchemeTopic()
    return _over_bare("verify", topic, verifying(topic), rounds)


# --- against the paper's form -----------------------------------------------------------------------------------------


def encrypt_row(rounds: int = ROUNDS) -> BenchRow:
    return _over_paper("encrypt", SchemeTopic(), SealOptions(), rounds)


def encrypt_cached_row(rounds: int = ROUNDS) -> BenchRow:
    return _over_paper("encrypt-cached", SchemeTopic(Profile.P, TagKind.PAPER), SealOptions(), rounds)


def _over_paper(name: str, topic: SchemeTopic, options: SealOptions, rounds: int) -> BenchRow:
    """Hashed labels are remembered on both sides: they are the same for every event of an epoch."""
    paper = SchemeTopic(Profile.P, TagKind.PAPER)
    ours, reference = side_by_side(
        encrypting(topic, options)(topic.parameters),
        encrypting(paper, SealOptions(cached_pairings=False))(paper.parameters),
        rounds,
        min,
    )
    what = "the paper's tags, a pairing each"
    return BenchRow(name, ours * 1e3, reference * 1e3, what, reference / ours, "ms per header")


def route_row(events: int = 40, rounds: int = ROUNDS) -> BenchRow:
    """Headers come as bytes, and every token is tried."""

    def testing(topic: SchemeTopic, events: int) -> Callable[[], object]:
        headers = [topic.sealer().new_header(topic.labels(i)).raw for i in range(events)]
        name = topic.attributes[0]
        tokens: list[RoutingToken] = topic.master.tokens(EPOCH, {name: [labels(i)[-1] for i in range(TOKENS)]})
        return lambda: scheme.route_many(topic.parameters, tokens, list(map(EventHeader.parse, headers)))

    few = max(1, events // 40)
    keyed, paper = SchemeTopic(), SchemeTopic(Profile.A, TagKind.PAPER)
    ours, reference = side_by_side(testing(keyed, events), testing(paper, few), rounds, min)
    ours, reference = ours / (events * TOKENS) * 1e6, reference / (few * TOKENS) * 1e6
    return BenchRow("route", ours, reference, "the paper's tags, a pairing each", reference / ours, "us per token")


# --- publishing -------------------------------------------------------------------------------------------------------


def publish_row(frames: int = FRAMES, sets: int = LABEL_SETS) -> BenchRow:
    """A sealer from its first event on: headers and the session's certificate are made while it is measured. Events
    come with their labels, and go no further than to their sealed bytes."""
    topic = SchemeTopic()
    known = [topic.event(i) for i in range(sets)]
    topic.sealer().seal(known[:1])  # tables of the label hash, made once for a topic
    drawn = zipf(np.random.default_rng(7), sets, (frames * FRAME_EVENTS,), SKEW).tolist()
    events = [known[i] for i in drawn]
    plain = SealingKey(Secret.random(), b"bench")
    options, hits = SealOptions(reuse=sets, session=True), list[float]()

    def publish() -> None:
        sealer = topic.sealer(options)
        for at in range(0, len(events), FRAME_EVENTS):
            sealer.seal(events[at : at + FRAME_EVENTS])
        hits.append(sealer.hits / (sealer.hits + sealer.misses))

    def seal() -> None:
        for number, event in enumerate(events):
            plain.seal(number.to_bytes(12, "big"), event.payload)

    ours, reference = side_by_side(publish, seal, rounds=3)
    ours, reference = ours / len(events) * 1e6, reference / len(events) * 1e6
    what = f"plain AEAD; {hits[-1]:.2%} of events reuse a header"
    return BenchRow("publish", ours, reference, what, ours / reference, "us per event")
