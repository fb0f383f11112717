"""A pinned offset: everything a batch depends on (decision 1), and the check that a batch follows the one before.

Spark keeps our offsets as JSON in its checkpoint and believes whatever it finds there. Two attacks, two answers:

    altered by hand   each offset carries a MAC of the broker's: it is refused before it is used
    an older one      its MAC is right, but a batch must start where the ledger's last record ended (`check_continuity`)
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple, Protocol

from sealcast.errors import Corrupt, Misuse
from sealcast.model.dataclass import dataclass
from sealcast.primitives import mac
from sealcast.primitives.secrets import Secret
from sealcast.wire import cbor

MAX_PARTITIONS: Final = 4096
#: Nonces give the offset 40 bits.
MAX_OFFSET: Final = (1 << 40) - 1
MAX_VERSION: Final = (1 << 53) - 1
MAX_TIME_US: Final = (1 << 53) - 1
_CONTEXT: Final = b"sealcast pinned offset 2"
_FIELDS: Final = frozenset({"partitions", "version", "time", "settled", "tag"})
#: Only in offsets that have one.
_SINCE: Final = "since"


class Arrival(NamedTuple):
    """When the frames of a batch came, by the clock of the broker that takes them: after it looked and found none of
    them, and before it looked and found them."""

    from_us: int
    until_us: int

    def at(self, stamp_us: int) -> int:
        """The time at which a frame is judged that its appender stamped so. A stamp is a stranger's word: it counts
        between the two looks, and for no other frame."""
        return min(max(stamp_us, self.from_us), self.until_us)


#: For frames that are not judged: an earlier batch admitted them.
AS_STAMPED: Final = Arrival(0, MAX_TIME_US)


@dataclass(frozen=True, slots=True)
class PinnedOffset:
    """How far each partition is consumed, and the realm that is in force: its version and the time. Equal offsets,
    equal output. None of it ever goes back."""

    partitions: tuple[int, ...]
    version: int
    #: When the batch that ends here was planned: the clock of what subscribers may read. Its frames came before.
    time_us: int = 0
    #: Every frame beyond this offset came at this time or later: what may be forgotten.
    settled_us: int = 0
    #: Every frame of the batch that ends here came at this time or later.
    since_us: int = 0

    def __post_init__(self) -> None:
        if not 0 < len(self.partitions) <= MAX_PARTITIONS:
            raise Misuse(f"a pinned offset has 1 to {MAX_PARTITIONS} partitions, not {len(self.partitions)}")
        numbers = all(_whole(offset, MAX_OFFSET) for offset in self.partitions) and _whole(self.version, MAX_VERSION)
        if not numbers or not all(_whole(at, MAX_TIME_US) for at in (self.time_us, self.settled_us, self.since_us)):
            raise Misuse("a pinned offset is made of whole numbers from 0 up")

    @classmethod
    def initial(cls, partitions: int) -> PinnedOffset:
        """Before the first batch."""
        return cls((0,) * partitions, 0)

    def reaches(self, other: PinnedOffset) -> bool:
        """Is this `other` or later, in every partition, in version and in time? A topic may gain partitions, never lose
        one."""
        return (
            len(self.partitions) >= len(other.partitions)
            and all(mine >= theirs for mine, theirs in zip(self.partitions, other.partitions, strict=False))
            and self.version >= other.version
            and self.time_us >= other.time_us
            and self.settled_us >= other.settled_us
            and self.since_us >= other.since_us
        )

    def arrival(self, end: PinnedOffset) -> Arrival:
        """When the frames between this and `end` came."""
        return Arrival(max(self.settled_us, end.since_us), end.time_us)

    @property
    def pinned(self) -> dict[str, int]:
        """What every row of the batch that ends here says of it."""
        return {"version": self.version, "time": self.time_us, "settled": self.settled_us, _SINCE: self.since_us}

    def ranges(self, end: PinnedOffset) -> list[tuple[int, int, int]]:
        """(partition, first, end) of what lies between this and `end`; partitions with nothing new are left out."""
        padded = self.partitions + (0,) * (len(end.partitions) - len(self.partitions))
        return [
            (p, first, last) for p, (first, last) in enumerate(zip(padded, end.partitions, strict=True)) if last > first
        ]

    def to_json(self, key: Secret) -> dict[str, object]:
        """For Spark's offset log: sealed with a MAC."""
        since = {_SINCE: self.since_us} if self.since_us else {}
        return {
            "partitions": list(self.partitions),
            "version": self.version,
            "time": self.time_us,
            "settled": self.settled_us,
            **since,
            "tag": mac.tag(key, *self._parts()).hex(),
        }

    @classmethod
    def from_json(cls, body: object, key: Secret) -> PinnedOffset:
        """Back from Spark's offset log; Corrupt when it is not what was handed to Spark."""
        if not isinstance(body, Mapping) or set(body) - {_SINCE} != _FIELDS:
            raise _altered("it is not an offset of this topic")
        partitions, given = body["partitions"], body["tag"]
        if not isinstance(partitions, list) or not isinstance(given, str):
            raise _altered("it is not an offset of this topic")
        try:
            offset = cls(tuple(partitions), body["version"], body["time"], body["settled"], body.get(_SINCE, 0))
            tag = bytes.fromhex(given)
        except (Misuse, ValueError):
            raise _altered("it is not an offset of this topic") from None
        if not mac.verify(key, tag, *offset._parts()):
            raise _altered("its tag is not ours")
        return offset

    def to_cbor(self) -> list[object]:
        since = [self.since_us] if self.since_us else []  # left out where it is zero: an offset has one encoding
        return [list(self.partitions), self.version, self.time_us, self.settled_us, *since]

    @classmethod
    def from_cbor(cls, body: object) -> PinnedOffset:
        match body:
            case [list(partitions), int(version), int(time_us), int(settled_us)]:
                return cls(tuple(partitions), version, time_us, settled_us)
            case [list(partitions), int(version), int(time_us), int(settled_us), int(since_us)] if since_us:
                return cls(tuple(partitions), version, time_us, settled_us, since_us)
            case _:
                raise Misuse("not a pinned offset")

    def _parts(self) -> tuple[bytes, bytes]:
        return _CONTEXT, cbor.encode(self.to_cbor())

    def __str__(self) -> str:
        return f"{'/'.join(map(str, self.partitions))} at version {self.version}"


class Planned(Enum):
    """What a batch that Spark plans is to the ledger."""

    NEW = "new"
    #: The last committed one, run again because the driver died before Spark knew that it was committed.
    AGAIN = "again"


class _Span(Protocol):
    @property
    def start(self) -> PinnedOffset: ...
    @property
    def end(self) -> PinnedOffset: ...


def check_continuity(last: _Span | None, start: PinnedOffset, end: PinnedOffset) -> Planned:
    """Refuse a batch that does not follow the ledger's last one, and is not that one again."""
    if last is not None and (start, end) == (last.start, last.end):
        return Planned.AGAIN
    expected = PinnedOffset.initial(len(start.partitions)) if last is None else last.end
    if start != expected:
        raise Corrupt(
            f"Spark plans a batch from {start}, but the ledger ends at {expected}: "
            + ("events in between would be lost" if start.reaches(expected) else "events would be delivered again"),
            hint="Spark's checkpoint is not the one that belongs to this ledger: put the right one back, or remove it; "
            "a new checkpoint goes on where the ledger ends",
        )
    if not end.reaches(start):
        raise Corrupt(f"Spark plans a batch from {start} back to {end}; offsets never go back")
    return Planned.NEW


def _altered(why: str) -> Corrupt:
    return Corrupt(
        f"an offset in Spark's checkpoint was altered: {why}",
        hint="remove the checkpoint; a new one goes on where the ledger ends",
    )


def _whole(number: object, limit: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= limit
