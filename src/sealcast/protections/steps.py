"""A step: what a broker runs on a span of its input. A protection lists its steps (`port.BrokerSide`); Spark runs them.

    step              reads                                pins                         makes
    `frames`          the broker's frame log               the registry's version       a piece for each run of frames
    any other         records of ledgers of this topic     the version of its table     a piece for each run of records

Every step has pieces and a ledger of its own, and the ledger is the truth: where a step goes on, and what was made. A
step may look at what earlier batches took once more, beside its own input (`OpenStep.beside`): late pieces are of that.
Spark pickles readers, writers and their options into plans. So a plan carries names only (`StepName`); keys, logs and
ledgers are opened by the process that uses them, and kept by it (`OpenStep`).
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple, Self

import pyarrow as pa

from sealcast.broker.columns import STAGED
from sealcast.broker.copies import Copies
from sealcast.errors import Corrupt, Misuse, NotFound, Unavailable
from sealcast.log import suspended
from sealcast.log.entry import Entry
from sealcast.log.journal import KeptJournal
from sealcast.log.ledger import Committed, Ledger
from sealcast.log.offsets import PinnedOffset
from sealcast.log.pieces import PieceStore
from sealcast.log.replays import Replays
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.protections import port
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.layout import FIRST_BROKER, Layout, TopicPaths
from sealcast.trust.realm.machine import RealmState, Topic

#: The step that reads a broker's frame log: the first of every protection that has brokers.
FRAMES: Final = "frames"
#: A whole tree of brokers may be in one process.
MAX_OPEN: Final = 1_024


@dataclass(frozen=True, slots=True, order=True)
class StepName:
    """A step of a topic at one of its brokers: all that a plan says of it."""

    realm: str
    topic: str
    broker: str = FIRST_BROKER
    step: str = FRAMES

    @property
    def reads_frames(self) -> bool:
        return self.step == FRAMES

    def open(self) -> OpenStep:
        """The step in this process: opened on first use, kept for the next."""
        return _open(self, here(self.realm))


def names_from(options: Mapping[str, str]) -> tuple[StepName, ...]:
    """The steps that a query runs, from the options of its source or sink: `realm`, `topic`, `step`, and `brokers` with
    commas between them."""
    realm, topic = (options.get(name) for name in ("realm", "topic"))
    if not realm or not topic:
        raise Misuse('name the realm\'s directory and the topic: .option("realm", ...).option("topic", ...)')
    brokers = (options.get("brokers") or FIRST_BROKER).split(",")
    return tuple(StepName(os.path.abspath(realm), topic, b, options.get("step") or FRAMES) for b in brokers)


def here(realm: str) -> tuple[int, ...]:
    """What handles on a realm are kept by: the process, because they do not survive a fork, and which realm it is,
    because its directory may be made anew."""
    mark = Layout(Path(realm)).mark
    try:
        made = mark.stat()
    except OSError:
        raise NotFound(f"{realm} is no realm (it has no {mark.name})") from None
    return os.getpid(), made.st_ino, made.st_mtime_ns


@lru_cache(MAX_OPEN)
def _open(name: StepName, where: tuple[int, ...]) -> OpenStep:
    about = realm_of(name.realm, where).state().topic(name.topic)
    for kind in port.broker_side(about.protection).steps:
        if kind.step == name.step:
            return kind(name)
    raise Misuse(f"the protection of topic {name.topic!r}, {about.protection}, has no step {name.step!r}")


@lru_cache(16)
def realm_of(directory: str, where: tuple[int, ...]) -> BrokerRealm:
    """The realm in this process (`here`)."""
    return BrokerRealm(directory)


@dataclass(frozen=True, slots=True)
class Span:
    """Frames or records [first, end) of one partition of a step's input."""

    name: StepName
    partition: int
    first: int
    end: int
    #: Where the step's part of the batch ends, and what it is pinned to.
    batch_end: PinnedOffset
    #: Not the batch's own input: an earlier one took these frames, and this code says what is done with them now
    #: (`broker.gate`).
    retained: int | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """What one task of a batch reads."""

    spans: tuple[Span, ...]
    #: All frames that the batch takes, if it takes frames: (partition, first, end) of each partition.
    batch: tuple[tuple[int, int, int], ...] = ()
    #: What replay remembers of those before it (`Windows.pack`).
    windows: bytes = b""
    #: What the frames are that were taken from other brokers, for tasks on machines that do not have the copies.
    copies: tuple[Copies, ...] = ()


class CutEvent(NamedTuple):
    """An event in a piece, as far as whoever takes events out has to know it."""

    #: The same wherever the event went.
    id: bytes
    publisher: str
    #: Who finds it in a mailbox, each by its number in notes (`Resealed.withdrawn`).
    delivered: tuple[int, ...]


class CutPiece(NamedTuple):
    """What is left of a piece without some of its events."""

    data: bytes
    events: int
    deliveries: int
    encryptions: int


class EmptiedPiece(NamedTuple):
    """A piece of the same frames or records without events, and whom those that it had were for."""

    data: bytes
    #: Who found how many in a mailbox, each by its number in notes (`Resealed.withdrawn`).
    delivered: Mapping[int, int]
    #: Through which brokers how many were on their way (`Resealed.on_the_way`).
    on_the_way: Mapping[int, int] = MappingProxyType({})


class Awaited(NamedTuple):
    """Brokers that have not taken something which is due to be removed, and the first record that this holds for."""

    record: int
    brokers: tuple[str, ...]


class CuttingStep(ABC):
    """A step whose pieces have every event sealed by itself. Events can be taken out of them as they stand, by whoever
    opens none of them."""

    @abstractmethod
    def events_in(self, data: bytes) -> Sequence[CutEvent]:
        """The events of a piece, in order."""

    @abstractmethod
    def cut(self, data: bytes, gone: Collection[int], version: int) -> CutPiece:
        """The piece without these events; the others are as they were."""


class OpenStep(Unpicklable, ABC):
    """A step with its broker's files: its input, pieces, ledger and journal key."""

    #: Its name, the same for every broker of the topic.
    step: ClassVar[str]
    #: Of input that one micro-batch takes: what is redone after a crash, and how long others wait for a new filter.
    max_bytes: ClassVar[int]
    #: Less than this is not worth a task of its own.
    min_task_bytes: ClassVar[int]

    def __init__(self, name: StepName) -> None:
        self.name = name
        self.where = here(name.realm)
        self.realm = realm_of(name.realm, self.where)
        self.about: Topic = self.realm.state().topic(name.topic)

    @classmethod
    def of(cls, name: StepName) -> Self:
        """The open step of that name, where it must be of this kind; Misuse where the topic's protection has others."""
        step = name.open()
        if not isinstance(step, cls):
            raise Misuse(f"topic {name.topic!r} is protected by `{step.about.protection}`, which cannot do this")
        return step

    # --- who runs it ------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def brokers(cls, realm: BrokerRealm, state: RealmState, topic: str, here: Sequence[str]) -> list[str]:
        """Those of the brokers here that run this step."""

    @classmethod
    def look(cls, names: Sequence[StepName]) -> None:
        """Learns where these brokers' input comes from by now. Before a batch is planned."""

    @classmethod
    def turn(cls, names: Sequence[StepName]) -> int:
        """Takes in what may change the version to pin (filters that were posted); how many changed something."""
        return 0

    # --- its files --------------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        return self.name.topic

    @property
    def paths(self) -> TopicPaths:
        return self.realm.paths.topic(self.name.topic, self.name.broker)

    def checkpoint(self, alone: bool) -> Path:
        """Where Spark keeps its notes on the query that runs this step: for this broker alone, or for all that are
        here."""
        return self.paths.checkpoint

    @property
    @abstractmethod
    def journal_key(self) -> Secret:
        """For the ledger and for what Spark keeps for this step."""

    @property
    def journal(self) -> KeptJournal:
        """Where its ledger and its pieces are."""
        return self.realm.journal(self.name.topic, self.name.broker)

    @cached_property
    def pieces(self) -> PieceStore:
        return self.journal.pieces

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.paths.ledger, self.journal_key, self.journal)

    def committed(self) -> PinnedOffset:
        """How far the ledger says that the step came."""
        last = self.ledger.last_span()
        return last.end if last is not None else self.initial

    @property
    @abstractmethod
    def initial(self) -> PinnedOffset:
        """Before the first batch."""

    # --- its input --------------------------------------------------------------------------------

    @abstractmethod
    def available(self) -> tuple[int, ...]:
        """How far the input goes, by partition."""

    @abstractmethod
    def sizes(self, partition: int, first: int, end: int, most: int | None = None) -> list[int]:
        """Bytes of each frame or record there, as many as fit into `most`, but one at least."""

    @abstractmethod
    def version(self) -> int:
        """What a batch that is planned now is pinned to."""

    def awaits(self, at: PinnedOffset, available: tuple[int, ...]) -> bool:
        """Whether there is anything to take after `at`."""
        return any(end > done for end, done in zip_longest(available, at.partitions, fillvalue=0))

    # --- how long it is kept ----------------------------------------------------------------------

    @abstractmethod
    def emptied(self, data: bytes, version: int) -> EmptiedPiece:
        """What is left of a piece that this step made when all of its events are removed, decided under a version of
        the registry."""

    def awaited(self, due: range) -> Awaited | None:
        """Who still has to take what, of these records of the ledger; None where nobody takes from it but readers."""
        return None

    def tell(self, now_us: int) -> int:
        """Tells the brokers whose ledgers it takes from how far it is, where something there is due to be removed; how
        many were told."""
        return 0

    # --- a batch ----------------------------------------------------------------------------------

    def beside(self, start: PinnedOffset, end: PinnedOffset) -> list[tuple[Span, Sequence[int]]]:
        """What a batch reads beside its own input, each with its size, in one number: none of it is divided."""
        return []

    def settled(self, ends: tuple[int, ...]) -> int:
        """Everything after `ends` came at this time or later, by this broker's clock."""
        return 0

    def pinned(self, start: PinnedOffset, ends: tuple[int, ...], now_us: int) -> PinnedOffset:
        """The offset where a batch ends. `now_us` was read before the input's ends were."""
        # A partition that came since and has nothing yet is not of this batch: the ledger learns of it with a piece.
        used = max((n for n, end in enumerate(ends, 1) if end), default=0)
        reached, time_us = ends[: max(used, len(start.partitions))], max(now_us, start.time_us)
        since, settled = (max(min(self.settled(at), time_us), start.settled_us) for at in (start.partitions, ends))
        return PinnedOffset(reached, self.version(), time_us, settled, since)

    def tasks(
        self, divided: Sequence[tuple[Span, ...]], start: PinnedOffset, end: PinnedOffset, last: Committed | None
    ) -> list[Task]:
        """The tasks of a batch whose input is divided so, after that record of the ledger."""
        return [Task(spans) for spans in divided]

    @abstractmethod
    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        """In a worker: what a task makes, as rows of PIECES (broker/columns.py)."""

    def staged(self, made: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In a worker: makes pieces durable that nobody knows of yet, each at its own broker: a task may have pieces
        of several. PIECES -> STAGED."""
        for batch in made:
            for row in batch.to_pylist():
                span = row["partition"], row["first_offset"], row["end_offset"]
                file = replace(self.name, broker=row["node"]).open().pieces.stage(*span, row.pop("piece"))
                about = {"name": file.name, "digest": file.digest, "size": file.size}
                yield pa.RecordBatch.from_pylist([row | about], schema=STAGED)

    def warm(self) -> None:
        """Before a query is begun: what its first batch would have to wait for is worked out."""

    def took(self, last: Committed | None, entry: Entry, taken: Sequence[bytes]) -> None:
        """After a batch was committed behind that record: what replay took of it."""

    def note_suspended(self, entry: Entry, pieces: Mapping[int, int]) -> None:
        """After a batch, for their owners: which subscriptions got nothing of how many of its pieces, by their place in
        the table."""
        if pieces:
            served = list(self.realm.state(entry.version).subscriptions_at(self.name.topic, self.name.broker))
            living = self.realm.state().topic_state(self.name.topic).subscriptions
            found = {served[place]: count for place, count in pieces.items() if place < len(served)}
            suspended.add(self.paths.root, found, entry.end.time_us, living)

    # --- a run ------------------------------------------------------------------------------------

    def begin(self, continues: bytes = b"") -> None:
        """Before the first batch that a run plans. A run that plans none does not begin. `continues` is the
        incarnation of the run before, where this one may go on with it (`MatchingStep.going_on`)."""

    def prepare(self) -> None:
        """Before a run, for whoever runs the step alone: what crashes left is repaired or removed, what they cannot
        have left is refused."""
        if (self.name.topic, self.name.broker) in self.realm.state().leaving:
            raise Unavailable(
                f"topic {self.name.topic!r} is on its way from a carrier to the directory",
                hint=f"finish that first: sealcast topic move {self.name.topic} --to embedded",
            )
        committed = self.committed()
        for number, (done, end) in enumerate(zip(committed.partitions, self.ends(), strict=False)):
            if end < done:
                raise self.shortened(number, done, end)
        if self.version() < committed.version:
            raise self.outdated(committed.version)
        self.check_history()
        self.collect_garbage(time.time_ns() // 1000)

    def ends(self) -> tuple[int, ...]:
        """`available`, after what a crash left in the input was repaired."""
        return self.available()

    @abstractmethod
    def shortened(self, partition: int, done: int, end: int) -> Corrupt:
        """The ledger took more from a partition than it has."""

    def chain(self, version: int) -> bytes:
        """The chain of the registry up to a version that batches are pinned to; nothing where that is another's."""
        return b""

    def check_history(self) -> None:
        """Corrupt, if the registry is not the one that the ledger's last batch was made under."""

    @abstractmethod
    def outdated(self, version: int) -> Corrupt:
        """The ledger's last batch was pinned to a version that does not exist yet."""

    def collect_garbage(self, before_us: int, term: str | None = None) -> list[str]:
        """Removes pieces that were staged by batches which never came to be."""
        return self.ledger.collect(self.pieces, before_us, term, self._replayed)

    def _replayed(self) -> set[str]:
        """Pieces that were made for one reader: no record of the ledger names them."""
        with closing(Replays(self.journal)) as replays:
            return {ref.name for each in replays.all() for ref in each.pieces}
