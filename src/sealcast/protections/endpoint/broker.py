"""The broker's side of `endpoint`: one step, which reads events and seals each for the group that gets it.

Keys are read from the realm's own files by the worker that needs them. What is remembered from batch to batch (expanded
keys, who holds which key) is kept by epoch and incarnation, because keys are of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sealcast.log.ledger import LedgerReader
from sealcast.model.stages import Grouped, GroupSealed
from sealcast.protections.endpoint.key_answers import key_requests
from sealcast.protections.endpoint.memory import KeyMemory
from sealcast.protections.endpoint.seal import seal
from sealcast.protections.endpoint.sealer import EndpointSealer, sealer_of
from sealcast.protections.frame_steps import MatchingStep
from sealcast.protections.port import BrokerSide
from sealcast.protections.steps import StepName
from sealcast.trust.realm.machine import RealmState, Topic
from sealcast.wire.sealed import SealedPiece


@dataclass(frozen=True, slots=True)
class GroupSealing:
    """Under keys of groups, as the planner plans them."""

    planner: KeyMemory
    sealer: EndpointSealer

    def seal(self, grouped: Grouped) -> GroupSealed:
        return seal(grouped, self.planner, self.sealer)

    def made(self, piece: SealedPiece, data: bytes) -> None:
        self.planner.made(piece, data)


class EndpointStep(MatchingStep):
    """Admit, match, group, seal for each group, deliver."""

    def __init__(self, name: StepName) -> None:
        super().__init__(name)
        #: By epoch and incarnation: expanded keys stay warm while the realm moves on to other versions.
        self._sealings: dict[tuple[int, bytes], GroupSealing] = {}
        #: By slot. Slots are never given twice, so that a longer list says all that a shorter one did.
        self._subscribers: tuple[str, ...] = ()

    def sealing(self, state: RealmState, topic: Topic) -> GroupSealing:
        self._subscribers = max(self._subscribers, tuple(state.slots_of(topic.name)), key=len)
        sealed_in = topic.epoch, self.incarnation(state.version)
        found = self._sealings.get(sealed_in)
        if found is None:
            found = self._sealings[sealed_in] = GroupSealing(
                KeyMemory(
                    LedgerReader(self.journal, self.journal_key),
                    self.pieces,
                    lambda piece: (piece.epoch, self.incarnation(piece.version)) == sealed_in,
                    len(self._subscribers),
                    topic.group_keys,
                ),
                sealer_of(state, topic, self.secrets, lambda slot: self._subscribers[slot]),
            )
        found.planner.grown_to(len(self._subscribers))
        return found


BROKER: Final = BrokerSide((EndpointStep,), "sealcast topic serve {topic} {broker}", key_requests)
