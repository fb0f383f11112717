"""Carriers: servers that keep logs for us, and how they are named, set up and reached.

    kafka://host:port,host:port     `kafka`: a topic of Kafka for each of ours, a partition for each partition
    nats://host:port,host:port      `nats`: a stream of JetStream for each partition

An address is public and stands in the registry. What proves who we are to a carrier does not: passwords and keys come
from a file on each machine that reaches it (`carrier_settings`). A carrier is believed nothing that it could lie about:
what is on it is sealed and signed (ADR 40).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from sealcast.errors import Locked, Misuse, NotFound, Unavailable, extras_named
from sealcast.model.dataclass import dataclass

KINDS: Final = ("kafka", "nats")
MAX_SERVERS: Final = 16
#: Of the whole address.
MAX_ADDRESS_CHARACTERS: Final = 1_024
#: Of a file of settings.
MAX_SETTINGS_BYTES: Final = 64 << 10
#: How long a carrier that does not answer is tried before its caller hears of it.
PATIENCE_S: Final = 30.0

_SERVER: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
#: What both carriers take as the name of a topic or a stream.
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")


class CarrierAway(Unavailable):
    """A carrier does not answer, or not as it should. It may be back at any moment; whether something was appended that
    nobody acknowledged is not known."""

    code = "carrier-away"


class Fenced(Locked):
    """A carrier refused a writer's records: somebody has become the writer since. It may have been this process itself,
    by a request that it gave up and that the carrier found later. Whether records are there that it tried to append is
    not known."""


@dataclass(frozen=True, slots=True)
class CarrierAddress:
    """What a carrier is, and where its servers are."""

    kind: str
    servers: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> CarrierAddress:
        kind, found, rest = text.partition("://")
        servers = tuple(rest.split(","))
        if len(text) > MAX_ADDRESS_CHARACTERS or not found or kind not in KINDS:
            raise Misuse(f"{text[:80]!r} is not the address of a carrier", hint=_EXAMPLE)
        if len(servers) > MAX_SERVERS or not all(map(_SERVER.fullmatch, servers)):
            raise Misuse(f"{text[:80]!r} names no servers of a carrier as host:port", hint=_EXAMPLE)
        return cls(kind, servers)

    def __str__(self) -> str:
        return f"{self.kind}://{','.join(self.servers)}"


_EXAMPLE: Final = "write it as kafka://broker1:9092,broker2:9092 or nats://server1:4222"


def checked_name(name: str) -> str:
    """A name that every carrier takes for a topic; Misuse if it is none."""
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise Misuse(f"{name[:80]!r} is no name for a topic on a carrier: letters, digits, '.', '_' and '-'")
    return name


class Stored(NamedTuple):
    """What a carrier has at one of its positions: our head (`carried.Head`), empty if somebody else wrote it."""

    position: int
    head: bytes
    data: bytes


class CarrierPartition(Protocol):
    """A partition as a carrier keeps it. Positions ascend and are never used twice; there may be gaps."""

    @property
    def shown(self) -> str:
        """As messages call it."""

    def bounds(self) -> tuple[int, int]:
        """The first position that is kept, and one past the last that readers may see."""

    def fetch(self, start: int, end: int) -> Iterator[Stored]:
        """What is at positions `start` to before `end`, ascending, as far as the carrier has it."""

    def wait(self, position: int, seconds: float) -> list[Stored]:
        """Returns when readers may see something at that position or behind it, and in any case when the time is over.
        What came there, with nothing left out between; nothing where whoever waits has to look for it."""

    def heard(self, position: int) -> list[Stored]:
        """The same without waiting, from one who goes on asking as of the first call: what has come by itself."""

    def append(self, records: Sequence[tuple[bytes, bytes]]) -> list[int]:
        """Heads and data, in order; their positions, when they are durable."""

    def become_writer(self) -> None:
        """From now on, whoever called this before appends nothing by `append_alone`."""

    def append_alone(self, records: Sequence[tuple[bytes, bytes]]) -> tuple[list[int], int]:
        """The same as `append`, for the writer, and one past the last position that this took, marks and all; Fenced
        when somebody became the writer since. Readers see the records when it returns."""

    def drop(self, before: int) -> None:
        """Removes what is at positions before that."""

    def close(self) -> None:
        """Lets go of connections."""


class Placement(NamedTuple):
    """How a carrier is to keep a topic that is made on it."""

    partitions: int
    #: On how many machines each record is, and on how many of them it has to be before it is acknowledged.
    replicas: int = 1
    in_sync: int = 1


class Carrier(Protocol):
    """One carrier, as one process reaches it."""

    @property
    def shown(self) -> str:
        """As messages call it."""

    def partition(self, name: str, number: int) -> CarrierPartition:
        """A partition of a topic, which need not be looked for before it is used."""

    def partitions(self, name: str) -> int | None:
        """How many a topic has; None if there is none of that name."""

    def placement(self, name: str) -> Placement:
        """How a topic is kept that is there."""

    def create(self, name: str, placement: Placement) -> None:
        """Makes a topic that keeps the promises of the port."""

    def remove(self, name: str) -> None:
        """Removes a topic, with all that is in it; nothing if there is none of that name."""

    def check(self, name: str) -> None:
        """Misuse, saying what to set, if an existing topic cannot keep the promises of the port."""

    def close(self) -> None:
        """Lets go of connections."""


def carrier_settings(path: Path) -> dict[str, str]:
    """Settings of a client from a file: `name=value` a line, `#` begins a comment. None without the file.

    It may hold passwords, so nobody but its owner may read it.
    """
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise Misuse(f"others may read {path}, which holds secrets", hint=f"chmod 600 {path}")
            raw = file.read(MAX_SETTINGS_BYTES + 1)
    except FileNotFoundError:
        return {}
    if len(raw) > MAX_SETTINGS_BYTES:
        raise Misuse(f"{path} has more than {MAX_SETTINGS_BYTES} bytes")
    settings = dict[str, str]()
    for number, line in enumerate(raw.decode("utf-8", "replace").splitlines(), 1):
        text = line.strip()
        if text and not text.startswith("#"):
            name, found, value = text.partition("=")
            if not found or not name.strip():
                raise Misuse(f"line {number} of {path} is not name=value")
            settings[name.strip()] = value.strip()
    return settings


def checked_settings(settings: Mapping[str, str], allowed: Sequence[str], where: str) -> Mapping[str, str]:
    """Settings, if a carrier of that kind takes them. None is ever shown: their values may be secrets."""
    unknown = sorted(set(settings).difference(allowed))
    if unknown:
        raise Misuse(f"{where} takes no setting {unknown[0][:60]!r}", hint=f"there are {', '.join(sorted(allowed))}")
    return settings


def connect(address: CarrierAddress, settings: Mapping[str, str]) -> Carrier:
    """A carrier by its address. Nothing is sent yet."""
    with extras_named():
        if address.kind == "kafka":
            from sealcast.log.kafka import KafkaCarrier

            return KafkaCarrier(address, settings)
        if address.kind == "nats":
            from sealcast.log.nats import NatsCarrier

            return NatsCarrier(address, settings)
    raise NotFound(f"there is no carrier of kind {address.kind!r}")
