"""Moves a broker's ledger of a topic, the notes on it and its sealed pieces from the directory to a carrier; of a
broker in an overlay also what it hands on, its routing table and the filters that were posted to it.

Records keep their bytes, their numbers and their times, so that every cursor and every chain goes on. Nothing is
removed from the directory before the registry says that the carrier has it.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

from sealcast.errors import Misuse, NotFound
from sealcast.log import files
from sealcast.log.carried_journal import CarriedJournal
from sealcast.log.carried_posts import CarriedPosts
from sealcast.log.carriers import Placement
from sealcast.log.hop_notes import read_upstreams, remove_notes
from sealcast.log.journal import MOVED, DirectoryJournal, JournalLog, open_log
from sealcast.log.ledger import LedgerReader
from sealcast.log.numbered import NumberedLog
from sealcast.log.port import PartitionLog
from sealcast.log.post_log import PostLog
from sealcast.log.replays import Replays
from sealcast.trust.admin.handle import Handle
from sealcast.trust.carrying import hops_of
from sealcast.trust.realm.changes import CarryJournal
from sealcast.trust.realm.state import CarriedName
from sealcast.trust.realm.topics import Topic

_LOGS: Final[tuple[JournalLog, ...]] = ("ledger", "reseals")
#: What is copied at a time.
_BYTES_AT_ONCE: Final = 4 << 20
#: What belongs to a log in a directory, apart from its locks.
_LOG_FILES: Final = ("*.seg", "*.idx", "frontier", "taken", "held")


def move_journal(realm: Handle, about: Topic, broker: str, to: CarriedName, placement: Placement) -> int:
    """Done while nobody runs the topic; how many pieces were copied. Done again, it goes on."""
    state, paths = realm.state(), realm.paths.topic(about.name, broker)
    parts, copied = [(paths.root, to)], 0
    if about.protection.overlay:
        parts.append((paths.hops.root, hops_of(to)))
        _move_overlay(realm, about, broker, to, placement)
    for root, place in parts:
        source, target = DirectoryJournal(root), realm.carriers.journal_at(state, place, about.partitions)
        target.create(placement)
        for which in _LOGS:
            _copy_log(source.log(which), target.writer(which))
        _copy_log(open_log(source.root / "replays" / "notes"), target.writer("replays"))
        copied += _copy_pieces(source, target) + _copy_replays(source, target)
    realm.registry.apply(CarryJournal(about.name, broker, *to))
    clear_directory(realm, about, broker)
    return copied


def _move_overlay(realm: Handle, about: Topic, broker: str, to: CarriedName, placement: Placement) -> None:
    """The keeper's lock is held meanwhile. Posts keep their numbers, which the table's log has."""
    paths, target = realm.paths.topic(about.name, broker), realm.carriers.overlay_at(realm.state(), to)
    target.create(placement)
    files.make_directory(paths.filters)
    with (
        files.locked(paths.filters / "keeper.lock"),
        target.notes(realm.broker(broker).journal_key(about.id)) as notes,
    ):
        _copy_log(open_log(paths.filter_table), target.log("table"))
        names = read_upstreams(paths.hops.root)
        if names and notes.upstreams() != names:
            notes.note_upstreams(names)
        if paths.filter_posts.is_dir():
            with PostLog(paths.filter_posts) as source:
                source.retire(to.name)
                first = source.start()
                if notes.first_post() != first:
                    notes.note_first_post(first)
                with target.posts(first) as posts:
                    _copy_posts(source, posts)
                    posts.take(source.taken(), source.held(), first)


def _copy_posts(source: PostLog, target: CarriedPosts) -> None:
    while (at := target.end()) < source.end():
        target.copy(source.read(at, _BYTES_AT_ONCE))


def _copy_log(source: PartitionLog | None, target: NumberedLog) -> None:
    with closing(target) as log:
        log.fence()
        known, end = log.end(), 0 if source is None else source.end()
        if known > end or (source is not None and not _begins_with(source, log, known)):
            raise Misuse(
                f"{log.shown} has records that are not of this topic", hint="move it to another name: --name NAME"
            )
        while source is not None and known < end:
            some = [(record.time_us, record.data) for record in source.read(known, end, _BYTES_AT_ONCE)]
            log.copy(some)
            known += len(some)
    if source is not None:
        source.close()


def _begins_with(source: PartitionLog, log: PartitionLog, known: int) -> bool:
    pairs = zip(source.read(0, known), log.read(0, known), strict=True)
    return all(before.data == after.data for before, after in pairs)


def _copy_pieces(source: DirectoryJournal, target: CarriedJournal) -> int:
    there, copied = set(target.pieces.names()), 0
    with LedgerReader(source) as ledger:
        for committed in ledger.entries():
            for ref in committed.entry.pieces:
                if ref.name in there:
                    continue
                try:
                    data = source.pieces.read(ref.name, ref.digest)
                except NotFound:
                    raise NotFound(
                        f"piece {ref.name} is gone; record {committed.index} of the ledger names it",
                        hint="restore it from a copy, then move the topic again",
                    ) from None
                target.pieces.stage(ref.partition, ref.first, ref.end, data)
                there.add(ref.name)
                copied += 1
    return copied


def _copy_replays(source: DirectoryJournal, target: CarriedJournal) -> int:
    """Those that are there: what was replayed in an earlier epoch is removed after a compromise."""
    there, copied = set(target.pieces.names()), 0
    with closing(Replays(source)) as replays:
        for ref in {ref.name: ref for each in replays.all() for ref in each.pieces}.values():
            if ref.name not in there and replays.pieces.has(ref.name):
                data = replays.pieces.read(ref.name, ref.digest)
                target.pieces.stage(ref.partition, ref.first, ref.end, data)
                copied += 1
    return copied


def clear_directory(realm: Handle, about: Topic, broker: str) -> None:
    """Removes what the carrier has from now on; whoever waits for more here is told. The ledger's locks stay, and so
    does the mark of frame logs by which a publisher learns that they were moved."""
    paths, number = realm.paths.topic(about.name, broker), realm.state().broker_number(broker)
    files.make_directory(paths.root)
    files.replace_file(paths.root / MOVED, b"")
    own = range(about.partitions * number, about.partitions * (number + 1))
    files_of = [paths.filter_table, paths.filter_posts, *map(paths.frames, own)]
    for root in (paths.root, paths.hops.root):
        for pieces in (DirectoryJournal(root).pieces, Replays(root).pieces):
            pieces.remove(pieces.names())
        files_of += [root / "ledger", root / "reseals", root / "replays" / "notes"]
    remove_notes(paths.hops.root)
    for directory in files_of:
        for pattern in _LOG_FILES if directory.is_dir() else ():
            for path in directory.glob(pattern):
                with files.named(path, "removing"):
                    path.unlink()
