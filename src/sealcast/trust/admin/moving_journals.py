"""Moves a broker's ledger of a topic, the notes on it and its sealed pieces from the directory to a carrier.

Records keep their bytes, their numbers and their times, so that every cursor and every chain goes on. Nothing is
removed from the directory before the registry says that the carrier has it.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

from sealcast.errors import Misuse, NotFound
from sealcast.log import files
from sealcast.log.carried_journal import CarriedJournal
from sealcast.log.carriers import Placement
from sealcast.log.journal import MOVED, DirectoryJournal, JournalLog, open_log
from sealcast.log.ledger import LedgerReader
from sealcast.log.port import PartitionLog
from sealcast.log.replays import Replays
from sealcast.trust.admin.handle import Handle
from sealcast.trust.layout import TopicPaths
from sealcast.trust.realm.changes import CarryJournal
from sealcast.trust.realm.state import CarriedName

_LOGS: Final[tuple[JournalLog, ...]] = ("ledger", "reseals")
#: What is copied at a time.
_BYTES_AT_ONCE: Final = 4 << 20
#: What belongs to a log in a directory, apart from its locks.
_LOG_FILES: Final = ("*.seg", "*.idx", "frontier")


def move_journal(realm: Handle, topic: str, broker: str, to: CarriedName, placement: Placement) -> int:
    """Done while nobody runs the topic; how many pieces were copied. Done again, it goes on."""
    state, paths = realm.state(), realm.paths.topic(topic, broker)
    source = DirectoryJournal(paths.root)
    target = realm.carriers.journal_at(state, to, state.topic(topic).partitions)
    target.create(placement)
    for which in _LOGS:
        _copy_log(source.log(which), target, which)
    _copy_log(open_log(source.root / "replays" / "notes"), target, "replays")
    copied = _copy_pieces(source, target) + _copy_replays(source, target)
    realm.registry.apply(CarryJournal(topic, broker, *to))
    clear_directory(paths)
    return copied


def _copy_log(source: PartitionLog | None, target: CarriedJournal, which: JournalLog) -> None:
    with closing(target.writer(which)) as log:
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


def clear_directory(paths: TopicPaths) -> None:
    """Removes what the carrier has from now on; whoever waits for more here is told. The ledger's locks stay."""
    files.make_directory(paths.root)
    files.replace_file(paths.root / MOVED, b"")
    for pieces in (DirectoryJournal(paths.root).pieces, Replays(paths.root).pieces):
        pieces.remove(pieces.names())
    for directory in (paths.ledger, paths.root / "reseals", paths.root / "replays" / "notes"):
        for pattern in _LOG_FILES if directory.is_dir() else ():
            for path in directory.glob(pattern):
                with files.named(path, "removing"):
                    path.unlink()
