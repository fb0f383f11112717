"""The witness side of `payload`: its broker matches attributes and hands on what publishers sealed. Both can be done
again, without a key of what is sealed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sealcast.protections.enveloped.envelope import lengths
from sealcast.protections.port import Explanation, Party, WitnessSide
from sealcast.protections.witness import filters_seen, past_keys
from sealcast.protections.witness.sides import ReadingWitness
from sealcast.trust.realm.state import RealmState

if TYPE_CHECKING:
    from sealcast.protections.witness.reading import ReadingAudit


class PayloadWitness(ReadingWitness):
    def audit(self) -> type[ReadingAudit]:
        from sealcast.protections.enveloped.audit import EnvelopedAudit

        return EnvelopedAudit

    def explain(self, state: RealmState, topic: str) -> Explanation:
        about, live = state.topic(topic), [e.name for e in state.entities.values() if not e.revoked]
        publishers = sum(state.may_publish(topic, name) for name in live)
        readers = sum(state.may_subscribe(topic, name) for name in live)
        return Explanation(
            "brokers with attributes and filters, and nobody but the key center and readers with payloads",
            _parties(sorted(about.protection.hidden), publishers, readers, filters_seen.in_registry(state, topic)),
            [*_left(about.protection.step), past_keys.left(state, topic)],
        )


WITNESS: Final[WitnessSide] = PayloadWitness()


def _parties(hidden: list[str], publishers: int, readers: int, registry: list[str]) -> list[Party]:
    """Everybody who takes part, or might look, and what each learns."""
    sealed = f"the payload and the attributes {', '.join(hidden)}" if hidden else "the payload"
    return [
        Party(
            f"a publisher ({publishers} may publish)",
            ["its own events", "every payload of the epoch that it gets hold of, if it may read as well"],
            [
                "open another publisher's payload, if it may only publish",
                "publish in another's name: every frame is signed and checked",
            ],
        ),
        Party(
            "the broker",
            [
                f"every attribute of every event{', but for ' + ', '.join(hidden) if hidden else ''}",
                filters_seen.BY_BROKERS,
                "publishers' names, times, and the lengths of what they sealed",
            ],
            [
                f"open {sealed}: the key center never gives a broker the content key",
                "forge or alter an event: subscribers verify the publisher's signature themselves",
                "show a reader other attributes than it matched: readers verify that, too",
            ],
        ),
        Party(
            f"a reader ({readers} may read)",
            [
                "the events that match one of its own filters, as the broker delivers them",
                "every event of the epoch that it gets hold of otherwise: from a disk, a backup or a broker",
            ],
            ["open events of an epoch in which it had no right to read", filters_seen.SEALED],
        ),
        Party(
            "whoever reads the disk, backups or the network, without secrets/ and entities/",
            [
                "publishers' names, times, lengths, counts, and which subscriber gets which event (by number)",
                *registry,
            ],
            [
                "read attributes or payloads",
                filters_seen.SEALED,
                "alter anything unnoticed: frames are signed, the ledger is chained",
            ],
        ),
        Party(
            "the key center",
            ["every event that it gets hold of: it makes the content key"],
            ["publish in another's name"],
        ),
    ]


def _left(pad: int) -> list[str]:
    """What is left knowingly."""
    return [
        "Brokers enforce filters here, mathematics does not. Whoever may read the topic opens every payload of "
        "the epoch that it gets hold of, also of events that it did not ask for.",
        "Who loses the right to read is cut off by a new epoch, at once, and keeps the keys of earlier ones. When a "
        "right ends by its term, that epoch begins at the next upkeep.",
        "A broker together with any one reader opens everything that the broker has of that reader's epochs.",
        lengths(pad),
        filters_seen.LEFT,
        "The disk allows traffic analysis: it shows times and who gets what.",
        "A publisher can show brokers only what is inside: a reader refuses an event whose attributes differ.",
    ]
