"""What a broker's files tell of past epochs, in words: for `explain`."""

from __future__ import annotations

from sealcast.trust.keys.receiving import lasting_keys
from sealcast.trust.realm.state import RealmState


def left(state: RealmState, topic: str) -> str:
    """What is left, on a topic that brokers serve."""
    if not state.topic(topic).parameters.forgets:
        return (
            "Brokers keep what opens their keys of past epochs: whoever steals a broker's files reads what that broker "
            f"could read in any epoch. With `sealcast topic alter {topic} --past-keys forgotten` they forget it."
        )
    lasting = lasting_keys(state, topic)
    told = (
        f" Those of the present one are never forgotten by {', '.join(lasting)}: rotate the topic." if lasting else ""
    )
    return (
        "Brokers forget keys of past epochs when the frames are gone: nobody can seal those deliveries again after a "
        "compromise." + told
    )
