"""The home of executors on a worker of a Spark cluster: what they need there, and nothing else of the realm.

    realm.json                 which realm it is, whom it believes, and which server or gateway has its registry
    secrets/broker.key         of a broker's executors: its own keys, sealed under the unlock key of that worker
    entities/NAME.key          of a user's own jobs: the entity's keys, the same
    NAME.head                  beside either: the newest version of the registry that was seen with it
    secrets/carriers/NAME.conf how that worker proves who it is to a carrier

It is laid out as a realm is, so every handle takes it. Neither the authority's keys nor those of key centers are in it,
nor anybody's but the one's whom it is for. What an executor writes there (verified snapshots, revocation lists, tokens)
is its worker's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from sealcast.errors import Misuse, NotFound
from sealcast.trust import homes, layout
from sealcast.trust.handles import BrokerRealm, EntityRealm
from sealcast.trust.layout import FIRST_BROKER, Layout, RealmMark
from sealcast.trust.realm.state import RealmState
from sealcast.trust.vault import private

#: What lies beside a key file and is of its keys: files, and directories of them.
_HEAD: Final = ".head"
_BESIDE: Final = (".receiving", ".layers", _HEAD, ".crt")
#: A key file, or the settings of a carrier.
_MAX_BYTES: Final = 1 << 20


class WorkerHome(NamedTuple):
    """What was made."""

    files: list[str]
    #: Topics whose directory executors would have to share, because they are not, or not wholly, on a carrier.
    shared: list[str]


def make(realm: BrokerRealm, target: Path, broker: str = FIRST_BROKER) -> WorkerHome:
    """Writes the home of a broker's executors, to be put on each worker under the path of the realm here. A home that
    is there already is brought up to date, and may be another broker's, too."""
    mark, state, paths = layout.read_mark(realm.paths), realm.state(), realm.paths
    state.broker_number(broker)
    files = _write(paths, mark, state, target, paths.broker_key_of(broker), f"broker {broker!r}")
    served = [topic for topic in sorted(state.topics) if _serves(state, topic, broker)]
    shared = [topic for topic in served if (topic, broker) not in state.journals or _takes_frames(state, topic, broker)]
    return WorkerHome(files, shared)


def make_of_entity(realm: EntityRealm, target: Path, name: str) -> WorkerHome:
    """The same for an entity's own Spark jobs, to be put on the driver and on each worker under one path."""
    mark, state, paths = layout.read_mark(realm.paths), realm.state(), realm.paths
    state.entity(name)
    files = _write(paths, mark, state, target, paths.entity_key(name), repr(name))
    if mark.gateway is not None:
        homes.make(target, mark)
        return WorkerHome(sorted([*files, str(paths.registry.relative_to(paths.root))]), [])
    used = [topic for topic in sorted(state.topics) if state.terms_of(topic, name) and not _peers(state, topic)]
    carried = {topic for topic, _ in state.journals}
    return WorkerHome(files, [topic for topic in used if topic not in carried])


def _write(paths: Layout, mark: RealmMark, state: RealmState, target: Path, key: Path, whose: str) -> list[str]:
    """Copies one holder's keys, and what leads to everything else; what was written, by its place in the home."""
    if mark.registry is None and mark.gateway is None:
        raise Misuse(
            f"the registry of {paths.root} is a file in it, which no worker reaches",
            hint="keep it on PostgreSQL: sealcast init DIR --registry postgresql://HOST/DATABASE",
        )
    if not key.exists():
        raise NotFound(f"there are no keys of {whose} here ({key} does not exist)")
    copied = {paths.mark: mark.to_bytes()}
    is_there = target.exists() and any(target.iterdir())
    if is_there:
        _check_home(target, mark)
    beside = [each for suffix in _BESIDE for each in _files(key.with_suffix(suffix))]
    carriers = [file for name in state.carriers if (file := paths.carrier_settings(name)).exists()]
    copied |= {file: private.read(file, _MAX_BYTES) for file in (key, *beside, *carriers)}
    made = {target / file.relative_to(paths.root): content for file, content in copied.items()}
    if is_there:
        _renew(made, target / key.relative_to(paths.root))
    else:
        private.create_many(made)
    return sorted(str(file.relative_to(target)) for file in made)


def _check_home(target: Path, mark: RealmMark) -> None:
    """Misuse unless a directory is a home of this realm, and not the realm."""
    found = Layout(target)
    has_registry = mark.gateway is None and found.registry.exists()
    if has_registry or found.authority.exists() or found.administrator_key.exists():
        raise Misuse(f"{target} is a realm, and no home of workers", hint="name another directory")
    if not found.mark.exists() or found.mark.read_bytes() != mark.to_bytes():
        raise Misuse(f"{target} is not empty, and is no home of this realm", hint="name a new directory")


def _renew(made: Mapping[Path, bytes], key: Path) -> None:
    """Brings a home up to date. Keys that their holder destroyed go from here, too; what an executor has made stays,
    and so does a newer head."""
    for path in (each for suffix in _BESIDE for each in _files(key.with_suffix(suffix))):
        if path not in made and path.suffix != _HEAD:
            path.unlink()
    for path, content in made.items():
        if not path.exists():
            private.create(path, content)
        elif path.suffix != _HEAD and path.read_bytes() != content:
            private.replace(path, content)


def _files(path: Path) -> list[Path]:
    """A file, or those in a directory; none where there is nothing."""
    return [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]


def _peers(state: RealmState, topic: str) -> bool:
    return state.topic(topic).protection.peers


def _serves(state: RealmState, topic: str, broker: str) -> bool:
    protection = state.topic(topic).protection
    if protection.overlay:
        return broker in state.overlay(topic).parents
    return not protection.peers and (broker == FIRST_BROKER or broker in state.serving(topic))


def _takes_frames(state: RealmState, topic: str, broker: str) -> bool:
    """Whether brokers send it frames that its workers cannot read where they were published: those are in its
    directory, also where its own are on a carrier."""
    others = [each for each in state.serving(topic) if each != broker]
    elsewhere = [each for each in others if (topic, each) not in state.carried]
    return bool(elsewhere) and not state.topic(topic).protection.overlay
