"""The type of each stage between the frame log and the mailboxes: a step cannot be skipped, its input would not exist.

    Received --authenticate, replay--> Ruled --admit--> Admitted --match--> Matched --group--> Grouped
        --seal--> GroupSealed --deliver--> a sealed piece

Each type holds one batch, as columns: frames of one partition of one topic, handled under one pinned version of the
realm. Arrays are numpy's and Arrow's; this module names their types and needs neither library to be imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from sealcast.model.dataclass import dataclass
from sealcast.model.rejection import Rejection

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Received:
    """Frames as they stand in the log: nothing is known of them yet."""

    partition: int
    offsets: Sequence[int]
    #: When each frame came, in microseconds since 1970 (`log.offsets.Arrival`): the clock of admission.
    times: Sequence[int]
    frames: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Ruled:
    """Frames of which the first checks have decided, replay among them: a code each (broker/admit.py)."""

    received: Received
    codes: NDArray[np.uint8]


@dataclass(slots=True)
class FrameProof:
    """What lets a subscriber verify one event of a frame alone: the signed header, and the tree under its root.

    Nobody changes one. It is not frozen, because there may be one for each event, and that takes four times as long."""

    offset: int
    signed: bytes
    count: int
    nodes: bytes


@dataclass(frozen=True, slots=True)
class Admitted:
    """Events that passed every check, as columns, beside what was refused and why."""

    partition: int
    #: Frames [first_offset, end_offset) of the log are accounted for here, admitted or refused.
    first_offset: int
    end_offset: int
    frames: tuple[FrameProof, ...]
    #: Of each event: which of `frames` it came in, that frame's offset, and the event's row there.
    frame_index: Ints
    offset: Ints
    row: Ints
    #: 0x00 | salt | record: the very bytes that the publisher hashed into its signature.
    messages: Sequence[bytes] = field(repr=False)
    #: Physical columns named by attribute, one row an event.
    columns: pa.RecordBatch = field(repr=False)
    #: Where in its message each event's payload starts (it runs to the end).
    payload_start: Ints
    rejections: tuple[Rejection, ...]
    #: By index into `frames`: predicates over entities (`filters.readers`) by which publishers narrow who opens events.
    readers: Mapping[int, str] = field(default_factory=dict)
    #: Of the frames that are traced: the contexts of their traces (`wire.traceparent`).
    traces: tuple[bytes, ...] = ()

    def messages_of(self, events: Ints) -> list[bytes]:
        """The messages of these events."""
        asked = events.tolist()
        # They may be cut out as they are asked for, which takes less than half the time in a row.
        messages = list(self.messages) if 2 * len(asked) > len(self.messages) else self.messages
        return [messages[event] for event in asked]

    def payloads(self) -> list[bytes]:
        """The payload of each event, cut out of its message."""
        return [message[start:] for message, start in zip(self.messages, self.payload_start.tolist(), strict=True)]


class MatchedPairs(NamedTuple):
    """Which events match which subscriptions of the pinned table, a pair each, by event."""

    events: Ints
    subscriptions: Ints


@dataclass(frozen=True, slots=True)
class Matched:
    """Which subscriptions each event matches: bit i of an event's words is subscription i of the pinned table. Where
    the table is much wider than what matches, pairs."""

    admitted: Admitted
    subscriptions: Words | MatchedPairs
    #: Those that were not asked, since it would have cost more than their subscriber may ask for.
    suspended: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Grouped:
    """The group of each event: the subscribers that are interested and authorised, by slot."""

    admitted: Admitted
    #: Distinct groups, one a row, bit s is slot s; none is empty.
    groups: Words
    #: Events that somebody gets (positions in `admitted`, ascending), and the group of each.
    events: Ints
    group_of: Ints
    #: Subscriptions that were suspended, as in `Matched`.
    suspended: tuple[int, ...] = ()


class KeyColumns(TypedDict):
    """Which key opens which event, and how keys reach their holders: columns of a sealed piece, by their names there.
    A protection that hands out no keys with events leaves the second part out."""

    #: 32 bytes an event: which key, and no other, opens the body.
    commitments: bytes
    #: 1: a content key seals the body and is wrapped under each key used; 0: the one key used seals it itself.
    wrapped: NDArray[np.uint8]
    #: 16 bytes a key, and what it is.
    key_ids: bytes
    key_kind: NDArray[np.uint8]
    use_start: Ints
    uses: Ints
    wraps: bytes


class HandoutColumns(KeyColumns, total=False):
    handout_slot: Ints
    handout_key: Ints
    handout_event: Ints
    handouts: bytes
    #: Grown keys under other keys, with which event; nothing where one grows out of the other.
    link_key: Ints
    link_under: Ints
    link_event: Ints
    link_grows: NDArray[np.uint8]
    links: bytes
    #: Parts of tables: to which slot, of which tile, with which event; the table's name, and the part sealed.
    table_slot: Ints
    table_tile: Ints
    table_event: Ints
    table_names: bytes
    table_start: Ints
    table_parts: bytes
    #: How tables lie under grown keys (`groupkeys.interface.Outline`).
    tile_size: Ints
    tile_run: Ints
    tile_join: Ints


@dataclass(frozen=True, slots=True)
class GroupSealed:
    """Every wanted event sealed once, and its key wrapped for those who may open it."""

    grouped: Grouped
    bodies: Sequence[bytes]
    keys: HandoutColumns
    #: Of each group: its members, ascending, through which of the uses each opens, and how many uses there are.
    member_start: Ints
    members: Ints
    via: Ints
    group_uses: Ints
    #: All that carries an event, or a key, to somebody.
    encryptions: int
