"""The master key of matching ciphertexts, in halves: x = a user's half + the broker's half of that user (mod q).

    x, search secret S   of one topic and epoch; the key center's, derived from a secret that no broker has
    H = x * G            shows nothing of x
    broker's half        derived from the topic's key, which the center hands to brokers: nothing more is handed out
    user's half          what is left; the center alone can compute it

Whoever has both halves of any one user has x. So a broker and one user together have it; neither alone learns anything
of it, since each half by itself is as good as random.
"""

from __future__ import annotations

from typing import Final

from sealcast.errors import Bug, CannotOpen, Misuse, Rejected
from sealcast.primitives import kdf, points
from sealcast.primitives.curve import CURVE, ORDER
from sealcast.primitives.groups import Element, Exponent
from sealcast.primitives.secrets import KEY_BYTES, Secret, Unpicklable

#: A user's part: its half, the search secret, and H.
PART_BYTES: Final = 2 * KEY_BYTES + points.WIRE_BYTES


class UserPart(Unpicklable):
    """What the key center hands to one user for one topic and epoch, beside the content key."""

    __slots__ = ("half", "public", "search")

    def __init__(self, half: Exponent, search: Secret, public: Element) -> None:
        self.half = half
        #: S: from it follow the exponents and the tags of labels.
        self.search = search
        #: H.
        self.public = public

    def to_bytes(self) -> bytes:
        """To be sealed to the user, and for nothing else."""
        return self.half.packed + self.search.reveal() + CURVE.encode(self.public)

    @classmethod
    def from_bytes(cls, data: bytes) -> UserPart:
        if len(data) != PART_BYTES:
            raise CannotOpen(f"a user's part of a search key has {PART_BYTES} bytes, not {len(data)}")
        try:
            half, public = Exponent(int.from_bytes(data[:KEY_BYTES], "big"), ORDER), CURVE.decode(data[2 * KEY_BYTES :])
        except (Misuse, Rejected):
            raise CannotOpen("a user's part of a search key has no exponent or no point in it") from None
        return cls(half, Secret(data[KEY_BYTES : 2 * KEY_BYTES]), public)


class MasterKey(Unpicklable):
    """x, S and H of one topic and epoch. Only the key center has one."""

    __slots__ = ("_x", "public", "search")

    def __init__(self, x: Exponent, search: Secret) -> None:
        self._x = x
        self.search = search
        self.public = points.base(x)

    @classmethod
    def derive(cls, secret: Secret, place: bytes) -> MasterKey:
        """The one of the topic and epoch that `place` names, from a secret of the center's own."""
        x = Exponent.derive(secret, ORDER, b"searchable x", place)
        return cls(x, kdf.derive(secret, b"searchable search", place))

    def part(self, broker_half: Exponent) -> UserPart:
        """The part of the user whose other half brokers have."""
        left = (self._x.reveal() - broker_half.reveal()) % ORDER
        if not left:
            raise Bug("a broker's half is the whole master key")  # as likely as guessing the key
        return UserPart(Exponent(left, ORDER), self.search, self.public)


def broker_half(topic_key: Secret, place: bytes) -> Exponent:
    """A broker's half of the user whom `place` names, with the topic and the epoch (`trust.keys.topic_keys.place`)."""
    return Exponent.derive(topic_key, ORDER, b"broker half", place)
