"""What one broker's MQTT table has to hold now: a function of the registry, the broker's secrets and the time.

Publishers are those who may publish at the moment; subscriptions are those that are served at the moment, as in the
broker's own tables. Rights and tokens also begin and end without a change of the registry, so a table says until when
it stays true.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sealcast.broker.served import served_intervals
from sealcast.errors import Misuse
from sealcast.model.protection import Searchable
from sealcast.mqtt.table import TableEpoch, TableFilter, TableTopic
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.searchable.blocks import most_trapdoors
from sealcast.protections.searchable.halves import BrokerHalves, good_filter
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic
from sealcast.wire.searching import SealedFilter


@dataclass(frozen=True, slots=True)
class TableRows:
    """What goes into a table, and the moment from which on it has to be made anew, if there is one."""

    topics: Sequence[TableTopic]
    until_us: int | None


class RowSource(Unpicklable):
    """Makes the rows of one broker's tables, one after the other. A filter's points are checked once."""

    def __init__(self, secrets: BrokerSecrets, topics: Sequence[str] = ()) -> None:
        """Reads the filters of these topics; without names, of all searchable topics that the broker serves."""
        self._secrets = secrets
        self._named = tuple(topics)
        self._filters: dict[str, SealedFilter | None] = {}

    def at(self, state: RealmState, now_us: int) -> TableRows:
        kept: dict[str, SealedFilter | None] = {}
        moments: list[int] = []
        topics = [self._topic(state, topic, now_us, kept, moments) for topic in self._topics(state)]
        self._filters = kept
        return TableRows(topics, min((at for at in moments if at > now_us), default=None))

    def _topics(self, state: RealmState) -> Iterator[Topic]:
        for name in self._named or [name for name in state.topics if self._secrets.name in state.serving(name)]:
            topic = state.topic(name)
            if topic.protection.filters_sealed:
                yield topic
            elif self._named:
                raise Misuse(
                    f"topic {name!r} is protected by `{topic.protection}`: brokers cannot match it by ciphertexts",
                    hint=f"topics for MQTT brokers: sealcast topic create --protection {Searchable.name}",
                )

    def _topic(
        self,
        state: RealmState,
        topic: Topic,
        now_us: int,
        kept: dict[str, SealedFilter | None],
        moments: list[int],
    ) -> TableTopic:
        halves = BrokerHalves(state, topic, self._secrets)
        by_epoch: dict[int, list[TableFilter]] = {topic.epoch: []}
        subscriptions = state.subscriptions_at(topic.name, self._secrets.name)
        for id, interval in served_intervals(state, topic, subscriptions):
            moments += (interval.from_us, interval.until_us)
            if not interval.holds(now_us):
                continue
            found = kept[id] = self._filters[id] if id in self._filters else good_filter(interval.filter, topic)
            user = subscriptions[id].subscriber
            half = None if found is None else halves.of(found.epoch, user)
            if found is not None and half is not None:
                by_epoch.setdefault(found.epoch, []).append(TableFilter(user, half, found))
        publishers = self._publishers(state, topic, now_us, moments)
        return TableTopic(
            topic.name,
            topic.id,
            most_trapdoors(topic.schema),
            [
                TableEpoch(
                    number,
                    {name: half for name in publishers if (half := halves.of(number, name)) is not None},
                    rows,
                )
                for number, rows in by_epoch.items()
            ],
        )

    def _publishers(self, state: RealmState, topic: Topic, now_us: int, moments: list[int]) -> list[str]:
        found = []
        for entity in state.entitled(topic.name, now_us):
            term = state.terms_of(topic.name, entity.name).get(Right.PUBLISH)
            if term is not None:
                moments += (term.not_before_us, term.until_us or 0)
                if term.holds(now_us):
                    found.append(entity.name)
        return found
