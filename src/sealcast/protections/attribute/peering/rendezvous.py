"""Who runs the roots of a topic's trees: peers of publishers, the same for everybody who reads the registry.

Publishers give every event to every rendezvous, and count it as sent when all of them have it on stable storage. So a
subscriber may stand below any of them, and one that is down loses nothing: its trees find places under the others, and
what it has not confirmed comes to it when it is back.

    those who announced an address, offered themselves, and may publish on the topic; the first few by their numbers
"""

from __future__ import annotations

import random
from typing import Final

from sealcast.trust.realm.state import RealmState

#: Other peers that a node is told about.
CONTACTS: Final = 16
#: More would cost publishers more messages; fewer would leave a topic without a root sooner.
RENDEZVOUS_EACH: Final = 3


def rendezvous_of(state: RealmState, topic: str, now_us: int) -> tuple[str, ...]:
    """By the order in which they came into the realm; none while nobody offers itself."""
    offered = [
        name
        for name in state.entities
        if (found := state.peers.get(name)) is not None and found.serves and state.may_publish(topic, name, now_us)
    ]
    return tuple(offered[:RENDEZVOUS_EACH])


def contacts_of(state: RealmState, topic: str, name: str) -> list[str]:
    """Some other peers of a topic, at random: searches begin at them."""
    others = [other for other in state.peers if other != name and state.rights_of(topic, other)]
    return random.sample(others, min(CONTACTS, len(others)))
