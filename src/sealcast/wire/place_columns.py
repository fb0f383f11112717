"""Where events stand, in columns: what every kind of piece says of its events."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

Ints = npt.NDArray[np.int64]


class PlaceColumns(NamedTuple):
    """`Position` in columns."""

    partition: Ints
    offset: Ints
    row: Ints

    def take(self, rows: Ints) -> PlaceColumns:
        return PlaceColumns(self.partition[rows], self.offset[rows], self.row[rows])

    def texts(self) -> pa.Array:
        """As `Position` is written."""
        # Only for those who open events: `status` reads pieces, too, and needs no Arrow.
        import pyarrow as pa
        import pyarrow.compute as pc

        parts = (pa.array(each).cast(pa.utf8()) for each in self)
        return pc.binary_join_element_wise(*parts, "/")
