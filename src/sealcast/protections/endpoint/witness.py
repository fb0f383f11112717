"""The witness side of `endpoint`: its broker reads events and seals them for groups, so all of it can be done again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sealcast.protections.port import Explanation, Party, WitnessSide
from sealcast.protections.witness import filters_seen, past_keys
from sealcast.protections.witness.sides import ReadingWitness
from sealcast.trust.realm.state import RealmState

if TYPE_CHECKING:
    from sealcast.protections.witness.reading import ReadingAudit


class EndpointWitness(ReadingWitness):
    def audit(self) -> type[ReadingAudit]:
        from sealcast.protections.endpoint.audit import EndpointAudit

        return EndpointAudit

    def explain(self, state: RealmState, topic: str) -> Explanation:
        live = [e.name for e in state.entities.values() if not e.revoked]
        publishers = sum(state.may_publish(topic, name) for name in live)
        readers = sum(state.may_subscribe(topic, name) for name in live)
        authorised = len(list(state.authorised_slots(topic)))
        parties = [
            Party(
                f"a publisher ({publishers} may publish)",
                ["its own events"],
                ["read other publishers' events", "publish in another's name: every frame is signed and checked"],
            ),
            Party(
                "the broker",
                ["every event: attributes and payload", filters_seen.BY_BROKERS],
                ["forge or alter an event: subscribers verify the publisher's signature themselves"],
            ),
            Party(
                f"a subscriber ({len(state.slots_of(topic))} ever subscribed, {authorised} of them may read now)",
                [
                    "the events that match one of its own filters, while it may read",
                    "how many events shared a frame with one of its own, and salted hashes of them",
                ],
                ["open any other event, even together with other subscribers' keys", filters_seen.SEALED],
            ),
            Party(
                f"a member without a subscription ({max(0, readers - authorised)} could subscribe)",
                ["what the disk shows (see below)"],
                ["open any event: nothing is sealed for it"],
            ),
            Party(
                "whoever reads the disk, backups or the network, without secrets/ and entities/",
                [
                    "publishers' names, times, sizes, counts, and which subscriber gets which event (by number)",
                    *filters_seen.in_registry(state, topic),
                ],
                [
                    "read attributes or payloads",
                    filters_seen.SEALED,
                    "alter anything unnoticed: frames are signed, the ledger is chained",
                ],
            ),
        ]
        left = [
            "The disk allows traffic analysis: it shows sizes, times and who gets what.",
            filters_seen.LEFT,
            "A subscriber keeps what it was sent before a revocation. A revocation counts from the next batch on.",
            "For the system, whoever has secrets/broker.key and what unlocks it is the broker. "
            "Likewise, whoever has entities/NAME.key is NAME.",
            past_keys.left(state, topic),
        ]
        return Explanation(
            "the end-point broker: the process that runs the pipeline, with secrets/broker.key", parties, left
        )


WITNESS: Final[WitnessSide] = EndpointWitness()
