"""What admission knows: the realm at the pinned version, whose tokens and keys count there, and what is remembered.

The checks are in authenticate.py and admit.py. A gate answers their questions about one topic at one version; whatever
it has found out about a token or a sender it keeps, as long as it is sure to find the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sealcast.broker.quota import MAX_RATE, Quota
from sealcast.broker.replay import ReplayBounds
from sealcast.errors import TokenRejected
from sealcast.model.rejection import Reason
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.sign import VerifyKey
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.machine import RealmState, Topic
from sealcast.trust.realm.templates import Template
from sealcast.trust.realm.topics import Term
from sealcast.trust.tokens.claims import Token
from sealcast.trust.tokens.token import TokenGate, TokenReason
from sealcast.wire import frame
from sealcast.wire.lifting import Lift
from sealcast.wire.records import RecordCodec

#: What was decided of a frame before the second half of admission.
RULING: Final = np.dtype([("partition", "<i4"), ("offset", "<i8"), ("code", "u1")])
#: A code is a `ReplayVerdict` on replay and rate; or this and the number of the check that refused the frame before.
EARLIER: Final = 0x80
#: Codes of frames that an earlier batch took and this one matches with filters that came since. One ruling stands for
#: the frames of one piece. The second asks for a late piece even if nobody gets anything, so that the batch has one.
RETAINED: Final = 0x70
RETAINED_TOLD: Final = 0x71
#: The number of each check, and the check of each number.
CHECK: Final = {reason: number for number, reason in enumerate(Reason, 1)}
REASON: Final = {number: reason for reason, number in CHECK.items()}
#: A frame that was refused as a whole has no row.
WHOLE_FRAME: Final = -1

#: Verdicts on tokens and senders that a gate remembers, each of them small.
MAX_REMEMBERED: Final = 16_384
_SECOND_US: Final = 1_000_000
_NOBODY: Final = b""

Rulings = NDArray[np.void]
Codes = NDArray[np.uint8]


def bounds_of(topic: Topic) -> ReplayBounds:
    """What the topic's parameters say of its publishers' clocks and rates."""
    given = topic.parameters
    # Rates are of events; what a frame numbers is messages.
    messages = topic.protection.messages_per_event
    quota = Quota(min(MAX_RATE, given.events_per_s * messages), given.bytes_per_s, given.burst_s)
    return ReplayBounds(given.max_skew_s * _SECOND_US, given.stale_after_s * _SECOND_US, quota)


#: Of the payloads of a batch, those by number that no publisher of the topic makes, and why; none twice.
Unfit = Callable[[Topic, Sequence[bytes]], Iterable[tuple[int, str]]]


class GateRefusal(NamedTuple):
    """Why a frame does not pass."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Gate:
    """One topic at one version."""

    state: RealmState
    topic: Topic
    codec: RecordCodec
    #: By digest: how messages of each version of the topic's schema are read.
    lifts: Mapping[bytes, Lift]
    #: Takes tokens of the realm's key centers.
    tokens: TokenGate
    #: A token that was verified before, read; remembered.
    token: Callable[[bytes], Token]
    #: The key that opens what a publisher sealed in an epoch and in one of its boots.
    frame_key: Callable[[str, int, bytes], SealingKey]
    verify_key: Callable[[str], VerifyKey]
    bounds: ReplayBounds
    #: How a boot of a publisher is called in claims (`replay.identify`), remembered.
    identify: Callable[[str, bytes], tuple[int, int, int]]
    #: Whether this broker was handed the topic's key of an epoch, by the registry at this version.
    holds_key: Callable[[int], bool]
    #: What the topic's protection asks of payloads, if it does.
    unfit: Unfit | None = None
    _known: dict[tuple[bytes, bytes, str, int], GateRefusal | None] = field(default_factory=dict)

    def refuses_publisher(self, publisher: str, token: bytes, digest: bytes, time_us: int) -> GateRefusal | None:
        """Checks 4 to 11 for a frame of that publisher, appended at that time, whose header names a token by `digest`:
        the first that fails."""
        found = [self.refuses_token(publisher, token, digest, time_us), self.refuses_by_name(publisher, time_us)]
        return min((refusal for refusal in found if refusal), key=lambda r: CHECK[r.reason], default=None)

    def refuses_epoch(self, epoch: int, time_us: int) -> GateRefusal | None:
        """Check 12 for a frame that was sealed in that epoch and appended at that time: it is the topic's, or one that
        ended no longer than the grace before, and whose key this broker has."""
        if not self.topic.epoch_admissible(epoch, time_us):
            return GateRefusal(Reason.EPOCH, f"sealed for epoch {epoch}, the topic is in {self.topic.epoch}")
        # A broker without the key of the present epoch can do nothing at all, and no frame is to blame for it.
        if epoch != self.topic.epoch and not self.holds_key(epoch):
            return GateRefusal(Reason.EPOCH, f"sealed for epoch {epoch}, whose key this broker was not handed")
        return None

    def term(self, publisher: str) -> Term | None:
        """When that publisher may publish here by the realm's word; None for never."""
        return self.state.terms_of(self.topic.name, publisher).get(Right.PUBLISH)

    def template(self, token: bytes) -> Template:
        """What events a token is for that was taken before, within what was decided since: a right that was narrowed is
        narrower at once."""
        claims = self.token(token).claims
        term = self.state.terms_of(self.topic.name, claims.subject).get(Right.PUBLISH)
        if term is None or term.template == str(claims.template):
            return claims.template
        decided = Template.parse(term.template)
        # When they have nothing in common: the tags of both, which no event has.
        given = claims.template
        return given.meet(decided, self.topic.schema) or Template(given.topics, given.tags + decided.tags)

    def refuses_token(self, publisher: str, token: bytes, digest: bytes, time_us: int) -> GateRefusal | None:
        """What the token gate says, remembered. Tokens are judged by the second, as their times are: so it is the same
        for all frames of a second, whichever of them comes first."""
        second = time_us // _SECOND_US
        key = (token, digest, publisher, second)
        if key not in self._known:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self._known[key] = self._verify(publisher, token, digest, second * _SECOND_US)
        return self._known[key]

    def _verify(self, publisher: str, token: bytes, digest: bytes, time_us: int) -> GateRefusal | None:
        # (4) the token that its publisher signed for; (4) to (12) are the gate's, in this order
        if frame.token_digest(token) != digest:
            return GateRefusal(Reason.TOKEN, f"the token beside it is not the one that {publisher} signed for")
        entity = self.state.entities.get(publisher)
        held = _NOBODY if entity is None else entity.verify_key
        try:
            self.tokens.verify(token, self.topic, time_us, Right.PUBLISH, held, holder=publisher)
        except TokenRejected as error:
            return GateRefusal(Reason(TokenReason(error.reason).step), error.message)
        return None

    def refuses_by_name(self, publisher: str, time_us: int) -> GateRefusal | None:
        """What the realm has decided since the token was signed."""
        entity = self.state.entities.get(publisher)
        if entity is None:
            return GateRefusal(Reason.PUBLISHER, f"nobody named {publisher!r} is enrolled")  # (10)
        if entity.revoked:
            return GateRefusal(
                Reason.REVOKED, f"{publisher} was revoked at version {entity.revoked_at_version}"
            )  # (11)
        if not self.state.may_publish(self.topic.name, publisher, time_us):
            return GateRefusal(Reason.RIGHT, f"{publisher} may not publish on topic {self.topic.name}")  # (9)
        return None
