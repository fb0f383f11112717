"""A request as an endpoint gets it, and the answers that it can give."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sealcast.gateway.callers import Caller


class CallerConnection(Protocol):
    """What a request's connection is asked for (`serving.GatewayProtocol`)."""

    #: The certificate that the other end proved to have the key of.
    certificate: bytes | None
    #: Of those who wait for something: they end when the connection does, and when the gateway is to stop.
    waits: set[asyncio.Timeout]

    @property
    def leaving(self) -> bool:
        """Whether nothing is to be waited for any more."""

    @property
    def gone(self) -> bool:
        """Whether the other end has gone."""

    def abort(self) -> None:
        """Ends it at once."""


@dataclass(slots=True)
class ApiCall:
    """One request, judged: who asks, for what."""

    caller: Caller
    path: Mapping[str, str]
    query: Mapping[str, int | str | None]
    body: Any
    connection: CallerConnection

    def number(self, name: str) -> int:
        found = self.query[name]
        assert isinstance(found, int)
        return found

    async def wait(self, until: Coroutine[Any, Any, None]) -> None:
        """Waits for something, as long as the caller asked to (`wait`), and no longer than it is still there."""
        await self.wait_for(until, self.number("wait"))

    async def wait_for(self, until: Coroutine[Any, Any, None], seconds: int) -> None:
        """`wait`, so many seconds at the most."""
        if not seconds or self.connection.leaving:
            until.close()
            return
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                self.connection.waits.add(limit)
                await until
        except TimeoutError:
            pass
        finally:
            self.connection.waits.discard(limit)


@dataclass(frozen=True, slots=True)
class CborAnswer:
    """A value, as deterministic CBOR."""

    value: object


@dataclass(frozen=True, slots=True)
class BytesAnswer:
    """Bytes as they are, in parts that are sent as the other end takes them."""

    size: int
    parts: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class StreamAnswer:
    """CBOR items one after the other (RFC 8742), as long as both sides want."""

    items: AsyncIterator[bytes] = field()


@dataclass(frozen=True, slots=True)
class TextAnswer:
    """Something for people or tools, such as JSON."""

    media_type: str
    body: bytes
    status: int = 200


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """It was done."""


Answer = CborAnswer | BytesAnswer | StreamAnswer | TextAnswer | NoAnswer
