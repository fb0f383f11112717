"""The first step of `layered`: a root broker admits frames. It opens them, and cannot read their events.

Checks 1 to 19 are those of every topic: whose frame it is, that it was not here before, that it opens under the pair
key and holds what was signed. What is inside stays encrypted, so of check 20, the event, only its form is left: a core
and its entries (`wire.notifications`). A token that is for some events only would have to be compared with what nobody
here can read, so it is for none of them (8).

A frame of n events has 2n messages; everything that is counted here counts events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import pyarrow as pa

from sealcast.broker.columns import piece_row
from sealcast.broker.deliver import rejected_by_reason
from sealcast.broker.frames import HeldFrames, frames_of
from sealcast.broker.gate import Gate, Rulings
from sealcast.broker.opening import open_frames, refused_events
from sealcast.broker.traced import Watch
from sealcast.errors import FrameRejected
from sealcast.filters.labels import Labeller
from sealcast.model import Reason
from sealcast.model.schema import Schema
from sealcast.model.stages import Ruled
from sealcast.primitives import merkle
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.layered.cutting import HopCuts
from sealcast.protections.layered.node import HOPS, HopStep
from sealcast.protections.layered.piece import PieceBuilder
from sealcast.protections.steps import Awaited, StepName
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.templates import Template
from sealcast.wire import hops
from sealcast.wire.hops import FrameRef, HopPiece
from sealcast.wire.notifications import MESSAGES_PER_EVENT, Core, LayeredEntry, parse_core, parse_entries

#: Frames handled at once. A hop divides its input by records, so that a record is small.
MAX_BYTES_PER_PIECE: Final = 4 << 20
_NOBODYS_MAILBOX: Final = b""


class AdmitStep(HopCuts, FramesStep):
    """From frames to pieces that are addressed to the root itself: the input of its hops."""

    max_bytes = 8 << 20

    def parse(self, data: bytes) -> HopPiece:
        return hops.parse(data)

    @classmethod
    def brokers(cls, realm: BrokerRealm, state: RealmState, topic: str, here: Sequence[str]) -> list[str]:
        """The roots; and those that were roots, and have frames from then."""
        overlay = state.overlay(topic)
        return [b for b in here if b in overlay.roots or (b in overlay.parents and cls._has_frames(realm, topic, b))]

    @classmethod
    def _has_frames(cls, realm: BrokerRealm, topic: str, broker: str) -> bool:
        on_a_carrier = (topic, broker) in realm.state().carried
        if not on_a_carrier and not realm.paths.topic(topic, broker).frames_root.exists():
            return False
        step = StepName(str(realm.paths.root), topic, broker).open()
        return step.awaits(step.committed(), step.available())

    def awaited(self, due: range) -> Awaited | None:
        """Its own hops take what it admitted, and nobody else does."""
        taken = HopStep.of(replace(self.name, step=HOPS)).taken_from(self.name.broker)
        return Awaited(max(taken, due.start), (self.name.broker,)) if due and taken < due.stop else None

    def make(self, pinned: Mapping[str, int], rulings: Rulings, frames: HeldFrames) -> Iterator[pa.RecordBatch]:
        gate = self.gate(pinned["version"])
        for ruled in frames_of(rulings, frames, pinned, MAX_BYTES_PER_PIECE):
            watch, traces = Watch(), list[bytes]()
            piece = admit(ruled, gate, self.name.broker, traces)
            watch.passed("admit")
            data, traced = hops.encode(piece), watch.note(traces)
            yield piece_row(self.name.broker, piece, data, pinned, _NOBODYS_MAILBOX, traced=traced)


def admit(ruled: Ruled, gate: Gate, root: str, traces: list[bytes] | None = None) -> HopPiece:
    """The events of frames that passed, addressed to the root broker that admits them. Contexts of traced frames are
    added to `traces`."""
    received, opened = ruled.received, open_frames(ruled, gate, _check_frame)
    if traces is not None:
        traces += opened.traces
    messages, (frame_index, row) = list(opened.messages), opened.placed(MESSAGES_PER_EVENT)
    built, refused = PieceBuilder(), dict[int, tuple[Reason, str]]()
    for event, (index, number) in enumerate(zip(frame_index.tolist(), row.tolist(), strict=True)):
        raw, entries = messages[MESSAGES_PER_EVENT * event : MESSAGES_PER_EVENT * (event + 1)]
        try:
            core = parse_core(raw)
            _check_cost(core, parse_entries(entries), gate)
        except FrameRejected as error:
            refused[event] = Reason.EVENT, error.message  # (20)
            continue
        proof = opened.proofs[index]
        path = b"".join(merkle.path(proof.nodes, proof.count, MESSAGES_PER_EVENT * number))
        frame = FrameRef(received.partition, proof.offset, proof.signed)
        built.send(root, built.event(frame, number, core.generation, core.event, core.body, path), entries)
    rejections = [
        *opened.rejections,
        *refused_events(received.partition, opened.proofs, frame_index, row, refused),
    ]
    return built.piece(
        topic=gate.topic.id,
        node=root,
        version=gate.state.version,
        partition=received.partition,
        first=received.offsets[0],
        end=received.offsets[-1] + 1,
        rejected=sorted(rejections, key=lambda r: r.position),
        counts={"frames": len(received.offsets), "admitted": len(built), **rejected_by_reason(tuple(rejections))},
    )


def _check_cost(core: Core, entries: Sequence[LayeredEntry], gate: Gate) -> None:
    """No more than an honest publisher makes: every token is a power at this broker, and entries are for places in the
    tree. How many places a generation had that is over, nobody here remembers."""
    labels, overlay = _most_labels(gate.topic.schema), gate.state.overlay(gate.topic.name)
    if (most := max(len(entry.tokens) for entry in entries)) > labels:
        raise FrameRejected(Reason.EVENT, f"an entry has {most} tokens, and an event of the schema {labels} labels")
    places = len(overlay.parents) + len(overlay.places)
    if core.generation == overlay.generation and len(entries) > places:
        raise FrameRejected(
            Reason.EVENT, f"{len(entries)} entries are for more places than the {places} in the overlay"
        )


@lru_cache(64)
def _most_labels(schema: Schema) -> int:
    return Labeller(schema).most()


def _check_frame(template: Template, messages: int) -> None:
    if not template.every_event:  # (8)
        raise FrameRejected(Reason.TEMPLATE, "its token is for some events only, which nobody here can tell")
    if messages % MESSAGES_PER_EVENT:
        raise FrameRejected(Reason.EVENT, f"{messages} messages: an event has {MESSAGES_PER_EVENT}")
