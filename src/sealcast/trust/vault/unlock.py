"""What unlocks private keys: a key of this user's, or a passphrase. Never anything that lies in the realm.

A realm is backed up, copied and carried about; who gets hold of such a copy must not get its keys with it. So every
key file is sealed under one of

- the **unlock key** (the default): 32 random bytes in a file of the user's own, made when first needed. The file is
  `SEALCAST_UNLOCK_KEY`, or the service manager's credential `sealcast.unlock-key`, or
  `$XDG_CONFIG_HOME/sealcast/unlock.key`, or `~/.config/sealcast/unlock.key`. It has the key in clear, or wrapped by a
  key service (`vault.services`), which is asked once in a process;
- a **passphrase**, when `SEALCAST_PASSPHRASE_FILE` or `SEALCAST_PASSPHRASE` names one, or the service manager's
  credential `sealcast.passphrase` is one.

A key file says which (`Lock`), so reading needs no guess, and a wrong one is named as such. Spark's workers inherit the
environment and find what the driver found. A passphrase is stretched once per process and salt: new files take the
salt of those that were read before them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sealcast.errors import CannotOpen, Misuse, Unavailable
from sealcast.log import files
from sealcast.model.dataclass import dataclass
from sealcast.primitives import passphrase
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.trust.vault import credentials, private, unlock_file
from sealcast.trust.vault.services import KeyService
from sealcast.trust.vault.unlock_file import ID_BYTES, MAX_BYTES, WrappedKey

KEY_VARIABLE: Final = "SEALCAST_UNLOCK_KEY"
PASSPHRASE_VARIABLE: Final = "SEALCAST_PASSPHRASE"
PASSPHRASE_FILE_VARIABLE: Final = "SEALCAST_PASSPHRASE_FILE"
KEY_CREDENTIAL: Final = "sealcast.unlock-key"
PASSPHRASE_CREDENTIAL: Final = "sealcast.passphrase"

_guard: Final = threading.Lock()
#: Made once: (file, its inode and time) -> key, and (salt, cost) -> (passphrase, key), the newest salt last.
_keys: Final[dict[tuple[str, int, int], Unlock]] = {}
_stretched: Final[dict[tuple[bytes, int], tuple[Secret, Unlock]]] = {}


@dataclass(frozen=True, slots=True)
class Lock:
    """How a file is locked: the public half of an `Unlock`, in clear in the file."""

    by: str
    id: bytes
    salt: bytes = b""
    cost: int = 0

    def __str__(self) -> str:
        return "a passphrase" if self.by == "passphrase" else f"unlock key {self.id.hex()}"

    def as_json(self) -> dict[str, object]:
        body: dict[str, object] = {"by": self.by, "id": self.id.hex()}
        return body if self.by == "key" else {**body, "salt": self.salt.hex(), "cost": self.cost}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Lock:
        """KeyError, TypeError or ValueError when it is none."""
        by, id = body["by"], bytes.fromhex(body["id"])
        if by == "key" and len(id) == ID_BYTES:
            return cls(by, id)
        salt, cost = bytes.fromhex(body["salt"]), int(body["cost"])
        fits = len(salt) == passphrase.SALT_BYTES and passphrase.LEAST_COST <= cost <= passphrase.MOST_COST
        if by != "passphrase" or len(id) != ID_BYTES or not fits:
            raise ValueError(by)
        return cls(by, id, salt, cost)


class Unlock(Unpicklable):
    """A key that seals and opens key files, and the lock it fits."""

    __slots__ = ("key", "lock")

    def __init__(self, key: Secret, by: str, salt: bytes = b"", cost: int = 0) -> None:
        self.key = key
        self.lock = Lock(by, unlock_file.id_of(key), salt, cost)


def for_writing(by: str | None = None) -> Unlock:
    """What new files are locked by: the passphrase if there is one, else the unlock key, made if need be.

    `by` asks for one of the two.
    """
    phrase = None if by == "key" else _passphrase()
    if phrase is None and by == "passphrase":
        raise Misuse("no passphrase was given", hint=f"set {PASSPHRASE_FILE_VARIABLE} to a file of your own with it")
    if phrase is not None:
        with _guard:
            known = next((u for p, u in reversed(_stretched.values()) if p == phrase), None)
        return known or _stretch(phrase, os.urandom(passphrase.SALT_BYTES), passphrase.COST)
    path = key_path()
    if not path.exists():
        _make(path)
    return _load(path)


def for_reading(lock: Lock, what: Path) -> Unlock:
    """What opens `what`, or why it is not here."""
    if lock.by == "passphrase":
        phrase = _passphrase()
        if phrase is None:
            raise Unavailable(
                f"{what} is locked by a passphrase, and none was given",
                hint=f"put it in a file of your own and set {PASSPHRASE_FILE_VARIABLE} to its path",
            )
        unlock = _stretch(phrase, lock.salt, lock.cost)
        if unlock.lock != lock:
            raise CannotOpen(
                f"{what} is locked by another passphrase",
                hint=f"set {PASSPHRASE_FILE_VARIABLE} to a file with the one it was made under",
            )
        return unlock
    path = key_path()
    if not path.exists():
        raise Unavailable(
            f"{what} is locked by unlock key {lock.id.hex()}, and {path} does not exist",
            hint=f"bring that file from where the keys were made, or name it with {KEY_VARIABLE}",
        )
    unlock = _load(path)
    if unlock.lock != lock:
        raise CannotOpen(
            f"{what} is locked by unlock key {lock.id.hex()}; {path} is {unlock.lock.id.hex()}",
            hint=f"bring that key's file from where the keys were made, and name it with {KEY_VARIABLE}",
        )
    return unlock


def key_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Where this user's unlock key is, or would be made."""
    if environment.get(KEY_VARIABLE):
        return Path(environment[KEY_VARIABLE]).absolute()
    managed = credentials.find(KEY_CREDENTIAL, environment)
    if managed is not None:
        return managed
    home = environment.get("XDG_CONFIG_HOME")
    try:
        base = Path(home) if home and Path(home).is_absolute() else Path.home() / ".config"
    except RuntimeError:
        raise Misuse(
            "there is no home directory to keep the unlock key in", hint=f"set {KEY_VARIABLE} to a path of your own"
        ) from None
    return base / "sealcast" / "unlock.key"


# --- the unlock key -----------------------------------------------------------------------------------


def wrap(address: str, service: KeyService, to: Path | None = None) -> WrappedKey:
    """Has this user's unlock key wrapped by a service: in its file, which loses the key in clear, or in another one.

    Where there is no key yet, one is made and never written in clear.
    """
    path = key_path()
    there = path.exists()
    made = unlock_file.wrapped(_load(path).key if there else Secret.random(), address, service)
    target = path if to is None else to
    _outside_realms(target)
    if there and to is None:
        private.replace(path, made.to_bytes())
    else:
        private.create(target, made.to_bytes())
    return made


def look(path: Path) -> WrappedKey | None:
    """How the key in a file is wrapped, without asking its service; None where it is in clear."""
    found = unlock_file.read(path, _content(path))
    return found if isinstance(found, WrappedKey) else None


def _make(path: Path) -> None:
    _outside_realms(path)
    private.create(path, unlock_file.in_clear(Secret.random()), again=True)


def _outside_realms(path: Path) -> None:
    around = next((p for p in path.absolute().parents if (p / "realm.json").exists()), None)
    if around is not None:
        raise Misuse(
            f"the unlock key would lie in the realm {around}, and go wherever it is copied to",
            hint=f"set {KEY_VARIABLE} to a path outside of it",
        )


def _load(path: Path) -> Unlock:
    with files.named(path, "reading"):
        found = os.stat(path)
    at = str(path), found.st_ino, found.st_mtime_ns
    with _guard:
        known = _keys.get(at)
    if known is None:
        held = unlock_file.read(path, _content(path))
        known = Unlock(held.opened() if isinstance(held, WrappedKey) else held, "key")
        with _guard:
            _keys[at] = known
    return known


def _content(path: Path) -> bytes:
    if path == credentials.find(KEY_CREDENTIAL):
        return credentials.read(path, MAX_BYTES)
    return private.read(path, MAX_BYTES)


# --- the passphrase -----------------------------------------------------------------------------------


def _passphrase(environment: Mapping[str, str] = os.environ) -> Secret | None:
    named, told = environment.get(PASSPHRASE_FILE_VARIABLE), environment.get(PASSPHRASE_VARIABLE)
    managed = credentials.find(PASSPHRASE_CREDENTIAL, environment)
    if named and told:
        raise Misuse(f"{PASSPHRASE_FILE_VARIABLE} and {PASSPHRASE_VARIABLE} are both set", hint="unset one of them")
    if named:
        path = Path(named)
        if not path.exists():
            raise Unavailable(f"{path} does not exist", hint=f"{PASSPHRASE_FILE_VARIABLE} names it")
        told = _text(path, private.read(path, MAX_BYTES), PASSPHRASE_FILE_VARIABLE)
    elif managed is not None and not told:
        named = str(managed)
        told = _text(managed, credentials.read(managed, MAX_BYTES), credentials.DIRECTORY_VARIABLE)
    return passphrase.from_text(told or "") if named or told else None


def _text(path: Path, content: bytes, by: str) -> str:
    try:
        return content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise Misuse(f"{path} is not text", hint=f"{by} names it") from None


def _stretch(phrase: Secret, salt: bytes, cost: int) -> Unlock:
    # Under the lock: threads that come together wait for one stretch instead of taking 128 MiB each.
    with _guard:
        known = _stretched.get((salt, cost))
        if known is not None and known[0] == phrase:
            return known[1]
        unlock = Unlock(passphrase.stretch(phrase, salt, cost), "passphrase", salt, cost)
        _stretched[salt, cost] = phrase, unlock
        return unlock
