"""A partition of a topic of Kafka: reading from a position on, appending, appending as the only writer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from sealcast.errors import Corrupt, Locked, Misuse, NotFound, SealcastError
from sealcast.log.carriers import PATIENCE_S, CarrierAway, Fenced, Stored
from sealcast.log.closing import Closing
from sealcast.log.kafka_handles import KafkaConsumer, KafkaProducer
from sealcast.log.kafka_waiting import AT_ONCE, Waiting, headed, position_of, stored_as, waited_for
from sealcast.primitives.secrets import Unpicklable

if TYPE_CHECKING:
    from sealcast.log.kafka import KafkaCarrier

_POLL_S: Final = 0.5
#: librdkafka reports what became of a record within the carrier's patience, and a little later when it is busy.
_REPORT_S: Final = 10.0
_FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
_NOT_THERE: Final = frozenset({KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET})


class KafkaPartition(Closing, Unpicklable):
    """A partition of a topic of Kafka (`carriers.CarrierPartition`)."""

    def __init__(self, carrier: KafkaCarrier, name: str, number: int) -> None:
        self._carrier, self._name, self._number = carrier, name, number
        self._guard = threading.RLock()
        self._consumer: KafkaConsumer | None = None
        #: The position that the consumer gives next; None while it gives nothing.
        self._next: int | None = None
        self._waiting = Waiting(name, number, carrier.consumer, carrier.seats)
        self._alone: KafkaProducer | None = None

    @property
    def shown(self) -> str:
        return f"{self._carrier.shown}/{self._name}/{self._number}"

    # --- reading ---------------------------------------------------------------------------------

    def bounds(self) -> tuple[int, int]:
        end = time.monotonic() + self._carrier.patience_s
        with self._guard:
            while True:
                try:
                    asker = self._carrier.asker()
                    first, past = asker.get_watermark_offsets(self._place(), timeout=self._left(end), cached=False)
                    return first, past
                except KafkaException as error:
                    self._wait(error, end)

    def fetch(self, start: int, end: int) -> Iterator[Stored]:
        position = start
        try:
            while position < end:
                got, done = self._some(position, end)
                for message in got:
                    stored = stored_as(message)
                    if stored.position >= end:
                        return
                    if stored.position >= position:  # compressed batches begin earlier
                        position = stored.position + 1
                        yield stored
                if done:
                    return
        finally:
            self._rest()

    def wait(self, position: int, seconds: float) -> list[Stored]:
        return self._waiting.wait(position, seconds, lambda: self.bounds()[1], self._wait)

    def heard(self, position: int) -> list[Stored]:
        return self._waiting.heard(position, self._wait)

    def _rest(self) -> None:
        """Has the consumer ask for nothing until it is wanted again. It would ask for what comes next all the time, and
        the next question would wait for that answer."""
        with self._guard:
            if self._consumer is not None and self._carrier.is_here():
                self._next = None
                self._consumer.unassign()

    def _some(self, position: int, end: int) -> tuple[list[Message], bool]:
        """The next messages from a position on; and whether there is nothing more before the end."""
        patience = time.monotonic() + self._carrier.patience_s
        with self._guard:
            reader = self._reader()
            if self._next != position:
                reader.assign([self._place(position)])
            self._next = None  # until it is known again: whatever is raised here
            while time.monotonic() < patience:
                got, passed = list[Message](), position
                for message in waited_for(reader, min(AT_ONCE, end - position), _POLL_S):
                    error = message.error()
                    if error is None:
                        got.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        # Where the partition ended when it was reached. Records may have come since: then more follow.
                        passed = max(passed, message.offset() or 0)
                    else:
                        self._wait(KafkaException(error), patience)
                        reader.assign([self._place(position)])
                        got, passed = [], position
                        break
                if got:
                    self._next = max(passed, position_of(got[-1]) + 1)
                    return got, self._next >= end
                if passed >= end:
                    self._next = passed
                    return [], True
        raise CarrierAway(f"{self.shown} gives no records from position {position} on", hint="is Kafka reachable?")

    def _reader(self) -> KafkaConsumer:
        if self._consumer is None:
            self._consumer = self._carrier.consumer()
        return self._consumer

    def _place(self, position: int | None = None) -> TopicPartition:
        if position is None:
            return TopicPartition(self._name, self._number)
        return TopicPartition(self._name, self._number, position)

    def _wait(self, error: KafkaException, end: float) -> None:
        """Before it is tried again; our error when that makes no sense, or for too long already."""
        found: KafkaError = error.args[0]
        if found.code() in _NOT_THERE:
            raise Corrupt(f"{self.shown} has no record where it had one", hint="retention or a lost replica removed it")
        trouble = self._trouble(error)
        if isinstance(trouble, Misuse) or time.monotonic() >= end:
            raise trouble from None
        time.sleep(0.1)

    def _left(self, end: float, most: float = PATIENCE_S) -> float:
        return min(most, max(0.05, end - time.monotonic()))

    # --- writing ---------------------------------------------------------------------------------

    def append(self, records: Sequence[tuple[bytes, bytes]]) -> list[int]:
        producer = self._carrier.shared_producer()
        try:
            return self._produce(producer, records)
        except CarrierAway:
            # A producer whose count of records and Kafka's differ, as after Kafka was killed, takes no record any more.
            self._carrier.let_go(producer)
            raise

    def become_writer(self) -> None:
        with self._guard:
            self._alone = None
            name = f"sealcast/{self._name}/{self._number}"
            timeout = int(1000 * self._carrier.patience_s)
            producer = self._carrier.producer(
                **{"transactional.id": name, "transaction.timeout.ms": max(timeout, 1_000)}
            )
            try:
                # librdkafka looks once for a server that it is connected to, and then not before half a second is over.
                # The first question is answered by one of the addresses we know, the second one by the cluster.
                for _ in range(2):
                    producer.list_topics(self._name, timeout=self._carrier.patience_s)
                producer.init_transactions(self._carrier.patience_s)
            except KafkaException as error:
                # It would go on asking, and become the writer after whoever does so next. Errors are kept, and keep
                # what their frames name.
                del producer
                raise self._trouble(error) from None
            self._alone = producer

    def append_alone(self, records: Sequence[tuple[bytes, bytes]]) -> tuple[list[int], int]:
        with self._guard:
            if self._alone is None:
                raise Locked(f"{self.shown} has another writer, or none")
            try:
                self._alone.begin_transaction()
                positions = self._produce(self._alone, records)
                self._alone.commit_transaction(self._carrier.patience_s)
                past = self._await(positions[-1] + 1)
            except KafkaException as error:
                self._alone = None
                raise self._trouble(error) from None
            except BaseException:
                self._alone = None
                raise
            # The mark of the transaction has one position. Whatever is beyond it is somebody else's.
            return positions, min(past, positions[-1] + 2)

    def _await(self, past: int) -> int:
        """Kafka acknowledges a commit before it shows it to readers: its marks are written a moment later. Where it
        ends then."""
        end = time.monotonic() + self._carrier.patience_s
        while (shown := self.bounds()[1]) < past:
            if time.monotonic() >= end:
                raise CarrierAway(f"{self.shown} does not show what was committed", hint="is Kafka overloaded?")
            time.sleep(0.002)
        return shown

    def _produce(self, producer: KafkaProducer, records: Sequence[tuple[bytes, bytes]]) -> list[int]:
        positions, failed = dict[int, int](), list[KafkaError]()

        def told(at: int, error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error)
            else:
                positions[at] = position_of(message)

        end = time.monotonic() + self._carrier.patience_s + _REPORT_S
        for at, (head, data) in enumerate(records):
            while True:
                try:
                    producer.produce(
                        self._name,
                        data,
                        partition=self._number,
                        headers=headed(head),
                        on_delivery=partial(told, at),
                    )
                    break
                except BufferError:
                    producer.poll(_POLL_S)
                except KafkaException as error:
                    raise self._trouble(error) from None
                self._check_patience(end)
        while len(positions) + len(failed) < len(records):
            producer.poll(_POLL_S)
            self._check_patience(end)
        if failed:
            raise self._trouble(KafkaException(failed[0]))
        return [positions[at] for at in range(len(records))]

    def _check_patience(self, end: float) -> None:
        if time.monotonic() >= end:
            raise CarrierAway(f"{self.shown} does not say what became of records", hint="is Kafka reachable?")

    def _trouble(self, error: KafkaException) -> SealcastError:
        """Our error for one of Kafka's. That there is no such topic proves nothing here: librdkafka says so of a Kafka
        that is away, and so does one that has just started. Whoever opens a partition has its topic from the
        registry."""
        if error.args[0].code() in _FENCED:
            return Fenced(f"{self.shown} has another writer since")
        trouble = self._carrier.trouble(error, self._name)
        if isinstance(trouble, NotFound):
            hint = "is Kafka running and reachable? if it is, somebody removed the topic"
            return CarrierAway(f"{self.shown} cannot be found at the moment", hint=hint)
        return trouble

    def drop(self, before: int) -> None:
        place = self._place(before)
        try:
            self._carrier.admin().delete_records([place], request_timeout=self._carrier.patience_s)[place].result()
        except KafkaException as error:
            raise self._trouble(error) from None

    def close(self) -> None:
        with self._guard:
            consumer, self._consumer, self._next, self._alone = self._consumer, None, None, None
        is_here = self._carrier.is_here()
        self._waiting.close(is_here)
        if consumer is not None and is_here:
            consumer.close()
