"""Leaving a layered topic: whoever may not read any more loses its place, whatever its own broker does.

A broker drops the filters of somebody without the right, and those above it hear of that from the broker alone. One
that keeps quiet would go on being sent events. So whoever loses the right loses its place in the overlay with it, in
the same transaction: from then on nobody above takes a filter that ends in the one who left, and all end those that
they have.
"""

from __future__ import annotations

from collections.abc import Iterable

from sealcast.trust.realm.changes import PlaceSubscriber
from sealcast.trust.realm.state import RealmState


def unplaced(
    state: RealmState, now: int, entity: str | None = None, topics: Iterable[str] | None = None
) -> list[PlaceSubscriber]:
    """What takes those out of overlays who stand there and may not read any more: one entity, or all; of all topics, or
    of some."""
    layered = (t for t in (state.topics if topics is None else topics) if state.topic(t).protection.overlay)
    return [
        PlaceSubscriber(topic, name, None, now)
        for topic in layered
        for name in state.overlay(topic).places
        if entity in (None, name) and (state.entity(name).revoked or not state.may_subscribe(topic, name, now))
    ]
