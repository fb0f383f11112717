"""How a topic's keys and tokens are made: what its owner chooses when it registers the topic with a key center.

Paper 004 (Pallickara and others, section 4.3) lets the owner choose the cipher, the size of its key and the hash
under a token's signature, and has the center refuse what it does not support. So here: a parameter that cannot be is
refused by its name, with what could be instead. The paper's choice of cipher mode and padding is gone: an AEAD has
neither.

    KeyParameters.parse({"key_bits": 192, "token_hash": "sha-384"})        from JSON or from NAME=VALUE of a command
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, fields
from enum import StrEnum
from typing import Any, Final

from sealcast.errors import ParameterRejected
from sealcast.model.dataclass import dataclass

ALGORITHMS: Final = ("AES-GCM",)
KEY_BITS: Final = (128, 192, 256)
PAST_KEYS: Final = ("kept", "forgotten")
#: Digits of a number written as text: bounds what parsing it can cost.
_MAX_DIGITS: Final = 18

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 366 * _DAY
#: More bytes than any topic has: no limit.
NO_LIMIT: Final = 1 << 62
#: Frames that are kept so long are kept on purpose, as a recording, and so are the keys that open them.
FOR_EVER_S: Final = 1_000 * _YEAR


class TokenHash(StrEnum):
    """The hash under the signature of a topic's tokens. One a topic: a token signed with another is refused."""

    SHA256 = "sha-256"
    SHA384 = "sha-384"
    SHA512 = "sha-512"


#: Inclusive bounds of the numbers, and what each bounds: (least, most, unit).
BOUNDS: Final[Mapping[str, tuple[int, int, str]]] = {
    "key_lifetime_s": (_MINUTE, 10 * _YEAR, "seconds"),
    # AES-GCM's own limit for one key (SPEC.md, MAX_SEALS_PER_KEY).
    "messages_per_key": (1, 2**32, "messages"),
    "token_lifetime_s": (1, _YEAR, "seconds"),
    "grace_s": (0, 7 * _DAY, "seconds"),
    "max_skew_s": (0, _HOUR, "seconds"),
    "stale_after_s": (1, _YEAR, "seconds"),
    # Rates are kept in whole nanoseconds an event or a byte (quota.py).
    "events_per_s": (1, 10**9, "events"),
    "bytes_per_s": (1, 10**9, "bytes"),
    "burst_s": (1, _DAY, "seconds"),
    "challenge_every_s": (0, _YEAR, "seconds"),
    "challenge_within_s": (1, _DAY, "seconds"),
    "frames_kept_s": (0, FOR_EVER_S, "seconds"),
    "pieces_kept_s": (_MINUTE, FOR_EVER_S, "seconds"),
    "pieces_kept_bytes": (0, NO_LIMIT, "bytes"),
    "frames_kept_bytes": (0, NO_LIMIT, "bytes"),
}


@dataclass(frozen=True, slots=True)
class KeyParameters:
    """The parameters of one topic. Whatever is here passed the checks: there is no other way to make one."""

    algorithm: str = "AES-GCM"
    key_bits: int = 256
    token_hash: str = TokenHash.SHA256.value
    #: A topic key is replaced when it is this old, or has sealed this many messages, whichever comes first.
    key_lifetime_s: int = 30 * _DAY
    messages_per_key: int = 2**32
    #: The longest a token may be valid.
    token_lifetime_s: int = _DAY
    #: How long after a rotation frames and tokens of the epoch before are still taken.
    grace_s: int = 5 * _MINUTE
    #: By how much the clocks of a realm may differ.
    max_skew_s: int = 5 * _MINUTE
    #: Messages older than this are refused as stale.
    stale_after_s: int = _DAY
    #: What each publisher may publish on the topic in the long run, and in how many seconds' worth at once: far more
    #: than an honest one does, far less than would hurt the others.
    events_per_s: int = 200_000
    bytes_per_s: int = 128 << 20
    burst_s: int = 300
    #: How often an entity proves that its keys are in its own hands before it gets another token (0: never), and how
    #: long it may take to answer.
    challenge_every_s: int = 0
    challenge_within_s: int = _MINUTE
    #: How old frames become that were committed: sealed pieces are the record. `FOR_EVER_S` keeps them for good.
    frames_kept_s: int = 7 * _DAY
    #: What brokers do with keys of epochs that are over and of which they have no frames: `keys.receiving`.
    past_keys: str = "kept"
    #: How old sealed pieces become, and how many bytes of them a broker keeps: what goes beyond either is removed, the
    #: oldest first, whether it was read or not.
    pieces_kept_s: int = FOR_EVER_S
    pieces_kept_bytes: int = NO_LIMIT
    #: How many bytes of committed frames a broker keeps, also of a recording: the oldest go, unless somebody may still
    #: look back at them (`Topic.looked_back_us`).
    frames_kept_bytes: int = NO_LIMIT

    def __post_init__(self) -> None:
        _one_of("algorithm", self.algorithm, ALGORITHMS)
        _one_of("key_bits", self.key_bits, KEY_BITS)
        _one_of("token_hash", self.token_hash, tuple(h.value for h in TokenHash))
        _one_of("past_keys", self.past_keys, PAST_KEYS)
        object.__setattr__(self, "token_hash", str(self.token_hash))
        for name, (least, most, unit) in BOUNDS.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise _refused(name, f"is {least} to {most} {unit}, not {_shown(value)}", f"set {name} within that")
        if self.grace_s >= self.key_lifetime_s:
            raise _refused(
                "grace_s",
                f"of {self.grace_s} s is not below key_lifetime_s of {self.key_lifetime_s} s: no key would ever end",
                "shorten grace_s or lengthen key_lifetime_s",
            )
        if self.max_skew_s >= self.stale_after_s:
            raise _refused(
                "max_skew_s",
                f"of {self.max_skew_s} s is not below stale_after_s of {self.stale_after_s} s: an honest clock's "
                "messages would be stale",
                "lower max_skew_s or raise stale_after_s",
            )

    @property
    def forgets(self) -> bool:
        """Whether brokers forget the topic's keys of past epochs."""
        return self.past_keys == "forgotten"

    @property
    def pieces_end(self) -> bool:
        """Whether sealed pieces are removed one day."""
        return self.pieces_kept_s < FOR_EVER_S or self.pieces_kept_bytes < NO_LIMIT

    @property
    def max_skew_us(self) -> int:
        return self.max_skew_s * 1_000_000

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> KeyParameters:
        """From JSON, or from text as a command line has it; ParameterRejected names the first that is wrong."""
        if not isinstance(given, Mapping):
            raise _refused("parameters", "are an object of names and values", "see `sealcast topic create --help`")
        known = {f.name for f in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                near = difflib.get_close_matches(str(name)[:64], known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
                raise _refused(_shown(name), "is no parameter of a topic's keys", hint)
            values[name] = _number(value) if name in BOUNDS or name == "key_bits" else value
        return cls(**values)

    @classmethod
    def stored(cls, given: Mapping[str, object]) -> KeyParameters:
        """As the registry has them. Topics from before frames had an end keep theirs."""
        return cls.parse({"frames_kept_s": FOR_EVER_S, **given})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _number(value: object) -> object:
    """A whole number written as text is that number; everything else is left for the bounds to refuse."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS:
        return int(value)
    return value


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if isinstance(value, bool) or not any(isinstance(value, type(a)) and value == a for a in allowed):
        listed = ", ".join(map(str, allowed))
        raise _refused(
            name,
            f"is {'one of ' if len(allowed) > 1 else ''}{listed}, not {_shown(value)}",
            f"write {name}={allowed[-1]}",
        )


def _refused(name: str, why: str, hint: str) -> ParameterRejected:
    return ParameterRejected(name, f"parameter {name} {why}", hint=hint)


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
