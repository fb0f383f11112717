"""Files that hold private keys: made once, readable by their owner alone, and sealed even so.

    {"format": 2, "kind": ..., "lock": what unlocks it, "seed": ..., "commitment": ..., "sealed": ..., "check": ...}

What is secret is in `sealed`, AES-256-GCM under a key of this file alone, derived from the unlock key (`unlock`) and
32 random bytes, the seed. A key that seals one thing in its life may have a fixed nonce, so it has: zeros. Kind, format
and lock are part of the derivation, so that a file opens as nothing else than it was written as. All that is in clear
is public: a copy of the realm is a copy of no key.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sealcast.errors import CannotOpen, Corrupt, NotFound
from sealcast.model.dataclass import dataclass
from sealcast.primitives import kdf
from sealcast.primitives.aead import NONCE_BYTES, SealingKey
from sealcast.primitives.secrets import KEY_BYTES, Secret
from sealcast.trust.vault import private, unlock
from sealcast.trust.vault.unlock import Lock, Unlock

FORMAT: Final = 2
#: More than any key file of ours has: a key center's holds some hundred bytes for each of its topics. A wrong path is
#: noticed before it is read whole.
MAX_BYTES: Final = 8 << 20
_NONCE: Final = bytes(NONCE_BYTES)
_RESTORE: Final = "restore it from a copy; keys cannot be made again"


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A key file as anybody can read it."""

    kind: str
    lock: Lock
    seed: bytes
    commitment: bytes
    sealed: bytes

    def to_bytes(self) -> bytes:
        body = {
            "format": FORMAT,
            "kind": self.kind,
            "lock": self.lock.as_json(),
            "seed": self.seed.hex(),
            "commitment": self.commitment.hex(),
            "sealed": self.sealed.hex(),
        }
        return json.dumps({**body, "check": _check(body)}, indent=2).encode() + b"\n"

    @classmethod
    def from_bytes(cls, path: Path, content: bytes) -> KeyFile:
        try:
            if len(content) > MAX_BYTES:
                raise ValueError(path)
            body = json.loads(content)
            if body["format"] != FORMAT:
                raise Corrupt(
                    f"{path} is a key file of format {body['format']!r}; this release knows format {FORMAT}",
                    hint="use the release that made it; if it was not made by one, " + _RESTORE,
                )
            if body.pop("check") != _check(body):
                raise Corrupt(f"{path} is not as it was written", hint=_RESTORE)
            seed, commitment, sealed = (bytes.fromhex(body[name]) for name in ("seed", "commitment", "sealed"))
            return cls(str(body["kind"]), Lock.from_json(body["lock"]), seed, commitment, sealed)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Corrupt(f"{path} is no key file of format {FORMAT}", hint=_RESTORE) from None


def write(path: Path, kind: str, body: Mapping[str, object]) -> None:
    """A new file, durable on return. All of `body` is sealed."""
    private.create(path, _seal(unlock.for_writing(), kind, json.dumps(body).encode()).to_bytes())


def replace(path: Path, kind: str, body: Mapping[str, object]) -> None:
    """Another content for a file that is there, under the same kind of lock; durable on return."""
    private.replace(path, _seal(unlock.for_writing(), kind, json.dumps(body).encode()).to_bytes())


def write_many(kind: str, bodies: Mapping[Path, Mapping[str, object]]) -> None:
    """New files, durable on return, for much less than `write` for each."""
    by = unlock.for_writing()
    private.create_many({path: _seal(by, kind, json.dumps(b).encode()).to_bytes() for path, b in bodies.items()})


def read(path: Path, kind: str, missing: NotFound) -> Mapping[str, Any]:
    """The body of a key file, if it is one of `kind` and no one else could have read it; `missing` if there is none."""
    if not path.exists():
        raise missing
    file = KeyFile.from_bytes(path, private.read(path, MAX_BYTES))
    if file.kind != kind:
        raise Corrupt(f"{path} is no {kind} file of format {FORMAT}", hint=_RESTORE)
    return _open(file, path, unlock.for_reading(file.lock, path))


def relock(path: Path, to: Path | None = None, by: str | None = None) -> Lock:
    """Seals a key file anew, in its place or as a new file: under a passphrase to hand it over, or under a new key."""
    if not path.exists():
        raise NotFound(
            f"{path} does not exist", hint="key files are entities/NAME.key and those in secrets/ of a realm"
        )
    file = KeyFile.from_bytes(path, private.read(path, MAX_BYTES))
    body = _open(file, path, unlock.for_reading(file.lock, path))
    made = _seal(unlock.for_writing(by), file.kind, json.dumps(body).encode())
    if to is None:
        private.replace(path, made.to_bytes())
    else:
        private.create(to, made.to_bytes())
    return made.lock


def look(path: Path) -> KeyFile:
    """What a key file shows to whoever has it and cannot unlock it. Its mode is not asked: nothing here is secret."""
    return KeyFile.from_bytes(path, path.read_bytes()[: MAX_BYTES + 1])


def _seal(by: Unlock, kind: str, plain: bytes) -> KeyFile:
    seed = os.urandom(KEY_BYTES)
    key = _key(by, kind, seed)
    return KeyFile(kind, by.lock, seed, key.commitment, key.seal(_NONCE, plain))


def _open(file: KeyFile, path: Path, by: Unlock) -> Mapping[str, Any]:
    try:
        plain = _key(by, file.kind, file.seed).open(_NONCE, file.commitment, file.sealed)
        body = json.loads(plain)
        if not isinstance(body, dict):
            raise ValueError(path)
    except (CannotOpen, ValueError):
        # The lock's id says that this is the right unlock key.
        raise Corrupt(f"{path} is not as it was written", hint=_RESTORE) from None
    return body


def _key(by: Unlock, kind: str, seed: bytes) -> SealingKey:
    lock = json.dumps(by.lock.as_json(), sort_keys=True).encode()
    secret: Secret = kdf.derive(by.key, b"key file", seed)
    return SealingKey(secret, f"sealcast key file {FORMAT}\0{kind}\0".encode() + lock)


def _check(body: Mapping[str, object]) -> str:
    """Finds accidents, so that a flipped byte is told from another unlock key."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
