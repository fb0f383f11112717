"""A backup's file: a stream of bytes, sealed in chunks. Nothing of it is believed that was not opened, nor its end.

    file   = MAGIC | size of head u32 | head | chunks
    head   = JSON {"format", "realm", "id", "made_us", "version", "lock", "seed"}, then the key's commitment
    chunk  = size u32 | AES-256-GCM of at most CHUNK_BYTES; the nonce is the chunk's number, and whether it is the last

The key is of this file alone, derived from 32 random bytes (the seed) and from what locks the file:

    key, passphrase    as key files are locked (`vault.unlock`)
    recipient          a public key that was made for backups: 32 random bytes are sealed to it (`primitives.hybrid`)

The head is in clear, and part of what every chunk is sealed with: a head that was altered opens nothing. Chunks that
were moved, repeated or left out have another number; a file that was cut has no last one.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from sealcast.errors import CannotOpen, Corrupt, Misuse, NotFound
from sealcast.primitives import hybrid, kdf
from sealcast.primitives.aead import COMMITMENT_BYTES, NONCE_BYTES, SealingKey
from sealcast.primitives.hybrid import HybridKey
from sealcast.primitives.secrets import KEY_BYTES, Secret
from sealcast.trust.vault import keyfile, private, unlock
from sealcast.trust.vault.unlock import Lock

MAGIC: Final = b"sealcast backup 1\n"
FORMAT: Final = 1
CHUNK_BYTES: Final = 1 << 20
TAG_BYTES: Final = 16
MAX_HEAD_BYTES: Final = 16_384
KEY_KIND: Final = "sealcast backup key"
_SIZE: Final = struct.Struct("<I")
_INFO: Final = b"sealcast/1 backup"


@dataclass(frozen=True, slots=True)
class BackupHead:
    """What a backup shows to whoever has it: of which realm it is, when it was made, and what opens it."""

    realm: str
    id: bytes
    made_us: int
    #: Of the registry.
    version: int
    lock: Mapping[str, Any]
    seed: bytes

    def to_json(self) -> dict[str, object]:
        return {
            "format": FORMAT,
            "realm": self.realm,
            "id": self.id.hex(),
            "made_us": self.made_us,
            "version": self.version,
            "lock": dict(self.lock),
            "seed": self.seed.hex(),
        }


# --- what locks a backup ------------------------------------------------------------------------------------


def make_key(path: Path) -> Path:
    """Makes a pair of keys for backups: the private half in a key file, the public one beside it, which is returned."""
    key, public = HybridKey.generate(), path.with_name(f"{path.name}.pub")
    keyfile.write(path, KEY_KIND, {"private": key.private.reveal().hex()})
    private.create(public, json.dumps({"kind": KEY_KIND, "public": key.public.hex()}).encode() + b"\n")
    return public


def read_public(path: Path) -> bytes:
    """The public half of such a pair."""
    try:
        body = json.loads(path.read_bytes()[: keyfile.MAX_BYTES])
        public = bytes.fromhex(body["public"])
        if body["kind"] != KEY_KIND or not hybrid.is_usable(public):
            raise ValueError(path)
    except FileNotFoundError:
        raise NotFound(f"{path} does not exist", hint="make one: sealcast backup --new-key FILE") from None
    except (ValueError, KeyError, TypeError):
        raise Misuse(f"{path} is not a public key for backups", hint="it is FILE.pub of `--new-key FILE`") from None
    return public


def _locked(to: bytes | None, by: str | None) -> tuple[Secret, dict[str, object]]:
    """A secret that new backups are sealed under, and how others come by it."""
    if to is not None:
        secret = Secret.random()
        return secret, {"by": "recipient", "sealed": hybrid.seal(to, secret.reveal(), _INFO).hex()}
    found = unlock.for_writing(by)
    return found.key, found.lock.as_json()


def _unlocked(lock: Mapping[str, Any], path: Path, key: Path | None) -> Secret:
    if lock["by"] != "recipient":
        try:
            how = Lock.from_json(lock)
        except (KeyError, ValueError, TypeError):
            raise Corrupt(f"{path} does not say what locks it", hint="use another backup") from None
        return unlock.for_reading(how, path).key
    if key is None:
        raise Misuse(f"{path} was sealed to a key for backups", hint="name that key's file: --key FILE")
    missing = NotFound(f"{key} does not exist", hint="bring it from where `sealcast backup --new-key` made it")
    body = keyfile.read(key, KEY_KIND, missing)
    try:
        own = HybridKey(Secret(bytes.fromhex(body["private"])))
        return Secret(own.open(bytes.fromhex(lock["sealed"]), _INFO))
    except (KeyError, ValueError, TypeError):
        raise Corrupt(f"{path} does not say what locks it", hint="use another backup") from None
    except CannotOpen:
        raise CannotOpen(f"{path} was sealed to another key than {key}") from None


# --- writing and reading ------------------------------------------------------------------------------------


class BackupWriter:
    """Seals a stream. It is whole when it was closed, and nothing before."""

    def __init__(
        self,
        to: IO[bytes],
        realm: str,
        id: bytes,
        made_us: int,
        version: int,
        public: bytes | None = None,
        by: str | None = None,
    ) -> None:
        """For whoever has the private half of `public`, else as key files are locked, `by` a key or a passphrase."""
        secret, lock = _locked(public, by)
        head = BackupHead(realm, id, made_us, version, lock, os.urandom(KEY_BYTES))
        raw = json.dumps(head.to_json(), sort_keys=True).encode()
        self._key, self._to = _key(secret, head.seed, raw), to
        self._waiting, self._number = bytearray(), 0
        self.head = head
        to.write(MAGIC + _SIZE.pack(len(raw)) + raw + self._key.commitment)

    def write(self, data: bytes) -> int:
        self._waiting += data
        while len(self._waiting) > CHUNK_BYTES:
            self._put(bytes(self._waiting[:CHUNK_BYTES]), last=False)
            del self._waiting[:CHUNK_BYTES]
        return len(data)

    def close(self) -> None:
        """Ends the stream with what is left, as the last chunk."""
        self._put(bytes(self._waiting), last=True)
        self._waiting.clear()

    def _put(self, plain: bytes, *, last: bool) -> None:
        sealed = self._key.seal(_nonce(self._number, last=last), plain)
        self._to.write(_SIZE.pack(len(sealed)) + sealed)
        self._number += 1


class BackupReader:
    """Opens a stream, chunk by chunk. Corrupt or CannotOpen at the first that is not as it was sealed."""

    def __init__(self, source: IO[bytes], path: Path, key: Path | None = None) -> None:
        self._source, self._path = source, path
        self.head, raw = read_head(source, path)
        self._commitment = source.read(COMMITMENT_BYTES)
        self._key = _key(_unlocked(self.head.lock, path, key), self.head.seed, raw)
        self._number, self._opened, self._ended = 0, b"", False

    def read(self, size: int = -1) -> bytes:
        """The next bytes, so many of them unless the stream ends before."""
        parts, left = list[bytes](), size
        while left and (self._opened or not self._ended):
            if not self._opened:
                self._opened = self._next()
            part = self._opened if left < 0 else self._opened[:left]
            self._opened = self._opened[len(part) :]
            parts.append(part)
            left -= len(part) if left > 0 else 0
        return b"".join(parts)

    def finish(self) -> None:
        """Reads to the end, which must be the one that was written."""
        while not self._ended:
            self._next()
        if self._source.read(1):
            raise self._corrupt("something follows its end")

    def _next(self) -> bytes:
        raw = self._source.read(_SIZE.size)
        if len(raw) < _SIZE.size:
            raise self._corrupt("it was cut off")
        (size,) = _SIZE.unpack(raw)
        if not TAG_BYTES <= size <= CHUNK_BYTES + TAG_BYTES:
            raise self._corrupt(f"a chunk has {size} bytes")
        sealed = self._source.read(size)
        if len(sealed) < size:
            raise self._corrupt("it was cut off")
        for last in (False, True):
            try:
                plain = self._key.open(_nonce(self._number, last=last), self._commitment, sealed)
            except CannotOpen:
                continue
            self._number, self._ended = self._number + 1, last
            return plain
        raise self._corrupt(f"chunk {self._number} does not open: it was altered, or another key locks it")

    def _corrupt(self, why: str) -> Corrupt:
        return Corrupt(f"{self._path} is not as it was written: {why}", hint="use another backup")


def read_head(source: IO[bytes], path: Path) -> tuple[BackupHead, bytes]:
    """What a backup shows without any key, and the bytes of that."""
    try:
        if source.read(len(MAGIC)) != MAGIC:
            raise ValueError(path)
        (size,) = _SIZE.unpack(source.read(_SIZE.size))
        if size > MAX_HEAD_BYTES:
            raise ValueError(size)
        raw = source.read(size)
        body = json.loads(raw)
        lock, seed = body["lock"], bytes.fromhex(body["seed"])
        if body["format"] != FORMAT or len(seed) != KEY_BYTES or lock["by"] not in ("key", "passphrase", "recipient"):
            raise ValueError(body)
        made_us, version = int(body["made_us"]), int(body["version"])
        return BackupHead(str(body["realm"]), bytes.fromhex(body["id"]), made_us, version, lock, seed), raw
    except (ValueError, KeyError, TypeError, struct.error):
        raise Corrupt(f"{path} is no backup of format {FORMAT}", hint="`sealcast backup` makes one") from None


def _key(secret: Secret, seed: bytes, head: bytes) -> SealingKey:
    return SealingKey(kdf.derive(secret, b"backup", seed), MAGIC + head)


def _nonce(number: int, *, last: bool) -> bytes:
    """A key seals one stream in its life: a chunk's number is its own."""
    return bytes([last]).ljust(NONCE_BYTES - 8, b"\0") + number.to_bytes(8, "big")
