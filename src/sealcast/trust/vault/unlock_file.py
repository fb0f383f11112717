"""The file of an unlock key, in clear or wrapped by a key service.

    {"format": 1, "kind": "sealcast unlock key", "id": ..., "key": ...}                        in clear
    {"format": 2, "kind": "sealcast unlock key", "id": ..., "service": ..., "wrapped": ...}    wrapped

The id follows from the key, so a file says which key it is, and whether it is whole, in either form. A wrapped key is
bound to its id: a service that is asked to unwrap it as another one refuses. The key is the same in both forms, so key
files need not be sealed again when an unlock key is wrapped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from sealcast.errors import CannotOpen, Corrupt, Misuse
from sealcast.model.dataclass import dataclass
from sealcast.primitives import kdf
from sealcast.primitives.encoding import joined
from sealcast.primitives.secrets import KEY_BYTES, Secret
from sealcast.trust.vault.services import MAX_ADDRESS, MAX_WRAPPED, KeyService, open_service

KIND: Final = "sealcast unlock key"
CLEAR, WRAPPED = 1, 2
ID_BYTES: Final = 8
MAX_BYTES: Final = 4_096


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """An unlock key as its service gave it back: nothing here is secret."""

    id: bytes
    service: str
    wrapped: bytes

    def to_bytes(self) -> bytes:
        body = {"service": self.service, "wrapped": self.wrapped.hex()}
        return _written(WRAPPED, self.id, body)

    def opened(self) -> Secret:
        """The key itself, from its service."""
        key = Secret(open_service(self.service).unwrap(self.wrapped, _context(self.id)))
        if key.size != KEY_BYTES or id_of(key) != self.id:
            raise CannotOpen(
                f"{self.service} gave back another key than unlock key {self.id.hex()}",
                hint="is it the service, and the key, that it was wrapped with?",
            )
        return key


def id_of(key: Secret) -> bytes:
    """What an unlock key is called."""
    return kdf.derive(key, b"unlock id", length=ID_BYTES).reveal()


def wrapped(key: Secret, address: str, service: KeyService) -> WrappedKey:
    """A key, wrapped by the service at an address. It is unwrapped once, so that what is written down opens again."""
    made = service.wrap(key.reveal(), _context(id_of(key)))
    if not 0 < len(made) <= MAX_WRAPPED:
        raise Misuse(f"{address} wraps {KEY_BYTES} bytes into {len(made)}; at most {MAX_WRAPPED} are kept")
    result = WrappedKey(id_of(key), address, made)
    if result.opened() != key:
        raise CannotOpen(f"{address} does not give back what it was given")
    return result


def in_clear(key: Secret) -> bytes:
    """The file of a key that no service wraps."""
    return _written(CLEAR, id_of(key), {"key": key.reveal().hex()})


def read(path: Path, content: bytes) -> Secret | WrappedKey:
    """What such a file holds; Corrupt where it is none. No service is asked."""
    try:
        if len(content) > MAX_BYTES:
            raise ValueError(path)
        body = json.loads(content)
        id = bytes.fromhex(body["id"])
        if body["kind"] != KIND or len(id) != ID_BYTES:
            raise ValueError(path)
        if body["format"] == WRAPPED:
            service, content = body["service"], bytes.fromhex(body["wrapped"])
            if not isinstance(service, str) or len(service) > MAX_ADDRESS or not content:
                raise ValueError(path)
            return WrappedKey(id, service, content)
        key = Secret(bytes.fromhex(body["key"]))
        if body["format"] != CLEAR or key.size != KEY_BYTES or id_of(key) != id:
            raise ValueError(path)
        return key
    except (ValueError, KeyError, TypeError, Misuse):
        raise Corrupt(
            f"{path} is no unlock key of a format that this release knows, or not as it was written",
            hint="restore it from a copy",
        ) from None


def _written(format: int, id: bytes, body: dict[str, str]) -> bytes:
    return json.dumps({"format": format, "kind": KIND, "id": id.hex(), **body}, indent=2).encode() + b"\n"


def _context(id: bytes) -> bytes:
    return joined((KIND.encode(), id))
