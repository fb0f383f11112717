"""What carriers have of a realm's topics: one moment of it, as files that a directory would have. For a backup, and for
what leaves a carrier.

    (1) how far each log is     whoever takes from another is asked first: brokers below, then those above, then roots'
                                ledgers, then frames. So nobody has taken what is not in the backup
    (2) the records up to there, which never change
    (3) the pieces that these ledgers name; one that is gone by now was replaced, and the moment has passed

A backup has one kind of topics. Restored, they are in the realm's directory (`making`), wherever they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from sealcast.errors import Misuse, NotFound, Unavailable
from sealcast.log import queue_mark
from sealcast.log.hop_notes import write_upstreams
from sealcast.log.journal import MOVED, DirectoryJournal, JournalLog, KeptJournal
from sealcast.log.landing import land
from sealcast.log.ledger import LedgerReader
from sealcast.log.pieces import Pieces
from sealcast.log.port import PartitionLog
from sealcast.log.replays import Replays
from sealcast.trust.handles import BrokerRealm, OpenRealm
from sealcast.trust.layout import TopicPaths


class MomentPassed(Unavailable):
    """Something that belongs to the moment is gone: take another."""


#: The logs of a journal and where they are in a directory, in the order in which they are asked: notes are on records.
_LOGS: Final[tuple[tuple[JournalLog, str], ...]] = (
    ("reseals", "reseals"),
    ("replays", "replays/notes"),
    ("ledger", "ledger"),
)
#: What a directory may have left of a topic that was moved: the carrier has these.
_LEFT: Final = ("ledger", "reseals", "replays", "pieces", MOVED)
_OF_AN_OVERLAY: Final = (*(f"hops/{each}" for each in (*_LEFT, "upstreams")), "filters/in", "filters/table")


class _CarriedMark(NamedTuple):
    log: PartitionLog
    end: int
    directory: Path


class CarriedMoment:
    """One moment of all topics that are on carriers."""

    def __init__(self, realm: OpenRealm, into: Path, parts: Sequence[tuple[str, str]] | None = None) -> None:
        """Files are put into a directory that is laid out as the realm's. `parts`, by topic and broker, are all that
        there are unless they are named."""
        self._realm, self.into, self._state = realm, into, realm.state()
        self._marks: list[_CarriedMark] = []
        self._journals: list[tuple[KeptJournal, Path]] = []
        every = [at for at in self._state.carried if at[0] in self._state.topics]
        self.parts = [at for at in every if parts is None or at in parts]
        if lacking := [at for at in self.parts if at not in self._state.journals]:
            raise Misuse(
                f"topic {lacking[0][0]!r} has its frames on a carrier and its ledger in the directory",
                hint=f"an earlier release moved it half; move the rest: sealcast topic move {lacking[0][0]}",
            )

    def leaves_out(self, path: Path) -> bool:
        """Whether a file of the realm's directory is of something that a carrier has in its place."""
        for topic, broker in self.parts:
            about, number = self._state.topic(topic), self._state.broker_number(broker)
            root = self._realm.paths.topic(topic, broker).root
            own = range(about.partitions * number, about.partitions * (number + 1))
            there = [*_LEFT, *_OF_AN_OVERLAY, *(f"frames/{partition}" for partition in own)]
            if any(path == root / each or root / each in path.parents for each in there):
                return True
        return False

    def mark(self) -> None:
        """(1)"""
        for topic, broker in self._lower_first():
            if self._state.topic(topic).protection.overlay:
                self._mark_journal(topic, broker, "hops")
                self._mark_overlay(topic, broker)
        for topic, broker in self.parts:
            self._mark_journal(topic, broker, "")
            for partition in (log := self._realm.frames(topic, broker, read_only=True)).own:
                self._mark(log.partition(partition), self._paths(topic, broker).frames(partition))

    def copy(self) -> None:
        """(2) and (3); MomentPassed if something of it is gone."""
        try:
            for each in self._marks:
                land(each.log, each.end, each.directory)
            for journal, root in self._journals:
                self._copy_pieces(journal, root)
        except NotFound as error:
            raise MomentPassed(f"{error.message}, and was there when the backup began", hint="try again") from None
        now = self._realm.state()
        if (now.carried, now.journals) != (self._state.carried, self._state.journals):
            raise MomentPassed("a topic was moved meanwhile", hint="try again")

    def _lower_first(self) -> Iterator[tuple[str, str]]:
        for topic in dict.fromkeys(topic for topic, _ in self.parts):
            brokers = {broker for name, broker in self.parts if name == topic}
            placed = [broker for broker in reversed(self._state.overlay(topic).downwards()) if broker in brokers]
            yield from ((topic, broker) for broker in (*placed, *sorted(brokers.difference(placed))))

    def _paths(self, topic: str, broker: str) -> TopicPaths:
        return TopicPaths(self.into / self._realm.paths.topic(topic, broker).root.relative_to(self._realm.paths.root))

    def _mark(self, log: PartitionLog, directory: Path) -> None:
        self._marks.append(_CarriedMark(log, log.end(), directory))

    def _mark_journal(self, topic: str, broker: str, part: str) -> None:
        journal = self._realm.carriers.journal(self._state, topic, broker, "hops" if part else "")
        root = self._paths(topic, broker).root / part
        for which, directory in _LOGS:
            if (log := journal.log(which)) is not None:
                self._mark(log, root / directory)
        self._journals.append((journal, root))

    def _mark_overlay(self, topic: str, broker: str) -> None:
        """What is authenticated by a broker's own key is read with it: a carrier could have exchanged it."""
        there, paths = self._realm.carriers.overlay(self._state, topic, broker), self._paths(topic, broker)
        if there is None or not isinstance(self._realm, BrokerRealm):
            raise Misuse(f"the keys of broker {broker!r} are needed to back up what it notes on a carrier")
        with there.notes(self._realm.broker(broker).journal_key(self._state.topic(topic).id)) as notes:
            write_upstreams(paths.hops.root, notes.upstreams())
            first = notes.first_post()
        self._mark(there.log("table"), paths.filter_table)
        posts = there.posts(first)
        self._mark(posts.log, paths.filter_posts)
        paths.filter_posts.mkdir(parents=True, exist_ok=True)
        queue_mark.write(paths.filter_posts, posts.taken())

    def _copy_pieces(self, journal: KeptJournal, root: Path) -> None:
        landed, pieces = DirectoryJournal(root), Pieces(root / "pieces")
        with LedgerReader(landed) as ledger:
            for committed in ledger.entries():
                for ref in committed.entry.pieces:
                    pieces.stage(ref.partition, ref.first, ref.end, journal.pieces.read(ref.name, ref.digest))
        with closing(Replays(landed)) as replays:
            for ref in {ref.name: ref for each in replays.all() for ref in each.pieces}.values():
                if journal.pieces.has(ref.name):  # what was replayed in an epoch that leaked was removed
                    data = journal.pieces.read(ref.name, ref.digest)
                    replays.pieces.stage(ref.partition, ref.first, ref.end, data)
