"""Sealed filters asked one by one, as paper 002 does it (section 3.2): what `check` and `why` compare the index with.

    of every registered label     C, once (Re-enc)
    of every trapdoor             T, with the half of its publisher
    a label is an event's         if they have one tag, and C - T hashes to the label's check, for its subscriber

It shares nothing with the index but the scheme. An event of an epoch is asked by filters of that epoch only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sealcast.errors import Rejected
from sealcast.primitives.groups import Element, Exponent
from sealcast.protections.searchable.halves import BrokerHalves, Searched, good_filter
from sealcast.protections.searchable.scheme import Holder, check_of, matching, re_encrypt, token
from sealcast.trust.realm.machine import Topic
from sealcast.wire.searching import TAG_BYTES, parse_block

Ints = NDArray[np.int64]
#: Of each T of an epoch: the events that have it, by their place in the batch.
Having = dict[Element, list[int]]


@dataclass(frozen=True, slots=True)
class StatedFilter:
    """A filter with its labels re-encrypted: tag, C and check of each. Without an epoch it is true of nothing."""

    epoch: int | None
    bound: bytes = b""
    conjunctions: tuple[tuple[tuple[tuple[bytes, Element, bytes], ...], ...], ...] = ()

    @property
    def tags(self) -> set[bytes]:
        return {tag for slots in self.conjunctions for slot in slots for tag, _, _ in slot}


def asked(text: str, subscriber: str, topic: Topic, halves: BrokerHalves) -> StatedFilter:
    """A registered filter, with the broker's half of its subscriber. Without one, or if it is none, it matches
    nothing."""
    found = good_filter(text, topic)
    half = None if found is None else halves.of(found.epoch, subscriber)
    if found is None or half is None:
        return StatedFilter(None)
    return StatedFilter(
        found.epoch,
        Holder(topic.id, found.epoch, subscriber).bound,
        tuple(tuple(tuple(_entries(slot, half)) for slot in slots) for slots in found.conjunctions),
    )


def _entries(slot: Sequence[bytes], half: Exponent) -> Iterator[tuple[bytes, Element, bytes]]:
    for label, encrypted in zip(slot, re_encrypt(slot, half), strict=True):
        if encrypted is not None:
            yield label[:TAG_BYTES], encrypted, check_of(label)


def true(filters: Sequence[StatedFilter], events: Searched, halves: BrokerHalves) -> Iterator[Ints]:
    """Returns for each filter the events that it is true of, ascending."""
    having = _having(events, halves, {(each.epoch, tag) for each in filters for tag in each.tags})
    for each in filters:
        by_tag = having.get(each.epoch) if each.epoch is not None else None
        found = set[int]()
        for slots in each.conjunctions if by_tag else ():
            assert by_tag is not None
            found |= set.intersection(*(_any(slot, each.bound, by_tag) for slot in slots))
        yield np.array(sorted(found), np.int64)


def _having(
    events: Searched, halves: BrokerHalves, asked: Set[tuple[int | None, bytes]]
) -> dict[int, dict[bytes, Having]]:
    """By epoch and tag, of those that some filter asks for. A trapdoor that is none is nobody's."""
    found: dict[int, dict[bytes, Having]] = {}
    known: dict[tuple[int, str, bytes], Element | None] = {}
    for number, (sender, block) in enumerate(zip(events.senders, events.blocks, strict=True)):
        half = halves.of(*sender)
        for trapdoor in parse_block(block) if half is not None else ():
            assert half is not None
            if (sender.epoch, trapdoor[:TAG_BYTES]) not in asked:
                continue
            key = (*sender, trapdoor)
            if key not in known:
                known[key] = _token(trapdoor, half)
            if (made := known[key]) is not None:
                by_tag = found.setdefault(sender.epoch, {}).setdefault(trapdoor[:TAG_BYTES], {})
                by_tag.setdefault(made, []).append(number)
    return found


def _token(trapdoor: bytes, half: Exponent) -> Element | None:
    try:
        return token(trapdoor, half)
    except Rejected:
        return None


def _any(slot: Sequence[tuple[bytes, Element, bytes]], bound: bytes, by_tag: dict[bytes, Having]) -> set[int]:
    """The events that have one of a slot's labels."""
    found = set[int]()
    for tag, encrypted, check in slot:
        for made, events in by_tag.get(tag, {}).items():
            if matching((encrypted,), (check,), (bound,), made):
                found.update(events)
    return found
