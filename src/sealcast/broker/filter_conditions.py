"""What a broker makes of the filters that were sealed to it: conditions, or the reason why there is none.

Filters are checked before they are sealed, by whoever seals them, and nobody sees them again until a broker opens them.
So a broker believes nothing: one that does not open, or is no filter of the topic, is suspended, which is counted and
told like every suspension. It matches nothing, and harms nobody else's. Which ones these are follows from the pinned
version and the broker's keys, so a batch that is run again suspends the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sealcast.errors import CannotOpen, FilterRejected
from sealcast.filters.check import fit
from sealcast.filters.parse import parse
from sealcast.filters.tree import Condition
from sealcast.filters.visible import refuse_unseen
from sealcast.model.subscription import Subscription
from sealcast.primitives.secrets import Unpicklable
from sealcast.trust.keys.filter_texts import FilterTexts
from sealcast.trust.realm.changes import EVERYTHING
from sealcast.trust.realm.machine import RealmState, Topic
from sealcast.trust.realm.templates import Template

#: In place of the text of a filter that does not open: no filter is empty.
UNOPENED: Final = ""
#: In place of a filter that cannot be read. It is told by identity from one that somebody wrote.
UNREADABLE: Final[Condition] = parse("FALSE")


class OpenedFilters(Unpicklable):
    """The filters of a topic's subscriptions in clear, each opened once. It keeps those that it was last asked for."""

    def __init__(self, texts: FilterTexts) -> None:
        self._texts = texts
        self._known: dict[str, Subscription] = {}
        self._opened: dict[str, str] = {}

    def of(self, state: RealmState, subscriptions: Mapping[str, Subscription]) -> dict[str, str]:
        """The text of each, or UNOPENED."""
        opened = {
            id: self._opened[id] if self._known.get(id) == each else self._open(state, each)
            for id, each in subscriptions.items()
        }
        self._opened = opened
        # A key that was not handed over yet may be later: what did not open is tried again.
        self._known = {id: each for id, each in subscriptions.items() if opened[id] != UNOPENED}
        return opened

    def stated(self, state: RealmState, subscriptions: Mapping[str, Subscription]) -> dict[str, Subscription]:
        """The subscriptions with their filters in clear."""
        texts = self.of(state, subscriptions)
        return {id: each._replace(filter=texts[id]) for id, each in subscriptions.items()}

    def why_unreadable(self, state: RealmState, subscription: Subscription) -> str | None:
        """Why a filter is suspended that nobody could evaluate; None for one that can be read."""
        try:
            readable(self._texts.text(state, subscription), state.topic(subscription.topic))
        except (CannotOpen, FilterRejected) as error:
            return error.message
        return None

    def _open(self, state: RealmState, subscription: Subscription) -> str:
        try:
            return self._texts.text(state, subscription)
        except CannotOpen:
            return UNOPENED


def readable(text: str, topic: Topic) -> Condition:
    """The filter, if brokers of the topic can evaluate it; FilterRejected."""
    wanted, sight = fit(parse(text), topic.schema), topic.protection
    refuse_unseen(wanted, sight.hidden_of(topic.schema), payloads_seen=sight.payloads_seen)
    return wanted


def condition(text: str, template: str, topic: Topic) -> Condition:
    """What a subscriber gets: what it asked for, within what its token is for. UNREADABLE if that is no filter of the
    topic."""
    if text == UNOPENED:
        return UNREADABLE
    try:
        wanted = readable(text, topic)
    except FilterRejected:
        return UNREADABLE
    return wanted if template == EVERYTHING else Template.parse(template).within(wanted, topic.schema)
