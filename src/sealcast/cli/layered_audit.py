"""`sealcast check` on a layered topic: what brokers did is done again and compared; what nobody here can read is not
judged, and that is said.

Of every broker:
    (1) its ledger: the chain, and with its key file here its authenticity; every batch begins where the last one ended
    (2) every piece has the digest that the ledger names, and covers what the ledger says
    (3) with its key file here: every hop is routed again, by the table of its version, and gives the same bytes
Of every subscriber:
    (4) no event is in its mailbox twice, and each publisher's are in that publisher's order, as long as the overlay
        stays as it is: what is on its way when brokers move may be overtaken by what takes the new way
    (5) with its key file here: every event opens, and is what its publisher signed

From (1) to (3) follows that what was admitted went where the tables of that time sent it. That those tables are what
subscribers asked for, only they could say: nobody else has their filters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sealcast.errors import CannotOpen, Corrupt, KeyMissing, NotFound, SealcastError
from sealcast.protections.endpoint.audit import Kind, Report

if TYPE_CHECKING:
    from sealcast.log.entry import PieceRef
    from sealcast.log.mailbox import Delivery
    from sealcast.log.piece_reader import PieceReader
    from sealcast.protections.layered.open import EventOpener
    from sealcast.trust.deployment import Realm
    from sealcast.wire.hops import HopPiece

Advance = Callable[[int], None]


@dataclass(slots=True)
class LayeredReport(Report):
    """A report, and what it does not say."""

    brokers: int = 0
    #: Brokers whose hops were routed again, and subscribers whose events were opened: their keys are here.
    routed_again: int = 0
    subscribers: int = 0
    opened: int = 0
    waiting_records: int = 0
    #: What could not be checked, and why.
    gaps: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        return {
            **super(LayeredReport, self).as_json(),
            # Nobody but a subscriber knows what it should have got.
            "lost": None,
            "unexpected": None,
            "brokers": self.brokers,
            "brokers_routed_again": self.routed_again,
            "subscribers": self.subscribers,
            "subscribers_opened": self.opened,
            "waiting_records": self.waiting_records,
            "not_judged": self.gaps,
        }


class LayeredAudit:
    """One layered topic, from the first record of every broker to the last that is there."""

    def __init__(self, realm: Realm, topic: str) -> None:
        self._realm, self._topic = realm, topic
        self._state = realm.state()
        self._overlay = self._state.overlay(topic)

    def frames(self) -> int:
        """How much there is to do: for whoever shows progress."""
        return len(self._overlay.parents) + len(self._overlay.places)

    def run(self, advance: Advance = lambda done: None) -> LayeredReport:
        report = LayeredReport(self._topic)
        for node in self._overlay.downwards():
            self._broker(report, node)
            advance(1)
        for name, home in self._overlay.places.items():
            self._subscriber(report, name, home)
            advance(1)
        if report.routed_again < report.brokers:
            report.gaps.append(
                f"the keys of {report.brokers - report.routed_again} of {report.brokers} brokers are not all here: "
                "what those handed on was not routed again"
            )
        if report.opened < report.subscribers:
            report.gaps.append(
                f"the keys of {report.subscribers - report.opened} of {report.subscribers} subscribers are not here: "
                "what they got was not opened"
            )
        report.gaps.append("whether the tables are what subscribers asked for: only they know their filters")
        return report

    # --- (1) to (3) -----------------------------------------------------------------------------------

    def _broker(self, report: LayeredReport, node: str) -> None:
        from sealcast.log.piece_reader import hop_reader
        from sealcast.protections.layered.node import HOPS, HopStep
        from sealcast.protections.steps import StepName

        report.brokers += 1
        has_keys, paths = self._realm.paths.broker_key_of(node).exists(), self._realm.paths.topic(self._topic, node)
        opened = HopStep.of(StepName(str(self._realm.paths.root), self._topic, node, HOPS))
        journal = self._realm.broker(node).journal_key(self._state.topic(self._topic).id) if has_keys else None
        if self._overlay.parents[node] is None:
            admitted = hop_reader(paths.root, key=journal)
            self._ledger(report, admitted, node)
            report.events += sum(c.entry.counts.get("admitted", 0) for c in admitted.ledger.entries())
            report.waiting += self._waiting_frames(node, admitted)
            admitted.close()
        hops = hop_reader(paths.hops.root, key=opened.journal_key if has_keys else None)
        self._ledger(report, hops, node)
        report.batches += hops.end()
        report.deliveries += sum(c.entry.counts.get("deliveries", 0) for c in hops.ledger.entries())
        report.waiting_records += self._waiting_records(node, hops)
        if has_keys:
            self._route_again(report, node, hops)
        hops.close()

    def _ledger(self, report: LayeredReport, reader: PieceReader[HopPiece], node: str) -> None:
        try:
            reader.ledger.verify()
            for committed in reader.ledger.entries():
                entry = committed.entry
                covered: dict[int, int] = dict(enumerate(entry.start.partitions))
                for ref in entry.pieces:
                    piece = reader.piece(ref)
                    if covered.get(ref.partition, 0) != ref.first or piece.node != node:
                        raise Corrupt(f"{reader.root}: the pieces of record {committed.index} leave something out")
                    covered[ref.partition] = ref.end
                if tuple(covered[p] for p in sorted(covered)) != entry.end.partitions:
                    raise Corrupt(f"{reader.root}: record {committed.index} says it took more than its pieces cover")
        except Corrupt as error:
            report.add(Kind.LEDGER, error.message)

    def _route_again(self, report: LayeredReport, node: str, reader: PieceReader[HopPiece]) -> None:
        from sealcast.protections.layered.filters.table import NodeTables

        tables = NodeTables(self._realm, self._topic, node)
        try:
            for committed in reader.ledger.entries():
                for ref in committed.entry.pieces:
                    self._compare(report, node, reader.piece(ref), ref, tables)
            report.routed_again += 1
        except Corrupt as error:
            report.add(Kind.PIECE, error.message)
        except (NotFound, CannotOpen) as error:
            report.gaps.append(f"some of what {node!r} handed on is too old to be routed again: {error.message}")
        finally:
            tables.close()

    def _compare(self, report: LayeredReport, node: str, piece: HopPiece, ref: PieceRef, tables: object) -> None:
        import hashlib

        from sealcast.protections.layered.filters.table import NodeTables
        from sealcast.protections.layered.hop import hop
        from sealcast.protections.layered.node import HOPS, HopStep
        from sealcast.protections.steps import StepName
        from sealcast.wire import hops

        assert isinstance(tables, NodeTables)
        opened = HopStep.of(StepName(str(self._realm.paths.root), self._topic, node, HOPS))
        upstream = opened.reader(opened.upstreams()[ref.partition])
        made = hop(
            upstream.pieces(ref.first, ref.end),
            node,
            tables.at(piece.version),
            topic=piece.topic,
            version=piece.version,
            partition=ref.partition,
            first=ref.first,
            end=ref.end,
        )
        if hashlib.sha256(hops.encode(made)).digest() != ref.digest:
            report.add(
                Kind.PIECE,
                f"broker {node!r}: routed again, records {ref.first} to {ref.end - 1} above it give something else "
                f"than {ref.name} has",
            )

    def _waiting_frames(self, node: str, reader: PieceReader[HopPiece]) -> int:
        if not self._realm.paths.topic(self._topic, node).frames_root.is_dir():
            return 0
        last = reader.ledger.last_span()
        done = last.end.partitions if last is not None else ()
        with self._realm.frames(self._topic, node, read_only=True) as log:
            ends = [log.partition(p).end() for p in range(log.partitions)]
        return sum(end - (done[p] if p < len(done) else 0) for p, end in enumerate(ends))

    def _waiting_records(self, node: str, reader: PieceReader[HopPiece]) -> int:
        from sealcast.cli.layered_nodes import waiting

        return waiting(self._realm, self._topic, node, reader)

    # --- (4), (5) -------------------------------------------------------------------------------------

    def _subscriber(self, report: LayeredReport, name: str, home: str) -> None:
        from sealcast.log.cursor import Cursor
        from sealcast.protections.layered.client import mailbox_at

        report.subscribers += 1
        opener, mailbox = self._opener(name), mailbox_at(self._realm, self._topic, home, name)
        seen, last = set[tuple[bytes, bytes]](), dict[tuple[bytes, int], int]()
        try:
            for delivery in mailbox.deliveries(Cursor()):
                self._delivery(report, name, delivery, seen, last)
                if opener is not None:
                    self._open(report, name, delivery, opener)
        except Corrupt as error:
            report.add(Kind.LEDGER, error.message)
        finally:
            mailbox.close()
        report.opened += opener is not None

    def _delivery(
        self,
        report: LayeredReport,
        name: str,
        delivery: Delivery[HopPiece],
        seen: set[tuple[bytes, bytes]],
        last: dict[tuple[bytes, int], int],
    ) -> None:
        from sealcast.wire import frame
        from sealcast.wire.notifications import MESSAGES_PER_EVENT

        piece, index = delivery.piece, delivery.event
        header = frame.parse_signed(piece.frame(index).signed).header
        _, row, generation = piece.place(index)
        event, number = (header.boot, piece.event_id(index)), header.sequence + MESSAGES_PER_EVENT * row
        line = header.boot, generation
        if event in seen:
            report.add(Kind.DUPLICATED, f"{name!r} has event {delivery.position} twice")
        elif last.get(line, -1) >= number:
            report.add(Kind.OUT_OF_ORDER, f"{name!r} has event {delivery.position} after a later one of its publisher")
        seen.add(event)
        last[line] = number

    def _open(self, report: LayeredReport, name: str, delivery: Delivery[HopPiece], opener: EventOpener) -> None:
        try:
            opener.open(delivery.piece, delivery.handle)
        except KeyMissing as error:
            if error.message not in report.gaps:
                report.gaps.append(error.message)
        except CannotOpen as error:
            report.add(Kind.KEYS, f"event {delivery.position} does not open for {name!r}: {error.message}")

    def _opener(self, name: str) -> EventOpener | None:
        """What opens a subscriber's events, where its keys are at hand."""
        from sealcast.protections.layered.client import opener_for
        from sealcast.protections.layered.standing import Standing
        from sealcast.trust.keys.layer_keys import key_file, own_identity

        if not key_file(self._realm, self._state, name).exists():
            return None
        try:
            identity = own_identity(self._realm, self._state, name)
        except SealcastError:
            return None  # under another lock: as good as elsewhere
        return opener_for(self._realm, self._topic, Standing(self._realm, self._topic, identity))
