"""A broker of a layered topic as the hop query sees it: three names that may travel in a plan, and what they stand for.

    a root          takes what it admitted itself     topics/TOPIC (pieces, ledger)
    any other       takes what its parent handed on   the parent's topics/TOPIC/hops
    either writes   its own hops/                     pieces, ledger; upstreams, which it took from so far

A process opens the key files of the brokers that it runs, and of no other. The ledger above is a parent's, whose
journal key this broker has not: it is read as a subscriber reads it (log/piece_reader.py).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Final

from sealcast.broker.topic import here
from sealcast.errors import Corrupt, Misuse
from sealcast.log import files
from sealcast.log.ledger import Ledger
from sealcast.log.offsets import PinnedOffset
from sealcast.log.piece_reader import PieceReader, hop_reader
from sealcast.log.pieces import Pieces
from sealcast.primitives import kdf
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.protections.layered.filters.desk import FilterDesk
from sealcast.protections.layered.filters.kept import kept_at
from sealcast.protections.layered.filters.table import NodeTables
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.keys.layer_keys import overlay_of
from sealcast.trust.realm.machine import Topic
from sealcast.trust.realm.overlays import Overlay
from sealcast.wire.hops import HopPiece

MAX_OPEN: Final = 1_024
#: Of pieces above, kept parsed for each ledger: a whole tree may be in one process.
CACHE_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True, order=True)
class NodeName:
    """Where a broker of a topic is: all that a plan says of it."""

    realm: str
    topic: str
    node: str

    def open(self) -> OpenNode:
        """In this process: opened on first use, kept for the next."""
        return _open(self, here(self.realm))


@lru_cache(MAX_OPEN)
def _open(name: NodeName, where: tuple[int, ...]) -> OpenNode:
    return OpenNode(name, where)


@lru_cache(16)
def _realm(directory: str, where: tuple[int, ...]) -> BrokerRealm:
    return BrokerRealm(directory)


@lru_cache(MAX_OPEN)
def _reader(directory: Path, where: tuple[int, ...]) -> PieceReader[HopPiece]:
    # Shared by the brokers below one: each piece is read and verified once for all of them.
    return hop_reader(directory, cache_bytes=CACHE_BYTES)


class OpenNode(Unpicklable):
    """A broker of a layered topic with its files: what is above it, its own hops, its table and its desk."""

    def __init__(self, name: NodeName, where: tuple[int, ...]) -> None:
        """`where` is `protections.endpoint.topic.here`, of the realm."""
        self.name = name
        self._where = where
        self.realm = _realm(name.realm, where)
        self.about: Topic = self.realm.state().topic(name.topic)
        self.paths = self.realm.paths.topic(name.topic, name.node).hops
        self.pieces = Pieces(self.paths.pieces)
        self._known: tuple[str, ...] = ()
        #: The generation whose overlay it has seen, and all before it.
        self._looked = 0
        #: Up to which record others' ledgers have nothing for it, by partition, where that was looked for.
        self._nothing: dict[int, int] = {}

    # --- its own ----------------------------------------------------------------------------------

    @cached_property
    def journal_key(self) -> Secret:
        """Of the hops' ledger: not the one of what a root admits, so that neither can stand for the other."""
        return kdf.derive(self.realm.broker(self.name.node).journal_key(self.about.id), b"hops")

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.paths.ledger, self.journal_key)

    @cached_property
    def tables(self) -> NodeTables:
        return NodeTables(self.realm, self.name.topic, self.name.node)

    @cached_property
    def desk(self) -> FilterDesk:
        return FilterDesk(self.realm, self.name.topic, self.name.node)

    def committed(self) -> PinnedOffset:
        """How far the ledger says that this broker came."""
        last = self.ledger.last_span()
        return last.end if last is not None else PinnedOffset.initial(1)

    # --- above ------------------------------------------------------------------------------------

    def upstreams(self) -> tuple[str, ...]:
        """Whose ledgers it takes its input from, in the order in which they came to stand above it: the place of each
        is the partition of its offset. Its own name is what it admits itself."""
        if not self._known:
            self._known = self._noted()
        return self._known

    def upstream(self, partition: int) -> PieceReader[HopPiece]:
        """One of them, also when another process has just noted it."""
        if partition >= len(self.upstreams()):
            self._known = self._noted()
        return self.reader(self._known[partition])

    def look_up(self, overlay: Overlay | None = None) -> tuple[str, ...]:
        """`upstreams`, with the one that it stands under now. For whoever runs it alone."""
        overlay = self.realm.state().overlay(self.name.topic) if overlay is None else overlay
        known = self.upstreams()
        if self.name.node not in overlay.parents:
            return known
        own = self.name.node
        above = {overlay.parents[own] or own, *self._stood_below(overlay)}
        if own not in known and self.realm.paths.topic(self.name.topic, own).ledger.exists():
            above.add(own)  # it was a root once
        if not above.issubset(known):
            self._known = (*known, *sorted(above.difference(known)))
            files.make_directory(self._note.parent)
            files.replace_file(self._note, json.dumps(self._known).encode())
        return self._known

    def _stood_below(self, overlay: Overlay) -> list[str]:
        """Those above it in generations that ended since it last looked and are kept: it may have run in none of them,
        and what is on its way to it there is its own."""
        topic, state = self.name.topic, self.realm.state()
        first = max(self._looked, kept_at(state, self.about, self.realm.clock()).generation)
        ended = range(first, overlay.generation) if self._looked < overlay.generation else ()
        stood = [overlay_of(self.realm, state, topic, generation).parents for generation in ended]
        self._looked = max(self._looked, overlay.generation)
        return [parents[self.name.node] or self.name.node for parents in stood if self.name.node in parents]

    def _noted(self) -> tuple[str, ...]:
        try:
            return tuple(str(name) for name in json.loads(self._note.read_bytes()))
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, TypeError):
            raise Corrupt(f"{self._note} cannot be read", hint="restore it from a copy") from None

    @property
    def _note(self) -> Path:
        return self.paths.root / "upstreams"

    def reader(self, upstream: str) -> PieceReader[HopPiece]:
        """What one of them has."""
        paths = self.realm.paths.topic(self.name.topic, upstream)
        return _reader(paths.root if upstream == self.name.node else paths.hops.root, self._where)

    def available(self) -> tuple[int, ...]:
        """How many records each of them has."""
        return tuple(self.reader(upstream).end() for upstream in self.upstreams())

    def awaits(self, at: PinnedOffset, overlay: Overlay) -> bool:
        """Whether there is anything to take. Of who stood above it once, only what is for this broker: two that changed
        places would else take turns for ever, each for the record that the other made of nothing."""
        own = self.name.node
        above = own, overlay.parents.get(own)
        for partition, (end, done) in enumerate(zip_longest(self.available(), at.partitions, fillvalue=0)):
            if end > done and (self._known[partition] in above or self._addressed(partition, done, end)):
                return True
        return False

    def _addressed(self, partition: int, first: int, end: int) -> bool:
        """Whether records [first, end) there have something for this broker; each is looked at once."""
        for index in range(max(first, self._nothing.get(partition, 0)), end):
            if any(len(piece.rows_for(self.name.node)) for piece in self.upstream(partition).pieces(index, index + 1)):
                return True
            self._nothing[partition] = index + 1
        return False

    def sizes(self, partition: int, first: int, end: int) -> Iterator[int]:
        """Bytes of the pieces of each record there."""
        ledger = self.upstream(partition).ledger
        for index in range(first, end):
            yield sum(ref.size for ref in ledger.at(index).entry.pieces)

    # --- a run ------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Before a run, for whoever runs this broker alone: what crashes left is removed, what they cannot have left is
        refused."""
        committed, names = self.committed(), self.look_up()
        for upstream, done, end in zip(names, committed.partitions, self.available(), strict=False):
            if end < done:
                raise Corrupt(
                    f"{self.reader(upstream).ledger.directory} has {end} records, but broker {self.name.node!r} took "
                    f"{done}: records were removed, or an old copy was put back",
                    hint="restore the newest copy",
                )
        if self.desk.version() < committed.version:
            raise Corrupt(
                f"the table of broker {self.name.node!r} is at version {self.desk.version()}, but its last batch was "
                f"routed by version {committed.version}: filters were removed, or an old copy was put back",
                hint="restore the newest copy",
            )
        self.collect_garbage(time.time_ns() // 1000)

    def collect_garbage(self, before_us: int, term: str | None = None) -> list[str]:
        """Removes pieces that were staged by batches which never came to be."""
        return self.ledger.collect(self.pieces, before_us, term)


def named(options_realm: str | None, topic: str | None, nodes: str | None) -> tuple[NodeName, ...]:
    """The brokers that a query runs, from the options of its source or sink."""
    if not options_realm or not topic or not nodes:
        raise Misuse('name the realm, the topic and its brokers: .option("nodes", "b1,b2")')
    return tuple(NodeName(os.path.abspath(options_realm), topic, node) for node in nodes.split(","))
