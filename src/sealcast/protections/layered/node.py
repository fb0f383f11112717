"""The second step of `layered`: every broker routes what is addressed to it, one hop. A batch is pinned to its table.

    a root          takes what it admitted itself     topics/TOPIC (pieces, ledger)
    any other       takes what its parent handed on   the parent's topics/TOPIC/hops
    either writes   its own hops/                     pieces, ledger; upstreams, which it took from so far

What is above it is found and read by `above`. A process opens the key files of the brokers that it runs, and of no
other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa

from sealcast.broker.columns import piece_row
from sealcast.errors import Busy, Corrupt, NotFound
from sealcast.log.hop_notes import TakenRecords
from sealcast.log.offsets import PinnedOffset
from sealcast.log.piece_reader import PieceReader
from sealcast.primitives.secrets import Secret
from sealcast.protections.journals import HOPS_PART
from sealcast.protections.layered.above import HopInput
from sealcast.protections.layered.filters.keeper import TableKeeper
from sealcast.protections.layered.filters.table import NodeTables
from sealcast.protections.layered.hop import hop
from sealcast.protections.layered.taken import TakenBelow, TellingAbove, statement
from sealcast.protections.steps import Awaited, StepName, Task
from sealcast.transports.problems import GatewayUnreachable
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.keys.layer_keys import held
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import FIRST_EPOCH, Topic
from sealcast.wire import hops
from sealcast.wire.hops import HopPiece

HOPS: Final = "hops"
#: Of all keepers, before events are looked at: filters that never end do not keep them waiting for ever.
MAX_PASSES: Final = 16


class HopStep(HopInput):
    """A broker of a layered topic: what is above it, its own hops, its table and its keeper."""

    step = HOPS
    max_bytes = 16 << 20
    #: Peeling and putting on layers takes so long that the smallest record is worth a task.
    min_task_bytes = 1

    @cached_property
    def _telling(self) -> dict[PieceReader[HopPiece], TellingAbove]:
        """What brokers above are told of how far this one is, each by its ledger."""
        return {}

    @classmethod
    def brokers(cls, realm: BrokerRealm, state: RealmState, topic: str, here: Sequence[str]) -> list[str]:
        return [broker for broker in state.overlay(topic).downwards() if broker in here]

    @classmethod
    def look(cls, names: Sequence[StepName]) -> None:
        overlay = names[0].open().realm.state().overlay(names[0].topic)
        for name in names:
            cls.of(name).look_up(overlay)

    @classmethod
    def turn(cls, names: Sequence[StepName]) -> int:
        """The keepers of these brokers take the filters that wait, those below first, so that a filter goes all the way
        up at once; how many changed a table. Until none does: one may have waited for another's key, and in a
        generation that is over, who is above now may have been below."""
        if not names:
            return 0
        overlay = names[0].open().realm.state().overlay(names[0].topic)
        here = {name.broker: name for name in names}
        keepers = [cls.of(here[node]).keeper for node in reversed(overlay.downwards()) if node in here]
        moved = 0
        for _ in range(MAX_PASSES):
            now = sum(keeper.turn() for keeper in keepers)
            moved += now
            if not now:
                break
        return moved

    # --- its own ----------------------------------------------------------------------------------

    def checkpoint(self, alone: bool) -> Path:
        """One query does the hops of all brokers that are here."""
        return self.paths.checkpoint if alone else self.realm.paths.topic(self.name.topic).hops.checkpoint

    @cached_property
    def journal_key(self) -> Secret:
        """Of the hops' ledger: not the one of what a root admits, so that neither can stand for the other."""
        return self.realm.broker(self.name.broker).journal_key(self.about.id).part(HOPS_PART)

    @cached_property
    def tables(self) -> NodeTables:
        return NodeTables(self.realm, self.name.topic, self.name.broker)

    @cached_property
    def keeper(self) -> TableKeeper:
        return TableKeeper(
            self.realm,
            self.name.topic,
            self.name.broker,
            note_taken=lambda said: self._below.note(said, self.ledger),
        )

    @property
    def initial(self) -> PinnedOffset:
        return PinnedOffset.initial(1)

    def version(self) -> int:
        return self.keeper.version()

    # --- how long it is kept ----------------------------------------------------------------------

    @cached_property
    def _below(self) -> TakenBelow:
        return TakenBelow(self.paths.root, self._notes)

    def awaited(self, due: range) -> Awaited | None:
        """The first of these records that a broker of the overlay is to hand on, and has not said that it took."""
        said, brokers = self._below.records(self.ledger), self.realm.state().overlay(self.name.topic).parents
        for index in due:
            pieces = (self.pieces.read(ref.name, ref.digest) for ref in self.ledger.at(index).entry.pieces)
            behind = {name for name in brokers if name != self.name.broker and said.get(name, 0) <= index}
            if behind and (missing := behind.intersection(chain.from_iterable(map(self.routed_by, pieces)))):
                return Awaited(index, tuple(sorted(missing)))
        return None

    def tell(self, now_us: int) -> int:
        """Those above that are in the overlay: who left it removes nothing any more."""
        own, parents = self.name.broker, self.realm.state().overlay(self.name.topic).parents
        about, told = self.realm.state().topic(self.name.topic), 0
        if not about.parameters.pieces_end:
            return 0
        for upstream in self._noted():
            if upstream != own and upstream in parents and (records := self.taken_from(upstream)):
                with suppress(Busy, GatewayUnreachable):
                    told += self._tell(about, upstream, records, now_us)
        return told

    def _tell(self, about: Topic, upstream: str, records: int, now_us: int) -> int:
        above, own = self.reader(upstream), self.name.broker
        if above not in self._telling:
            self._telling[above] = TellingAbove(above)
        telling = self._telling[above]
        if not telling.is_due(about, records, now_us):
            return 0
        said = TakenRecords(records, above.record(records - 1).tag)
        made = statement(about.id, self.realm.broker(own).identity, upstream, said)
        with self.realm.site.of(own).posts(self.name.topic, upstream) as log:
            log.check_share(own)
            log.append([made])
        telling.told(records, now_us)
        return 1

    # --- a batch ----------------------------------------------------------------------------------

    def hop(self, version: int, partition: int, first: int, end: int) -> HopPiece:
        """What becomes of records [first, end) of one of the ledgers above, by the table of that version."""
        above = self.upstream(partition)
        self._check_keys(version)
        notes = [each for index in range(first, end) if (each := above.record(index).resealed) is not None]
        number = list(self.realm.state().entities).index(self.name.broker) if notes else 0
        return hop(
            above.pieces(first, end),
            self.name.broker,
            self.tables.at(version),
            self.tables.kept_at(version),
            topic=self.about.id,
            version=version,
            partition=partition,
            first=first,
            end=end,
            removed=sum(each.unrouted_by(number) for each in notes),
        )

    def _check_keys(self, version: int) -> None:
        """NotFound where a key by which the table routes never came here, as to a worker whose home is from before. Its
        events would be refused, and lost. One of an epoch before the newest that is here was forgotten: what came under
        it is refused, wherever it is routed."""
        state, own = self.realm.state(), self.name.broker
        newest = max(held(self.realm, state, self.about, own), default=FIRST_EPOCH - 1)
        for epoch in sorted({tree.epoch for tree in self.tables.at(version)}):
            if epoch > newest and state.layer_key(self.name.topic, epoch, own) is not None:
                raise NotFound(
                    f"the agreement key of {own!r} for topic {self.name.topic!r}, epoch {epoch}, is not here",
                    hint="on a worker: bring it the broker's home as it is now (sealcast worker-home). Where the key "
                    f"is lost, a new epoch makes a new one: sealcast topic rotate {self.name.topic}",
                )

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        for span in task.spans:
            step, end = HopStep.of(span.name), span.batch_end
            piece = step.hop(end.version, span.partition, span.first, span.end)
            yield piece_row(span.name.broker, piece, hops.encode(piece), end.pinned)

    # --- a run ------------------------------------------------------------------------------------

    def prepare(self) -> None:
        taken, known = self.committed().partitions, len(self.upstreams())
        done = max((number for number, records in enumerate(taken, 1) if records), default=0)
        if done > known:
            raise Corrupt(
                f"broker {self.name.broker!r} took records from {done} ledgers above it, and its note names {known}: "
                "notes were removed, or an old copy was put back",
                hint="restore the newest copy",
            )
        super().prepare()

    def outdated(self, version: int) -> Corrupt:
        return Corrupt(
            f"the table of broker {self.name.broker!r} is at version {self.version()}, but its last batch was "
            f"routed by version {version}: filters were removed, or an old copy was put back",
            hint="restore the newest copy",
        )
