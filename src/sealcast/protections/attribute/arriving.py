"""The checks that every peer makes of every event that a neighbour sends, before it keeps it or passes it on.

Nothing of an event is believed before it is checked, in this order, each with the reason that brokers give elsewhere
(`model.rejection`), the first failure wins:

     1 frame       not a carried event, or no signed header
     3 topic       for another topic
     4 to 9        its token does not let its publisher publish at the time that the publisher states
    10, 11         nobody of that name is enrolled, or may publish, now
    12 epoch       of an epoch that had ended by that time, its grace included
    13 signature   the header is not the publisher's word
    14 time        that time is too far ahead, or too long ago
    15 replay      it was here before: for who keeps it, and knows
    10 publisher   it is said to stand in somebody else's log
    17 schema      made for another schema than its epoch's
    19 root        the event is not among those that were signed
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from sealcast.broker.context import by_version, gate_with
from sealcast.broker.gate import Gate
from sealcast.errors import Bug, FrameRejected
from sealcast.model.rejection import Reason
from sealcast.primitives import merkle
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.trust.handles import EntityRealm
from sealcast.trust.tokens.token import VerifiedTokens
from sealcast.wire import frame
from sealcast.wire.carried import CarriedEvent
from sealcast.wire.frame import Header

#: Publishers whose numbers are remembered.
_NUMBERS: Final = 4_096


class ArrivalGate(Unpicklable):
    """What a peer of one topic lets in, by the registry."""

    def __init__(self, realm: EntityRealm, topic: str, name: str) -> None:
        """`name` is whose peer it is."""
        self._realm, self._topic, self._name = realm, topic, name
        self._tokens = VerifiedTokens()
        #: The gate at a version of the registry.
        self.at = by_version(self._made)
        #: The number of a publisher's log: it never changes.
        self._number = lru_cache(_NUMBERS)(lambda publisher: realm.state().entity_number(publisher))

    def check(
        self, event: CarriedEvent, gate: Gate, now: int, replayed: Callable[[Header], bool] = lambda header: False
    ) -> Header:
        """What its publisher signed; FrameRejected with the first check that the event fails."""
        about = frame.parse_signed(event.signed)  # (1)
        header = about.header
        if header.topic != gate.topic.id:
            raise FrameRejected(Reason.TOPIC, f"{header.publisher} published this to another topic")
        refusal = gate.refuses_token(header.publisher, event.token, header.token, header.time)
        late = refusal is not None and refusal.reason is Reason.EPOCH
        refusal = refusal if not late else None
        refusal = refusal or gate.refuses_by_name(header.publisher, now)
        if refusal is not None:
            raise FrameRejected(*refusal)
        if late or not gate.topic.epoch_admissible(header.epoch, header.time):
            raise FrameRejected(Reason.EPOCH, f"sealed for epoch {header.epoch}, the topic is in {gate.topic.epoch}")
        if not gate.verify_key(header.publisher).verify(about.to_be_signed, about.signature):
            raise FrameRejected(Reason.SIGNATURE, f"the signature is not {header.publisher}'s")
        if not -gate.bounds.max_skew_us <= now - header.time <= gate.bounds.stale_after_us:
            raise FrameRejected(Reason.TIME, f"{header.publisher} published it too long ago, or its clock is ahead")
        if replayed(header):
            raise FrameRejected(Reason.REPLAY, f"a number of {header.publisher}'s that was here before")
        if event.position.partition != self._number(header.publisher):
            raise FrameRejected(Reason.PUBLISHER, f"it is said to be in another log than {header.publisher}'s")
        if header.schema != gate.topic.in_epoch(header.epoch).schema.digest:
            raise FrameRejected(Reason.SCHEMA, f"{header.publisher} used another schema than topic {self._topic}'s")
        (leaf,) = merkle.hash_messages((event.message,))
        if not merkle.verify(header.root, leaf, event.position.row, header.count, event.path):
            raise FrameRejected(Reason.ROOT, f"it is not among the events that {header.publisher} signed")
        return header

    def _made(self, version: int) -> Gate:
        state = self._realm.state(version)
        self._realm.trust(state)  # the root is the one that this realm was made with

        def nobody(publisher: str, epoch: int) -> Secret:
            raise Bug("a peer opens no frames but its own publisher's")

        def holds_key(epoch: int) -> bool:
            return state.pair_key(self._topic, epoch, self._name) is not None

        return gate_with(state, state.topic(self._topic), nobody, holds_key, self._tokens)
