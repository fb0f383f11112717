"""`sealcast.mqtt.Client`: Paho's client with private topics. Its methods are Paho's; what travels is sealed.

    client = sealcast.mqtt.Client("market", "alice")
    client.on_message = lambda client, userdata, message: print(message.attributes, message.payload)
    client.connect("127.0.0.1")
    client.subscribe("quotes", "price > 100")
    client.loop_forever()

    client.publish("quotes", b"hello", qos=1, attributes={"price": 101})

A topic is one of the realm's. There is no way to publish in the clear by mistake: an unknown topic is refused. A
message that arrives was opened with the entity's own keys, verified to be its publisher's, matched once more against
the entity's own filters, and not seen before. The session is persistent: at QoS 1, what was published while the client
was away arrives when it is back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY, MQTTMessage, MQTTMessageInfo, MQTTv5, MQTTv311
from paho.mqtt.client import Client as Paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.properties import Properties

from sealcast.errors import CannotOpen, Misuse, SealcastError
from sealcast.model.event import Event
from sealcast.mqtt import credentials
from sealcast.mqtt.claimed import ClaimedId
from sealcast.mqtt.link import lasting
from sealcast.mqtt.ordered import OrderedClient
from sealcast.mqtt.received import ReceivedEvent
from sealcast.mqtt.topics import ClientTopics
from sealcast.trust.handles import EntityRealm
from sealcast.trust.layout import FIRST_BROKER

Callback = Callable[..., None]


class Client(OrderedClient):
    """One entity of a realm, connected to one MQTT broker. All that Paho's client has, this one has, but a will."""

    def __init__(
        self,
        realm: EntityRealm | str | Path,
        as_: str,
        *,
        through: str | None = None,
        broker: str = FIRST_BROKER,
        client_id: str | None = None,
        password: str | None = None,
        protocol: MQTTProtocolVersion = MQTTv311,
        userdata: Any = None,
        **options: Any,
    ) -> None:
        """`through` says what is on the other side: "broker" for an MQTT broker that matches by content, "bridge" for
        one with a bridge to the log. Without it, topics of a protection whose brokers match sealed filters go through
        the broker, and others through a bridge. With a bridge, frames go to the log of `broker`.

        The session at the MQTT broker belongs to the client id. Who has two clients gives each an id of its own.

        Without a `password`, the entity signs one for each connection. Other options are Paho's.
        """
        self.realm = realm if isinstance(realm, EntityRealm) else EntityRealm(realm)
        self.name = as_
        self._identity = self.realm.identity(as_)
        self._given_password = password
        self._user_on_connect: Callback | None = None
        self._user_pre_connect: Callback | None = None
        #: Called as `on_message` is, with why, for what arrives and does not open. Without it, that is counted only.
        self.on_unopenable: Callable[[Client, Any, CannotOpen], None] | None = None
        self.duplicates = self.unopenable = self.unwanted = 0
        self._topics = ClientTopics(self.realm, as_, broker, through)
        self._claimed: ClaimedId | None = None
        chosen = client_id if client_id is not None else f"sealcast-{as_}"
        if protocol != MQTTv5:
            options.setdefault("clean_session", False)
        super().__init__(CallbackAPIVersion.VERSION2, chosen, userdata=userdata, protocol=protocol, **options)
        self._chosen_id = chosen
        self.username_pw_set(as_, password)

    def __del__(self) -> None:
        if hasattr(self, "_sock"):  # else Paho's part was never made: the arguments were refused
            self._let_go()
            super().__del__()

    @property
    def trouble(self) -> SealcastError | None:
        """Why a broker could not be told what is wanted, the last time it was tried."""
        return self._topics.trouble

    # --- connecting -----------------------------------------------------------------------------------

    def connect_async(
        self,
        host: str,
        port: int = 1883,
        keepalive: int = 60,
        bind_address: str = "",
        bind_port: int = 0,
        clean_start: bool | Literal[3] = MQTT_CLEAN_START_FIRST_ONLY,
        properties: Properties | None = None,
    ) -> None:
        """As Paho's. With MQTT 5 the session is persistent, too, unless told otherwise. Locked while another client is
        connected there under the same id."""
        if self.protocol == MQTTv5 and properties is None and clean_start == MQTT_CLEAN_START_FIRST_ONLY:
            clean_start, properties = False, lasting()
        self._let_go()
        super().connect_async(host, port, keepalive, bind_address, bind_port, clean_start, properties)
        self._claim()

    def disconnect(self, *arguments: Any, **options: Any) -> MQTTErrorCode:
        try:
            return super().disconnect(*arguments, **options)
        finally:
            self._let_go()

    def _claim(self) -> None:
        if self._claimed is None and self._chosen_id:
            self._claimed = ClaimedId(self.realm, self.name, self._chosen_id, self.host, self.port)

    def _let_go(self) -> None:
        if self._claimed is not None:
            self._claimed.close()
            self._claimed = None

    # Paho reads its callbacks as attributes each time. So these two are ours, and call the user's.

    @property
    def on_connect(self) -> Any:
        return self._connected

    @on_connect.setter
    def on_connect(self, callback: Callback | None) -> None:
        self._user_on_connect = callback

    @property
    def on_pre_connect(self) -> Any:
        return self._before_connect

    @on_pre_connect.setter
    def on_pre_connect(self, callback: Callback | None) -> None:
        self._user_pre_connect = callback

    def _before_connect(self, client: Paho, userdata: Any) -> None:
        # What is wanted in this epoch is registered before the broker begins to deliver what waits there.
        self._claim()
        self.fall_behind()
        self._topics.look()
        if self._given_password is None:
            now = self.realm.clock()
            self.username_pw_set(self.name, credentials.password(self._identity, self.realm.id, self._chosen_id, now))
        if self._user_pre_connect is not None:
            self._user_pre_connect(client, userdata)

    def _connected(self, client: Paho, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if not reason.is_failure:
            with self._topics.guard:
                # Also where the broker says that it knows the session: it may have been told less than we were.
                wanted = [(self._topics.carrier(topic).channel(), qos) for topic, qos in self._topics.listened.items()]
            if wanted:
                super().subscribe(wanted)
        if self._user_on_connect is not None:
            self._user_on_connect(client, userdata, flags, reason, properties)
        if not reason.is_failure:
            self.send_again()

    # --- publishing -----------------------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        payload: Any = None,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
        *,
        attributes: Mapping[str, Any] | None = None,
        content_type: str = "application/octet-stream",
    ) -> MQTTMessageInfo:
        """Seals an event and publishes it. What is returned is Paho's: `wait_for_publish()` waits for the broker's word
        that it has the event, at QoS 1.

        EventRejected for an event that the topic's schema does not admit; NotFound for a topic that the realm does not
        have. Nothing goes out then.
        """
        if qos not in (0, 1):
            raise Misuse("events go at QoS 0 or 1: whoever reads drops duplicates, so QoS 2 would add nothing")
        if retain:
            raise Misuse(
                "a retained message goes to everybody who subscribes later, whatever they ask for",
                hint="leave retain away; what was published while a client was away arrives by its session, at QoS 1",
            )
        body = payload.encode() if isinstance(payload, str) else b"" if payload is None else bytes(payload)
        event = Event(dict(attributes or {}), body, content_type)
        with self._topics.guard:
            made = self._topics.carrier(topic).seal(event)
        return [super(Client, self).publish(channel, data, qos, False, properties) for channel, data in made][-1]

    # --- subscribing ----------------------------------------------------------------------------------

    def will_set(self, *arguments: Any, **options: Any) -> None:
        """Refused: Paho sends a will when it connects, in clear."""
        raise Misuse(
            "a will would go to the MQTT broker as it is: it cannot be sealed for events that are not there yet",
            hint="publish an event when you go, or let readers miss a regular one",
        )

    def subscribe(  # type: ignore[override]
        self, topic: str, filter: str | None = None, qos: int = 1
    ) -> tuple[MQTTErrorCode, int | None]:
        """States what is wanted of a topic, with the entity's own keys, and listens for it. With several filters, call
        it for each. Without one, what was stated before counts.

        FilterRejected says what the topic's protection can express.
        """
        if filter is not None and not isinstance(filter, str):
            raise Misuse(f"a filter is a text, not {filter!r}", hint='subscribe("TOPIC", "price > 3", qos=1)')
        with self._topics.guard:
            wanted = self._topics.wants(topic)
            if filter is not None:
                wanted.add(filter)
            elif not wanted.filters:
                raise Misuse(f"{self.name!r} wants nothing of topic {topic!r} yet", hint="give a filter")
            channel = self._topics.carrier(topic).channel()
            self._topics.listen(topic, qos)
            self.message_callback_add(channel, self._arrived(topic))
            if not self.is_connected():
                return MQTTErrorCode.MQTT_ERR_NO_CONN, None  # said again as soon as there is a connection
            return super().subscribe(channel, qos)

    def unsubscribe(  # type: ignore[override]
        self, topic: str, filter: str | None = None
    ) -> tuple[MQTTErrorCode, int | None]:
        """Ends one filter, or all of them. The client listens as long as a filter is left."""
        with self._topics.guard:
            wanted = self._topics.wants(topic)
            wanted.remove(filter)
            if wanted.filters:
                return MQTTErrorCode.MQTT_ERR_SUCCESS, None
            channel = self._topics.carrier(topic).channel()
            self._topics.listened.pop(topic, None)
            self.message_callback_remove(channel)
            return super().unsubscribe(channel)

    def filters(self, topic: str) -> list[str]:
        """What is wanted of a topic."""
        with self._topics.guard:
            return list(self._topics.wants(topic).filters)

    # --- what arrives -----------------------------------------------------------------------------------

    def _arrived(self, topic: str) -> Callback:
        seen = self._topics.seen(topic)

        def arrived(client: Paho, userdata: Any, carried: MQTTMessage) -> None:
            with self._topics.guard:
                carrier = self._topics.carrier(topic)
                found = list(carrier.open(bytes(carried.payload)))
            for opened in found:
                if opened.event is None:
                    self.unopenable += 1
                    if self.on_unopenable is not None and opened.error is not None:
                        self.on_unopenable(self, userdata, opened.error)
                elif not seen.add(opened.event.publisher, opened.boot, opened.event.sequence):
                    self.duplicates += 1
                elif carrier.asks_again and not self._topics.wants(topic).matches(opened.event):
                    self.unwanted += 1
                else:
                    on_message: Any = self.on_message
                    if on_message is not None:
                        on_message(self, userdata, ReceivedEvent(topic, opened.event, carried))

        return arrived

    def close(self) -> None:
        """Disconnects, ends the network thread, and lets go of keys and files. The session stays at the broker."""
        self._topics.stop()
        self.disconnect()
        self.loop_stop()
        self._topics.close()

    def flush(self, timeout: float = 30.0) -> bool:
        """Waits until everything published at QoS 1 is acknowledged; whether that is so."""
        deadline = time.monotonic() + timeout
        while self._out_messages and time.monotonic() < deadline:
            time.sleep(0.01)
        return not self._out_messages
