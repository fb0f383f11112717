"""`check` of a topic that peers carry, from their own logs: everything is done again that can be done here.

    a publisher's log     every frame is judged again; its peer's account must say the same
    a subscriber's inbox  the ledger's chain and tags, every piece by its digest; every event must open with its
                          subscriber's keys, stand in its publisher's log, come once, and in its publisher's order
    both together         what a publisher's peer sent, and a subscriber's keys open, must be in that one's inbox
    a peer's own log      its signatures and chain; what it says it delivered must be in its inbox

A subscriber that is elsewhere, and a publisher that is, are not judged, and that is said. Where peers run in processes
of their own, an event is on its way until its subscriber's peer has heard everything of its time, and events that came
by different ways may come in another order than they were published: both are counted, and neither is a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from sealcast.broker.history import History
from sealcast.broker.replay import Windows
from sealcast.errors import CannotOpen, Corrupt, SealcastError
from sealcast.filters.check import fit
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.log.journal import DirectoryJournal
from sealcast.log.ledger import Committed
from sealcast.log.piece_reader import PieceReader, peer_reader
from sealcast.model.event import OpenedEvent, Position
from sealcast.model.rejection import Reason
from sealcast.protections.attribute import testimony
from sealcast.protections.attribute.carry import publishers_here
from sealcast.protections.attribute.interests import CredentialInterests
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.attribute.ledger import journal_key
from sealcast.protections.attribute.open import AttributeOpener
from sealcast.protections.attribute.outgoing import OutgoingFrames
from sealcast.protections.witness.report import CheckReport, Kind
from sealcast.trust.deployment import Realm
from sealcast.wire import frame, peer_pieces
from sealcast.wire.carried import CarriedEvent
from sealcast.wire.peer_logs import EntryKind
from sealcast.wire.peer_pieces import PeerPiece


class SentEvent(NamedTuple):
    """An event that a publisher's peer sent, the registry that it went by, and when."""

    event: CarriedEvent
    version: int
    time_us: int
    #: Over links between processes, which takes time.
    linked: bool


@dataclass(slots=True)
class _Gone:
    """What a subscriber's peer removed from its inbox: how many events, and when the last of those records was made."""

    events: int = 0
    until_us: int = -1

    def take(self, committed: Committed) -> int:
        """How many events of a record were removed."""
        if not committed.is_emptied or committed.resealed is None:
            return 0
        found = sum(count for _, count in committed.resealed.withdrawn)
        self.events, self.until_us = self.events + found, committed.time_us
        return found

    def may_have_been(self, event: CarriedEvent, skew_us: int) -> bool:
        """Whether an event was published before what was removed came, as far as clocks can tell."""
        return frame.parse_signed(event.signed).header.time - skew_us <= self.until_us


class PeersAudit:
    """All peers of one topic that are here."""

    def __init__(self, realm: Realm, topic: str, *, by_reference: bool = False) -> None:
        self._realm, self._topic, self._by_reference = realm, topic, by_reference
        self.report = CheckReport(topic)
        state = realm.state()
        self._publishers = publishers_here(realm, state, topic)
        self._subscribers = [
            name
            for name in state.slots_of(topic)
            if realm.paths.entity_key(name).exists() and not state.entity(name).revoked
        ]
        self._sent: dict[Position, SentEvent] = {}
        #: How many frames of each publisher's log its account has, and the first that is still there.
        self._taken: dict[str, int] = {}
        self._kept_from: dict[str, int] = {}

    def size(self) -> int:
        return len(self._publishers) + len(self._subscribers)

    def run(self, told: Callable[[int], None]) -> CheckReport:
        state, report = self._realm.state(), self.report
        for name in state.slots_of(self._topic):
            if name not in self._subscribers:
                why = f"{name!r} was revoked" if state.entity(name).revoked else f"the keys of {name!r} are not here"
                report.gap(f"{why}: what it received was not checked")
        for name in self._publishers:
            self._publisher(name)
            told(1)
        for name in self._subscribers:
            self._subscriber(name)
            told(1)
        report.events = len(self._sent)
        return report

    # --- publishers -------------------------------------------------------------------------------------------------

    def _publisher(self, name: str) -> None:
        paths, about = self._realm.paths.topic(self._topic, name).sent, self._realm.state().topic(self._topic)
        with closing(OutgoingFrames(self._realm, self._topic, name, read_only=True)) as frames:
            key = journal_key(frames.identity, about.id)
            reader = peer_reader(paths.root, key=key)
            with closing(reader):
                taken = 0
                try:
                    taken = self._again(name, frames, reader)
                except SealcastError as error:
                    self.report.add(Kind.LEDGER, f"{name}'s account of what it sent: {error.message}")
                self._taken[name] = taken
                self.report.waiting += max(0, frames.log.partition(0).end() - taken)

    def _again(self, name: str, frames: OutgoingFrames, reader: PieceReader[PeerPiece]) -> int:
        """Judges again what a publisher's peer sent; how many frames that were. Frames that may repeat some which were
        removed are looked at, and not judged."""
        windows, taken, sent = Windows(frames.bounds), 0, self._realm.paths.topic(self._topic, name).sent.root
        history = History(reader.ledger, DirectoryJournal(sent).pieces, frames.log, frames.bounds, peer_pieces.parse)
        kept_from = self._kept_from[name] = frames.log.partition(0).start()
        reader.ledger.verify()
        for committed in reader.ledger.entries():
            entry, (piece,) = committed.entry, reader.pieces(committed.index, committed.index + 1)
            first, end = max(kept_from, entry.start.partitions[0]), entry.end.partitions[0]
            self.report.batches += 1
            judged = first == entry.start.partitions[0] and history.knows(entry.start.settled_us)
            events, rejected = list[CarriedEvent](), []
            while first < end:
                received = frames.received(first, end - first, entry.arrival)
                some, refused = frames.judged(received, windows, entry.version, entry.arrival, entry.end.settled_us)
                events += some
                rejected += refused
                first = received.offsets[-1] + 1
            where = f"record {committed.index} of {name}'s account"
            if not judged:
                self.report.gap(f"some of what {name!r} sent is too old to be judged again: its frames were removed")
            elif tuple(rejected) != piece.rejected:
                self.report.add(Kind.REFUSED, f"{where}: what it refused is not what there was to refuse")
            if judged and entry.counts.get("admitted", 0) != len(events):
                self.report.add(Kind.COUNTS, f"{where}: it says {entry.counts.get('admitted', 0)}, not {len(events)}")
            linked = testimony.has_spoken(self._realm, self._topic, name)
            self._sent |= {
                event.position: SentEvent(event, entry.version, committed.time_us, linked) for event in events
            }
            taken = end
        return taken

    # --- subscribers ------------------------------------------------------------------------------------------------

    def _subscriber(self, name: str) -> None:
        identity, about = self._realm.identity(name), self._realm.state().topic(self._topic)
        paths, key = self._realm.paths.topic(self._topic, name), journal_key(identity, about.id)
        with (
            closing(CredentialRing(self._realm, self._topic, identity)) as ring,
            closing(peer_reader(paths.root, key=key)) as reader,
        ):
            opener = AttributeOpener.of(self._realm.state, self._topic, ring)
            had, inbox, refused, gone = dict[Position, OpenedEvent](), set[bytes](), set[Position](), _Gone()
            try:
                reader.ledger.verify()
                for event in self._inbox(name, reader, refused, gone):
                    inbox.add(event.id)
                    self._received(name, event, opener, had)
            except SealcastError as error:
                self.report.add(Kind.PIECE, f"the inbox of {name}: {error.message}")
                return
            self.report.removed += gone.events
            if gone.events:
                self.report.gap(f"{name!r} removed {gone.events} events from its inbox: what it had is not judged")
            self._said(name, inbox, gone)
            self._missing(name, ring, had, refused, gone)
            if self._by_reference:
                self._asked(name, ring, had)

    def _said(self, name: str, inbox: set[bytes], gone: _Gone) -> None:
        """What the peer says in its own log. Of events that it removed, nothing is left to find them by: there may be
        as many of these as there are notes of."""
        removed = gone.events
        try:
            for entry in testimony.said_by(self._realm, self._topic, name):
                if entry.kind is EntryKind.DELIVERED and entry.event not in inbox:
                    removed -= 1
                    if removed >= 0:
                        self.report.count(f"peers_{entry.kind.name.lower()}")
                        continue
                    self.report.add(Kind.LOG, f"{name}'s log says that event {entry.event.hex()} is in its inbox")
                self.report.count(f"peers_{entry.kind.name.lower()}")
        except Corrupt as error:
            self.report.add(Kind.LOG, f"the log of {name}'s peer: {error.message}")

    def _inbox(
        self, name: str, reader: PieceReader[PeerPiece], refused: set[Position], gone: _Gone
    ) -> Iterator[CarriedEvent]:
        for committed in reader.ledger.entries():
            self.report.batches += 1
            found = gone.take(committed)
            for piece in reader.pieces(committed.index, committed.index + 1):
                yield from map(piece.carried, range(len(piece)))
                refused |= {each.position for each in piece.rejected if each.reason is Reason.SEAL}
                found += len(piece)
            if committed.entry.counts.get("deliveries", 0) != found:
                self.report.add(Kind.COUNTS, f"record {committed.index} of {name}'s inbox has {found} events")

    def _received(
        self, name: str, event: CarriedEvent, opener: AttributeOpener, had: dict[Position, OpenedEvent]
    ) -> None:
        report, at = self.report, event.position
        report.deliveries += 1
        try:
            opened = opener.open(event)
        except CannotOpen as error:
            report.add(Kind.LOST, f"event {at} in the inbox of {name} does not open: {error.message}")
            return
        if at in had:
            report.add(Kind.DUPLICATED, f"event {at} is in the inbox of {name} twice")
        before = next((p for p in reversed(had) if p.partition == at.partition), None)
        if before is not None and before > at:
            if testimony.has_spoken(self._realm, self._topic, name):
                report.count("peers_reordered")
            else:
                report.add(Kind.OUT_OF_ORDER, f"event {at} is in the inbox of {name} behind {before}")
        sent = self._sent.get(at)
        if sent is not None and sent.event.id != event.id:
            report.add(Kind.UNEXPECTED, f"event {at} in the inbox of {name} is not what its publisher's log has there")
        elif sent is None and self._must_be_sent(at):
            report.add(Kind.UNEXPECTED, f"event {at} in the inbox of {name} was never sent by its publisher's peer")
        had[at] = opened

    def _must_be_sent(self, at: Position) -> bool:
        """Whether the account of the event's publisher should have it: here, and not behind what subscribers got."""
        publisher = self._realm.state().entity_numbered(at.partition)
        if publisher not in self._publishers:
            return False
        if at.offset < self._kept_from.get(publisher, 0):
            return False
        return at.offset < self._taken[publisher] or not testimony.has_spoken(self._realm, self._topic, publisher)

    def _missing(
        self,
        name: str,
        ring: CredentialRing,
        had: dict[Position, OpenedEvent],
        refused: set[Position],
        gone: _Gone,
    ) -> None:
        heard = testimony.heard_until_us(self._realm, self._topic, name) or 0
        skew_us = self._realm.state().topic(self._topic).parameters.max_skew_s * 1_000_000

        @cache
        def opener(ids: frozenset[str]) -> AttributeOpener:
            return AttributeOpener(
                self._realm.state, self._topic, lambda epoch: [s for s in ring.subscribing(epoch) if s.id in ids]
            )

        subscribed = cache(lambda version: self._subscribed(name, version))
        for at, sent in self._sent.items():
            if at in had or gone.may_have_been(sent.event, skew_us):
                continue
            try:
                opener(subscribed(sent.version)).open(sent.event)
            except CannotOpen:
                continue  # it is for others; or it was refused, and the inbox says so
            if at in refused:
                self.report.count("peers_not_opened")  # good by itself, of a publisher that was cut off
                continue
            if sent.linked and sent.time_us > heard:
                self.report.count("peers_on_the_way")
                continue
            self.report.add(Kind.LOST, f"event {at} is for {name}, and is not in its inbox")

    def _subscribed(self, name: str, version: int) -> frozenset[str]:
        """The subscriptions that it had when an event was sent, while it had the right."""
        state = self._realm.state(version)
        if not state.may_subscribe(self._topic, name):
            return frozenset()
        return frozenset(each.id for each in state.subscriptions_of(self._topic) if each.subscriber == name)

    def _asked(self, name: str, ring: CredentialRing, had: dict[Position, OpenedEvent]) -> None:
        """The reference evaluator on what was received, by the filters that the subscriber has now."""
        schema = self._realm.state().topic(self._topic).schema
        with CredentialInterests(self._realm, self._topic, name, ring) as interests:
            wanted = [fit(parse(each.text), schema) for each in interests.present()]
        for at, opened in had.items():
            if not any(evaluate(each, dict(opened.attributes)) is True for each in wanted):
                self.report.gap(f"{name} has no filter any more that event {at} matches")
