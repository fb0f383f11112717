"""What one client wants of one topic: its own filters, stated through the realm and kept at hand.

Whoever delivers over MQTT may deliver too much: an MQTT broker that does not match by content, or one that lies. So a
client asks its own filters once more about each event that it opened, and hands out what it asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sealcast.errors import NotFound
from sealcast.filters.check import fit
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.filters.tree import Condition
from sealcast.model.event import OpenedEvent
from sealcast.protections.port import Interest, Interests, client_side
from sealcast.trust.handles import EntityRealm


class Wanted:
    """The filters of one subscriber. Whoever states one asks a broker's desk, and is done with it: nothing stays
    open."""

    def __init__(self, realm: EntityRealm, topic: str, name: str) -> None:
        self._realm, self._topic, self._name = realm, topic, name
        self._stated: list[Interest] = []
        self._conditions: list[Condition] = []
        with self._stating():
            pass

    @property
    def filters(self) -> Sequence[str]:
        return [each.filter for each in self._stated if each.filter is not None]

    def add(self, text: str) -> None:
        """States a filter, unless it is stated already."""
        if text not in self.filters:
            with self._stating() as interests:
                interests.add(text)

    def remove(self, text: str | None) -> None:
        """Ends a filter, or all of them."""
        gone = [each.id for each in self._stated if each.id is not None and text in (None, each.filter)]
        if text is not None and not gone:
            raise NotFound(f"{self._name!r} has no filter {text!r} on topic {self._topic!r}")
        with self._stating() as interests:
            interests.remove(gone)

    def matches(self, event: OpenedEvent) -> bool:
        """Whether one of the filters is true of an event."""
        values = dict(event.attributes)
        return any(evaluate(condition, values, event.payload) is True for condition in self._conditions)

    @contextmanager
    def _stating(self) -> Iterator[Interests]:
        about = self._realm.state().topic(self._topic)
        with client_side(about.protection).interests(self._realm, self._topic, self._name) as interests:
            yield interests
            self._stated = interests.filters()
        self._conditions = [fit(parse(text), about.schema) for text in self.filters]
