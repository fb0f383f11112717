"""One look at the realm: what pages that move are drawn from. The same facts as `sealcast status` shows, no keys."""

from __future__ import annotations

import shutil
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sealcast.clients.realm import Realm
from sealcast.errors import SealcastError
from sealcast.protections.port import witness_side
from sealcast.trust.certificates.roles import Role
from sealcast.trust.realm.state import Entity, RealmState
from sealcast.trust.realm.topics import Topic

#: Looks that rates are drawn from.
REMEMBERED: Final = 60
#: The services whose health is shown, with our word for each.
SERVICES: Final = {
    Role.BROKER: "broker",
    Role.KEY_CENTER: "key center",
    Role.DISCOVERY: "discovery node",
    Role.GATEWAY: "gateway",
}


class TopicNumbers(NamedTuple):
    """A topic's numbers, over all its brokers."""

    frames: int = 0
    backlog: int = 0
    admitted: int = 0
    refused: int = 0
    matched: int = 0
    encryptions: int = 0
    deliveries: int = 0
    lag: int = 0
    per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class TopicLook:
    """How one topic stands."""

    topic: Topic
    #: A document for each of its brokers, as `status --json` has them.
    facts: Sequence[Mapping[str, Any]]
    numbers: TopicNumbers
    rejected: Mapping[str, int]
    #: Events admitted in each of the last looks, the newest last, and how many seconds lay between the first and last.
    recent: Sequence[int] = ()
    #: Why the topic could not be looked at, if so.
    trouble: SealcastError | None = None

    @property
    def name(self) -> str:
        return self.topic.name


class ServiceLook(NamedTuple):
    """Somebody who serves the realm."""

    kind: str
    who: Entity
    keys_here: bool


@dataclass(frozen=True, slots=True)
class RealmLook:
    """How the realm stands, at one moment."""

    state: RealmState
    now_us: int
    topics: Sequence[TopicLook]
    services: Sequence[ServiceLook]
    #: Of the disk that the realm's directory is on, in bytes.
    disk_free: int
    disk_total: int
    realm_name: str
    carrier: str

    def topic(self, name: str) -> TopicLook | None:
        return next((each for each in self.topics if each.name == name), None)


@dataclass(slots=True)
class ConsoleLooks:
    """Looks, one after the other. It remembers how counts grew, so that rates are what happened since."""

    _counts: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)

    def look(self, realm: Realm) -> RealmLook:
        state = realm.state()
        found = [self._topic(realm, state, name) for name in state.topics]
        for gone in self._counts.keys() - state.topics.keys():
            del self._counts[gone]
        disk = shutil.disk_usage(realm.paths.root)
        return RealmLook(
            state,
            realm.clock(),
            found,
            list(_services(realm, state)),
            disk.free,
            disk.total,
            realm.name,
            realm.site.shown,
        )

    def _topic(self, realm: Realm, state: RealmState, name: str) -> TopicLook:
        topic = state.topic(name)
        try:
            facts = [found.document for found in witness_side(topic.protection).status(realm, name)]
        except SealcastError as trouble:
            # One topic whose files are damaged must not hide the others: it is shown as what it is.
            return TopicLook(topic, (), TopicNumbers(), {}, (), trouble)
        rejected = Counter[str]()
        for document in facts:
            rejected.update(document.get("rejected") or {})
            rejected.update((document.get("hops") or {}).get("rejected") or {})
        numbers = _numbers(facts, rejected.total())
        counts = self._counts.setdefault(name, deque(maxlen=REMEMBERED))
        counts.append((time.monotonic(), numbers.admitted))
        steps = [after[1] - before[1] for before, after in zip(counts, list(counts)[1:], strict=False)]
        return TopicLook(topic, facts, numbers, dict(rejected.most_common()), steps)


def _numbers(facts: Sequence[Mapping[str, Any]], refused: int) -> TopicNumbers:
    def total(part: str, name: str) -> int:
        return sum((document.get(part) or {}).get(name) or 0 for document in facts)

    return TopicNumbers(
        frames=sum(document.get("frames") or 0 for document in facts),
        backlog=sum(document.get("backlog") or 0 for document in facts),
        admitted=total("events", "admitted"),
        refused=refused,
        matched=total("events", "matched"),
        encryptions=total("events", "encryptions") + total("hops", "encryptions"),
        deliveries=total("events", "deliveries") + total("hops", "deliveries"),
        lag=total("lag", "total"),
        per_second=round(sum((document.get("per_second") or {}).get("admitted") or 0.0 for document in facts), 2),
    )


def _services(realm: Realm, state: RealmState) -> Iterator[ServiceLook]:
    keys = {
        Role.BROKER: realm.paths.broker_key_of,
        Role.KEY_CENTER: realm.paths.center_key,
        Role.DISCOVERY: realm.paths.discovery_key,
        Role.GATEWAY: realm.paths.gateway_key,
    }
    for role, kind in SERVICES.items():
        for who in state.entities.values():
            if role in who.roles:
                yield ServiceLook(kind, who, keys[role](who.name).exists())
