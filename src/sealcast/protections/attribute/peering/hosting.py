"""What a process of peers is told, where it listens and how soon it notices that somebody is gone; and what it does for
its members."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Protocol

from sealcast.errors import Misuse
from sealcast.overlay.peers.net.limits import DEFAULT_LIMITS, LinkLimits
from sealcast.overlay.peers.port import Dissemination, PeerSettings
from sealcast.protections.attribute.settings import settings_of
from sealcast.trust.realm.topics import Topic

#: What peers keep for those below them who were away: as much as the limits of an inventory let, for a day.
DEFAULT_SETTINGS: Final = PeerSettings(kept_seconds=86_400.0)
_ANY: Final = ("", "0.0.0.0", "::")


class Wires(Protocol):
    """What a member asks of the process that hosts it."""

    def send(self, peer: str, message: bytes) -> bool: ...
    def cut(self, peer: str, reason: str) -> None: ...


def with_heartbeat(seconds: float) -> tuple[LinkLimits, PeerSettings]:
    """Limits and settings whose times go with the heartbeat; 5 seconds give the defaults."""
    scale = seconds / DEFAULT_SETTINGS.pulse_seconds
    limits = replace(
        DEFAULT_LIMITS, heartbeat_s=scale * DEFAULT_LIMITS.heartbeat_s, silence_s=scale * DEFAULT_LIMITS.silence_s
    )
    settings = replace(
        DEFAULT_SETTINGS,
        pulse_seconds=seconds,
        silent_seconds=scale * DEFAULT_SETTINGS.silent_seconds,
        silent_step_seconds=scale * DEFAULT_SETTINGS.silent_step_seconds,
    )
    return limits, settings


def settings_for(topic: Topic, settings: PeerSettings) -> PeerSettings:
    """Those of a topic's peers: all of them pass events on in the way that the topic says."""
    routing = settings_of(topic).routing
    return replace(settings, dissemination=Dissemination.ROUTING if routing else Dissemination.FLOODING)


@dataclass(frozen=True, slots=True)
class ListenAt:
    """Where a process listens, and what others dial."""

    host: str = "127.0.0.1"
    port: int = 0
    #: The host that is announced, where it is not the one that is listened on.
    announced: str | None = None

    def __post_init__(self) -> None:
        if self.announced is None and self.host in _ANY:
            raise Misuse(
                f"nobody can dial {self.host or 'an empty host'!r}",
                hint="say what others shall dial: --announce HOST, or listen on an address of your own",
            )

    @property
    def dialled(self) -> str:
        return self.host if self.announced is None else self.announced
