"""Through an MQTT broker that matches by content: each event is a message of its own, with trapdoors for the broker.

The broker delivers a message to those whose sealed filters match its block. What it says is not believed: the client
opens and verifies each message, and asks its own filters once more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import lru_cache
from typing import ClassVar

from sealcast.clients.publisher import admissible
from sealcast.control.wallet import Held, Wallet
from sealcast.errors import Bug, CannotOpen, FrameRejected
from sealcast.log.closing import Closing
from sealcast.model.event import Event
from sealcast.model.schema import Schema
from sealcast.mqtt import channels
from sealcast.mqtt.carriers import Opened
from sealcast.mqtt.messages import Message
from sealcast.primitives import merkle
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.checked import CheckedRows
from sealcast.protections.enveloped.client import EnvelopedSide
from sealcast.protections.enveloped.open import Opener
from sealcast.protections.port import DEFAULT_KEY_MEMORY, Inbox, Reader, Way, client_side
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.state import RealmState
from sealcast.wire import frame
from sealcast.wire.frame import BOOT_BYTES, Header
from sealcast.wire.records import RecordCodec


class DirectCarrier(Closing, Unpicklable):
    """One entity on one topic whose filters are sealed."""

    asks_again: ClassVar[bool] = True

    def __init__(self, realm: EntityRealm, topic: str, name: str, broker: str) -> None:
        self._realm, self._topic, self._name, self._broker = realm, topic, name, broker
        about = realm.state().topic(topic)
        side = client_side(about.protection)
        if not isinstance(side, EnvelopedSide):
            raise Bug(f"events of topic {topic!r} are not in envelopes")
        self._side, self._identity = side, realm.identity(name)
        self._held = ExitStack()
        self._sender: _Sender | None = None
        self._opener: tuple[Schema, Opener] | None = None
        self._inbox: Inbox | None = None

    def channel(self) -> str:
        return channels.events(self._topic)

    def seal(self, event: Event) -> list[tuple[str, bytes]]:
        if self._sender is None:
            way = self._side.way(self._realm, self._topic, self._identity, self._broker)
            wallet = Wallet(self._realm, self._name, identity=self._identity)
            self._held.callback(wallet.close)
            self._sender = _Sender(self._realm, self._topic, self._broker, wallet, way)
        return [(self.channel(), self._sender.message(event).to_bytes())]

    def open(self, payload: bytes) -> Iterator[Opened]:
        self._realm.state().require(Right.SUBSCRIBE, self._topic, self._name, self._realm.clock())
        schema = self._realm.state().topic(self._topic).schema
        # A version of the schema that came since is for an opener that knows it.
        if self._opener is None or self._opener[0] != schema:
            self._opener = schema, self._side.opener_for(self._realm, self._topic, self._identity)
        try:
            found = Message.parse(payload)
            header = found.header()
            yield Opened(self._opener[1].open_alone(found.signed, found.message), None, header.boot)
        except FrameRejected as error:
            yield Opened(None, CannotOpen(f"this is no event: {error.message}"))
        except CannotOpen as error:
            yield Opened(None, error)

    def look(self) -> None:
        """Registers filters in a new epoch, and shows later tokens, as a reader of a mailbox does."""
        if self._inbox is None:
            reader = Reader(self._realm, self._topic, self._name, None, None, DEFAULT_KEY_MEMORY)
            self._inbox = self._side.inbox(reader)
            self._held.callback(self._inbox.close)
        self._inbox.look(self._realm.state())

    def close(self) -> None:
        self._held.close()


class _Sender(Unpicklable):
    """One start of a publisher: it numbers its events."""

    def __init__(self, realm: EntityRealm, topic: str, broker: str, wallet: Wallet, way: Way) -> None:
        self._realm, self._topic, self._broker, self._wallet, self._way = realm, topic, broker, wallet, way
        self._boot, self._sequence = os.urandom(BOOT_BYTES), 0
        self._state: RealmState | None = None
        self._held: Held | None = None
        self._codec = lru_cache(1)(RecordCodec)

    def message(self, event: Event) -> Message:
        held, state = self._current()
        about = state.topic(self._topic)
        checked = CheckedRows(about.schema, [admissible(about.schema, event)])
        for refusal in self._way.check(checked).values():
            raise refusal
        ((_, made),) = self._way.messages(checked)
        (message,) = made[self._broker]
        number, self._sequence = self._sequence, self._sequence + 1  # spent, whatever becomes of the event
        (leaf,) = merkle.hash_messages([message])
        header = Header(
            topic=about.id,
            publisher=self._wallet.name,
            boot=self._boot,
            sequence=number,
            count=1,
            time=time.time_ns() // 1000,
            schema=about.schema.digest,
            epoch=held.epoch,
            root=leaf,
            token=frame.token_digest(held.token),
        )
        signature = self._wallet.identity.signer.sign(frame.to_be_signed(header))
        offset = len(message) - len(self._codec(about.schema).decode_one(message)[1])
        return Message(held.epoch, header.publisher, frame.encode_signed(header, signature), offset, message)

    def _current(self) -> tuple[Held, RealmState]:
        """By the newest registry: a right that was taken away is noticed here."""
        state, now = self._realm.state(), self._realm.clock()
        state.require(Right.PUBLISH, self._topic, self._wallet.name, now)
        if self._held is None or state is not self._state or self._held.half_over(now):
            self._held = self._wallet.get(self._topic, Right.PUBLISH, state)
            self._way.take(state, self._held.epoch)
            self._state = state
        return self._held, state
