"""Sealed pieces for tests: consistent ones of every shape, with noise where ciphertext would be."""

from __future__ import annotations

import random

import numpy as np

from sealcast.model.event import Position
from sealcast.model.rejection import Reason, Rejection
from sealcast.model.stages import FrameProof
from sealcast.primitives import merkle
from sealcast.wire import frame
from sealcast.wire.sealed import GROUP, GROWN, PAIR, TABLE, SealedPiece
from tests.wire.frames import Publisher, messages
from tests.wire.mailboxes import of_deliveries


def piece(seed: int = 1, frames: int = 3, subscribers: int = 4) -> SealedPiece:
    """A piece of `frames` frames; each event goes to some of the subscribers, directly or through wrapped keys."""
    rng = random.Random(seed)
    publisher = Publisher()
    proofs, frame_index, row = [], [], []
    for f in range(frames):
        batch = messages(rng.randint(1, 5))
        signed = frame.parse(publisher.publish(batch, sequence=10 * f)).signed
        proofs.append(FrameProof(100 + 2 * f, signed, len(batch), merkle.build(merkle.hash_messages(batch))))
        for r in range(len(batch)):
            if rng.random() < 0.8:
                frame_index.append(f)
                row.append(r)
    bodies: list[bytes] = []
    uses: list[int] = []
    wrapped: list[int] = []
    wraps: list[bytes] = []
    boxes: dict[int, list[tuple[int, int]]] = {}
    use_start = [0]
    for event in range(len(row)):
        members = sorted(rng.sample(range(subscribers), rng.randint(1, subscribers)))
        bodies.append(rng.randbytes(rng.randint(17, 60)))
        wrapped.append(int(len(members) > 1))
        for member in members:
            boxes.setdefault(3 * member, []).append((event, len(uses)))
            uses.append(member)
            if len(members) > 1:
                wraps.append(rng.randbytes(48))
        use_start.append(len(uses))
    slots = sorted(boxes)
    handouts = [(slot, subscribers, boxes[slot][0][0]) for slot in slots[:2]]
    links = [(subscribers + 2, 0, 0, 0), (subscribers + 2, subscribers + 1, 0, 1)] if row else []
    parts = [rng.randbytes(16 + 32 * n) for n in range(1, 1 + len(slots[:2]))]
    return SealedPiece(
        topic=publisher.topic,
        epoch=publisher.epoch,
        version=7,
        partition=2,
        first_offset=99,
        end_offset=100 + 2 * frames,
        frames=tuple(proofs),
        frame_index=np.array(frame_index, np.int64),
        row=np.array(row, np.int64),
        body_start=np.cumsum([0, *map(len, bodies)]),
        bodies=b"".join(bodies),
        commitments=rng.randbytes(32 * len(row)),
        wrapped=np.array(wrapped, np.uint8),
        key_ids=b"".join(b"pair" + (3 * m).to_bytes(12, "big") for m in range(subscribers)) + rng.randbytes(48),
        key_kind=np.array([PAIR] * subscribers + [GROUP, TABLE, GROWN], np.uint8),
        use_start=np.array(use_start),
        uses=np.array(uses, np.int64),
        wraps=b"".join(wraps),
        **of_deliveries(((slot, event, use) for slot in slots for event, use in boxes[slot]), np.array(use_start)),
        handout_slot=np.array([s for s, _, _ in handouts], np.int64),
        handout_key=np.array([k for _, k, _ in handouts], np.int64),
        handout_event=np.array([e for _, _, e in handouts], np.int64),
        handouts=rng.randbytes(48 * len(handouts)),
        rejected=(
            Rejection(Position(2, 99, -1), Reason.SIGNATURE, "the signature is not ticker-2's", 5),
            Rejection(Position(2, 100, 3), Reason.EVENT, "attribute 'price': is off the grid", 1),
        ),
        counts={"frames": frames + 1, "admitted": len(row), "rejected_signature": 5},
        link_key=np.array([k for k, _, _, _ in links], np.int64),
        link_under=np.array([u for _, u, _, _ in links], np.int64),
        link_event=np.array([e for _, _, e, _ in links], np.int64),
        link_grows=np.array([g for _, _, _, g in links], np.uint8),
        links=rng.randbytes(48 * sum(not grows for _, _, _, grows in links)),
        table_slot=np.array(slots[:2], np.int64),
        table_tile=np.zeros(len(parts), np.int64),
        table_event=np.array([boxes[slot][0][0] for slot in slots[:2]], np.int64),
        table_names=rng.randbytes(12 * len(parts)),
        table_start=np.cumsum([0, *map(len, parts)]),
        table_parts=b"".join(parts),
        tile_size=np.array([4, 2, 3], np.uint8),
        tile_run=np.array([0, 7, 100, 2], np.int64),
        tile_join=np.array([2, 1], np.int64),
    )
