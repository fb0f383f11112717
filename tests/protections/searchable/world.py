"""A key center, a broker's halves and users, without anything around them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import Exponent
from sealcast.primitives.halves import MasterKey, broker_half
from sealcast.primitives.secrets import Secret
from sealcast.protections.searchable.scheme import Holder, UserKeys
from sealcast.protections.searchable.search import FoundSubscriptions, Registered, SearchIndex
from sealcast.trust.keys.topic_keys import place
from sealcast.wire.searching import FIRST_POINT, SECOND_POINT, SealedFilter

TOPIC_ID = bytes(16)


def rekeyed_label(label: bytes, half: Exponent) -> bytes:
    """Another's label with c2 of whoever has this half, which need not know what was sealed."""
    second = CURVE.encode(CURVE.power(CURVE.decode(label[FIRST_POINT]), half))
    return label[: FIRST_POINT.stop] + second + label[SECOND_POINT.stop :]


def rekeyed(theirs: SealedFilter, half: Exponent) -> SealedFilter:
    """The same for a filter: a copy that the broker re-encrypts to the very same points."""
    conjunctions = [[[rekeyed_label(label, half) for label in slot] for slot in slots] for slots in theirs.conjunctions]
    return SealedFilter.of(theirs.epoch, conjunctions)


class World:
    def __init__(self, users: Iterable[str] = ("ana", "bo", "cy"), tag_bits: int = 16) -> None:
        self.tag_bits = tag_bits
        self.content, self.topic_key = Secret.random(), Secret.random()
        #: Who has a half at the broker now.
        self.users = set(users)

    def master(self, epoch: int = 1) -> MasterKey:
        return MasterKey.derive(self.content, place(TOPIC_ID, epoch, ""))

    def half(self, epoch: int, user: str) -> Exponent | None:
        return broker_half(self.topic_key, place(TOPIC_ID, epoch, user)) if user in self.users else None

    def known_half(self, user: str, epoch: int = 1) -> Exponent:
        half = self.half(epoch, user)
        assert half is not None
        return half

    def keys(self, user: str, epoch: int = 1) -> UserKeys:
        half = broker_half(self.topic_key, place(TOPIC_ID, epoch, user))
        return UserKeys(self.master(epoch).part(half), Holder(TOPIC_ID, epoch, user), self.tag_bits)

    def registered(self, number: int, user: str, filters: object, epoch: int = 1) -> Registered:
        return Registered(number, user, self.keys(user, epoch).seal_filter(filters))  # type: ignore[arg-type]

    def block(self, labels: Iterable[bytes], user: str = "ana", epoch: int = 1) -> bytes:
        return self.keys(user, epoch).block(labels)

    def search(
        self, index: SearchIndex, blocks: Sequence[bytes], user: str = "ana", epoch: int = 1
    ) -> FoundSubscriptions:
        return index.search([user] * len(blocks), [epoch] * len(blocks), blocks, self.half)

    def matches(
        self, index: SearchIndex, *events: Iterable[bytes], user: str = "ana", epoch: int = 1
    ) -> list[list[int]]:
        found = self.search(index, [self.block(labels, user, epoch) for labels in events], user, epoch)
        return [each.tolist() for each in found.matches]
