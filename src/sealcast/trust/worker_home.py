"""The home of a broker's executors: what they need on a worker of a Spark cluster, and nothing else of the realm.

    realm.json                 which realm it is, whom it believes, and which server has its registry
    secrets/broker.key         the broker's own keys, sealed under the unlock key of that worker
    secrets/carriers/NAME.conf how that worker proves who it is to a carrier

It is laid out as a realm is, so every handle takes it. Neither the authority's keys nor those of key centers, of other
brokers or of entities are in it. What an executor writes there (verified snapshots, revocation lists) is its worker's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from sealcast.errors import Misuse, NotFound
from sealcast.trust import layout
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.state import RealmState
from sealcast.trust.vault import private

#: What lies beside a broker's key file and is of its keys.
_BESIDE: Final = (".receiving", ".layers")
#: A key file, or the settings of a carrier.
_MAX_BYTES: Final = 1 << 20


class WorkerHome(NamedTuple):
    """What was made."""

    files: list[str]
    #: Topics that the broker serves, and that are in the realm's directory, at least in part: executors would have to
    #: share it.
    shared: list[str]


def make(realm: BrokerRealm, target: Path, broker: str = FIRST_BROKER) -> WorkerHome:
    """Writes the home of a broker's executors, to be put on each worker under the path of the realm here."""
    mark, state, paths = layout.read_mark(realm.paths), realm.state(), realm.paths
    if mark.registry is None and mark.gateway is None:
        raise Misuse(
            f"the registry of {paths.root} is a file in it, which no worker reaches",
            hint="keep it on PostgreSQL: sealcast init DIR --registry postgresql://HOST/DATABASE",
        )
    state.broker_number(broker)
    key = paths.broker_key_of(broker)
    if not key.exists():
        raise NotFound(f"there are no keys of broker {broker!r} here ({key} does not exist)")
    if target.exists() and any(target.iterdir()):
        raise Misuse(f"{target} is not empty", hint="name a new directory")
    beside = [file for suffix in _BESIDE for file in key.with_suffix(suffix).rglob("*") if file.is_file()]
    carriers = [file for name in state.carriers if (file := paths.carrier_settings(name)).exists()]
    copied = {paths.mark: mark.to_bytes()} | {
        file: private.read(file, _MAX_BYTES) for file in (key, *beside, *carriers)
    }
    private.create_many({target / file.relative_to(paths.root): content for file, content in copied.items()})
    served = [topic for topic in sorted(state.topics) if _serves(state, topic, broker)]
    shared = [topic for topic in served if (topic, broker) not in state.journals]
    return WorkerHome(sorted(str(file.relative_to(paths.root)) for file in copied), shared)


def _serves(state: RealmState, topic: str, broker: str) -> bool:
    protection = state.topic(topic).protection
    if protection.overlay:
        return broker in state.overlay(topic).parents
    return not protection.peers and (broker == FIRST_BROKER or broker in state.serving(topic))
