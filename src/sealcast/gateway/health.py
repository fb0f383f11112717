"""Whether a gateway lives, whether it can serve, and what it speaks: for operators and those who write clients."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sealcast.gateway.asked import ApiCall, TextAnswer

if TYPE_CHECKING:
    from sealcast.gateway.hub import Hub

_JSON = "application/json"


async def healthz(hub: Hub, asked: ApiCall) -> TextAnswer:
    """It answers."""
    return TextAnswer(_JSON, b'{"status": "ok"}')


async def readyz(hub: Hub, asked: ApiCall) -> TextAnswer:
    """What keeps it from serving, if anything does. Words only: whoever asks may be anybody."""
    trouble = hub.trouble()
    body = {"status": "ready" if not trouble else "not-ready", "trouble": trouble, "version": hub.newest.version}
    return TextAnswer(_JSON, json.dumps(body).encode(), 200 if not trouble else 503)


async def openapi(hub: Hub, asked: ApiCall) -> TextAnswer:
    return TextAnswer(_JSON, hub.document)
