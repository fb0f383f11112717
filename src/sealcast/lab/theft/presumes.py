"""A thief whose keys are not on this machine, so that nobody can try them: everything that they could open counts as
open.

What was sealed for whom, and in which epoch, is on record: pieces name slots and epochs, frames their publishers, hop
pieces whom they are for. If nothing is left that names the victim in an epoch of which it had a key, then there is
nothing here that its keys open.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from sealcast.errors import FrameRejected
from sealcast.lab import thief
from sealcast.lab.theft import queued
from sealcast.lab.theft.hops import entries_of, hop_pieces, tree_of
from sealcast.lab.theft.pieces import lying_at, pieces_in
from sealcast.lab.theft.publishing import ADMITTED, NO, REVOKED
from sealcast.lab.theft.reads import Reads, in_logs
from sealcast.log.port import PartitionLog
from sealcast.log.replays import READER_SLOT
from sealcast.trust.certificates.roles import Role
from sealcast.trust.deployment import Realm
from sealcast.wire import frame


class Presumes:
    """`reads.Thief`, by what is on record."""

    tries = False

    def __init__(self, realm: Realm, name: str) -> None:
        self._realm, self.name = realm, name
        self._roles = realm.state().entity(name).roles

    def reads(self, topic: str) -> Reads:
        state = self._realm.state()
        overlay = state.topic(topic).protection.overlay
        opened = 0 if overlay else sum(self._opened(topic, broker) for broker in state.brokers())
        frames = sum(read.messages for _, _, read in self.frames(topic))
        waiting = queued.waiting(self._realm, state, topic)
        found = Reads(opened, opened, frames, sum(self._had(topic, message.epoch) for message in waiting))
        return self._with_layers(topic, found) if overlay else found

    def frames(self, topic: str) -> Iterator[tuple[str, int, thief.FramesRead]]:
        return in_logs(self._realm, topic, self.name, lambda log: self._named(log, topic))

    def publishes(self, topic: str) -> str:
        state = self._realm.state()
        if state.entity(self.name).revoked:
            return REVOKED
        held = state.pair_key(topic, state.topic(topic).epoch, self.name) is not None
        return ADMITTED if held and state.may_publish(topic, self.name, self._realm.clock()) else NO

    # --- inside -------------------------------------------------------------------------------------

    def _had(self, topic: str, epoch: int) -> bool:
        """Whether it had a key of an epoch. A key center could make those of every epoch, whoever manages it now."""
        state = self._realm.state()
        keys = (state.pair_key(topic, epoch, self.name), state.topic_key(topic, epoch, self.name))
        return any(key is not None for key in keys) or self._managed(topic, epoch)

    def _managed(self, topic: str, epoch: int) -> bool:
        about = self._realm.state().topic(topic)
        # Whose the epochs before the present center's were is not in the state: any center may have made them.
        return Role.KEY_CENTER in self._roles and (about.center == self.name or epoch < about.center_since)

    def _everyones(self, topic: str, epoch: int) -> bool:
        """Whether its keys of an epoch open what anybody was sent."""
        return self._managed(topic, epoch) or self._realm.state().topic_key(topic, epoch, self.name) is not None

    def _opened(self, topic: str, broker: str) -> int:
        slot, found = self._realm.state().slot_of(topic, self.name), 0
        for lying in lying_at(self._realm, topic, broker):
            for piece in pieces_in(lying.delivered):
                if self._everyones(topic, piece.epoch):
                    found += len(piece)
                elif slot is not None and self._had(topic, piece.epoch):
                    found += len(piece.rows_for(slot)[0])
            # What was replayed does not say for whom.
            replayed = (piece for piece in pieces_in(lying.replayed) if self._had(topic, piece.epoch))
            found += sum(len(piece.rows_for(READER_SLOT)[0]) for piece in replayed)
        return found

    def _named(self, log: PartitionLog, topic: str) -> thief.FramesRead:
        messages = end = 0
        for record in log.read(log.start()):
            with suppress(FrameRejected):
                header = frame.parse(record.data).header
                own = header.publisher == self.name and self._had(topic, header.epoch)
                if own or self._everyones(topic, header.epoch):
                    messages, end = messages + header.count, record.offset + 1
        return thief.FramesRead(messages, end)

    def _with_layers(self, topic: str, found: Reads) -> Reads:
        state, opened, routed = self._realm.state(), 0, 0
        broker = Role.BROKER in self._roles
        for piece in hop_pieces(self._realm, state, topic):
            for row in piece.rows_for(self.name):
                if state.layer_key(topic, tree_of(piece, piece.event_of(row)).epoch, self.name) is not None:
                    final = any(entry.final for entry in entries_of(piece, row))
                    opened, routed = opened + final, routed + (broker and not final)
        return found._replace(opened=found.opened + opened, tried=found.tried + opened, routed=routed)
