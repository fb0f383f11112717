"""A publisher's peer: takes frames out of the publisher's own log, and makes events of them that can be carried.

A frame passes the checks that brokers make elsewhere (`broker.authenticate`, `broker.opening`): it is a frame, of this
publisher, signed, with a token that counts, in time, for the first time. So what its own machine wrote twice, or what
somebody else put into its log, goes nowhere and is on record. What is inside each message, nobody but who has a
matching key learns: that it has the shape of a sealed event is all that is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Final, NamedTuple

from sealcast.broker.context import by_version, gate_with
from sealcast.broker.gate import Gate, bounds_of
from sealcast.broker.history import History
from sealcast.broker.opening import Opening, open_frames, refused_events
from sealcast.broker.replay import SETTLING_US, Windows
from sealcast.broker.rulings import gathered, rule_frames
from sealcast.errors import FrameRejected
from sealcast.log.closing import Closing
from sealcast.log.offsets import Arrival, PinnedOffset
from sealcast.model.event import Position
from sealcast.model.rejection import Reason, Rejection
from sealcast.model.stages import Received, Ruled
from sealcast.primitives import merkle
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.protections.attribute.ledger import PeerLedger
from sealcast.trust.handles import EntityRealm
from sealcast.trust.tokens.token import VerifiedTokens
from sealcast.wire import frame, peer_pieces
from sealcast.wire.attribute import AttributeRejected, SealedAttributeEvent
from sealcast.wire.carried import CarriedEvent

#: Frames that go out together: what is carried again after a crash.
FRAMES_AT_A_TIME: Final = 256


class OutgoingBatch(NamedTuple):
    """Frames of a publisher's log: what they hold, and what of them was refused."""

    frames: int
    pinned: tuple[int, int, int]
    events: Sequence[CarriedEvent]
    rejected: Sequence[Rejection]


class OutgoingFrames(Closing, Unpicklable):
    """What the frames of one publisher's log hold, checked. Batches are asked for in the log's order."""

    def __init__(self, realm: EntityRealm, topic: str, name: str, *, read_only: bool = False) -> None:
        """NotFound where the publisher's keys are not on this machine."""
        self.realm, self.topic, self.name = realm, topic, name
        self.identity = realm.identity(name)
        self.number = realm.state().entity_number(name)
        self.log = realm.outbox(topic, name, read_only=read_only)
        self.bounds = bounds_of(realm.state().topic(topic))
        self._gate = by_version(self._gate_at)
        self._tokens = VerifiedTokens()

    def received(self, first: int, most: int, arrival: Arrival) -> Received:
        """Frames from `first` on: at most so many, and as many as memory should hold."""
        log = self.log.partition(0)
        return next(gathered(self.number, log.read(first, min(first + most, log.end())), arrival))

    def settled(self, end: int, now_us: int) -> int:
        """Everything from `end` on came at this time or later."""
        log, settled = self.log.partition(0), max(0, now_us - SETTLING_US)
        return min(settled, next(iter(log.read(end, end + 1))).time_us) if end < log.end() else settled

    def judged(
        self, received: Received, windows: Windows, version: int, arrival: Arrival, settled_us: int
    ) -> tuple[list[CarriedEvent], list[Rejection]]:
        """The events of these frames, and what was refused of them, by the registry of that version. The windows are
        those after them."""
        gate, end = self._gate(version), received.offsets[-1] + 1
        codes = rule_frames(windows, self.log, [(self.number, received.offsets[0], end)], gate, arrival, settled_us)
        opened = open_frames(Ruled(received, codes[self.number]), gate)
        data = dict(zip(received.offsets, received.frames, strict=True))
        events, rejected = _carried(opened, self.number, data)
        return events, [*opened.rejections, *rejected]

    def close(self) -> None:
        self.log.close()

    def _gate_at(self, version: int) -> Gate:
        state = self.realm.state(version)
        own = cache(lambda epoch: self.identity.topic_keys(state, self.topic, epoch).pair)

        def pair_key(publisher: str, epoch: int) -> Secret:
            if publisher != self.name:
                raise FrameRejected(Reason.PUBLISHER, f"{publisher} published this, and the log is {self.name}'s")
            return own(epoch)

        def holds_key(epoch: int) -> bool:
            return state.pair_key(self.topic, epoch, self.name) is not None

        return gate_with(state, state.topic(self.topic), pair_key, holds_key, self._tokens)


class PublisherPeer(Closing, Unpicklable):
    """One publisher's log on one topic, on its way out. Close it."""

    def __init__(self, realm: EntityRealm, topic: str, name: str) -> None:
        """NotFound where the publisher's keys are not on this machine."""
        self.name, self._realm = name, realm
        self._frames = OutgoingFrames(realm, topic, name)
        paths, about = realm.paths.topic(topic, name), realm.state().topic(topic)
        self._account = PeerLedger(paths.sent, self._frames.identity, about.id)
        self._windows: Windows | None = None
        #: Where the batches that were made so far end. The windows are those after them.
        self._planned = self._account.reached

    def alone(self) -> AbstractContextManager[str]:
        """While this process runs the peer; Locked when another one does."""
        return self._account.alone()

    def waiting(self) -> int:
        """Frames that did not go out yet."""
        return max(0, self._frames.log.partition(0).end() - self._account.taken)

    def batches(self) -> Iterator[OutgoingBatch]:
        """What did not go out yet, in order, for who sends one batch at a time: the next one comes after a batch was
        `sent`, and one that was not comes again."""
        while self.waiting():
            if self._planned != self._account.reached:
                self._planned, self._windows = self._account.reached, None
            batch = self.next_batch()
            if batch is not None:
                yield batch

    def next_batch(self) -> OutgoingBatch | None:
        """The frames after those of all batches before, whether these were `sent` yet or not; None if there are none.
        A batch counts once it was `sent`, which goes in order: after a crash, it is made again."""
        planned, log = self._planned, self._frames.log.partition(0)
        first = planned.partitions[0]
        if first >= log.end():
            return None
        if self._windows is None:
            account, frames = self._account, self._frames
            history = History(account.ledger, account.pieces, frames.log, frames.bounds, peer_pieces.parse)
            self._windows = history.windows(account.ledger.end())
        version = max(self._realm.registry.version(), planned.version)
        now = max(self._realm.clock(), planned.time_us)
        arrival = Arrival(planned.settled_us, now)
        received = self._frames.received(first, FRAMES_AT_A_TIME, arrival)
        end = received.offsets[-1] + 1
        settled = max(self._frames.settled(end, now), planned.settled_us)
        events, rejected = self._frames.judged(received, self._windows, version, arrival, settled)
        self._planned = PinnedOffset((end,), version, now, settled)
        return OutgoingBatch(len(received.offsets), (version, now, settled), events, rejected)

    def sent(self, batch: OutgoingBatch) -> Mapping[str, int]:
        """It was handed to everyone who is to get it: durable, and not again. What was counted."""
        counts = {"frames": batch.frames, "admitted": len(batch.events)}
        return self._account.add(batch.frames, batch.pinned, rejected=batch.rejected, counts=counts)

    def close(self) -> None:
        self._account.close()
        self._frames.close()


def _carried(opened: Opening, number: int, frames: Mapping[int, bytes]) -> tuple[list[CarriedEvent], list[Rejection]]:
    """The events of opened frames, and those that have not the shape of one."""
    (frame_index, row), refused, events = opened.placed(), dict[int, tuple[Reason, str]](), list[CarriedEvent]()
    tokens = {proof.offset: frame.parse(frames[proof.offset]).token for proof in opened.proofs}
    for event, (index, place, message) in enumerate(
        zip(frame_index.tolist(), row.tolist(), opened.messages, strict=True)
    ):
        try:
            SealedAttributeEvent.parse(message)
        except AttributeRejected as error:
            refused[event] = Reason.EVENT, error.message
            continue
        proof = opened.proofs[index]
        path = tuple(merkle.path(proof.nodes, proof.count, place))
        position = Position(number, proof.offset, place)
        events.append(CarriedEvent(tokens[proof.offset], proof.signed, position, path, message))
    return events, list(refused_events(number, opened.proofs, frame_index, row, refused))
