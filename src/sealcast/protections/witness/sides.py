"""The witness side of a protection, without what differs: what a broker's ledger says is counted in one way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sealcast.log import failing
from sealcast.log.piece_reader import Piece, PieceReader, sealed_reader
from sealcast.model.event import Position
from sealcast.protections.witness import facts, mailboxes
from sealcast.protections.witness.facts import Facts
from sealcast.protections.witness.mailboxes import ReceivedDelivery
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.state import RealmState
from sealcast.wire.sealed import SealedPiece

if TYPE_CHECKING:
    from sealcast.protections.port import Audit
    from sealcast.protections.witness.answer import WhyAnswer
    from sealcast.protections.witness.decided import BrokerDecisions
    from sealcast.protections.witness.reading import ReadingAudit

P = TypeVar("P", bound=Piece)


class Witness(ABC, Generic[P]):
    """Status, refusals and what was received, of any protection."""

    @abstractmethod
    def brokers(self, state: RealmState, topic: str) -> Sequence[str]:
        """Whose ledgers there are."""

    @abstractmethod
    def reader(self, realm: BrokerRealm, topic: str, broker: str) -> PieceReader[P]:
        """The ledger of a broker that has mailboxes, with its pieces."""

    @abstractmethod
    def lags(self, realm: BrokerRealm, topic: str, broker: str, reader: PieceReader[P]) -> dict[str, int]:
        """How far behind everyone is that the broker serves."""

    @abstractmethod
    def describe(self, realm: BrokerRealm, topic: str, broker: str, reader: PieceReader[P]) -> dict[str, Any]:
        """What else `status` says of a broker."""

    @abstractmethod
    def rows(self, found: Mapping[str, Any]) -> list[tuple[str, object]]:
        """The document of `status` for people, but for its head and the lag."""

    def status(self, realm: BrokerRealm, topic: str) -> Iterator[Facts]:
        state = realm.state()
        about = state.topic(topic)
        for broker in filter(realm.site.is_local, self.brokers(state, topic)):
            with closing(self.reader(realm, topic, broker)) as reader:
                lag = self.lags(realm, topic, broker, reader)
                found = {
                    "topic": topic,
                    "broker": broker,
                    "protection": about.protection.name,
                    "partitions": about.partitions,
                    "subscribers": len(lag),
                    **self.describe(realm, topic, broker, reader),
                    "failing": [asdict(note) for note in failing.notes(realm.paths.topic(topic, broker).root)],
                    "lag": {"total": sum(lag.values()), "subscribers": lag},
                }
            head = ("topic", f"{topic} ({about.protection.name}) at {broker!r}{found.pop('place', '')}")
            total = sum(lag.values())
            behind = ("lag", f"{total:,} {'delivery' if total == 1 else 'deliveries'} not acknowledged")
            yield Facts(found, [head, *facts.failing_rows(found["failing"]), *self.rows(found), behind])

    def refusals(self, realm: BrokerRealm, topic: str) -> Iterator[Iterator[dict[str, Any]]]:
        for broker in filter(realm.site.is_local, self.brokers(realm.state(), topic)):
            with closing(self.reader(realm, topic, broker)) as reader:
                yield facts.refusals(reader, topic, broker)


class ReadingWitness(Witness[SealedPiece]):
    """Brokers match events with filters of the registry, and deliver to slots: a protection adds its audit and its
    explanation.

    What does a broker's work again is imported when somebody asks for that: `status` only counts.
    """

    @abstractmethod
    def audit(self) -> type[ReadingAudit]:
        """What does the work of the protection's brokers again."""

    def decided(self) -> type[BrokerDecisions]:
        """What finds out what a broker decided about an event."""
        from sealcast.protections.witness.decided import BrokerDecisions

        return BrokerDecisions

    def audits(self, realm: BrokerRealm, topic: str, *, by_reference: bool) -> Sequence[Audit]:
        from sealcast.overlay.relay import brokers_here
        from sealcast.protections.witness.report import CheckReport

        report, state = CheckReport(topic), realm.state()
        here = brokers_here(realm, state)
        for broker in set(state.serving(topic)).difference(here):
            report.gap(f"the keys of broker {broker!r} are not here: what it delivered was not checked")
        ran = [
            b
            for b in here
            if b == FIRST_BROKER or (topic, b) in state.journals or realm.paths.topic(topic, b).ledger.exists()
        ]
        names = {broker: f"broker {broker!r}: " if len(ran) > 1 else "" for broker in ran}
        return [
            self.audit()(realm, topic, broker=broker, by_reference=by_reference, report=report, name=name)
            for broker, name in names.items()
        ]

    def why(self, realm: BrokerRealm, topic: str, event: Position, subscriber: str) -> WhyAnswer:
        from sealcast.protections.witness.reasons import Reasons

        with closing(Reasons(realm, topic, self.decided())) as reasons:
            return reasons.why(event, subscriber)

    def brokers(self, state: RealmState, topic: str) -> Sequence[str]:
        return state.serving(topic)

    def reader(self, realm: BrokerRealm, topic: str, broker: str) -> PieceReader[SealedPiece]:
        return sealed_reader(realm.journal(topic, broker))

    def lags(self, realm: BrokerRealm, topic: str, broker: str, reader: PieceReader[SealedPiece]) -> dict[str, int]:
        state, paths = realm.state(), realm.paths.topic(topic, broker)
        everyone = mailboxes.lags(reader, mailboxes.cursors(paths, state.slots_of(topic)))
        return {who: count for who, count in everyone.items() if state.served_at(topic, who, broker)}

    def received(self, realm: BrokerRealm, topic: str, broker: str) -> Mapping[str, ReceivedDelivery]:
        with closing(self.reader(realm, topic, broker)) as reader:
            return mailboxes.received(reader, list(realm.state().slots_of(topic)))

    def describe(self, realm: BrokerRealm, topic: str, broker: str, reader: PieceReader[SealedPiece]) -> dict[str, Any]:
        state = realm.state()
        return {
            "subscriptions": len(state.subscriptions_at(topic, broker)),
            "authorised": len(list(state.authorised_slots(topic))),
            **facts.admission(realm, topic, broker, reader.ledger),
        }

    def rows(self, found: Mapping[str, Any]) -> list[tuple[str, object]]:
        counts = "{subscriptions:,} of {subscribers:,} subscribers, {authorised:,} may read"
        return [("subscriptions", counts.format(**found)), *facts.admission_rows(found)]
