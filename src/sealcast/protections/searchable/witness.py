"""The witness side of `searchable`: its broker searches ciphertexts and hands on what publishers sealed. Both can be
done again with the broker's halves, and without a key of what is sealed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from sealcast.log.piece_reader import PieceReader
from sealcast.protections.port import Explanation, WitnessSide
from sealcast.protections.searchable.exposure import explained
from sealcast.protections.searchable.halves import refused_filters
from sealcast.protections.searchable.retained import retained
from sealcast.protections.witness.sides import ReadingWitness
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.realm.machine import RealmState
from sealcast.wire.sealed import SealedPiece

if TYPE_CHECKING:
    from sealcast.protections.witness.decided import BrokerDecisions
    from sealcast.protections.witness.reading import ReadingAudit


class SearchableWitness(ReadingWitness):
    def audit(self) -> type[ReadingAudit]:
        from sealcast.protections.searchable.audit import SearchableAudit

        return SearchableAudit

    def decided(self) -> type[BrokerDecisions]:
        from sealcast.protections.searchable.decided import SealedDecided

        return SealedDecided

    def describe(self, realm: BrokerRealm, topic: str, broker: str, reader: PieceReader[SealedPiece]) -> dict[str, Any]:
        state = realm.state()
        refused = refused_filters(state, topic, state.subscriptions_at(topic, broker))
        pieces = retained(reader.record, reader.end(), state.topic(topic).protection.retention, realm.clock())
        records = {piece.record for piece in pieces}
        events = sum(reader.record(index).entry.counts.get("admitted", 0) for index in records)
        kept = {"retained": {"batches": len(records), "events": events}}
        return {**super().describe(realm, topic, broker, reader), "filters_refused": refused, **kept}

    def rows(self, found: Mapping[str, Any]) -> list[tuple[str, object]]:
        bad = "{filters_refused:,} have points that are none, and match nothing".format(**found)
        first, *rest = super().rows(found)
        kept = "{events:,} events of {batches:,} batches, for filters that come later".format(**found["retained"])
        sealed = [("sealed filters", bad)] if found["filters_refused"] else []
        return [first, *sealed, *rest, ("retained", kept)]

    def explain(self, state: RealmState, topic: str) -> Explanation:
        return explained(state, topic)


WITNESS: Final[WitnessSide] = SearchableWitness()
