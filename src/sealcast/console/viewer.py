"""Who looks at a page, and what it may see of events.

The administrator sees how the realm stands: names, rights, numbers, reasons. An event's content is for its readers, so
that it is shown to a viewer that reads the topic, out of that viewer's own mailbox and with its own keys.

Who comes over a gateway is an entity by its certificate. Its keys are elsewhere, so that nobody's events are shown to
it. It sees the topics that it has a place at, and of other readers no more than the registry says.
"""

from __future__ import annotations

from dataclasses import dataclass

from sealcast.trust.realm.state import RealmState


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody in front of a page."""

    #: The entity whose keys open events here; None for an administrator who reads nothing.
    reader: str | None = None
    #: The entity that came over a gateway, by its certificate; None for somebody on this machine.
    entity: str | None = None
    #: Whether it may change things: it is where the realm is, with the administrator's keys.
    administers: bool = True
    #: Whether it sees topics that it has no place at.
    everything: bool = True

    @classmethod
    def over_gateway(cls, entity: str, *, everything: bool) -> Viewer:
        """Somebody by its certificate. It changes nothing here: that takes keys that stay where the realm is."""
        return cls(entity=entity, administers=False, everything=everything)

    @property
    def own(self) -> str | None:
        """The entity that it asks as."""
        return self.entity or self.reader

    @property
    def shown(self) -> str:
        if self.entity is not None:
            return f"{self.entity}, who sees the whole realm" if self.everything else self.entity
        if self.reader is None:
            return "administrator; events are not shown"
        return f"administrator, reading as {self.reader}" if self.administers else self.reader

    def may_see(self, state: RealmState, topic: str) -> bool:
        """Whether a topic is shown to it at all."""
        return self.everything or (
            self.own is not None
            and (bool(state.rights_of(topic, self.own)) or state.slot_of(topic, self.own) is not None)
        )

    def may_ask_about(self, entity: str | None) -> bool:
        """Whether what concerns an entity alone is shown to it."""
        return self.everything or entity is None or entity == self.own

    def topics(self, state: RealmState) -> list[str]:
        return [name for name in state.topics if self.may_see(state, name)]
