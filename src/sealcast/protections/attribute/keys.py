"""The keys of the `attribute` protection: what the key center gave an entity, and where the entity keeps it.

    REALM/wallets/NAME/credentials/<topic's id>/
        E.publishing          what it publishes with in epoch E
        E.N.subscribing       what its own filter number N opens events with in epoch E
        D.parameters          public parameters, by their digest: one file for all keys of a center
        N.over                that filter N is over: what came for it before can still be read
        E.D.connecting        what its peer finds places with in epoch E, for the labels that D is the digest of

An answer of the center comes in an envelope that is sealed to who asked, and is written down under a key of its own
that follows from its owner's receiving key, as key files are: read by anybody else it says nothing, and altered it does
not open. What is lost can be asked for again while its epoch lasts.

    publishing     public parameters, and a key that signs for credentials: what its owner may publish
    subscribing    public parameters, and for each alternative of a filter a key that opens what carries its labels
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

from sealcast.control.center.requests import Challenge
from sealcast.control.correspondence import strange
from sealcast.control.wallet import Wallet
from sealcast.errors import CannotOpen, Corrupt, FrameRejected, Misuse
from sealcast.log import files
from sealcast.log.closing import Closing
from sealcast.primitives import kdf
from sealcast.primitives.aead import COMMITMENT_BYTES, NONCE_BYTES, SealingKey
from sealcast.primitives.secrets import KEY_BYTES, Unpicklable
from sealcast.protections.attribute import center
from sealcast.protections.attribute.asking import (
    EndSubscribing,
    Publishing,
    Subscribing,
    WantPublishing,
    WantSubscribing,
)
from sealcast.protections.attribute.connecting import Connecting, TreeLabel, WantConnecting
from sealcast.protections.own_filters import OwnFilter
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.realm.changes import Right
from sealcast.wire import cbor

_MAGIC: Final = b"SCR1"
#: A key that seals one file in its life may have a fixed nonce.
_NONCE: Final = bytes(NONCE_BYTES)
_MAX_FILE_BYTES: Final = 2 << 20
#: Of a file: its mark, the seed of its key, the key's commitment, and the rest.
_BOUNDS: Final = (0, 4, 4 + KEY_BYTES, 4 + KEY_BYTES + COMMITMENT_BYTES, _MAX_FILE_BYTES)
B = TypeVar("B", Publishing, Subscribing, Connecting)


class CredentialRing(Closing, Unpicklable):
    """One entity's keys on one topic. Close it: it may have a topic open on which it hears answers."""

    def __init__(self, realm: EntityRealm, topic: str, identity: Identity) -> None:
        self._realm, self._topic, self._identity = realm, topic, identity
        self._id = realm.state().topic(topic).id
        self._directory = realm.paths.root / "wallets" / identity.name / "credentials" / self._id.hex()
        #: Its tokens, and its way to the center.
        self.wallet = Wallet(realm, identity.name, identity=identity, center_more=center.rules)
        self._opened: dict[Path, Publishing | Subscribing | Connecting] = {}

    # --- publishing -------------------------------------------------------------------------------------------------

    def publishing(self, epoch: int) -> Publishing:
        """What it publishes with, held or asked for now; Rejected, with the reason, for who may not."""
        path = self._directory / f"{epoch}.publishing"
        held = self._read(path, Publishing)
        if held is None:
            body = self._ask(Right.PUBLISH, WantPublishing(self._topic, epoch))
            held = self._keep(path, Publishing.from_bytes(body))
        return held

    # --- places among peers -----------------------------------------------------------------------------------------

    def connecting(self, epoch: int, wanted: Sequence[TreeLabel], right: Right) -> Connecting:
        """What its peer needs for places with these labels, held or asked for now."""
        named = [self._identity.name, *map(list, wanted)]  # requests are for their owner
        digest = hashlib.sha256(cbor.encode(named)).hexdigest()[:32]
        path = self._directory / f"{epoch}.{digest}.connecting"
        held = self._read(path, Connecting)
        if held is None:
            body = self._ask(right, WantConnecting(self._topic, epoch, tuple(wanted)))
            held = self._keep(path, Connecting.from_bytes(body))
        return held

    # --- subscribing ------------------------------------------------------------------------------------------------

    def subscribe(self, own: OwnFilter, epoch: int) -> Subscribing:
        """Keys for a filter of its own in an epoch, asked for and kept. With it the subscription is registered."""
        body = self._ask(Right.SUBSCRIBE, WantSubscribing(self._topic, own.id, epoch, own.text))
        return self._keep(self._subscribing(own.number, epoch), Subscribing.from_bytes(body))

    def unsubscribe(self, ids: Iterable[str]) -> None:
        """Subscriptions end in the registry; `retire` ends what is taken in for them."""
        state = self._realm.state()
        asked = EndSubscribing(self._topic, tuple(ids))
        self.wallet.correspondent.ask_center(state.topic(self._topic).center, asked.KIND, asked.to_bytes())

    def has(self, number: int, epoch: int) -> bool:
        return self._subscribing(number, epoch).exists()

    def retire(self, number: int) -> None:
        """The keys of a filter that is over: they open what came before, and nothing more is taken in for them."""
        if any(self._directory.glob(f"*.{number}.subscribing")):
            (self._directory / f"{number}.over").touch()

    def subscribing(self, epoch: int, *, live: bool = False) -> Iterator[Subscribing]:
        """All that it opens events of an epoch with, filter by filter; with `live`, of filters that are not over."""
        for path in self._of(epoch, live):
            held = self._read(path, Subscribing)
            if held is not None:
                yield held

    def stamp(self, epoch: int, *, live: bool = False) -> tuple[str, ...]:
        """Which keys of an epoch there are: another stamp, other keys."""
        return tuple(path.name for path in self._of(epoch, live))

    def prune(self, epoch: int) -> int:
        """Removes what was for publishing and for finding places before the epoch before this one: nobody takes it any
        more. What opens events stays, as long as its owner has them. How many files."""
        old = [
            path
            for kind in ("publishing", "connecting")
            for path in self._directory.glob(f"*.{kind}")
            if (number := path.name.split(".")[0]).isdigit() and int(number) < epoch - 1
        ]
        for path in old:
            path.unlink(missing_ok=True)
            self._opened.pop(path, None)
        return len(old)

    def close(self) -> None:
        self.wallet.close()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _of(self, epoch: int, live: bool) -> list[Path]:
        over = {path.stem for path in self._directory.glob("*.over")} if live else set[str]()
        found = sorted(self._directory.glob(f"{epoch}.*.subscribing"))
        return [path for path in found if path.name.split(".")[1] not in over]

    def _subscribing(self, number: int, epoch: int) -> Path:
        return self._directory / f"{epoch}.{number}.subscribing"

    def _ask(self, right: Right, asked: WantPublishing | WantSubscribing | WantConnecting) -> bytes:
        """The answer's body. Who asks for keys has a token: where a challenge is due, that one answers it."""
        self.wallet.get(self._topic, right)
        about = self._realm.state().topic(self._topic)
        reply = self.wallet.correspondent.ask_center(about.center, asked.KIND, asked.to_bytes())
        if reply.message.kind == Challenge.KIND:
            self.wallet.ask(self._topic, right)
            reply = self.wallet.correspondent.ask_center(about.center, asked.KIND, asked.to_bytes())
        if reply.message.kind != asked.KIND:
            raise strange(reply)
        return reply.message.body

    def _keep(self, path: Path, given: B) -> B:
        """Public parameters are the same for all keys of a center, and larger than most: they have a file of their own,
        which the others name by its digest."""
        files.make_directory(path.parent)
        digest = hashlib.sha256(given.parameters).digest()
        if not self._parameters(digest).exists():
            self._write(self._parameters(digest), given.parameters)
        self._write(path, replace(given, parameters=digest).to_bytes())
        self._opened[path] = given
        return given

    def _read(self, path: Path, kind: type[B]) -> B | None:
        """What a file holds; None where there is none."""
        known = self._opened.get(path)
        if isinstance(known, kind):
            return known
        if not path.exists():
            return None
        try:
            found = kind.from_bytes(self._sealed(path))
            public = self._sealed(self._parameters(found.parameters))
            if hashlib.sha256(public).digest() != found.parameters:
                raise CannotOpen("other parameters")
        except (CannotOpen, FrameRejected, Misuse, FileNotFoundError):
            raise Corrupt(
                f"{path} does not hold keys of {self._identity.name!r}",
                hint="remove it: what it held can be asked for again while its epoch lasts",
            ) from None
        whole = self._opened[path] = replace(found, parameters=public)
        return whole

    def _parameters(self, digest: bytes) -> Path:
        return self._directory / f"{digest.hex()[:32]}.parameters"

    def _write(self, path: Path, body: bytes) -> None:
        seed = os.urandom(KEY_BYTES)
        key = self._key(seed, path.name)
        files.replace_file(path, _MAGIC + seed + key.commitment + key.seal(_NONCE, body))

    def _sealed(self, path: Path) -> bytes:
        """What a file holds; CannotOpen where it was altered, or is somebody else's."""
        data = path.read_bytes() if path.stat().st_size <= _MAX_FILE_BYTES else b""
        magic, seed, commitment, sealed = (data[a:b] for a, b in pairwise(_BOUNDS))
        if magic != _MAGIC:
            raise CannotOpen("another kind of file")
        return self._key(seed, path.name).open(_NONCE, commitment, sealed)

    def _key(self, seed: bytes, name: str) -> SealingKey:
        """Of one file: named by its topic and its name there, so that it opens in no other's place."""
        secret = kdf.derive(self._identity.kem.private, b"credentials", self._id, name.encode(), seed)
        return SealingKey(secret, b"sealcast credentials 1")
