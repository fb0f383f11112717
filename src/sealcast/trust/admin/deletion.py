"""Deleting a topic: it ends in the registry, and then whatever lies of it on this machine is removed.

    registry    from one version on there is no such topic, for anybody
    files       frames, pieces, ledgers, cursors, checkpoints, of every broker and peer that is here
    groups      consumer groups, also where they are in the registry's database
    keys        what centers, brokers and entities keep of it: links of its chain, receiving and agreement keys, wallets

Other machines of the realm remove their part when they next do what is due (`sealcast maintain`, a running pipeline).
`Deletion.left` says what nobody here can take back.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path

from sealcast.errors import Locked, SealcastError, Unavailable
from sealcast.log import files
from sealcast.log.driver_lock import runs_already
from sealcast.model.dataclass import dataclass
from sealcast.trust import shared_groups, shared_windows
from sealcast.trust.admin.handle import Handle
from sealcast.trust.keys.centers import CenterSecrets
from sealcast.trust.keys.topic_keys import received_by
from sealcast.trust.layout import Layout
from sealcast.trust.realm.changes import DeleteTopic
from sealcast.trust.realm.machine import RealmState
from sealcast.trust.realm.topics import Topic


@dataclass(frozen=True, slots=True)
class RemovedFiles:
    """What was removed from this machine."""

    files: int = 0
    bytes: int = 0
    #: Of these, files that held private keys or credentials.
    keys: int = 0


@dataclass(frozen=True, slots=True)
class Lasting:
    """What is left of a topic that nobody can take back from here."""

    #: Brokers that can still open the topic's keys in the registry: whoever has a copy of the topic's files, and the
    #: files of one of them, reads it.
    brokers: tuple[str, ...] = ()
    #: Entities that were given pair keys, and so can open copies of what they could read or publish.
    entities: int = 0
    #: Brokers on other machines that served it: they remove their part by themselves.
    elsewhere: tuple[str, ...] = ()
    #: Its key center, where that can make its keys until a time (microseconds), or is not here (None).
    center: str = ""
    center_until_us: int | None = None
    center_here: bool = True
    #: Brokers here whose MQTT logs may hold messages of it, for clients that are away.
    queued: tuple[str, ...] = ()
    #: Topics of carriers that had records of others before: its frames are among them, and are not removed.
    shared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deletion:
    """A topic that was deleted, or would be."""

    topic: str
    id: bytes
    subscriptions: int
    #: The first version without it; None before.
    version: int | None = None
    removed: RemovedFiles = field(default_factory=RemovedFiles)
    left: Lasting = field(default_factory=Lasting)


def planned(realm: Handle, topic: str) -> Deletion:
    """What `delete_topic` would do, without doing any of it."""
    state = realm.state()
    found = state.topic_state(topic)
    there = _count(_places(realm.paths, topic, found.topic.id))
    return Deletion(topic, found.topic.id, len(found.subscriptions), None, there, lasting(realm, state, topic))


def delete_topic(realm: Handle, topic: str) -> Deletion:
    """Deletes a topic for good, with all that lies of it on this machine. Locked while a pipeline here runs it."""
    before = realm.state()
    about = before.topic(topic)
    _refuse_running(realm.paths, topic)
    for (name, broker), _ in before.journals.items():
        if name == topic and (taken := realm.carriers.journal(before, topic, broker).turn.taken()) is not None:
            raise taken
    would = planned(realm, topic)
    version = realm.registry.transact(lambda state: [DeleteTopic(state.topic(topic).name)]).version
    removed = _remove(realm, topic, about.id)
    _forget(realm, about)
    _remove_carried(realm, topic)
    return Deletion(topic, about.id, would.subscriptions, version, removed, lasting(realm, before, topic))


def _remove_carried(realm: Handle, topic: str) -> None:
    try:
        realm.carriers.remove(realm.state(), topic)
    except SealcastError as error:
        raise Unavailable(
            f"topic {topic!r} was deleted, and its carrier still has it: {error.message}",
            hint="when the carrier answers, `sealcast maintain` removes it there",
        ) from None


def remove_deleted(realm: Handle) -> dict[str, RemovedFiles]:
    """Removes what is left here of topics that were deleted, perhaps by somebody elsewhere: what was removed, by name.
    What a pipeline still runs is left for the next time."""
    found = dict[str, RemovedFiles]()
    for name, gone in realm.state().deleted.items():
        try:
            _refuse_running(realm.paths, name)
        except Locked:
            continue
        removed = _remove(realm, name, gone.id)
        if any(name == topic for topic, _ in realm.state().carried):
            _remove_carried(realm, name)
        if removed.files:
            found[name] = removed
    return found


def lasting(realm: Handle, state: RealmState, topic: str) -> Lasting:
    """What stays of a topic that is in `state`, whatever is removed here."""
    found = state.topic_state(topic)
    sealed = found.topic_keys.items()
    brokers = dict.fromkeys(broker for (_, broker), key in sealed if received_by(key) is None)
    served = dict.fromkeys(broker for (_, broker), _ in sealed)
    elsewhere = tuple(b for b in served if not realm.paths.broker_key_of(b).exists())
    center = found.topic.center
    until, here = _center_until(realm, found.topic)
    entities = len({entity for _, entity in found.pair_keys})
    queued = tuple(b for b in state.brokers() if (realm.paths.broker(b) / "mqtt" / "log").is_dir())
    shared = tuple(
        f"{place.name} on {place.carrier}"
        for (name, _), place in state.carried.items()
        if name == topic and any(place.positions)
    )
    return Lasting(tuple(brokers), entities, elsewhere, center, until, here, queued, shared)


def _center_until(realm: Handle, topic: Topic) -> tuple[int | None, bool]:
    path = realm.paths.center_key(topic.center)
    if not path.exists():
        return None, False
    try:
        return CenterSecrets.load(path).gives_until(topic), True
    except Unavailable:  # it is here, under a lock that is not at hand
        return None, False


def _forget(realm: Handle, topic: Topic) -> None:
    """Lets the topic's center forget it, if its secrets are here. Nothing else is forgotten by that."""
    path = realm.paths.center_key(topic.center)
    if path.exists():
        try:
            CenterSecrets.forget_topics(path, {topic.id})
        except Unavailable:
            return  # whoever runs the center lets it forget


# --- files ------------------------------------------------------------------------------------------------


def _places(paths: Layout, name: str, id: bytes) -> Iterator[Path]:
    """Every file and directory here that is about one topic and nothing else."""
    root, hexed = paths.root, id.hex()
    patterns = (f"topics/{name}", f"brokers/*/topics/{name}")
    keys = (f"**/*.receiving/{hexed}", f"**/*.layers/{hexed}")
    wallets = (f"{hexed}.*", f"interests/{hexed}", f"credentials/{hexed}")
    for pattern in patterns:
        yield from root.glob(pattern)
    for pattern in keys:
        yield from paths.secrets.glob(pattern)
        yield from paths.entities.glob(pattern)
    for pattern in wallets:
        yield from root.glob(f"wallets/*/{pattern}")


def _count(places: Iterator[Path]) -> RemovedFiles:
    count = size = keys = 0
    for place in places:
        within = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
        count += len(within)
        size += sum(path.stat().st_size for path in within)
        keys += len(within) if "topics" not in place.parts[-2:] else 0
    return RemovedFiles(count, size, keys)


def _remove(realm: Handle, name: str, id: bytes) -> RemovedFiles:
    """Removes all of it, durably. Done twice, it does nothing more."""
    places = list(_places(realm.paths, name, id))
    removed = _count(iter(places))
    for place in places:
        with files.named(place, "removing"):
            if place.is_file():
                os.unlink(place)
            else:
                shutil.rmtree(place)
    files.sync_directories({place.parent for place in places if place.parent.is_dir()})
    for beside in (shared_groups, shared_windows):
        beside.remove_all(realm.registry.address, id)
    return removed


def _refuse_running(paths: Layout, name: str) -> None:
    for pattern in (f"topics/{name}", f"brokers/*/topics/{name}"):
        for root in paths.root.glob(pattern):
            for ledger in (root / "ledger", root / "hops" / "ledger"):
                if (taken := runs_already(ledger)) is not None:
                    raise taken
