"""The body of a request, in its limits of size and time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from starlette.types import Receive

from sealcast.gateway.limits import GatewayLimits
from sealcast.gateway.problems import Refusal


async def received(
    receive: Receive, most: int, limits: GatewayLimits, said: str, count: Callable[[int], None]
) -> bytes:
    """The whole body. `said` is its content-length, if any; `count` is told how much has come."""
    begin = time.monotonic()
    if said.isdigit() and int(said) > most:
        raise _too_large(most)
    parts, size, more = list[bytes](), 0, True
    while more:
        try:
            async with asyncio.timeout(limits.body_s):
                message = await receive()
        except TimeoutError:
            raise Refusal(408, "timeout", "the body did not come in time") from None
        if message["type"] == "http.disconnect":
            raise Refusal(400, "gone", "the connection ended before the body did")
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        more = message.get("more_body", False)
        count(size)
        if size > most:
            raise _too_large(most)
        if more and time.monotonic() - begin > limits.body_s + size / limits.body_bytes_per_s:
            raise Refusal(408, "timeout", "the body came too slowly")
    return b"".join(parts)


def _too_large(most: int) -> Refusal:
    return Refusal(413, "too-large", f"a body here has at most {most} bytes")
