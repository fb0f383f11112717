"""Kafka as a carrier: idempotent producers, `acks=all`, and transactions where a log has one writer.

**Durable** means on `min.insync.replicas` machines. A topic with one replica only is durable if Kafka syncs each record
(`flush.messages=1`); `check` refuses one that does neither. **Fencing** is Kafka's own: whoever calls
`init_transactions` with the log's transactional id ends the epoch of whoever did before, and Kafka refuses every record
and every commit of an older epoch. What it left unfinished is aborted, and no reader sees it (`read_committed`).

librdkafka's threads do not survive a fork: every handle belongs to the process that made it (`kafka_handles`).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from sealcast.errors import Misuse, NotFound, Unavailable
from sealcast.log.carriers import PATIENCE_S, CarrierAddress, CarrierAway, Placement, checked_name, checked_settings
from sealcast.log.closing import Closing
from sealcast.log.kafka_handles import KafkaConsumer, KafkaProducer, noted
from sealcast.log.kafka_partition import KafkaPartition
from sealcast.log.kafka_waiting import Seats
from sealcast.log.layout import MAX_RECORD_BYTES
from sealcast.primitives.secrets import Unpicklable

#: What a file of settings may say: how to prove who we are. Everything else is ours to set.
SETTINGS: Final = (
    "security.protocol",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
)
_LOGGER: Final = logging.getLogger("sealcast.kafka")
_LOGGER.addHandler(logging.NullHandler())
_LOGGER.propagate = False
#: A record with its head and Kafka's own framing.
_MESSAGE_BYTES: Final = MAX_RECORD_BYTES + (1 << 16)
_UNKNOWN: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
#: Topics that keep everything in order: no compaction, no clock of the broker's, no leader that lacks records.
_TOPIC: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
    "max.message.bytes": str(_MESSAGE_BYTES),
}


class KafkaCarrier(Closing, Unpicklable):
    """A cluster of Kafka, as this process reaches it."""

    def __init__(self, address: CarrierAddress, settings: Mapping[str, str], patience_s: float = PATIENCE_S) -> None:
        checked = checked_settings(settings, SETTINGS, "a carrier of kind kafka")
        self.shown, self.patience_s = str(address), patience_s
        self._base: dict[str, Any] = {
            "bootstrap.servers": ",".join(address.servers),
            "client.id": "sealcast",
            # It would write to stderr, which is for commands; what goes wrong comes back as an error.
            "logger": _LOGGER,
            "socket.keepalive.enable": True,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1_000,
            **checked,
        }
        self._process = os.getpid()
        #: Of those who wait for what comes.
        self.seats = Seats()
        self._guard = threading.Lock()
        self._producer: KafkaProducer | None = None
        self._asker: KafkaConsumer | None = None
        self._admin: AdminClient | None = None

    # --- clients ---------------------------------------------------------------------------------

    def is_here(self) -> bool:
        """Whether this is the process that made it."""
        return os.getpid() == self._process

    def here(self) -> None:
        """Misuse in a child of the process that made this."""
        if not self.is_here():
            raise Misuse(f"{self.shown} was opened by process {self._process}; a child process opens it itself")

    def consumer(self, wait_ms: int = 1) -> KafkaConsumer:
        """One that Kafka answers when there is something, or after so many milliseconds. Whoever reads knows how far:
        to wait for more at the end would only hide that it is reached."""
        self.here()
        return noted(
            KafkaConsumer(
                self._base
                | {
                    # Demanded, and not used: we assign partitions ourselves and keep no offsets.
                    "group.id": "sealcast",
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "error",
                    "isolation.level": "read_committed",
                    "enable.partition.eof": True,
                    "check.crcs": True,
                    "fetch.wait.max.ms": wait_ms,
                    "fetch.error.backoff.ms": 50,
                    "fetch.message.max.bytes": 4 << 20,
                    "fetch.max.bytes": max(_MESSAGE_BYTES, 50 << 20),
                    "receive.message.max.bytes": max(_MESSAGE_BYTES, 50 << 20) + (1 << 20),
                    "queued.max.messages.kbytes": 32 << 10,
                }
            )
        )

    def producer(self, **more: Any) -> KafkaProducer:
        self.here()
        timeout = int(1000 * self.patience_s)
        return noted(
            KafkaProducer(
                self._base
                | {
                    "enable.idempotence": True,
                    "acks": "all",
                    "linger.ms": 0,
                    "message.max.bytes": _MESSAGE_BYTES,
                    "delivery.timeout.ms": timeout,
                    "queue.buffering.max.kbytes": 1 << 20,
                    **more,
                }
            )
        )

    def shared_producer(self) -> KafkaProducer:
        """One for all partitions that many append to."""
        self.here()
        with self._guard:
            if self._producer is None:
                self._producer = self.producer()
            return self._producer

    def let_go(self, producer: KafkaProducer) -> None:
        """Has the next one who appends make a new producer; this one goes when nobody waits for it any more."""
        with self._guard:
            if self._producer is producer:
                self._producer = None

    def asker(self) -> KafkaConsumer:
        """One that reads nothing: on the connection of one that does, an answer waits for what is being fetched."""
        self.here()
        with self._guard:
            if self._asker is None:
                self._asker = self.consumer()
            return self._asker

    def admin(self) -> AdminClient:
        self.here()
        with self._guard:
            if self._admin is None:
                self._admin = noted(AdminClient(self._base))
            return self._admin

    # --- topics ----------------------------------------------------------------------------------

    def partition(self, name: str, number: int) -> KafkaPartition:
        return KafkaPartition(self, checked_name(name), number)

    def partitions(self, name: str) -> int | None:
        try:
            found = self.admin().list_topics(checked_name(name), timeout=self.patience_s).topics.get(name)
        except KafkaException as error:
            raise self.trouble(error, name) from None
        if found is None or (found.error is not None and found.error.code() in _UNKNOWN):
            return None
        if found.error is not None:
            raise self.trouble(KafkaException(found.error), name)
        return len(found.partitions)

    def create(self, name: str, placement: Placement) -> None:
        durable = {"min.insync.replicas": str(placement.in_sync)} if placement.in_sync > 1 else {"flush.messages": "1"}
        topic = NewTopic(checked_name(name), placement.partitions, placement.replicas, config=_TOPIC | durable)
        try:
            self.admin().create_topics([topic], operation_timeout=self.patience_s)[name].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self.trouble(error, name) from None
        # Its partitions have leaders a moment later.
        end = time.monotonic() + self.patience_s
        while self.partitions(name) is None and time.monotonic() < end:
            time.sleep(0.05)

    def remove(self, name: str) -> None:
        try:
            self.admin().delete_topics([checked_name(name)], operation_timeout=self.patience_s)[name].result()
        except KafkaException as error:
            if error.args[0].code() not in _UNKNOWN:
                raise self.trouble(error, name) from None

    def placement(self, name: str) -> Placement:
        return self._described(name)[1]

    def _described(self, name: str) -> tuple[dict[str, str], Placement]:
        """The settings of a topic, and how it is kept."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, checked_name(name))
        try:
            found = self.admin().describe_configs([resource], request_timeout=self.patience_s)[resource].result()
            described = self.admin().list_topics(name, timeout=self.patience_s).topics[name]
        except KafkaException as error:
            raise self.trouble(error, name) from None
        value = {key: entry.value for key, entry in found.items()}
        replicas = min((len(p.replicas) for p in described.partitions.values()), default=0)
        return value, Placement(len(described.partitions), replicas, int(value.get("min.insync.replicas") or 1))

    def check(self, name: str) -> None:
        value, kept = self._described(name)
        synced = value.get("flush.messages") == "1"
        if not synced and (kept.replicas < 2 or kept.in_sync < 2):
            raise Misuse(
                f"topic {name!r} of {self.shown} would acknowledge records that are on one machine and not synced",
                hint="set its min.insync.replicas to 2 or more and replicate it, or set flush.messages=1",
            )
        if "compact" in str(value.get("cleanup.policy")):
            raise Misuse(
                f"topic {name!r} of {self.shown} is compacted: records would be lost", hint="cleanup.policy=delete"
            )
        if value.get("unclean.leader.election.enable") == "true":
            raise Misuse(
                f"topic {name!r} of {self.shown} may lose acknowledged records to an unclean election",
                hint="set unclean.leader.election.enable=false",
            )

    def trouble(self, error: KafkaException, name: str) -> Unavailable | Misuse:
        """Our error for one of Kafka's, which says nothing about who we are."""
        found: KafkaError = error.args[0]
        where = f"topic {name!r} of {self.shown}"
        code = found.code()
        if code in _UNKNOWN:
            return NotFound(f"there is no {where}", hint="make it on the carrier, or have Sealcast make it")
        if code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE, KafkaError.RECORD_LIST_TOO_LARGE):
            return Misuse(
                f"{where} takes no record of that size", hint="raise its max.message.bytes, or publish less at a time"
            )
        if code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
            return Misuse(f"{where} does not let us do that", hint="grant it in Kafka's access control lists")
        return CarrierAway(
            f"{where} does not answer as it should: {found.name()}", hint="is Kafka running and reachable?"
        )

    def close(self) -> None:
        with self._guard:
            asker, self._producer, self._admin, self._asker = self._asker, None, None, None
        if asker is not None and self.is_here():
            asker.close()
