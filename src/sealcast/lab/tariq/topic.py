"""A topic of the attribute scheme to measure with: key server, publisher and subscriber, and no realm around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from sealcast.errors import Bug
from sealcast.primitives.pairing import available, named
from sealcast.primitives.pairing.counted import CountedPairing
from sealcast.protections.attribute import scheme
from sealcast.protections.attribute.scheme import (
    AttributeSealer,
    MasterSecret,
    Opener,
    OutgoingEvent,
    PlacedLabel,
    Profile,
    PublicParameters,
    SealOptions,
    TagKind,
)
from sealcast.protections.attribute.scheme.contents import event_message
from sealcast.protections.attribute.scheme.equations import Labels
from sealcast.protections.attribute.scheme.sign import SignatureClaim, sign, verify
from sealcast.wire.attribute import SealedAttributeEvent

ATTRIBUTES: Final = ("heat", "pulse", "ward", "zone")
DEPTH: Final = 8
EPOCH: Final = 1
PAYLOAD_BYTES: Final = 200

#: Something to do, with parameters that may be counted.
Work = Callable[[PublicParameters], Callable[[], object]]


class SchemeTopic:
    """A topic's key server, with a publisher of everything."""

    def __init__(
        self,
        profile: Profile = Profile.A,
        tags: TagKind = TagKind.KEYED,
        attributes: Sequence[str] = ATTRIBUTES,
        pairing: str | None = None,
    ) -> None:
        """`pairing`: the name of a library, or else the best one here."""
        self.attributes = attributes
        pairing = pairing or available()[0]
        self.counted = CountedPairing(named(pairing))
        self.master: MasterSecret = scheme.setup(profile, tags, named(pairing))
        self.parameters = self.master.public()
        self.publisher_key = self.master.publisher_key(EPOCH, {name: [labels(0)[0]] for name in attributes})

    def sealer(self, options: SealOptions | None = None) -> AttributeSealer:
        return AttributeSealer(self.parameters, self.publisher_key, options)

    def event(self, value: int = 0, payload: bytes = bytes(PAYLOAD_BYTES)) -> OutgoingEvent:
        return OutgoingEvent(self.labels(value), payload)

    def labels(self, value: int) -> Labels:
        return {name: labels((value * 37 + number * 11) % 2**DEPTH) for number, name in enumerate(self.attributes)}

    def key(self, value: int) -> scheme.SubscriptionKey:
        """A subscription for this value alone."""
        wanted = {name: [PlacedLabel(DEPTH, found[-1])] for name, found in self.labels(value).items() if found[-1]}
        return self.master.subscription_key(EPOCH, wanted)

    def counting(self) -> PublicParameters:
        """The parameters again, with a pairing that counts."""
        return PublicParameters.from_bytes(self.parameters.to_bytes(), self.counted)


def labels(value: int) -> tuple[bytes, ...]:
    """Returns the labels of a value on a grid of 2^8 places, by position."""
    bits = format(value, f"0{DEPTH}b")
    return tuple(f"{bits[:size]}|".encode() for size in range(DEPTH + 1))


def counted(topic: SchemeTopic, work: Work) -> Counter[str]:
    """What the work computes when it has been done before, so that what is remembered is."""
    ready = work(topic.counting())
    ready()
    topic.counted.spent.clear()
    ready()
    return Counter(topic.counted.spent)


def decrypting(topic: SchemeTopic) -> Work:
    """Opens an event up to its content, without what an opener remembers of headers."""
    (sealed,) = topic.sealer().seal([topic.event(5)])
    key = topic.key(5)

    def work(parameters: PublicParameters) -> Callable[[], object]:
        opener = Opener(parameters, [key])

        def run() -> object:
            event = SealedAttributeEvent.parse(sealed)
            return opener.opened_header(event).key.open(event.nonce, event.commitment, event.ciphertext)

        return run

    return work


def verifying(topic: SchemeTopic) -> Work:
    message = event_message(bytes(4096), 0, bytes(PAYLOAD_BYTES))
    claim = SignatureClaim(EPOCH, message, sign(topic.parameters, EPOCH, message, topic.publisher_key.credentials))

    def work(parameters: PublicParameters) -> Callable[[], object]:
        def run() -> None:
            if not verify(parameters, [claim]):
                raise Bug("an honest signature does not verify")

        return run

    return work


def encrypting(topic: SchemeTopic, options: SealOptions | None = None) -> Work:
    """Makes a header, without anything of an event."""
    wanted = topic.labels(5)

    def work(parameters: PublicParameters) -> Callable[[], object]:
        sealer = AttributeSealer(parameters, topic.publisher_key, options)
        return lambda: sealer.new_header(wanted)

    return work


def signing(topic: SchemeTopic) -> Work:
    message = event_message(bytes(4096), 0, bytes(PAYLOAD_BYTES))
    return lambda parameters: lambda: sign(parameters, EPOCH, message, topic.publisher_key.credentials)
