"""A secret for every day, and a way to forget the days before one: what lies on disk then gives none of them.

A binary tree over days. The root gives every day, a node those below it, and a node follows from the one above it and
from nothing else:

    node(path + bit) = derive(node(path), bit)        a day's secret is the leaf of its number, in 16 steps

To forget the days before one, the nodes above it are replaced by those that cover the days from it on: at most 16. No
node that is left gives a day that was forgotten, unless the derivation can be turned around. A copy from before gives
them, and also all that are to come: copies of one tree agree, however far each has forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sealcast.errors import Misuse, NotFound
from sealcast.primitives import kdf
from sealcast.primitives.secrets import Secret, Unpicklable

DAY_US: Final = 86_400_000_000
#: Days since 1970, in bits: until 2149.
_BITS: Final = 16


def day_of(time_us: int) -> int:
    """The number of the day that a time is in."""
    day = time_us // DAY_US
    if not 0 <= day < 1 << _BITS:
        raise Misuse(f"{time_us} microseconds since 1970 is no time that keys are made at", hint="set the clock right")
    return day


class DayTree(Unpicklable):
    """The secrets of days that were not forgotten."""

    def __init__(self, nodes: Mapping[str, Secret]) -> None:
        """`nodes` by their paths, a bit a character; the root's is empty. None is below another."""
        self._nodes = dict(nodes)

    @classmethod
    def generate(cls) -> DayTree:
        return cls({"": Secret.random()})

    def secret(self, day: int) -> Secret:
        """NotFound for one that was forgotten."""
        leaf = format(day, f"0{_BITS}b")
        for path, node in self._nodes.items():
            if leaf.startswith(path):
                return _down(node, leaf[len(path) :])
        raise NotFound("the secret of that day was forgotten")

    @property
    def begins(self) -> int:
        """The first day that was not forgotten."""
        return min(int(path.ljust(_BITS, "0"), 2) for path in self._nodes)

    def since(self, day: int) -> DayTree:
        """The tree without the days before one."""
        kept = dict[str, Secret]()
        for path, node in self._nodes.items():
            kept |= _from(path, node, day)
        return DayTree(kept)

    def fields(self) -> dict[str, str]:
        """For a key file, and nothing else."""
        return {path: node.reveal().hex() for path, node in self._nodes.items()}

    @classmethod
    def from_fields(cls, body: Mapping[str, str]) -> DayTree:
        """ValueError for what is no tree."""
        if not body or any(len(path) > _BITS or set(path) - {"0", "1"} for path in body):
            raise ValueError("no tree of days")
        return cls({path: Secret(bytes.fromhex(node)) for path, node in body.items()})


def _down(node: Secret, bits: str) -> Secret:
    for bit in bits:
        node = kdf.derive(node, b"days below", bit.encode())
    return node


def _from(path: str, node: Secret, day: int) -> dict[str, Secret]:
    """What covers the days of one node that are not before a day."""
    first, last = int(path.ljust(_BITS, "0"), 2), int(path.ljust(_BITS, "1"), 2)
    if first >= day:
        return {path: node}
    if last < day:
        return {}
    return _from(path + "0", _down(node, "0"), day) | _from(path + "1", _down(node, "1"), day)
