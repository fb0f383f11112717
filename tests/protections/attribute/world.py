"""A small attribute topic: three attributes, each with a tree of depth three, and who holds what."""

from __future__ import annotations

from sealcast.primitives.pairing import Pairing, available, named
from sealcast.protections.attribute import scheme
from sealcast.protections.attribute.scheme import (
    AttributeSealer,
    MasterSecret,
    Opener,
    OutgoingEvent,
    PlacedLabel,
    Profile,
    SealOptions,
    TagKind,
)

PAIRINGS = available()
PROFILES = tuple(Profile)
TAGS = tuple(TagKind)
EPOCH = 7
ATTRIBUTES = ("heat", "ward", "zone")
DEPTH = 3


def below(bits: str) -> list[bytes]:
    """The labels of a value: its prefixes, the root first."""
    return [bits[:size].encode() + b"|" for size in range(len(bits) + 1)]


def placed(prefix: str) -> PlacedLabel:
    return PlacedLabel(len(prefix), prefix.encode() + b"|")


def event(payload: bytes = b"payload", **values: str) -> OutgoingEvent:
    """Attributes that are not named have their root label and nothing else."""
    labels: dict[str, list[bytes | None]] = {}
    for name in ATTRIBUTES:
        found: list[bytes | None] = [*below(values.get(name, ""))]
        labels[name] = found + [None] * (DEPTH + 1 - len(found))
    return OutgoingEvent(labels, payload)


class World:
    """A key server, with one publisher that may publish everything."""

    def __init__(self, pairing: str | Pairing, profile: Profile = Profile.A, tags: TagKind = TagKind.KEYED) -> None:
        self.pairing = named(pairing) if isinstance(pairing, str) else pairing
        self.master: MasterSecret = scheme.setup(profile, tags, self.pairing)
        self.parameters = self.master.public()
        self.publisher_key = self.master.publisher_key(EPOCH, {name: [b"|"] for name in ATTRIBUTES})

    def sealer(self, options: SealOptions | None = None) -> AttributeSealer:
        return AttributeSealer(self.parameters, self.publisher_key, options)

    def seal(self, payload: bytes = b"payload", **values: str) -> bytes:
        (sealed,) = self.sealer().seal([event(payload, **values)])
        return sealed

    def key(self, epoch: int = EPOCH, shared: bool = False, **wanted: str | list[str]) -> scheme.SubscriptionKey:
        """A subscription for prefixes of values; attributes that are not named take their root."""
        asked = {name: wanted.get(name, "") for name in ATTRIBUTES}
        labels = {
            name: [placed(one) for one in ([several] if isinstance(several, str) else several)]
            for name, several in asked.items()
        }
        return self.master.subscription_key(epoch, labels, shared)

    def opener(self, *keys: scheme.SubscriptionKey, **wanted: str | list[str]) -> Opener:
        return Opener(self.parameters, keys or [self.key(**wanted)])
