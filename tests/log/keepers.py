"""Whoever keeps a log, for the suite that holds all of them to the port: the embedded one, Kafka and NATS."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from pathlib import Path

from sealcast.bench.carrier_servers import CarrierServer
from sealcast.log.carried import CarriedLog
from sealcast.log.carriers import Carrier, CarrierAddress, Placement, connect
from sealcast.log.embedded import FrameLog
from sealcast.log.fenced import FencedEmbeddedLog
from sealcast.log.numbered import NumberedLog
from sealcast.log.port import FencedLog, SharedLog


class Keeper(ABC):
    """Keeps one new log, which any number of handles open."""

    @abstractmethod
    def shared(self) -> SharedLog: ...

    @abstractmethod
    def fenced(self) -> FencedLog: ...

    @abstractmethod
    def close(self) -> None: ...


class EmbeddedKeeper(Keeper):
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def shared(self) -> SharedLog:
        return FrameLog(self._directory, segment_bytes=4_096)

    def fenced(self) -> FencedLog:
        return FencedEmbeddedLog(self._directory, segment_bytes=4_096)

    def close(self) -> None: ...


class CarrierKeeper(Keeper):
    """Each handle has a connection of its own, as if it were another process."""

    def __init__(self, server: CarrierServer) -> None:
        self.server, self.name = server, f"log.{secrets.token_hex(6)}"
        self._connected: list[Carrier] = []
        self.connect().create(self.name, Placement(1))

    def connect(self) -> Carrier:
        self._connected.append(connect(CarrierAddress.parse(self.server.address), {}))
        return self._connected[-1]

    def shared(self) -> SharedLog:
        return CarriedLog(self.connect().partition(self.name, 0))

    def fenced(self) -> FencedLog:
        return NumberedLog(self.connect().partition(self.name, 0))

    def close(self) -> None:
        while self._connected:
            self._connected.pop().close()
