"""An MQTT broker that matches what it cannot read: amqtt speaks the protocol, delivery is ours.

amqtt hands a message on to every session whose topic filter matches, from memory, in no promised order, and says PUBACK
before anything is stored. Its hook for filtering sees no payload. So what it does with messages is overridden, in one
place each (docs/adr/0017-mqtt.md argues why):

    connecting      `stream_connected`: the first packet is read here, and the entity is authenticated (`doors`). amqtt,
                    which would end an existing session before it authenticates, sees the connection only after that.
    publishing      `_handle_qos0_message_flow`, `_handle_qos1_message_flow` (`handler`): into the feed; PUBACK when
                    durable
    subscribing     `add_subscription`, `_del_subscription`: into the durable session
    delivering      `_client_message_loop`: `Live`, one per connection, from the feed; amqtt broadcasts nothing

A client's id is prefixed with its user's name, so nobody can take over another user's session.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from amqtt.adapters import ReaderAdapter, StreamWriterAdapter, WriterAdapter
from amqtt.broker import Broker
from amqtt.contexts import BrokerConfig, ListenerConfig
from amqtt.errors import AMQTTError, BrokerError, MQTTError, NoDataError, ProtocolHandlerError
from amqtt.mqtt.connack import SERVER_UNAVAILABLE, ConnackPacket
from amqtt.session import Session as Connection

from sealcast.errors import Misuse, Rejected, Unavailable
from sealcast.log.embedded import EmbeddedLog
from sealcast.mqtt import channels
from sealcast.mqtt.credentials import PasswordChecker
from sealcast.mqtt.doors import Doors
from sealcast.mqtt.feed import Feed
from sealcast.mqtt.handler import BoundedReader, ConnectionHandler
from sealcast.mqtt.live import Live
from sealcast.mqtt.matching import LOOK_SECONDS, MessageMatcher
from sealcast.mqtt.messages import Message
from sealcast.mqtt.sessions import Session, Sessions
from sealcast.protections.searchable.broker import unfit
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.changes import Right

MAX_CONNECTIONS: Final = 4_096
#: How often cursors are saved, in seconds.
SAVE_SECONDS: Final = 0.5
#: How often it is looked whether the log is longer than it may be.
RETAIN_SECONDS: Final = 10.0
_REFUSED: Final = 0x80


@dataclass(frozen=True, slots=True)
class Address:
    """Where the broker listens. Without a certificate, only where nobody else can listen in: on loopback."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise Misuse("a certificate comes with its key: give both, or neither")
        if self.certificate is None and self.host not in ("127.0.0.1", "localhost", "::1"):
            raise Misuse(
                f"without TLS the broker listens on this machine only, not on {self.host!r}",
                hint="give it a certificate: --cert FILE --key FILE",
            )

    def listener(self) -> ListenerConfig:
        secure = {"ssl": True, "certfile": self.certificate, "keyfile": self.key} if self.certificate else {}
        return ListenerConfig(bind=f"{self.host}:{self.port}", max_connections=MAX_CONNECTIONS, **secure)


class MatchingBroker(Broker):  # type: ignore[misc]
    """A broker for the searchable topics of one realm."""

    def __init__(
        self,
        realm: BrokerRealm,
        address: Address,
        *,
        broker: str = FIRST_BROKER,
        max_bytes: int,
        told: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Acts with the halves of `broker`. Its log keeps the newest `max_bytes` of events."""
        super().__init__(BrokerConfig(listeners={"default": address.listener()}, plugins={}))
        directory = realm.paths.broker(broker) / "mqtt"
        self._realm, self._max_bytes, self.told = realm, max_bytes, told
        self._matcher = MessageMatcher(realm, broker)
        self._doors = Doors(PasswordChecker(realm), self.refuse)
        self._feed = Feed(EmbeddedLog(directory / "log"), self._matcher, told)
        self._durable = Sessions(directory / "sessions")
        self._lives: dict[str, ConnectionHandler] = {}
        self._chores: list[asyncio.Task[None]] = []
        self.counts: Counter[str] = Counter()

    async def begin(self) -> None:
        """Listens, and serves from now on; Unavailable when that is not possible there."""
        try:
            await self.start()
        except BrokerError as error:
            raise Unavailable(f"the broker cannot listen there: {error}", hint="choose another port") from None
        chores = (
            self._feed.run(),
            self._often(LOOK_SECONDS, self._feed.look),
            self._often(SAVE_SECONDS, self._save),
            self._often(RETAIN_SECONDS, lambda: self._feed.retain(self._max_bytes)),
        )
        self._chores = [asyncio.ensure_future(chore) for chore in chores]

    async def close(self) -> None:
        """Ends in good order: connections are closed, cursors saved."""
        await self.shutdown()
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        await self._save()
        self._feed.close()

    def failed(self) -> BaseException | None:
        """Why the broker cannot go on, if so."""
        return next((chore.exception() for chore in self._chores if chore.done() and not chore.cancelled()), None)

    def refuse(self, reason: str, message: str) -> None:
        self.counts["refused"] += 1
        self.counts[f"refused_{reason}"] += 1
        self.told(message)

    # --- connecting -----------------------------------------------------------------------------------

    async def stream_connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listener_name: str
    ) -> None:
        out = StreamWriterAdapter(writer)
        try:
            connect = await self._doors.admit(reader, out)
        except (TimeoutError, asyncio.IncompleteReadError, NoDataError, MQTTError, AMQTTError, ConnectionError):
            self.counts["strangers"] += 1
            connect = None
        if connect is None:
            with suppress(ConnectionError, ssl.SSLError):
                await out.close()
            return
        old = self._lives.get(connect.payload.client_id)
        if old is not None:
            old.delivering.cancel()
            await old.handle_connection_closed()
        with suppress(ConnectionError, ssl.SSLError):
            await self._client_connected(listener_name, BoundedReader(reader, connect.to_bytes(), self._feed.room), out)

    async def _initialize_client_session(
        self, reader: ReaderAdapter, writer: WriterAdapter, remote_address: str, remote_port: int
    ) -> tuple[ConnectionHandler, Connection]:
        """amqtt's own session is as short as the connection. What lasts is ours."""
        handler, connection = await ConnectionHandler.init_from_connect(reader, writer, self.plugins_manager)
        user, _, client_id = connection.client_id.partition("/")
        try:
            session, known = self._durable.open(user, client_id, clean=connection.clean_session, end=self._feed.end)
        except Rejected as error:
            self.refuse("sessions", error.message)
            await ConnackPacket.build(0, SERVER_UNAVAILABLE).to_stream(writer)
            await writer.close()
            raise MQTTError(error.message) from None
        connection.parent = int(known)
        connection.keep_alive = connection.keep_alive * 3 // 2
        handler.hub, handler.live = self, Live(session, self._feed, handler.send, self.counts)
        return handler, connection

    async def _authenticate(self, session: Connection, listener: ListenerConfig) -> bool:
        """It was done before amqtt heard of the connection."""
        return True

    # --- publishing -----------------------------------------------------------------------------------

    def take(self, session: Session, channel: str, qos: int, data: bytes) -> asyncio.Future[None] | None:
        """Takes an event in; what says that it is durable, or None for one that is refused. A refused one is
        acknowledged, too: 3.1.1 has no word for it, and it would be refused again."""
        topic = channels.topic_of_events(channel)
        state = self._matcher.state
        if topic is None or not self._matcher.serves(topic):
            self.refuse("topic", f"{session.user!r} published on {channel!r}, which is no searchable topic")
            return None
        try:
            message = Message.parse(data)
            if message.publisher != session.user:
                raise Rejected(f"{session.user!r} published in the name of {message.publisher!r}")
            state.require(Right.PUBLISH, topic, session.user, self._realm.clock())
            for _, why in unfit(state.topic(topic), [message.message[message.offset :]]):
                raise Rejected(why)
        except Rejected as error:
            self.refuse("event", f"an event of {session.user!r} on topic {topic!r} is refused: {error.message}")
            return None
        self.counts["events"] += 1
        return self._feed.append(topic, qos, data)

    async def _broadcast_message(self, *arguments: Any, **options: Any) -> None:
        """Only wills come here, and they are not sealed: they go nowhere."""
        self.refuse("will", "a client's will was not delivered: it is not sealed")

    # --- subscribing ----------------------------------------------------------------------------------

    async def add_subscription(self, subscription: tuple[str, int], connection: Connection) -> int:
        """Granted when it is durable. A topic filter names one topic: who asks for all asks for nothing here."""
        channel, qos = subscription
        topic, handler = channels.topic_of_events(channel), self._sessions.get(connection.client_id, (None, None))[1]
        await self._feed.look(now=True)
        if topic is None or not isinstance(handler, ConnectionHandler) or not self._matcher.serves(topic):
            return _REFUSED
        session = handler.live.session
        if not self._matcher.state.may_subscribe(topic, session.user, self._realm.clock()):
            return _REFUSED
        qos, known = min(qos, 1), session.topics.get(topic)
        if known is not None:
            known.qos = qos
        else:
            session.listen(topic, qos, self._first_event(topic, session))
            handler.live.go_back(session.cursor)
        await asyncio.to_thread(self._durable.save, session)
        return qos

    def _first_event(self, topic: str, session: Session) -> int:
        """Where a new subscription begins. A session that lasts gets what is retained of the topic, once (paper 002: a
        new subscription is matched with publications); another would get it again with every connection."""
        retention = self._matcher.state.topic(topic).protection.retention
        if retention is None or not session.persistent:
            return self._feed.end
        return self._feed.retained(retention, self._realm.clock())

    def _del_subscription(self, channel: str, connection: Connection) -> int:
        topic, handler = channels.topic_of_events(channel), self._sessions.get(connection.client_id, (None, None))[1]
        if topic is None or not isinstance(handler, ConnectionHandler) or topic not in handler.live.session.topics:
            return 0
        del handler.live.session.topics[topic]
        self._durable.save(handler.live.session)
        return 1

    # --- delivering -----------------------------------------------------------------------------------

    async def _client_message_loop(self, connection: Connection, handler: ConnectionHandler) -> None:
        key = connection.client_id
        self.counts["connections"] += 1
        await self._feed.look(now=True)  # filters that were registered just now count for what waits
        handler.delivering = asyncio.ensure_future(handler.live.run())
        handler.delivering.add_done_callback(lambda done: self._ended(handler, done))
        self._lives[key] = handler
        try:
            await super()._client_message_loop(connection, handler)
        finally:
            handler.delivering.cancel()
            if self._lives.get(key) is handler:
                del self._lives[key]
            if self._sessions.get(key, (None, None))[1] is handler:
                del self._sessions[key]

    def _ended(self, handler: ConnectionHandler, done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        # A connection that ends while something is sent is no trouble of the broker's. amqtt says so with errors of its
        # own, also where the task was cancelled.
        if error is not None and not isinstance(error, AMQTTError | ProtocolHandlerError | OSError):
            self.told(f"delivering to {handler.live.session.user!r} failed: {error}")
            self._chores.append(asyncio.ensure_future(_fail(error)))

    async def _save(self) -> None:
        for session in self._durable.moved():
            await asyncio.to_thread(self._durable.save, session)

    async def _often(self, seconds: float, chore: Callable[[], Any]) -> None:
        while True:
            await asyncio.sleep(seconds)
            await chore()


async def _fail(error: BaseException) -> None:
    raise error
