"""A topic comes back from a carrier to its broker's directory, while nobody runs it; everything keeps its number.

    1. the registry says that it leaves: whoever appended to the carrier meanwhile is told that it does not count
       (`CarriedLog`), and whoever ran the topic commits nothing more
    2. everything up to there is written beside the directory, as the directory would have it (`CarriedMoment`), then
       put in its place and noted as landed
    3. the carrier's is removed
    4. the registry says that all of it is in the directory, which takes appends again

Cut short, it is done again: before it is noted as landed from the carrier, and from there on without it.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from sealcast.errors import Misuse
from sealcast.log import files
from sealcast.log.driver_lock import kept_from_running
from sealcast.log.embedded import RETIRED
from sealcast.log.journal import MOVED, JournalPart
from sealcast.trust.admin.handle import Handle
from sealcast.trust.admin.moving_journals import clear_directory
from sealcast.trust.backups.carried import CarriedMoment
from sealcast.trust.layout import TopicPaths
from sealcast.trust.realm.changes import LeaveCarrier, ReturnTopic
from sealcast.trust.realm.topics import Topic

#: Beside a ledger that came back: everything is here, and the carrier is not needed any more.
_LANDED: Final = "landed"
#: Where it is written before it is put in its place.
_ON_ITS_WAY: Final = ".landing"


def has_landed(realm: Handle, topic: str, broker: str) -> bool:
    """Whether a return was cut short after everything was here."""
    return (realm.paths.topic(topic, broker).root / _LANDED).exists()


def leave_carrier(realm: Handle, about: Topic, broker: str) -> tuple[int, list[str]]:
    """Brings back what a broker has of a topic: how many frames, and what had to stay on the carrier because others
    have records in it. Locked while somebody runs the topic, here or on another machine."""
    state, at, paths = realm.state(), (about.name, broker), realm.paths.topic(about.name, broker)
    if at in state.carried and at not in state.journals:
        raise Misuse(
            f"topic {about.name!r} has its frames on a carrier and its ledger in the directory",
            hint=f"an earlier release moved it half; move the rest first: sealcast topic move {about.name}",
        )
    copied, left = 0, list[str]()
    with ExitStack() as held:
        held.enter_context(kept_from_running(paths.ledger))
        if about.protection.overlay:
            held.enter_context(kept_from_running(paths.hops.ledger))
            files.make_directory(paths.filters)
            held.enter_context(files.locked(paths.filters / "keeper.lock"))
        if at in state.carried:
            parts: tuple[JournalPart, ...] = ("", "hops") if about.protection.overlay else ("",)
            for part in parts:
                held.enter_context(realm.journal(about.name, broker, part).turn.held())
            realm.registry.apply(LeaveCarrier(*at))
            if not (paths.root / _LANDED).exists():
                for part in parts:
                    _end_terms(realm, about.name, broker, part)
                copied = _land(realm, about, broker, paths)
            left = realm.carriers.remove(realm.state(), about.name, broker)
            realm.registry.apply(ReturnTopic(*at))
        _take_appends(realm, about, broker, paths)
    return copied, left


def _end_terms(realm: Handle, topic: str, broker: str, part: JournalPart) -> None:
    """Whoever ran the topic before, and hung since, appends nothing more to its ledger on the carrier."""
    writer = realm.journal(topic, broker, part).writer("ledger")
    if writer is not None:
        writer.fence(os.urandom(8).hex().encode())
        writer.close()


def _land(realm: Handle, about: Topic, broker: str, paths: TopicPaths) -> int:
    """Step 2; how many frames."""
    staged = paths.root / _ON_ITS_WAY
    shutil.rmtree(staged, ignore_errors=True)
    clear_directory(realm, about, broker)  # what an earlier try left
    files.make_directory(staged)
    moment = CarriedMoment(realm, staged, [(about.name, broker)])
    moment.mark()
    moment.copy()
    with realm.frames(about.name, broker, read_only=True) as log:
        copied = sum(log.partition(number).end() - log.partition(number).start() for number in log.own)
    below = staged / paths.root.relative_to(realm.paths.root)
    _put_in_place(below, paths.root)
    files.replace_file(paths.root / _LANDED, b"")
    shutil.rmtree(staged)
    return copied


def _put_in_place(staged: Path, root: Path) -> None:
    """Every file, durable on return. Locks that are there stay: somebody may wait at one."""
    directories = {root}
    for source in sorted(path for path in staged.rglob("*") if path.is_file()):
        target = root / source.relative_to(staged)
        if target.suffix == ".lock" and target.exists():
            continue
        files.make_directory(target.parent)
        with files.named(target, "putting into its place"):
            source.replace(target)
        directories.add(target.parent)
    files.sync_directories(directories)


def _take_appends(realm: Handle, about: Topic, broker: str, paths: TopicPaths) -> None:
    """The end of step 4. It comes after the registry's word: a handle from before the topic was on a carrier would
    append here, and what it appends counts from then on only."""
    number = realm.state().broker_number(broker)
    own = range(about.partitions * number, about.partitions * (number + 1))
    marks = [paths.root / MOVED, *(directory / RETIRED for directory in (*map(paths.frames, own), paths.filter_posts))]
    for mark in marks:
        with files.named(mark, "removing"):
            mark.unlink(missing_ok=True)
    files.sync_directories({mark.parent for mark in marks if mark.parent.is_dir()})
    (paths.root / _LANDED).unlink(missing_ok=True)
