"""A hop piece in the making: events in the order in which they came, rows for each recipient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from sealcast.model.rejection import Rejection
from sealcast.primitives.merkle import HASH_BYTES
from sealcast.wire import typed
from sealcast.wire.hops import FrameRef, HopPiece


class PieceBuilder:
    """Takes events and who gets them; equal input, equal piece."""

    def __init__(self) -> None:
        self._frames: dict[FrameRef, int] = {}
        self._frame_index: list[int] = []
        self._row: list[int] = []
        self._generation: list[int] = []
        self._ids: list[bytes] = []
        self._bodies: list[bytes] = []
        self._paths: list[bytes] = []
        self._rows: dict[str, list[tuple[int, bytes]]] = {}

    def __len__(self) -> int:
        return len(self._row)

    def event(self, frame: FrameRef, row: int, generation: int, event_id: bytes, body: bytes, path: bytes) -> int:
        """One more event; its number here."""
        self._frame_index.append(self._frames.setdefault(frame, len(self._frames)))
        self._row.append(row)
        self._generation.append(generation)
        self._ids.append(event_id)
        self._bodies.append(body)
        self._paths.append(path)
        return len(self._row) - 1

    def send(self, recipient: str, event: int, entries: bytes) -> None:
        """The event goes to somebody, with these entries."""
        self._rows.setdefault(recipient, []).append((event, entries))

    def piece(
        self,
        *,
        topic: bytes,
        node: str,
        version: int,
        partition: int,
        first: int,
        end: int,
        rejected: Iterable[Rejection],
        counts: Mapping[str, int],
    ) -> HopPiece:
        recipients = tuple(sorted(self._rows))
        rows = [row for name in recipients for row in self._rows[name]]
        return HopPiece(
            topic=topic,
            node=node,
            version=version,
            partition=partition,
            first_offset=first,
            end_offset=end,
            frames=tuple(self._frames),
            frame_index=np.array(self._frame_index, np.int64),
            row=np.array(self._row, np.int64),
            generation=np.array(self._generation, np.int64),
            ids=b"".join(self._ids),
            body_start=typed.starts(map(len, self._bodies)),
            bodies=b"".join(self._bodies),
            path_start=typed.starts(len(path) // HASH_BYTES for path in self._paths),
            paths=b"".join(self._paths),
            recipients=recipients,
            recipient_start=typed.starts(len(self._rows[name]) for name in recipients),
            row_event=np.array([event for event, _ in rows], np.int64),
            entry_start=typed.starts(len(entries) for _, entries in rows),
            entries=b"".join(entries for _, entries in rows),
            rejected=tuple(rejected),
            counts=counts,
        )
