"""The groups that commutative encryption computes in, by name."""

from __future__ import annotations

from sealcast.primitives import modular
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import Group


def group_named(name: str) -> Group:
    """KeyError for a name that no group has."""
    return CURVE if name == CURVE.name else modular.NAMES[name]()
