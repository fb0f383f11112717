"""The names of MQTT topics that Sealcast uses. A realm's topic T has these:

    sealcast/v1/T/events            messages that a matching broker delivers by content (`messages`)
    sealcast/v1/T/frames[/BROKER]   a publisher's frames, on their way into a broker's log
    sealcast/v1/T/mail/SUBSCRIBER   what was delivered to one subscriber, on its way out of the log (`mail`)
    sealcast/v1/bridge/NAME         whether a bridge is there: retained, `online` or `offline`

Names of topics, brokers and entities have letters, digits, dot, dash and underscore, so they are single levels.
"""

from __future__ import annotations

from typing import Final

from sealcast.model.names import NAME

ROOT: Final = "sealcast/v1"
EVENTS: Final = "events"


def events(topic: str) -> str:
    return f"{ROOT}/{topic}/{EVENTS}"


def frames(topic: str, broker: str | None = None) -> str:
    """Where frames for a broker go; without one, for the broker that the bridge serves."""
    return f"{ROOT}/{topic}/frames" + (f"/{broker}" if broker is not None else "")


def all_frames(topic: str) -> str:
    """The filter for frames to any broker."""
    return f"{frames(topic)}/#"


def mail(topic: str, subscriber: str) -> str:
    return f"{ROOT}/{topic}/mail/{subscriber}"


def presence(bridge: str) -> str:
    return f"{ROOT}/bridge/{bridge}"


def topic_of_events(channel: str) -> str | None:
    """The topic whose events this is the channel of."""
    match _levels(channel):
        case [topic, "events"]:
            return topic
        case _:
            return None


def frames_for(channel: str) -> tuple[str, str | None] | None:
    """Topic and broker of a channel for frames; None for any other channel."""
    match _levels(channel):
        case [topic, "frames"]:
            return topic, None
        case [topic, "frames", broker]:
            return topic, broker
        case _:
            return None


def _levels(channel: str) -> list[str]:
    """What follows the root, if all of it are names."""
    root, _, rest = channel.partition(f"{ROOT}/")
    levels = rest.split("/")
    return levels if not root and all(NAME.fullmatch(level) for level in levels) else []
