"""Who sees filters where brokers read them, in words: for `explain`."""

from __future__ import annotations

from typing import Final

from sealcast.trust.realm.state import RealmState
from sealcast.wire.sealed_texts import is_sealed_text

#: What the broker sees.
BY_BROKERS: Final = "every filter of the topic, also of subscribers at other brokers, and which events it matches"
#: What others cannot do.
SEALED: Final = "read filters: each is sealed to the brokers that serve the topic, and to its owner"
#: What is left.
LEFT: Final = (
    "A broker that served the topic once can open the filters that were sealed to it. Those that come after it was "
    "revoked are sealed to others."
)


def in_registry(state: RealmState, topic: str) -> list[str]:
    """What the registry shows of a topic's filters to each of its clients."""
    shown = "the registry: names, public keys, rights, who subscribes, and how long a filter is, in powers of two"
    plain = sum(not is_sealed_text(each.filter) for each in state.subscriptions_of(topic))
    if not plain:
        return [shown]
    stored = f"the text of {plain} filters, which an earlier release stored in clear: its history keeps them"
    return [shown, stored]
