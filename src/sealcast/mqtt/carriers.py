"""How a client's events go over MQTT and come back: the two ways, with one interface.

    through a bridge    frames, as a publisher appends them to a log; deliveries, as they lie in a mailbox
    through a broker    single events, which the MQTT broker itself matches against sealed filters (`direct`)

A carrier has one entity's keys for one topic. What it hands out is opened and verified.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import ClassVar, NamedTuple, Protocol

from sealcast.clients.publisher import Publisher
from sealcast.errors import CannotOpen, FrameRejected
from sealcast.log.closing import Closing
from sealcast.model.event import Event, OpenedEvent
from sealcast.mqtt import channels
from sealcast.mqtt.mail import Mail
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.port import DEFAULT_KEY_MEMORY, Inbox, Reader, client_side
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.changes import Right


class Opened(NamedTuple):
    """An event, or why it does not open. Publisher, boot and number are what recognises it when it comes again."""

    event: OpenedEvent | None
    error: CannotOpen | None
    boot: bytes = b""


class EventCarrier(Protocol):
    """One entity, one topic."""

    #: Whether whoever delivers may deliver too much: then a client asks its own filters once more. What lies in a
    #: mailbox was matched by the filters of its time, and is its reader's.
    asks_again: ClassVar[bool]

    def channel(self) -> str:
        """The MQTT topic on which its events arrive."""

    def seal(self, event: Event) -> list[tuple[str, bytes]]:
        """The MQTT messages that an event becomes: a topic and a payload each. EventRejected, or Rejected for one who
        may not publish."""

    def open(self, payload: bytes) -> Iterator[Opened]:
        """The events of a message that arrived."""

    def look(self) -> None:
        """Now and then, for one that subscribes: whether a broker has to be told something, such as a later token."""

    def close(self) -> None: ...


class BridgedCarrier(Closing, Unpicklable):
    """Through a bridge, whatever protects the topic."""

    asks_again: ClassVar[bool] = False

    def __init__(self, realm: EntityRealm, topic: str, name: str, broker: str) -> None:
        self._realm, self._topic, self._name, self._broker = realm, topic, name, broker
        self._publisher: Publisher | None = None
        self._inbox: Inbox | None = None
        self._held = ExitStack()

    def channel(self) -> str:
        return channels.mail(self._topic, self._name)

    def seal(self, event: Event) -> list[tuple[str, bytes]]:
        if self._publisher is None:
            self._publisher = Publisher(self._realm, self._topic, self._name, broker=self._broker)
            self._held.callback(self._publisher.close)
        frames = self._publisher.frames_for_brokers([event])
        return [(channels.frames(self._topic, broker), data) for broker, data in frames]

    def open(self, payload: bytes) -> Iterator[Opened]:
        state = self._realm.state()
        state.require(Right.SUBSCRIBE, self._topic, self._name, self._realm.clock())
        try:
            found = Mail.parse(payload).part(self._name, state.slot_of(self._topic, self._name))
        except FrameRejected as error:
            yield Opened(None, CannotOpen(f"this is no mail: {error.message}"))
            return
        inbox, done = self._reading(), 0
        while done < len(found.part):
            tried = inbox.open(found.cut(done, len(found.part)))
            events = iter(tried.opened.events())
            for row in range(tried.tried):
                refused = tried.refused.get(row)
                if refused is None:
                    event = next(events)
                    yield Opened(event, None, event.boot)
                else:
                    yield Opened(None, refused)
            done += tried.tried

    def look(self) -> None:
        self._reading().look(self._realm.state())

    def close(self) -> None:
        self._held.close()

    def _reading(self) -> Inbox:
        if self._inbox is None:
            side = client_side(self._realm.state().topic(self._topic).protection)
            desk = self._held.enter_context(side.key_asker(self._realm, self._topic, self._name))
            reader = Reader(self._realm, self._topic, self._name, None, desk, DEFAULT_KEY_MEMORY)
            self._inbox = side.inbox(reader)
            self._held.callback(self._inbox.close)
        return self._inbox
