"""Those who wait for what comes to a partition of Kafka: consumers that go on asking, and how many there may be.

A consumer of librdkafka has several threads and sockets of its own. A process that follows very many topics, as a
gateway may, waits at most at `MAX_SEATS` partitions in this way. Whoever gets no seat looks every so often, as on
carriers that tell nothing; and who has not waited for a while gives its seat away.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from sealcast.log.carriers import Stored
from sealcast.log.kafka_handles import KafkaConsumer
from sealcast.primitives.secrets import Unpicklable

#: Consumers that wait, in one process at one Kafka. Each takes four threads, eight files and half a megabyte.
MAX_SEATS: Final = 256
#: How long a seat is kept for somebody who does not wait.
IDLE_S: Final = 30.0
#: How long Kafka keeps a question of one who waits. One who then asks for another position waits for that answer first.
_HELD_MS: Final = 100
#: So many positions are passed over sooner than one who waits asks for another position.
_NEAR: Final = 256
#: How long one waits before others have their turn.
_TURN_S: Final = 0.25
#: How often one without a seat looks, and how often all of them do together.
_LOOK_S: Final = 0.05
_LOOKS_PER_S: Final = 400
#: Messages that are taken out of librdkafka's queue at a time.
AT_ONCE: Final = 1_024

_HEADER: Final = "sealcast"

#: Waits a little after an error, before it is tried again; raises what makes no sense to try, or takes too long.
Again = Callable[[KafkaException, float], None]


class Seats:
    """Who has a consumer to wait with, in one process at one Kafka. The one who waited longest ago is the first."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = WeakKeyDictionary[Waiting, float]()
        #: How many wait without one.
        self._standing = 0

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, who: Waiting) -> bool:
        """Whether it has a seat, which somebody who is idle may have given up for it."""
        now = time.monotonic()
        with self._guard:
            if self._taken.pop(who, None) is None and len(self._taken) >= MAX_SEATS:
                oldest, used = next(iter(self._taken.items()))
                if now - used < IDLE_S or not oldest.leave():
                    return False
                del self._taken[oldest]
            self._taken[who] = now
            return True

    def stand(self, seconds: float) -> None:
        """Waits until one without a seat may look again: the more there are, the longer."""
        with self._guard:
            self._standing += 1
            pause = max(_LOOK_S, self._standing / _LOOKS_PER_S)
        try:
            time.sleep(min(pause, seconds))
        finally:
            with self._guard:
                self._standing -= 1

    def give_back(self, who: Waiting) -> None:
        with self._guard:
            self._taken.pop(who, None)


class Waiting(Unpicklable):
    """Those of a process who wait at one partition. Threads take turns."""

    def __init__(self, name: str, number: int, consumer: Callable[[int], KafkaConsumer], seats: Seats) -> None:
        """`consumer` makes one whose questions are kept for so many milliseconds."""
        self._name, self._number, self._consumer, self._seats = name, number, consumer, seats
        self._turn = threading.Lock()
        self._waiter: KafkaConsumer | None = None
        #: The position that the consumer gives next.
        self._heard: int | None = None

    def wait(self, position: int, seconds: float, look: Callable[[], int], again: Again) -> list[Stored]:
        """As `carriers.CarrierPartition`. `look` says where the partition ends."""
        # Kafka answers when there is something. Others who wait have their turn in between.
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            with self._turn:
                has_seat = self._seats.take(self)
                came = self._came(position, min(left, _TURN_S), again) if has_seat else None
            if came is not None:
                return came
            if not has_seat:
                if look() > position:
                    return []
                self._seats.stand(left)
        return []

    def heard(self, position: int, again: Again) -> list[Stored]:
        """As `carriers.CarrierPartition`."""
        with self._turn:
            return (self._came(position, 0.0, again) or []) if self._seats.take(self) else []

    def leave(self) -> bool:
        """Gives its consumer up, unless somebody waits with it."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            self._let_go()
        finally:
            self._turn.release()
        return True

    def close(self, is_here: bool) -> None:
        """`is_here` says whether this is the process that waited."""
        self._seats.give_back(self)
        with self._turn:
            if is_here:
                self._let_go()

    def _let_go(self) -> None:
        waiter, self._waiter, self._heard = self._waiter, None, None
        if waiter is not None:
            waiter.close()

    def _came(self, position: int, seconds: float, again: Again) -> list[Stored] | None:
        """What has come from a position on; None if nothing has. None of it if there is trouble: whoever looks finds
        out what it is."""
        end = time.monotonic() + seconds
        if self._waiter is None:
            self._waiter, self._heard = self._consumer(_HELD_MS), None
        waiter = self._waiter
        try:
            if self._heard is None or not self._heard <= position <= self._heard + _NEAR:
                waiter.assign([TopicPartition(self._name, self._number, position)])
                self._heard = position
            while True:
                left, came = max(0.0, end - time.monotonic()), list[Stored]()
                for message in waited_for(waiter, AT_ONCE, left):
                    error = message.error()
                    if error is None:
                        came.append(stored_as(message))
                        self._heard = came[-1].position + 1
                    elif error.code() != KafkaError._PARTITION_EOF:
                        self._heard = None
                        time.sleep(left)  # nobody asks without pause
                        return []
                if fresh := [each for each in came if each.position >= position]:
                    return fresh
                if not left:
                    return None
        except KafkaException as error:
            self._heard = None
            again(error, end)
        return None


def waited_for(reader: KafkaConsumer, most: int, seconds: float) -> list[Message]:
    """What has come, when something has. Asked for all at once, librdkafka waits for as many as there are positions,
    and marks of transactions are none."""
    first = reader.consume(1, seconds)
    return [*first, *reader.consume(most, 0)] if first else []


def position_of(message: Message) -> int:
    return message.offset() or 0


def headed(head: bytes) -> list[tuple[str, str | bytes | None]]:
    """Our head of a record, as Kafka has it."""
    return [(_HEADER, head)]


def stored_as(message: Message) -> Stored:
    """A record with our head, which is empty if somebody else wrote it."""
    headers = message.headers()
    pairs = headers if isinstance(headers, list) else ()
    head = next((value for name, value in pairs if name == _HEADER), b"")
    return Stored(position_of(message), head if isinstance(head, bytes) else b"", message.value() or b"")
