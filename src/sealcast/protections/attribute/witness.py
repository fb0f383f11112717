"""The witness side of `attribute`: there is no ledger of a broker, so peers' own logs are all that there is.

What is public is read by anyone who has the files. Whether events open, their subscriber's keys say: where those are
not here, it is not judged, and said so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import numpy as np

from sealcast.log.ledger import LedgerReader
from sealcast.log.piece_reader import PieceReader, peer_reader
from sealcast.model.event import Position
from sealcast.protections.attribute import trace
from sealcast.protections.attribute.audit import PeersAudit
from sealcast.protections.attribute.exposure import explained
from sealcast.protections.port import Audit, Explanation, WitnessSide
from sealcast.protections.witness import facts, mailboxes
from sealcast.protections.witness.answer import WhyAnswer
from sealcast.protections.witness.facts import LedgerTally
from sealcast.protections.witness.mailboxes import Ints, ReceivedDelivery
from sealcast.protections.witness.sides import Witness
from sealcast.trust.deployment import Realm
from sealcast.trust.handles import BrokerRealm, OpenRealm
from sealcast.trust.realm.state import RealmState
from sealcast.wire.peer_pieces import PeerPiece


class AttributeWitness(Witness[PeerPiece]):
    def audits(self, realm: Realm, topic: str, *, by_reference: bool) -> Sequence[Audit]:
        return [PeersAudit(realm, topic, by_reference=by_reference)]

    def why(self, realm: Realm, topic: str, event: Position, subscriber: str) -> WhyAnswer:
        return trace.why(realm, topic, event, subscriber)

    # --- how it stands ----------------------------------------------------------------------------------------------

    def brokers(self, state: RealmState, topic: str) -> Sequence[str]:
        """Whoever may be a peer of the topic; those that left nothing here are passed over."""
        return [who.name for who in state.entities.values() if state.terms_of(topic, who.name) or who.revoked]

    def reader(self, realm: BrokerRealm, topic: str, broker: str) -> PieceReader[PeerPiece]:
        return peer_reader(realm.paths.topic(topic, broker).root)

    def status(self, realm: BrokerRealm, topic: str) -> Iterator[facts.Facts]:
        here = set(peers_here(realm, topic))
        return (each for each in super().status(realm, topic) if each.document["broker"] in here)

    def refusals(self, realm: BrokerRealm, topic: str) -> Iterator[Iterator[dict[str, Any]]]:
        for name in peers_here(realm, topic):
            paths = realm.paths.topic(topic, name)
            for of in (paths, paths.sent):
                with closing(peer_reader(of.root)) as reader:
                    yield facts.refusals(reader, topic, name)

    def lags(self, realm: BrokerRealm, topic: str, broker: str, reader: PieceReader[PeerPiece]) -> dict[str, int]:
        if realm.state().slot_of(topic, broker) is None:
            return {}
        at = mailboxes.cursors(realm.paths.topic(topic, broker), {broker: 0})
        return mailboxes.lags(reader, at, _all_of_it)

    def received(self, realm: BrokerRealm, topic: str, broker: str) -> Mapping[str, ReceivedDelivery]:
        with closing(self.reader(realm, topic, broker)) as reader:
            return mailboxes.received(reader, [broker], _all_of_it)

    def describe(self, realm: BrokerRealm, topic: str, broker: str, reader: PieceReader[PeerPiece]) -> dict[str, Any]:
        state, paths = realm.state(), realm.paths.topic(topic, broker)
        inbox, own, end = LedgerTally.of(reader.ledger), LedgerTally(), 0
        if paths.frames_root.is_dir():
            with LedgerReader(paths.sent.ledger) as ledger, realm.outbox(topic, broker, read_only=True) as log:
                own, end = LedgerTally.of(ledger), log.partition(0).end()
        both = inbox.counts + own.counts
        return {
            "subscriptions": sum(each.subscriber == broker for each in state.subscriptions_of(topic)),
            "authorised": int(state.slot_of(topic, broker) is not None and state.may_subscribe(topic, broker)),
            "frames": end,
            "backlog": own.waiting([end]),
            "batches": inbox.batches + own.batches,
            "version_in_force": max(inbox.version, own.version),
            "last_batch_at": facts.moment(max(filter(None, (inbox.last_us, own.last_us)), default=None)),
            "events": {k: both[k] for k in ("admitted", "matched", "deliveries", "encryptions")},
            "rejected": {k: n for of in (own, inbox) for k, n in of.rejected.items()},
            "per_second": {"admitted": own.per_second("admitted"), "deliveries": inbox.per_second("deliveries")},
        }

    def rows(self, found: Mapping[str, Any]) -> list[tuple[str, object]]:
        frames = "{frames:,} published, {backlog:,} waiting for its peer: sealcast peer run".format(**found)
        return [
            ("subscriptions", "{subscriptions:,} of its own".format(**found)),
            *([("frames", frames)] if found["frames"] else []),
            ("records", facts.batches(found)),
            ("events", "{admitted:,} sent, {deliveries:,} received".format(**found["events"])),
            ("rejected", facts.reasons(found["rejected"])),
            ("last minute", "{admitted:,} events/s sent, {deliveries:,} received".format(**found["per_second"])),
        ]

    def explain(self, state: RealmState, topic: str) -> Explanation:
        return explained(state, topic)


WITNESS: Final[WitnessSide] = AttributeWitness()


def peers_here(realm: OpenRealm, topic: str) -> list[str]:
    """The entities that have a log or an inbox on a topic here, or a subscription there."""
    state = realm.state()
    subscribed = {each.subscriber for each in state.subscriptions_of(topic)}

    def has_logs(name: str) -> bool:
        paths = realm.paths.topic(topic, name)
        return paths.frames_root.is_dir() or paths.ledger.is_dir()

    return [name for name in state.entities if name in subscribed or has_logs(name)]


def _all_of_it(piece: PeerPiece, skip: Ints) -> tuple[Ints, Ints]:
    """Everything in an inbox is for the one that it belongs to."""
    return np.array([0], np.int64), np.maximum(0, len(piece) - skip[:1])
