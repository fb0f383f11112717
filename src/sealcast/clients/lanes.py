"""A publisher's lane to one broker: the partition it writes to there, the frames that wait in it, and what seals them.

On most topics a publisher has one lane. On a `layered` one it has one to every root broker of the overlay. Where peers
carry events, its one lane ends in a log of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from sealcast.errors import Bug
from sealcast.log.embedded import Moved
from sealcast.log.forwarded import partition_of as partition_of
from sealcast.log.lane_log import AskStanding, Confirmation, LaneLog, LocalLaneLog
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.frames import FrameSealer
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.state import RealmState


class Lane(Unpicklable):
    """One publisher, one topic, one broker. Close it: it has files open."""

    def __init__(self, realm: EntityRealm, topic: str, broker: str, publisher: str) -> None:
        self.broker, self._topic = broker, topic
        state = realm.state()
        about = state.topic(topic)
        number = partition_of(publisher, about.partitions)

        def opened() -> LaneLog:
            if about.protection.peers:
                paths = realm.paths.topic(topic, broker)
                return LocalLaneLog(realm.outbox(topic, broker), number, paths.sent.ledger)
            return realm.site.of(publisher).frames(realm.state(), topic, broker, number)

        self._opened, self._log = opened, opened()
        self._place = self._place_in(state)
        self.partition = self._log.partition
        #: Numbers and nonces are a sealer's own: another lane, or another epoch, has another.
        self.sealer: FrameSealer | None = None

    def _place_in(self, state: RealmState) -> object:
        """On which carriers the log and its ledger are, if they are on any."""
        at = self._topic, self.broker
        return state.carried.get(at), state.journals.get(at), at in state.leaving

    def follow(self, state: RealmState) -> None:
        """Opens the log where it is now, should it have been moved; Moved while it is on its way."""
        if (place := self._place_in(state)) != self._place:
            self._log.close()
            self._log, self._place = self._opened(), place

    @property
    def sealing(self) -> FrameSealer:
        if self.sealer is None:
            raise Bug(f"the lane to {self.broker!r} has no keys yet")
        return self.sealer

    def waiting(self) -> int:
        """Frames in its partition that the pipeline has not taken yet."""
        return self._log.waiting()

    @property
    def log(self) -> LaneLog:
        """The partition that it writes to."""
        return self._log

    def append(self, frames: Sequence[bytes]) -> Sequence[int] | None:
        """Their offsets; None where they wait on this machine until they can be sent. Durable on return."""
        try:
            return self._log.append(frames)
        except Moved:  # since it was opened: what was appended does not count, or is recognised where it was moved to
            self._log.close()
            self._log = self._opened()
            return self._log.append(frames)

    def flush(self) -> int:
        """Sends what waits on this machine, if it can be sent now; how many frames still do."""
        return self._log.flush()

    def confirm(self, standing: AskStanding) -> Confirmation:
        """What became of frames that a gateway acknowledged."""
        return self._log.confirm(standing)

    def newest(self, most: int, most_bytes: int) -> list[bytes]:
        """The last frames in its partition, at most so many, the oldest first."""
        return self._log.newest(most, most_bytes)

    def close(self) -> None:
        self._log.close()
