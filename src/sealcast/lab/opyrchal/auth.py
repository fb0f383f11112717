"""What paper 000 leaves to the future: what integrity and sender authentication cost in throughput.

Each step adds one thing to the one before it, but for the last two, of which either is the sender's signature:

    confidentiality    AES-256-CTR: nobody else reads an event, anybody alters it
    integrity          AES-256-GCM: nobody without the key alters it
    commitment         and a ciphertext opens under one key only (primitives/aead.py)
    batch signature    and the publisher signed it: one Ed25519 signature over the Merkle root of a frame of events
    event signature    the same with a signature an event

What three parties do is measured:

    publisher    seals each event to the broker under a key that is expanded already, and signs
    broker       checks the signature, seals each event under a content key of its own and wraps that under the keys
                 of the group
    subscriber   unwraps the content key, opens the event and checks the signature; it gets one event in ten, and
                 verifies a frame's signature once

CPU time of one core, through the primitives that the pipeline uses; matching, planning and the log are left out, so
that shares of the whole are smaller than here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Final

from sealcast.errors import Bug
from sealcast.lab.opyrchal.measure import cpu_seconds
from sealcast.lab.points import run_all
from sealcast.lab.report import Curve, Panel, Report, Row, Told
from sealcast.primitives import aead, merkle
from sealcast.primitives.aead import KeyRing, SealingKey
from sealcast.primitives.comparison import Unauthenticated, Uncommitted
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey

NAME: Final = "opyrchal/auth"
STEPS: Final = ("confidentiality", "integrity", "commitment", "batch signature", "event signature")
#: The steps before commitments, and what they seal with.
WITHOUT: Final[dict[str, type[Unauthenticated | Uncommitted]]] = {
    "confidentiality": Unauthenticated,
    "integrity": Uncommitted,
}
#: What the others are compared with: nobody would seal without a tag today.
BASE: Final = "integrity"
PARTIES: Final = ("publisher", "broker", "subscriber")
FRAME: Final = 1_000
QUICK_FRAME: Final = 200
#: Of a frame's events, a subscriber gets one in so many.
SHARE: Final = 10
PAYLOADS: Final = (64, 256, 1_024, 4_096, 16_384)
PAYLOAD: Final = 256
#: Mosaic and the clustered cache need 84 and 187 on random groups of a thousand; half of those alone would be 500.
ENCRYPTIONS: Final = (1, 4, 16, 84, 187, 500)
SECONDS: Final = 0.5
QUICK_SECONDS: Final = 0.05
_AAD: Final = b"lab"


@dataclass(frozen=True, slots=True)
class Leg:
    """One point: what a party does for each event of a frame."""

    step: str
    party: str
    payload: int
    encryptions: int
    frame: int
    seconds: float


def measure(leg: Leg) -> float:
    """CPU seconds an event."""
    work, events = {"publisher": _publisher, "broker": _broker, "subscriber": _subscriber}[leg.party](leg)
    return cpu_seconds(work, leg.seconds) / events


Work = tuple[Callable[[], object], int]


# --- the parties ----------------------------------------------------------------------------------------


def _publisher(leg: Leg) -> Work:
    messages, nonces = _messages(leg), _nonces(leg.frame)
    seal = _sealer(leg.step, Secret.random())
    signer = SigningKey.generate()

    def publish() -> None:
        list(map(seal, nonces, messages))
        _sign(leg.step, signer, messages)

    return publish, leg.frame


def _broker(leg: Leg) -> Work:
    messages, nonces = _messages(leg), _nonces(leg.frame)
    signer = SigningKey.generate()
    signatures = _sign(leg.step, signer, messages)
    keys = [Secret.random() for _ in range(leg.encryptions)]
    contents = [Secret.random().reveal() for _ in messages]
    wrap_all = _wrapper(leg.step, keys)

    def serve() -> None:
        _verify_frame(leg.step, signer, messages, signatures)
        _seal_each(leg.step, contents, nonces, messages)
        list(map(wrap_all, nonces, contents))

    return serve, leg.frame


def _subscriber(leg: Leg) -> Work:
    messages, nonces = _messages(leg), _nonces(leg.frame)
    mine = range(0, leg.frame, SHARE)
    signer = SigningKey.generate()
    signatures = _sign(leg.step, signer, messages)
    pair = Secret.random()
    contents = [Secret.random().reveal() for _ in messages]
    wrap_all = _wrapper(leg.step, [pair])
    wraps = [wrap_all(nonce, content)[0] for nonce, content in zip(nonces, contents, strict=True)]
    sealed, commitments = _seal_each(leg.step, contents, nonces, messages)
    unwrap = _opener(leg.step, pair)
    nodes = merkle.build(merkle.hash_messages(messages))
    paths = [merkle.path(nodes, leg.frame, at) for at in range(leg.frame)]
    root = merkle.root(nodes, leg.frame)
    verify = signer.verify_key.verify

    def read() -> None:
        if leg.step == "batch signature" and not verify(root, signatures[0]):
            raise Bug("a root is not signed by whom it was signed by")
        for at in mine:
            content = unwrap(nonces[at], wraps[at])
            message = _open(leg.step, content, nonces[at], sealed[at], commitments[32 * at : 32 * at + 32])
            if leg.step == "event signature":
                good = verify(message, signatures[at])
            elif leg.step == "batch signature":
                (leaf,) = merkle.hash_messages((message,))
                good = merkle.verify(root, leaf, at, leg.frame, paths[at])
            else:
                good = True
            if not good:
                raise Bug("an event is not signed by whom it was signed by")

    return read, len(mine)


# --- what they do, by step ------------------------------------------------------------------------------


def _messages(leg: Leg) -> list[bytes]:
    """A message starts with a zero byte, as those of frames do."""
    return [b"\0" + Secret.random(leg.payload).reveal() for _ in range(leg.frame)]


def _nonces(count: int) -> list[bytes]:
    return aead.each_nonce(0, [0] * count, range(count))


def _sealer(step: str, key: Secret) -> Callable[[bytes, bytes], bytes]:
    """Makes what seals under one key, expanded once."""
    return WITHOUT[step](key).seal if step in WITHOUT else SealingKey(key, _AAD).seal


def _opener(step: str, key: Secret) -> Callable[[bytes, bytes], bytes]:
    """Makes what opens things wrapped under one key, expanded once."""
    if step in WITHOUT:
        return WITHOUT[step](key).open
    ready = SealingKey(key, _AAD)
    return lambda nonce, wrapped: ready.unwrap_many(nonce, (wrapped,))[0]


def _wrapper(step: str, keys: Sequence[Secret]) -> Callable[[bytes, bytes], list[bytes]]:
    """Makes what wraps one small thing under each of several keys, all expanded once."""
    if step == "confidentiality":
        seals = [Unauthenticated(key).seal for key in keys]
        return lambda nonce, content: [seal(nonce, content) for seal in seals]
    if step == "integrity":
        encrypts = [Uncommitted(key).encrypt for key in keys]
        return lambda nonce, content: [encrypt(nonce, content, None) for encrypt in encrypts]
    ring, which = KeyRing([SealingKey(key, _AAD) for key in keys]), range(len(keys))
    return lambda nonce, content: ring.seal_under(which, nonce, content)


def _seal_each(
    step: str, contents: Sequence[bytes], nonces: Sequence[bytes], messages: Sequence[bytes]
) -> tuple[list[bytes], bytes]:
    """Seals every message under a key of its own; the commitments, too, where the step has them."""
    if step in WITHOUT:
        kind = WITHOUT[step]
        return [kind(Secret(k)).seal(n, m) for k, n, m in zip(contents, nonces, messages, strict=True)], b""
    commitments, sealed = aead.seal_each(contents, _AAD, b"".join(nonces), messages)
    return sealed, commitments


def _open(step: str, content: bytes, nonce: bytes, sealed: bytes, commitment: bytes) -> bytes:
    if step in WITHOUT:
        return WITHOUT[step](Secret(content)).open(nonce, sealed)
    return SealingKey(Secret(content), _AAD).open(nonce, commitment, sealed)


def _sign(step: str, signer: SigningKey, messages: Sequence[bytes]) -> list[bytes]:
    if step == "event signature":
        return list(map(signer.sign, messages))
    return [signer.sign(_root(messages))] if step == "batch signature" else []


def _verify_frame(step: str, signer: SigningKey, messages: Sequence[bytes], signatures: Sequence[bytes]) -> None:
    signed = [_root(messages)] if step == "batch signature" else messages
    if not all(map(signer.verify_key.verify, signed, signatures)):
        raise Bug("a frame is not signed by whom it was signed by")


def _root(messages: Sequence[bytes]) -> bytes:
    return merkle.root(merkle.build(merkle.hash_messages(messages)), len(messages))


# --- the experiment -------------------------------------------------------------------------------------

Times = dict[Leg, float]


def legs(quick: bool) -> list[Leg]:
    frame, seconds = (QUICK_FRAME, QUICK_SECONDS) if quick else (FRAME, SECONDS)
    payloads, counts = (PAYLOADS[::2], ENCRYPTIONS[::3]) if quick else (PAYLOADS, ENCRYPTIONS)
    by_payload = [(party, size, 1) for party in PARTIES for size in sorted({*payloads, PAYLOAD})]
    by_count = [("broker", PAYLOAD, count) for count in counts if count != 1]
    return [Leg(step, *rest, frame, seconds) for rest in [*by_payload, *by_count] for step in STEPS]


def run(quick: bool, told: Told) -> Report:
    points = legs(quick)
    found = run_all(points, measure, told, lambda leg: leg.encryptions)
    return report(dict(zip(points, found, strict=True)), quick)


def report(times: Times, quick: bool) -> Report:
    rows = [_row(leg, times) for leg in times]
    panels = [
        *(_panel(f"{party}, one encryption", "payload", times, party=party, encryptions=1) for party in PARTIES),
        _panel(f"broker, {PAYLOAD} bytes", "encryptions", times, party="broker", payload=PAYLOAD),
    ]
    return Report(NAME, rows, True, _notes(times, quick), panels)


def _row(leg: Leg, times: Times) -> Row:
    return {
        "step": leg.step,
        "party": leg.party,
        "payload": leg.payload,
        "encryptions": leg.encryptions,
        "measured": round(1 / times[leg], 1),
        "microseconds": round(1e6 * times[leg], 3),
        "of_integrity": round(_of_integrity(leg, times), 4),
        "agrees": None,
    }


def _of_integrity(leg: Leg, times: Times) -> float:
    return times[replace(leg, step=BASE)] / times[leg]


def _those(times: Times, **fields: object) -> list[Leg]:
    """The points that have these values in these fields."""
    return [leg for leg in times if all(getattr(leg, name) == value for name, value in fields.items())]


def _notes(times: Times, quick: bool) -> list[str]:
    told = ["the paper prints no numbers for this: it is what it leaves to the future"]
    for party, count in (*zip(PARTIES, repeat(1)), ("broker", max(leg.encryptions for leg in times))):
        here = _those(times, party=party, payload=PAYLOAD, encryptions=count)
        shares = ", ".join(f"{leg.step} {_of_integrity(leg, times):.0%}" for leg in here if leg.step != BASE)
        about = f", {count} encryption{'' if count == 1 else 's'} an event" if party == "broker" else ""
        told.append(f"{party}, {PAYLOAD} bytes{about}: of the throughput with AES-GCM alone, {shares}")
    told.append(
        "where confidentiality alone is slower, that is the library, which takes longer to set a CTR key up than "
        "a GCM one (broker and subscriber: a key an event); under a key that is expanded already (publisher) the tag's "
        "own price shows"
    )
    if quick:
        told.append(f"quick: frames of {QUICK_FRAME} events, fewer points, shorter measurements")
    return told


def _panel(title: str, x: str, times: Times, **fields: object) -> Panel:
    label = {"payload": "bytes of payload", "encryptions": "encryptions an event"}[x]
    lines = []
    for step in STEPS:
        mine = sorted((float(getattr(leg, x)), 1 / times[leg]) for leg in _those(times, step=step, **fields))
        lines.append(Curve(step, [at for at, _ in mine], [y for _, y in mine]))
    return Panel(title, label, "events a second of one core", lines, log_x=True, log_y=True)
