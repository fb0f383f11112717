"""What one client wants of one topic: its own filters, stated through the realm and kept at hand.

Whoever delivers over MQTT may deliver too much: an MQTT broker that does not match by content, or one that lies. So a
client asks its own filters once more about each event that it opened, and hands out what it asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from sealcast.errors import NotFound
from sealcast.filters.check import fit
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.filters.tree import Condition
from sealcast.log.closing import Closing
from sealcast.model.event import OpenedEvent
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.port import Interest, Interests, client_side
from sealcast.trust.handles import EntityRealm


class Wanted(Closing, Unpicklable):
    """The filters of one subscriber. Close it."""

    def __init__(self, realm: EntityRealm, topic: str, name: str) -> None:
        self._topic, self._name = topic, name
        about = realm.state().topic(topic)
        self._schema = about.schema
        self._interests: Interests = client_side(about.protection).interests(realm, topic, name)
        self._stated: list[Interest] = []
        self._conditions: list[Condition] = []
        self._read()

    @property
    def filters(self) -> Sequence[str]:
        return [each.filter for each in self._stated if each.filter is not None]

    def add(self, text: str) -> None:
        """States a filter, unless it is stated already."""
        if text not in self.filters:
            self._interests.add(text)
            self._read()

    def remove(self, text: str | None) -> None:
        """Ends a filter, or all of them."""
        gone = [each.id for each in self._stated if each.id is not None and text in (None, each.filter)]
        if text is not None and not gone:
            raise NotFound(f"{self._name!r} has no filter {text!r} on topic {self._topic!r}")
        self._interests.remove(gone)
        self._read()

    def matches(self, event: OpenedEvent) -> bool:
        """Whether one of the filters is true of an event."""
        values = dict(event.attributes)
        return any(evaluate(condition, values, event.payload) is True for condition in self._conditions)

    def close(self) -> None:
        self._interests.close()

    def _read(self) -> None:
        self._stated = self._interests.filters()
        self._conditions = [fit(parse(text), self._schema) for text in self.filters]
