"""The settings of a `layered` topic, and which filters they allow: for subscribers and for brokers."""

from __future__ import annotations

from sealcast.errors import FilterRejected, Misuse
from sealcast.filters.labels import LabelFilter
from sealcast.model.protection import Layered
from sealcast.trust.realm.state import RealmState


def layering_of(state: RealmState, topic: str) -> Layered:
    found = state.topic(topic).protection
    if not isinstance(found, Layered):
        raise Misuse(f"topic {topic!r} is not layered: its protection is {found.name!r}")
    return found


def check_slots(wanted: LabelFilter, layering: Layered) -> None:
    """FilterRejected for a filter that no broker of the topic takes."""
    widest = max((len(slot) for each in wanted.conjunctions for slot in each.slots), default=0)
    if widest > layering.slot_labels:
        raise FilterRejected(
            "limit",
            f"one attribute takes {widest:,} labels in this filter, and {layering.slot_labels:,} are allowed",
            hint="ask for fewer values or ranges, or use several subscriptions",
        )
    if wanted.cost.labels > layering.reader_labels:
        raise FilterRejected(
            "limit",
            f"the filter takes {wanted.cost.labels:,} labels, and a reader of this topic may have "
            f"{layering.reader_labels:,}",
            hint="ask for fewer values or ranges",
        )
