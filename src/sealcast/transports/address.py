"""A gateway's address, as people write it, and where the home is that somebody joined through it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from sealcast.errors import Misuse
from sealcast.model.dataclass import dataclass

SCHEME: Final = "sealcast"
ENVIRONMENT: Final = "SEALCAST_HOME"


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """Where a gateway listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{SCHEME}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> GatewayAddress:
        """From `sealcast://HOST:PORT`."""
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or port is None or str(found := cls(host, port)) != text.rstrip("/").lower():
            raise Misuse(f"{text!r} is no gateway's address", hint="one looks like sealcast://gateway.example:7443")
        return found


def is_address(text: object) -> bool:
    return isinstance(text, str) and text.startswith(f"{SCHEME}:")


def home_of(address: GatewayAddress, environment: Mapping[str, str] = os.environ) -> Path:
    """Where the home for a gateway is: SEALCAST_HOME, or one of its own below the user's data."""
    if environment.get(ENVIRONMENT):
        return Path(environment[ENVIRONMENT])
    shared = environment.get("XDG_DATA_HOME") or Path(environment.get("HOME") or Path.home()) / ".local" / "share"
    return Path(shared) / "sealcast" / f"{address.host.replace(':', '-')}_{address.port}"
