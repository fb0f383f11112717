"""Who looks at a page, and what it may see of events.

The administrator sees how the realm stands: names, rights, numbers, reasons. An event's content is for its readers, so
that it is shown to a viewer that reads the topic, out of that viewer's own mailbox and with its own keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from sealcast.trust.realm.state import RealmState


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody in front of a page."""

    #: The entity whose keys open events here; None for an administrator who reads nothing.
    reader: str | None = None
    #: Whether it may change things: it is where the realm is, with the administrator's keys.
    administers: bool = True
    #: Whether it sees topics that it has no place at.
    everything: bool = True

    @property
    def shown(self) -> str:
        if self.reader is None:
            return "administrator; events are not shown"
        return f"administrator, reading as {self.reader}" if self.administers else self.reader

    def may_see(self, state: RealmState, topic: str) -> bool:
        """Whether a topic is shown to it at all."""
        return self.everything or (
            self.reader is not None
            and (bool(state.rights_of(topic, self.reader)) or state.slot_of(topic, self.reader) is not None)
        )

    def topics(self, state: RealmState) -> list[str]:
        return [name for name in state.topics if self.may_see(state, name)]
