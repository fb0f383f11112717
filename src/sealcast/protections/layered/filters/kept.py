"""How long a broker keeps what belongs to an epoch or a generation that is over.

Events that were published in it were taken in until its grace had passed, and may be a while on their way: the tables
and the keys by which they are routed are kept for that long, and what a broker below makes of filters that came in time
is taken for that long. After that nothing is routed by them any more, and events that come still are refused.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sealcast.trust.keys.layer_keys import spent
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import FIRST_EPOCH, Topic

_SECOND_US: Final = 1_000_000


class Kept(NamedTuple):
    """The first epoch and the first generation by which something may still be routed."""

    epoch: int = FIRST_EPOCH
    generation: int = 0

    def has(self, epoch: int, generation: int) -> bool:
        return epoch >= self.epoch and generation >= self.generation

    def and_since(self, other: Kept) -> Kept:
        """What both keep: clocks may go back, what was dropped does not come again."""
        return Kept(max(self.epoch, other.epoch), max(self.generation, other.generation))


def kept_at(state: RealmState, topic: Topic, now_us: int) -> Kept:
    """What is kept at a time."""
    longest = (topic.parameters.grace_s + topic.parameters.stale_after_s) * _SECOND_US
    generation = state.overlay(topic.name).generation
    while generation and (ended := state.generation_ended(topic.name, generation - 1)) is not None:
        if now_us > ended.at_us + longest:
            break
        generation -= 1
    return Kept(spent(topic, now_us), generation)


def in_grace(state: RealmState, topic: Topic, generation: int, at_us: int) -> bool:
    """Whether a generation lasts, or its grace did at that time: as `Topic.epoch_admissible` says of epochs."""
    ended = state.generation_ended(topic.name, generation)
    return ended is None or at_us <= ended.at_us + topic.parameters.grace_s * _SECOND_US
