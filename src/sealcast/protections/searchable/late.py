"""late: events that an earlier batch took, matched with filters that came since. The pub-filter dismisses first.

    tags of a retained piece  --remembered-->  no new filter can match by them: its frames are not even read
                              otherwise        its frames are admitted as they were then, and searched as any others
    what matches              --minus-->       what the same subscriber was sent of it before, through another filter

Subscribers' halves are those of now: who has lost its right has none. Publishers' halves are those of then, so that an
event stays what it was when its publisher leaves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.broker.served import served_intervals
from sealcast.broker.tables import SubscriptionTable
from sealcast.filters import bits
from sealcast.model.stages import Admitted
from sealcast.model.subscription import Subscription
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.searchable.halves import BrokerHalves, Searched, searched
from sealcast.protections.searchable.past import Tags, may_match, published_tags
from sealcast.protections.searchable.search import Registered, SearchIndex
from sealcast.protections.witness.places import Delivered, admitted_places
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.realm.machine import RealmState, Topic
from sealcast.wire.sealed import SealedPiece
from sealcast.wire.searching import TAG_BYTES, SealedFilter, SealedRejected

Ints = NDArray[np.int64]
#: The tags of a piece's events, by epoch.
PieceTags = Mapping[int, Tags]
#: Of tags that a process remembers, over all pieces.
MAX_TAGS_BYTES: Final = 64 << 20
#: Filters that are compared with tags one by one. Of more, somebody's nearly always may match.
MAX_COMPARED: Final = 32


class PubFilters:
    """The tags of pieces that were looked through, by the pieces' names; those that were used longest ago are
    forgotten."""

    def __init__(self, most: int = MAX_TAGS_BYTES) -> None:
        self._known: OrderedDict[str, PieceTags] = OrderedDict()
        self._most, self._bytes = most, 0

    def get(self, piece: str) -> PieceTags | None:
        found = self._known.get(piece)
        if found is not None:
            self._known.move_to_end(piece)
        return found

    def put(self, piece: str, tags: PieceTags) -> None:
        self._bytes += _size(tags) - _size(self._known.pop(piece, {}))
        self._known[piece] = tags
        while self._bytes > self._most:
            self._bytes -= _size(self._known.popitem(last=False)[1])


def _size(tags: PieceTags) -> int:
    return sum(each.nbytes for each in tags.values())


class LateFilters(Unpicklable):
    """Filters that came since the batch before, at the version and time of this one."""

    def __init__(
        self,
        state: RealmState,
        topic: Topic,
        subscriptions: Mapping[str, Subscription],
        secrets: BrokerSecrets,
        time_us: int,
    ) -> None:
        self.tag_bits, self._topic_id = topic.protection.tag_bits_shown, topic.id
        self._halves = BrokerHalves(state, topic, secrets)
        slots = state.slots_of(topic.name)
        self.slots: Ints = np.array([slots[each.subscriber] for each in subscriptions.values()], np.int64)
        intervals = dict(served_intervals(state, topic, subscriptions))
        #: A table of these filters alone.
        self.table = SubscriptionTable(
            ids=tuple(subscriptions),
            slots=self.slots,
            n_slots=len(slots),
            one_each=False,
            authorised=bits.mask(np.zeros(len(slots), np.bool_)),
            index=_NOTHING,
            from_us=np.array([each.from_us for each in intervals.values()], np.int64),
            until_us=np.array([each.until_us for each in intervals.values()], np.int64),
        ).at(time_us)
        self._rows = list(_rows(subscriptions.values(), self.tag_bits))
        self._tags: dict[int, Tags] = {
            epoch: np.unique(np.array([_tag(label) for label in labels], np.uint32))
            for epoch, labels in self._labels().items()
        }

    def _labels(self) -> dict[int, list[bytes]]:
        found: dict[int, list[bytes]] = {}
        for row in self._rows:
            found.setdefault(row.filter.epoch, []).extend(row.filter.labels)
        return found

    @cached_property
    def _index(self) -> SearchIndex:
        """Made when the first event may match: every label costs a multiplication."""
        index = SearchIndex(self._topic_id, self.tag_bits)
        index.add(self._rows, self._halves.of)  # what it refuses matches nothing, and `status` counts it
        return index

    def may_match(self, tags: PieceTags) -> bool:
        """False only if no event with these tags can match."""
        for epoch, there in tags.items():
            asked = self._tags.get(epoch)
            if asked is None or not np.isin(asked, there).any():
                continue
            mine = [row.filter for row in self._rows if row.filter.epoch == epoch]
            if len(mine) > MAX_COMPARED or any(may_match(each, there) for each in mine):
                return True
        return False

    def search(self, events: Searched, then: BrokerHalves) -> tuple[Ints, Ints]:
        """(event, filter) of all that match, whatever was delivered before."""
        publishers, epochs = [each.publisher for each in events.senders], [each.epoch for each in events.senders]
        return self._index.search(publishers, epochs, events.blocks, then.of).pairs()


@dataclass(frozen=True, slots=True)
class LateIndex:
    """New filters against one retained piece: what `broker.match` asks."""

    filters: LateFilters
    then: BrokerHalves
    #: Everything that was delivered of the piece's frames before, read when something matches.
    had: Callable[[], HadBefore]
    #: Hears of the events that were looked at.
    looked: Callable[[Searched], None]

    def match(self, admitted: Admitted) -> bits.Words:
        events = searched(admitted)
        self.looked(events)
        event, number = self.filters.search(events, self.then)
        if event.size:
            new = ~self.had().has(admitted, self.filters.slots[number], event)
            event, number = event[new], number[new]
        return bits.pack(event, number, len(events.blocks), len(self.filters.table.ids))


class HadBefore:
    """Who was sent which events of some frames, and from whom all of it was withdrawn since."""

    def __init__(self, pieces: Iterable[SealedPiece], withdrawn: Iterable[int]) -> None:
        found = [Delivered.of(piece) for piece in pieces]
        self._slot = np.concatenate([np.empty(0, np.int64), *(each.slot for each in found)])
        self._place = np.concatenate([np.empty(0, np.int64), *(each.place for each in found)])
        #: After a compromise nobody can tell any more which events these were sent: they are sent none again.
        self.withdrawn: Ints = np.array(sorted(set(withdrawn)), np.int64)

    @cached_property
    def pairs(self) -> set[tuple[int, int]]:
        """(slot, place) of what was sent."""
        return set(zip(self._slot.tolist(), self._place.tolist(), strict=True))

    def has(self, admitted: Admitted, slot: Ints, event: Ints) -> NDArray[np.bool_]:
        """Which of these pairs of a slot and an admitted event were delivered, or must count as such."""
        places = admitted_places(admitted)
        known = np.isin(self._place, places)
        before = self._slot[known] * places.size + np.searchsorted(places, self._place[known])
        return np.isin(slot * places.size + event, before) | np.isin(slot, self.withdrawn)


def tags_of(events: Searched, tag_bits: int, known: PieceTags | None = None) -> PieceTags:
    """The tags of events by epoch, beside those that are known already."""
    blocks: dict[int, list[bytes]] = {}
    for sender, block in zip(events.senders, events.blocks, strict=True):
        blocks.setdefault(sender.epoch, []).append(block)
    found = {epoch: published_tags(each, tag_bits) for epoch, each in blocks.items()}
    return {**(known or {}), **{e: np.union1d(tags, (known or {}).get(e, tags)) for e, tags in found.items()}}


class _Nothing:
    def match(self, admitted: Admitted) -> bits.Words:
        return bits.pack(np.empty(0, np.int64), np.empty(0, np.int64), len(admitted.messages), 0)


_NOTHING: Final = _Nothing()


def _rows(subscriptions: Iterable[Subscription], tag_bits: int) -> Iterable[Registered]:
    for number, each in enumerate(subscriptions):
        try:
            yield Registered(number, each.subscriber, SealedFilter.from_text(each.filter, tag_bits))
        except SealedRejected:
            continue  # the registry took it under other rules: it matches nothing, and `status` counts it


def _tag(label: bytes) -> int:
    return int.from_bytes(label[:TAG_BYTES], "big")
