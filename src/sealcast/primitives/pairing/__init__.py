"""The pairing-friendly curve BLS12-381: the only door to the libraries that compute on it.

port       Pairing: the groups, the pairing, hashing and checked bytes, whichever library is behind it
fast       through mcl, where it has a wheel
portable   through arkworks, everywhere
counted    either, counting what is computed

Both give the same bytes. Which one is here makes no difference but speed.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Final

from sealcast.errors import NotFound, extras_named
from sealcast.primitives.pairing.port import (
    G1,
    G1_BYTES,
    G2,
    G2_BYTES,
    ORDER,
    Pairing,
    PointRejected,
    Target,
    inverse,
    random_scalar,
)

__all__ = [
    "G1",
    "G1_BYTES",
    "G2",
    "G2_BYTES",
    "NAMES",
    "ORDER",
    "Pairing",
    "PointRejected",
    "Target",
    "available",
    "best",
    "inverse",
    "named",
    "random_scalar",
]

#: Both, the one to prefer first.
NAMES: Final = ("fast", "portable")


@cache
def named(name: str) -> Pairing:
    """The pairing of that name; MissingExtra where its library is not installed."""
    with extras_named():
        match name:
            case "fast":
                from sealcast.primitives.pairing.fast import Fast

                return Fast()
            case "portable":
                from sealcast.primitives.pairing.portable import Portable

                return Portable()
    raise NotFound(f"there is no pairing {name!r}", hint=f"there are {' and '.join(NAMES)}")


def available() -> tuple[str, ...]:
    """The names of those that can be had here, the one to prefer first: mcl has no wheel for every platform."""
    return NAMES if find_spec("pymcl") is not None else NAMES[1:]


def best() -> Pairing:
    """The fastest that is installed here."""
    return named(available()[0])
