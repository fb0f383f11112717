"""The path of a message without its security: paper 004's baseline, of the lab alone and on nobody's realm.

The same steps as with it: an event is checked, encoded and appended; read, decoded, checked, matched and put into a
piece; found, decoded and handed out. The same log, ledger and files, made durable the same way, and the same index of
filters. What is left out is sealing, signing, tokens, replay windows, group keys, and whatever opens and verifies them.
The digests by which files are found to be damaged stay: they protect no message.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from sealcast.broker.tables import AttributeIndex, SubscriptionTable
from sealcast.errors import Bug, Corrupt
from sealcast.filters import bits
from sealcast.lab.pallickara.broker import Batches
from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.entry import PieceRef, slot_bits
from sealcast.log.ledger import Ledger, LedgerReader
from sealcast.log.offsets import PinnedOffset
from sealcast.log.pieces import Pieces
from sealcast.model.event import Event
from sealcast.model.schema import Schema
from sealcast.primitives.secrets import Secret
from sealcast.wire import cbor
from sealcast.wire.domain import check_domain
from sealcast.wire.limits import MAX_CBOR_ITEMS
from sealcast.wire.records import RecordCodec

_MAX_PIECE: Final = 1 << 24


class PlainPath(Batches):
    """Publisher, broker and subscriber of one message at a time, in the clear."""

    def __init__(self, directory: Path, schema: Schema, table: SubscriptionTable) -> None:
        ledger = Ledger(directory / "ledger", Secret.random())
        super().__init__(EmbeddedTopic(directory / "frames", 1), ledger, Pieces(directory / "pieces"))
        self._codec, self._schema, self._table = RecordCodec(schema), schema, table
        assert isinstance(table.index, AttributeIndex)
        self._index = table.index.compiled
        self._reader = LedgerReader(directory / "ledger")

    def publish(self, event: Event) -> None:
        """Durable on return."""
        values = self._schema.parse(event.attributes)
        (message,) = self._codec.encode([values], [event.payload], [event.content_type])
        self._log.partition(0).append([message])

    def turn(self) -> int:
        """Handles all that waits in the log as one batch; how many deliveries it has."""
        end = PinnedOffset(self._ends(), 1)
        ((_, first, stop),) = self._done.ranges(end)
        messages = [record.data for record in self._log.partition(0).read(first, stop)]
        decoded = self._codec.decode(messages)
        if decoded.bad or check_domain(self._schema, decoded.columns):
            raise Bug("an event of the lab's own does not fit its schema")
        matches = self._index.match(decoded.columns, None) & self._table.authorised
        events, slots = bits.pairs(matches)
        wanted = np.unique(events).tolist()
        piece = cbor.encode([[messages[i] for i in wanted], events.tolist(), slots.tolist()])
        staged = self._pieces.stage(0, first, stop, piece)
        ref = PieceRef(
            staged.name, staged.digest, staged.size, 0, first, stop, len(wanted), len(slots), 0,
            slot_bits(slots.tolist()),
        )  # fmt: skip
        self._commit(end, [ref], {"matched": len(wanted)})
        return len(slots)

    def read(self) -> list[bytes]:
        """The payloads of the newest batch, as the subscriber in slot 0 gets them."""
        (ref,) = self._reader.at(self._reader.end() - 1).entry.pieces
        found = cbor.decode(self._pieces.read(ref.name, ref.digest), max_bytes=_MAX_PIECE, max_items=MAX_CBOR_ITEMS)
        match found:
            case [list(messages), list(events), list(slots)]:
                mine = [event for event, slot in zip(events, slots, strict=True) if slot == 0]
                place = {event: i for i, event in enumerate(sorted(set(events)))}
                return [self._codec.decode_one(messages[place[event]])[1] for event in mine]
        raise Corrupt("a piece of the lab's own is none")

    def close(self) -> None:
        self._reader.close()
        super().close()
