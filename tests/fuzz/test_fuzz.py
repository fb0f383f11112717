"""Every fuzzing target, for a moment and without guidance: its corpus, its vectors, and what becomes of them by
mutations. The mutations are the same on every run; how many of them there is time for depends on the machine."""

from __future__ import annotations

import time
from random import Random

import pytest

from sealcast.errors import FrameRejected
from sealcast.wire import cbor, frames
from tests.fuzz import targets

_EDGES = (
    b"\x00",
    b"\x01",
    b"\x17",
    b"\x18",
    b"\x1b",
    b"\x7f",
    b"\x80",
    b"\x9f",
    b"\xbf",
    b"\xf6",
    b"\xff",
    b"\xff" * 8,
    b"\x79\x20\x00" + b"x" * 0x2000,  # a long text, in CBOR
    b'"' + b"y" * 0x2000 + b'"',  # and in JSON or a filter
)


def mutated(data: bytes, others: list[bytes], dice: Random) -> bytes:
    raw = bytearray(data[: 1 << 14])
    for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
        at = dice.randrange(len(raw) + 1)
        match dice.randrange(6):
            case 0 if raw:
                raw[at % len(raw)] ^= 1 << dice.randrange(8)
            case 1:
                raw[at:at] = dice.choice(_EDGES)
            case 2:
                del raw[at : at + dice.choice((1, 2, 8, 64))]
            case 3 if raw:
                raw[at % len(raw)] = dice.choice(dice.choice(_EDGES))
            case 4:
                other = dice.choice(others)
                begin = dice.randrange(len(other) + 1)
                raw[at : at + dice.choice((0, 4, 32))] = other[begin : begin + dice.choice((1, 4, 32, 256))]
            case _:
                raw[at:at] = raw[at : at + dice.choice((1, 8, 32))]
    return bytes(raw)


@pytest.mark.filterwarnings("ignore:Parsed a serial number")  # a hostile certificate; the library says so, too
@pytest.mark.parametrize("seconds", [0.4, pytest.param(10, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", targets.TARGETS)
def test_nothing_but_refusals(name: str, seconds: float) -> None:
    """For so many seconds of processor time."""
    dice, pool = Random(name), [*targets.seeds(name), b"", b"\x80", b"{}", b"a = 1"]
    end, tried = time.process_time() + seconds, 0
    queue = list(pool)
    while time.process_time() < end or tried < len(queue):
        data = queue[tried] if tried < len(queue) else mutated(dice.choice(pool), pool, dice)
        tried += 1
        try:
            targets.run(name, data)
        except Exception as error:
            error.add_note(f"{name}: {data.hex()}")
            raise
    assert tried > len(queue)


def test_the_targets_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that takes a second spelling, one that fails in another way, one that repeats what it was given, and a
    batch that reads what one does not."""

    def echo(data: bytes, **limits: object) -> object:
        raise FrameRejected("frame", f"what is {data.decode()}?")

    with monkeypatch.context() as patch:
        patch.setattr(cbor, "decode", echo)
        with pytest.raises(AssertionError):
            targets.run("cbor", b"x" * 3_000)
    with monkeypatch.context() as patch:
        patch.setattr(cbor, "decode", lambda data, **limits: 0)
        with pytest.raises(AssertionError):
            targets.run("cbor", b"\x18\x00")
    with monkeypatch.context() as patch:
        patch.setattr(cbor, "decode", lambda data, **limits: [][0])
        with pytest.raises(IndexError):
            targets.run("cbor", b"\x00")
    good = next(data for data in targets.seeds("frame") if frames.parse_many([data]).good[0])

    def refuse(data: bytes) -> object:
        raise FrameRejected("frame", "no")

    monkeypatch.setattr(targets.frame, "parse", refuse)
    with pytest.raises(AssertionError):
        targets.run("frame", good)
