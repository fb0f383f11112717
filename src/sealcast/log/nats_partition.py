"""A stream of NATS JetStream as a partition: reading from a position on, appending, appending as the only writer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError

from sealcast.errors import Locked, Misuse, Unavailable
from sealcast.log.carried import FENCE, RecordHead
from sealcast.log.carriers import Fenced, Stored, checked_name
from sealcast.log.closing import Closing
from sealcast.primitives.secrets import Unpicklable

if TYPE_CHECKING:
    from sealcast.log.nats import NatsCarrier

T = TypeVar("T")

_HEADER: Final = "Sealcast"
_EXPECTED: Final = "Nats-Expected-Last-Sequence"
_WRONG_LAST: Final = 10071
#: Messages that are fetched at a time, and sent before the first of them has been acknowledged.
_AT_ONCE: Final = 256
_FETCH_S: Final = 2.0
_IDLE_S: Final = 60.0
#: How often whoever waits looks whether there is more.
_LOOK_S: Final = 0.02


def stream_of(name: str, number: int) -> str:
    """Streams have no dots in their names."""
    return f"{checked_name(name).replace('.', '-')}-{number}"


class NatsPartition(Closing, Unpicklable):
    """A stream (`carriers.CarrierPartition`). Its sequences begin at 1, our positions at 0."""

    def __init__(self, carrier: NatsCarrier, stream: str) -> None:
        self._carrier, self._stream = carrier, stream
        self._guard = threading.RLock()
        self._consumer: JetStreamContext.PullSubscription | None = None
        #: The position that the consumer gives next.
        self._next = -1
        #: The last sequence that this writer knows of; None while it is none.
        self._last: int | None = None

    @property
    def shown(self) -> str:
        return f"{self._carrier.shown}/{self._stream}"

    # --- reading ---------------------------------------------------------------------------------

    def bounds(self) -> tuple[int, int]:
        async def look() -> tuple[int, int]:
            found = (await (await self._carrier.streams()).stream_info(self._stream)).state
            return max(found.first_seq, 1) - 1, found.last_seq

        first, last = self._patiently(look)
        return min(first, last), last

    def wait(self, position: int, seconds: float) -> list[Stored]:
        end = time.monotonic() + seconds
        while self.bounds()[1] <= position and (left := end - time.monotonic()) > 0:
            time.sleep(min(_LOOK_S, left))
        return []

    def heard(self, position: int) -> list[Stored]:
        return []

    def fetch(self, start: int, end: int) -> Iterator[Stored]:
        position = start
        while position < end:
            with self._guard:
                got = self._patiently(partial(self._some, position, end - position))
            if not got:
                return
            yield from got
            position = got[-1].position + 1

    async def _some(self, position: int, most: int) -> list[Stored]:
        if self._consumer is None or self._next != position:
            await self._let_go()
            self._consumer = await (await self._carrier.streams()).pull_subscribe(
                self._stream,
                stream=self._stream,
                config=ConsumerConfig(
                    deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                    opt_start_seq=position + 1,
                    ack_policy=AckPolicy.NONE,
                    mem_storage=True,
                    inactive_threshold=_IDLE_S,
                ),
            )
        self._next = -1
        try:
            found = await self._consumer.fetch(min(_AT_ONCE, most), timeout=_FETCH_S)
        except TimeoutError:
            if (await self._consumer.consumer_info()).num_pending == 0:
                return []  # the server has nothing there
            raise
        got = [_stored(message) for message in found]
        if got:
            self._next = got[-1].position + 1
        return got

    async def _let_go(self) -> None:
        consumer, self._consumer, self._next = self._consumer, None, -1
        if consumer is not None:
            with suppress(NatsError, TimeoutError, OSError):  # the server forgets it by itself
                await consumer.unsubscribe()

    def _patiently(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Tries again while a server is away, for a while."""
        end = time.monotonic() + self._carrier.patience_s
        while True:
            try:
                return self._carrier.ask(work())
            except (NatsError, TimeoutError, OSError, Unavailable) as error:
                self._next = -1
                found = error if isinstance(error, Unavailable) else self._carrier.trouble(error, self._stream)
                if isinstance(found, Misuse) or time.monotonic() >= end:
                    raise found from None
                time.sleep(0.2)

    # --- writing ---------------------------------------------------------------------------------

    def append(self, records: Sequence[tuple[bytes, bytes]]) -> list[int]:
        async def send() -> list[int]:
            streams, positions = await self._carrier.streams(), list[int]()
            for at in range(0, len(records), _AT_ONCE):
                sent = [
                    asyncio.ensure_future(
                        streams.publish(self._stream, data, stream=self._stream, headers={_HEADER: head.hex()})
                    )
                    for head, data in records[at : at + _AT_ONCE]
                ]
                acknowledged = await asyncio.gather(*sent, return_exceptions=True)
                for each in acknowledged:
                    if isinstance(each, BaseException):
                        raise each
                    positions.append(each.seq - 1)
            return positions

        return self._written(send())

    def become_writer(self) -> None:
        async def mark() -> int:
            streams = await self._carrier.streams()
            head = RecordHead(FENCE, time.time_ns() // 1000, 0).sealed(b"").hex()
            acknowledged = await streams.publish(self._stream, b"", stream=self._stream, headers={_HEADER: head})
            return acknowledged.seq

        with self._guard:
            self._last = None
            self._last = self._written(mark())

    def append_alone(self, records: Sequence[tuple[bytes, bytes]]) -> tuple[list[int], int]:
        async def send(last: int) -> list[int]:
            streams, positions = await self._carrier.streams(), list[int]()
            for head, data in records:
                headers = {_HEADER: head.hex(), _EXPECTED: str(last)}
                last = (await streams.publish(self._stream, data, stream=self._stream, headers=headers)).seq
                positions.append(last - 1)
            return positions

        with self._guard:
            if self._last is None:
                raise Locked(f"{self.shown} has another writer, or none")
            last, self._last = self._last, None  # known again when all of it is acknowledged
            positions = self._written(send(last))
            self._last = positions[-1] + 1
            return positions, self._last

    def _written(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._carrier.ask(work)
        except APIError as error:
            if error.err_code == _WRONG_LAST:
                raise Fenced(f"{self.shown} has another writer since") from None
            raise self._carrier.trouble(error, self._stream) from None
        except (NatsError, TimeoutError, OSError) as error:
            raise self._carrier.trouble(error, self._stream) from None

    def drop(self, before: int) -> None:
        async def purge() -> bool:
            return await (await self._carrier.streams()).purge_stream(self._stream, seq=before + 1)

        self._patiently(purge)

    def close(self) -> None:
        with self._guard:
            if self._consumer is not None:
                self._carrier.ask(self._let_go())


def _stored(message: Any) -> Stored:
    said = (message.headers or {}).get(_HEADER, "")
    try:
        head = bytes.fromhex(said)
    except ValueError:
        head = b""
    return Stored(message.metadata.sequence.stream - 1, head, message.data)
