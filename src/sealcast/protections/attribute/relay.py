"""A relay: which of its children get an event, by the tokens that they gave it. It has no keys and opens nothing.

    hits          does the event have the label of a token?      each distinct token is tried once for each event
    slots         of one subscription in one space: any of its tokens
    subscription  all of its slots
    child         any of its subscriptions

A child may give tokens of one space only, as peers do that keep the rest of their subscription from this parent. It
then gets more than it can open. Tables lie in a file that only their relay reads, so that processes can share one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sealcast.errors import Corrupt
from sealcast.log import files
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.attribute.scheme.parameters import PublicParameters
from sealcast.protections.attribute.scheme.tags import RoutingToken, route_many
from sealcast.wire.attribute import AttributeRejected, EventHeader
from sealcast.wire.attribute_keys import SubscriptionKey

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

_PARAMETERS: Final = b"parameters"
#: A row for each token: whose it is, of which of its subscriptions, and what it finds.
_TOKENS: Final = pa.schema(
    [
        ("child", pa.int64()),
        ("subscription", pa.int64()),
        ("epoch", pa.int64()),
        ("attribute", pa.string()),
        ("token", pa.binary()),
    ]
)
#: Of events times tokens that are looked at together.
_CELLS: Final = 1 << 24


class _Token(NamedTuple):
    child: int
    subscription: int
    epoch: int
    attribute: str
    token: bytes


class RelayTable(Unpicklable):
    """The tokens of a relay's children, ready to be tried."""

    def __init__(self, parameters: PublicParameters, tokens: Iterable[_Token]) -> None:
        self._parameters = parameters
        ordered = sorted(tokens)
        distinct: dict[RoutingToken, int] = {}
        self._columns = np.array(
            [distinct.setdefault(RoutingToken(*each[2:]), len(distinct)) for each in ordered], np.int64
        )
        self._tokens = list(distinct)
        slots, self._slots = _starts([each[:4] for each in ordered])
        subscriptions, self._subscriptions = _starts([slot[:2] for slot in slots])
        children, self._of_children = _starts([one[:1] for one in subscriptions])
        self.children: Ints = np.array([child for (child,) in children], np.int64)

    @classmethod
    def of(cls, parameters: PublicParameters, children: Mapping[int, Iterable[SubscriptionKey]]) -> RelayTable:
        """The tokens of children that give all of theirs, by the keys of their subscriptions."""
        return cls(parameters, _rows(children))

    @classmethod
    def read(cls, path: Path) -> RelayTable:
        """What `write` wrote; Corrupt for anything else."""
        try:
            with pa.ipc.open_file(pa.BufferReader(path.read_bytes())) as file:
                table = file.read_all()
            if not table.schema.equals(_TOKENS):
                raise Corrupt(f"{path} is not the table of a relay")
            parameters = PublicParameters.from_bytes(table.schema.metadata[_PARAMETERS])
        except (pa.ArrowInvalid, KeyError, TypeError, AttributeRejected):
            raise Corrupt(f"{path} is not the table of a relay") from None
        return cls(parameters, map(_Token._make, zip(*(column.to_pylist() for column in table.columns), strict=True)))

    def routed(self, headers: Sequence[EventHeader]) -> Bools:
        """Of every event (rows), whether a child (columns, as in `children`) gets it."""
        found = np.zeros((len(headers), self.children.size), np.bool_)
        if not self.children.size:
            return found
        step = max(1, _CELLS // self._columns.size)
        for at in range(0, len(headers), step):
            hits = route_many(self._parameters, self._tokens, headers[at : at + step])[:, self._columns]
            slots = np.logical_or.reduceat(hits, self._slots, axis=1)
            subscriptions = np.logical_and.reduceat(slots, self._subscriptions, axis=1)
            found[at : at + step] = np.logical_or.reduceat(subscriptions, self._of_children, axis=1)
        return found


def write(path: Path, parameters: PublicParameters, children: Mapping[int, Iterable[SubscriptionKey]]) -> None:
    """A table in a file that only its owner reads."""
    columns = zip(*_rows(children), strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _TOKENS, strict=False)]
    schema = _TOKENS.with_metadata({_PARAMETERS: parameters.to_bytes()})
    table = pa.Table.from_arrays(arrays, schema=schema) if arrays else schema.empty_table()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as file:
        file.write_table(table)
    files.replace_file(path, sink.getvalue().to_pybytes())


def _rows(children: Mapping[int, Iterable[SubscriptionKey]]) -> Iterable[_Token]:
    return (
        _Token(child, number, key.epoch, one.attribute, one.token)
        for child, keys in children.items()
        for number, key in enumerate(keys)
        for one in key.credentials
    )


def _starts(groups: Sequence[tuple[object, ...]]) -> tuple[list[tuple[object, ...]], Ints]:
    """Neighbours that are equal, once each, and where each begins."""
    begins = [i for i, group in enumerate(groups) if not i or group != groups[i - 1]]
    return [groups[i] for i in begins], np.array(begins, np.int64)
