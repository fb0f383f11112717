"""What a topic whose brokers cannot read is made with: how many layers, in which group (paper 001).

Both are for good: another number of layers is another topic. More layers ask more of who would collude, r brokers in a
row, and cost as many keys and as long a way down before an event is routed by anyone but the publisher.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sealcast.errors import ParameterRejected

if TYPE_CHECKING:
    from sealcast.primitives.groups import Group

#: The name of the protection.
LAYERED: Final = "layered"
MIN_LAYERS: Final = 2
MAX_LAYERS: Final = 16
DEFAULT_LAYERS: Final = 2
DEFAULT_GROUP: Final = "secp256k1"
#: By the names that the groups have themselves; the curve is some hundred times as fast as the others.
GROUPS: Final = (DEFAULT_GROUP, "modp-2048", "modp-3072")


@dataclass(frozen=True, slots=True)
class Layering:
    """How a layered topic encrypts."""

    layers: int = DEFAULT_LAYERS
    group: str = DEFAULT_GROUP
    #: Whether every event gets as many labels as the schema allows, so that their number tells a root nothing.
    padded: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.layers, bool) or not isinstance(self.layers, int):
            raise ParameterRejected("layers", f"a number of layers is a whole number, not {self.layers!r}")
        if not MIN_LAYERS <= self.layers <= MAX_LAYERS:
            raise ParameterRejected(
                "layers",
                f"a topic has {MIN_LAYERS} to {MAX_LAYERS} layers, not {self.layers}",
                hint="one layer would let the broker next door read; 2 is what the protection was designed with",
            )
        if not isinstance(self.padded, bool):
            raise ParameterRejected("padded", f"events are padded or not, not {self.padded!r}")
        if self.group not in GROUPS:
            raise ParameterRejected(
                "group",
                f"there is no group {self.group!r} to encrypt in",
                hint=f"groups are {', '.join(GROUPS)}; {DEFAULT_GROUP} is the fast one",
            )

    @property
    def algebra(self) -> Group:
        """The group itself."""
        # Not before: every command reads the registry, and few of them ever compute a power.
        from sealcast.primitives import modular
        from sealcast.primitives.curve import CURVE

        return CURVE if self.group == CURVE.name else modular.NAMES[self.group]()

    def to_json(self) -> dict[str, object]:
        return {"layers": self.layers, "group": self.group, "padded": self.padded}

    @classmethod
    def from_json(cls, body: Mapping[str, Any] | None) -> Layering | None:
        """What `to_json` wrote; None for topics that have none."""
        return None if body is None else cls(**body)
