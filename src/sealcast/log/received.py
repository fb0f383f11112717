"""Who was sent how much, by a topic's ledger and its pieces: counted, nothing opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sealcast.log.piece_reader import sealed_reader


@dataclass(slots=True)
class Received:
    """What lies in one subscriber's mailbox."""

    deliveries: int = 0
    #: When the first and the last of it were committed.
    first_us: int | None = None
    last_us: int | None = None
    #: Of the deliveries, those that were sealed again since.
    again: int = 0
    #: Beside the deliveries: those that lay there once, and do not since others were sealed in their place.
    withdrawn: int = 0


def received(topic: Path, slots: int) -> dict[int, Received]:
    """By slot, of those who were sent anything."""
    reader, found = sealed_reader(topic), dict[int, Received]()
    for index in range(reader.ledger.end()):
        committed = reader.record(index)
        for slot, count in committed.resealed.withdrawn if committed.resealed is not None else ():
            found.setdefault(slot, Received()).withdrawn += count
        for number, ref in enumerate(committed.entry.pieces):
            if not ref.deliveries:
                continue
            piece = reader.piece_of(index, number)
            starts = np.asarray(piece.mailbox_start, np.int64)
            again = committed.resealed is not None and ref not in committed.committed_pieces
            for slot, count in zip(np.asarray(piece.slots).tolist(), (starts[1:] - starts[:-1]).tolist(), strict=True):
                if slot < slots:
                    got = found.setdefault(slot, Received())
                    got.deliveries += count
                    got.again += count if again else 0
                    got.first_us = committed.time_us if got.first_us is None else got.first_us
                    got.last_us = committed.time_us
    reader.close()
    return dict(sorted(found.items()))
