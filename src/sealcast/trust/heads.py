"""A registry's head: the version that somebody saw, and the chain up to it. Whoever holds one notices another history.

    pin           the newest head that the holder of a key saw, in a file beside the key (`NAME.head`); in a reader's
                  cursor; and in every record of a ledger whose batch was pinned to a version
    signed head   a head with the word of whoever saw it: two clients compare theirs, as in certificate transparency

A registry that ends before a pinned version went back. One whose chain at that version is another is a fork, also when
rows were added until the numbers fit again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from sealcast.errors import Corrupt, FrameRejected, Rejected
from sealcast.log import files
from sealcast.model.dataclass import dataclass
from sealcast.primitives.sign import SIGNATURE_BYTES, VerifyKey
from sealcast.trust.statements import Author
from sealcast.trust.storage.trouble import another_history
from sealcast.wire import cbor

CHAIN_BYTES: Final = 32
MAX_VERSION: Final = 2**63 - 1
MAX_SIGNED_HEAD_BYTES: Final = 512
#: Pins that a process moves on as a registry grows.
PINS_KEPT: Final = 8
_MAX_PIN_BYTES: Final = 256
_PREFIX: Final = "sealcast-head-1."
_LABEL: Final = b"sealcast/1 registry head\0"


#: The chain of a registry up to a version; None if it has no such version.
ChainAt = Callable[[int], bytes | None]


class Head(NamedTuple):
    """A version, and the chain up to it."""

    version: int
    chain: bytes


@dataclass(frozen=True, slots=True)
class Pin:
    """Where somebody keeps the newest head that it saw."""

    path: Path
    #: As messages call it.
    who: str
    #: Whether somebody who put an old registry back on purpose may remove it.
    may_go: bool = True

    @classmethod
    def beside(cls, key_file: Path, who: str) -> Pin:
        return cls(key_file.with_suffix(".head"), who)

    def read(self) -> Head | None:
        """The head; None if none was kept yet."""
        raw = b""
        with files.named(self.path, "reading"), suppress(FileNotFoundError), self.path.open("rb") as file:
            raw = file.read(_MAX_PIN_BYTES + 1)
        return self._parsed(raw) if raw else None

    def write(self, head: Head) -> None:
        """Keeps a head, unless a later one is kept. Not synced: a power cut may leave an older one, or none.

        Where nothing can be written, because keys are mounted so, the disk is full, or they were moved away, the older
        one stays: what was read or committed is no less true for it.
        """
        known = self.read()
        if known is not None and known.version >= head.version:
            return
        body = f"{head.version} {head.chain.hex()}"
        made = self.path.with_name(f"{self.path.name}.{os.urandom(6).hex()}")
        with suppress(OSError):
            try:
                with files.opened(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
                    files.write_all(fd, f"{body} {_check(body)}\n".encode(), 0)
                os.replace(made, self.path)
            except OSError:
                made.unlink(missing_ok=True)
                raise

    def _parsed(self, raw: bytes) -> Head:
        try:
            body, check = raw.decode("ascii").rstrip("\n").rsplit(" ", 1)
            version, chain = body.split(" ")
            head = Head(int(version), bytes.fromhex(chain))
            if check != _check(body) or len(head.chain) != CHAIN_BYTES or not 0 <= head.version <= MAX_VERSION:
                raise ValueError(body)
        except ValueError:
            raise Corrupt(
                f"{self.path} is not as it was written",
                hint="restore it from a copy; without it nobody notices that the registry went back",
            ) from None
        return head


class SeenHeads:
    """The newest head that this process saw of one registry, and those who keep it beside their keys."""

    def __init__(self, where: str) -> None:
        self._where = where
        #: The newest head that was verified here.
        self.own = Head(0, b"")
        #: Those that are moved on as the registry grows: of whoever was asked for last.
        self._pins: OrderedDict[Path, Pin] = OrderedDict()
        #: What holders saw to whom the registry was not held yet.
        self._unasked: list[tuple[Pin, Head | None]] = []

    def hold(self, pin: Pin) -> None:
        """From now on a registry must also be the one that this holder saw. What it saw is read here, before the
        registry is: other processes may add to both meanwhile."""
        if pin.path not in self._pins:
            self._unasked.append((pin, pin.read()))
            if len(self._pins) >= PINS_KEPT:
                self._pins.popitem(last=False)
        self._pins[pin.path] = pin

    def see(self, head: Head) -> None:
        """Notes a head that was verified, if it is newer."""
        if head.version > self.own.version:
            self.own = head
            for pin in self._pins.values():
                pin.write(head)

    def ask(self, newest: int, chain_at: ChainAt) -> None:
        """Holds a registry to whoever was not asked yet, and its length to what was seen here."""
        while self._unasked:
            pin, seen = self._unasked[-1]
            if seen is not None:
                self.hold_to(seen, newest, chain_at, pin)
            # Not before it was held to: who asks again is told again.
            self._unasked.pop()
            if self.own.version:
                pin.write(self.own)
        if newest < self.own.version:
            self.hold_to_own(newest, chain_at)

    def hold_to_own(self, newest: int, chain_at: ChainAt) -> None:
        """Corrupt, unless the registry goes on from what this process saw."""
        self.hold_to(self.own, newest, chain_at)

    def hold_to(self, seen: Head, newest: int, chain_at: ChainAt, pin: Pin | None = None) -> None:
        """Corrupt, unless the registry goes on from a head that somebody saw."""
        who, kept = ("this process", None) if pin is None else (pin.who, pin.path if pin.may_go else None)
        if newest < seen.version:
            what = f"it went back from version {seen.version}, which {who} saw, to version {newest}"
            raise another_history(self._where, what, "rollback", kept)
        if seen.version and chain_at(seen.version) != seen.chain:
            what = f"its version {seen.version} is not the one that {who} saw: the history was forked"
            raise another_history(self._where, what, "fork", kept)


def _check(body: str) -> str:
    """Finds accidents."""
    return hashlib.sha256(body.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class SignedHead:
    """What somebody says that it saw."""

    realm: bytes
    head: Head
    author: str
    signature: bytes

    @classmethod
    def make(cls, realm: bytes, head: Head, author: Author) -> SignedHead:
        return cls(realm, head, author.name, author.signer.sign(_said(realm, head, author.name)))

    def is_by(self, key: VerifyKey) -> bool:
        return key.verify(_said(self.realm, self.head, self.author), self.signature)

    def __str__(self) -> str:
        body = cbor.encode([self.realm, *self.head, self.author, self.signature])
        return _PREFIX + base64.urlsafe_b64encode(body).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> SignedHead:
        """What was printed; nothing is verified. Rejected when it is none."""
        try:
            given = text.strip()
            if not given.startswith(_PREFIX) or len(given) > 2 * MAX_SIGNED_HEAD_BYTES:
                raise ValueError("another form")
            coded = given.removeprefix(_PREFIX)
            raw = base64.b64decode(coded + "=" * (-len(coded) % 4), altchars=b"-_", validate=True)
            match cbor.decode(raw, max_bytes=MAX_SIGNED_HEAD_BYTES, max_depth=1, max_items=8):
                case [bytes(realm), int(version), bytes(chain), str(author), bytes(signature)]:
                    fits = len(chain) == CHAIN_BYTES and len(signature) == SIGNATURE_BYTES
                    if fits and not isinstance(version, bool) and 0 <= version <= MAX_VERSION:
                        return cls(realm, Head(version, chain), author, signature)
            raise ValueError("other parts")
        except (ValueError, binascii.Error, FrameRejected):
            raise Rejected("this is no head of a registry", hint="one is printed by: sealcast registry head") from None


def _said(realm: bytes, head: Head, author: str) -> bytes:
    return _LABEL + cbor.encode([realm, *head, author])
