"""NATS JetStream as a carrier: a stream for each partition.

**Durable** means what the server is set up for: `sync_interval: always`, or several replicas. No client can ask for it
after the fact, so `docs/deploy.md` says what to set. **Fencing** is a comparison: a writer says with each record which
sequence has to be the stream's last. A new writer begins with a mark of its own, after which the last sequence is none
that an older writer knows of, so the server refuses whatever that one still sends.

The client is asyncio's. It runs in a thread of its own, one for a carrier and process.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError
from nats.js import JetStreamContext
from nats.js.api import RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import NotFoundError

from sealcast.errors import Misuse, NotFound, Unavailable
from sealcast.log.carriers import PATIENCE_S, CarrierAddress, CarrierAway, Placement, checked_settings
from sealcast.log.closing import Closing
from sealcast.log.nats_partition import NatsPartition, stream_of
from sealcast.primitives.secrets import Unpicklable

T = TypeVar("T")

#: How long one request waits for its answer: a server that was killed gives none.
_ANSWER_S: Final = 5.0
#: What a file of settings may say: how to prove who we are.
SETTINGS: Final = ("user", "password", "token", "credentials", "tls.ca", "tls.certificate", "tls.key")


class NatsCarrier(Closing, Unpicklable):
    """A NATS server or cluster, as this process reaches it."""

    def __init__(self, address: CarrierAddress, settings: Mapping[str, str], patience_s: float = PATIENCE_S) -> None:
        self._settings = dict(checked_settings(settings, SETTINGS, "a carrier of kind nats"))
        self._servers = [f"{'tls' if self._secure else 'nats'}://{server}" for server in address.servers]
        self.shown, self.patience_s = str(address), patience_s
        self._process = os.getpid()
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Client | None = None

    @property
    def _secure(self) -> bool:
        return any(name.startswith("tls.") for name in self._settings)

    # --- the client ------------------------------------------------------------------------------

    def ask(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Does something in the client's thread, and waits for it."""
        if os.getpid() != self._process:
            work.close()
            raise Misuse(f"{self.shown} was opened by process {self._process}; a child process opens it itself")
        with self._guard:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="sealcast nats", daemon=True).start()
            loop = self._loop
        asked = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return asked.result(self.patience_s + 5 if seconds is None else seconds)
        except TimeoutError:
            asked.cancel()
            raise CarrierAway(
                f"{self.shown} does not answer", hint="is the NATS server running and reachable?"
            ) from None

    async def streams(self) -> JetStreamContext:
        """JetStream, connected."""
        if self._client is None or self._client.is_closed:
            self._client = await self._connected()
        return self._client.jetstream(timeout=_ANSWER_S)

    async def _connected(self) -> Client:
        given, context = self._settings, None
        if self._secure:
            context = ssl.create_default_context(cafile=given.get("tls.ca"))
            if "tls.certificate" in given:
                context.load_cert_chain(given["tls.certificate"], given.get("tls.key"))
        try:
            return await nats.connect(
                self._servers,
                name="sealcast",
                user=given.get("user"),
                password=given.get("password"),
                token=given.get("token"),
                user_credentials=given.get("credentials"),
                tls=context,
                connect_timeout=5,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.2,
                error_cb=_unheard,
                allow_reconnect=True,
            )
        except (NatsError, OSError, TimeoutError, ssl.SSLError) as error:
            raise self.trouble(error, None) from None

    def trouble(self, error: Exception, name: str | None) -> Unavailable | Misuse:
        """Our error for one of NATS's, which says nothing about who we are."""
        where = self.shown if name is None else f"stream {name!r} of {self.shown}"
        if isinstance(error, NotFoundError):
            return NotFound(f"there is no {where}", hint="make it on the carrier, or have Sealcast make it")
        if isinstance(error, MaxPayloadError):
            return Misuse(f"{where} takes no record of that size", hint="raise the server's max_payload")
        return CarrierAway(f"{where} does not answer as it should: {type(error).__name__}", hint="is NATS reachable?")

    # --- topics ----------------------------------------------------------------------------------

    def partition(self, name: str, number: int) -> NatsPartition:
        return NatsPartition(self, stream_of(name, number))

    def partitions(self, name: str) -> int | None:
        async def count() -> int:
            streams, found = await self.streams(), 0
            while True:
                try:
                    await streams.stream_info(stream_of(name, found))
                except NotFoundError:
                    return found
                except (NatsError, TimeoutError, OSError) as error:
                    raise self.trouble(error, name) from None
                found += 1

        return self.ask(count()) or None

    def create(self, name: str, placement: Placement) -> None:
        async def make() -> None:
            streams = await self.streams()
            for number in range(placement.partitions):
                stream = stream_of(name, number)
                try:
                    await streams.add_stream(
                        StreamConfig(
                            name=stream,
                            subjects=[stream],
                            retention=RetentionPolicy.LIMITS,
                            storage=StorageType.FILE,
                            num_replicas=placement.replicas,
                            max_msgs=-1,
                            max_bytes=-1,
                            max_age=0,
                        )
                    )
                except (NatsError, TimeoutError, OSError) as error:
                    raise self.trouble(error, stream) from None

        self.ask(make())

    def remove(self, name: str) -> None:
        async def delete(number: int) -> None:
            try:
                await (await self.streams()).delete_stream(stream_of(name, number))
            except NotFoundError:
                return
            except (NatsError, TimeoutError, OSError) as error:
                raise self.trouble(error, name) from None

        # The last one first: how many there are is counted from the first on.
        for number in reversed(range(self.partitions(name) or 0)):
            self.ask(delete(number))

    def placement(self, name: str) -> Placement:
        return Placement(self.partitions(name) or 0, self._configured(name).num_replicas or 1)

    def _configured(self, name: str) -> StreamConfig:
        async def configured() -> StreamConfig:
            try:
                return (await (await self.streams()).stream_info(stream_of(name, 0))).config
            except (NatsError, TimeoutError, OSError) as error:
                raise self.trouble(error, name) from None

        return self.ask(configured())

    def check(self, name: str) -> None:
        found = self._configured(name)
        bounded = [bound for bound in (found.max_msgs, found.max_bytes, found.max_age) if bound and bound > 0]
        if found.storage != StorageType.FILE or found.retention != RetentionPolicy.LIMITS or found.no_ack:
            raise Misuse(f"stream {name!r} of {self.shown} is not kept in files, or does not keep what was read")
        if bounded:
            raise Misuse(
                f"stream {name!r} of {self.shown} drops records by itself: frames would be lost before they are taken",
                hint="set its max_msgs, max_bytes and max_age to none: Sealcast drops frames that were committed",
            )

    def close(self) -> None:
        with self._guard:
            loop, client, self._loop, self._client = self._loop, self._client, None, None
        if loop is not None and os.getpid() == self._process:
            if client is not None:
                asyncio.run_coroutine_threadsafe(client.close(), loop).result(5)
            loop.call_soon_threadsafe(loop.stop)


async def _unheard(error: Exception) -> None:
    """What goes wrong comes back to whoever waits for it; the client would log it as well."""
