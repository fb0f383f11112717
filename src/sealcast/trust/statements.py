"""Transactions of the registry as signed statements: who said it, and whether they may.

A transaction is signed by its authors, each with the Ed25519 key that it is known by:

    signature over  label | CBOR [realm id, author, first version, last version, chain before, chain after]

The chain covers every byte of every change, so one signature an author is enough, however many changes there are. What
is read is believed after the numbered checks, the first that fails gives the reason:

    (1) it is signed: by one author at least, in a form that we wrote
    (2) the realm is founded on the root that is pinned in `realm.json`
    (3) each author is known: the administrator by the root's appointment, everybody else by a certificate that leads to
        that root, about the very key that the registry has; nobody who was revoked before
    (4) each signature is its author's, on these changes at this place of this realm's history
    (5) every change was stated by somebody who may (`realm.authors`)

A transaction that begins with the realm's first change is the administrator's alone: it founds the realm, or takes over
what was written before changes were signed (`Registry.adopt`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from sealcast.errors import CannotOpen, CertificateRejected, Misuse, ReasonedRejection, SealcastError, Unavailable
from sealcast.model.dataclass import dataclass
from sealcast.primitives.sign import SIGNATURE_BYTES, SigningKey, VerifyKey
from sealcast.trust.certificates.appointment import AppointmentRejected, appointed
from sealcast.trust.certificates.roles import Role
from sealcast.trust.realm.authors import ADMINISTRATOR, Voices, voices
from sealcast.trust.realm.changes import Change, FoundRealm
from sealcast.trust.realm.machine import Fold
from sealcast.trust.tokens.gates import trust_of
from sealcast.wire import cbor

#: Authors of one transaction: everybody who takes a place in an overlay together with others signs for itself.
MAX_AUTHORS: Final = 1 << 17
_LABEL: Final = b"sealcast/1 registry\0"


class StatementReason(StrEnum):
    """Why a transaction is not believed, in the order of the checks."""

    UNSIGNED = "unsigned"
    ROOT = "root"
    AUTHOR = "author"
    SIGNATURE = "signature"
    VOICE = "voice"


class StatementRejected(ReasonedRejection[StatementReason]):
    """Changes that nobody stated who may."""

    code = "statement"


class Author(NamedTuple):
    """Somebody who states changes, with the key to do so."""

    name: str
    signer: SigningKey


class AuthorKeys:
    """The keys by which a process can state changes: those in hand, and those that it can look up when needed."""

    def __init__(self, find: Callable[[str], Author | None] = lambda name: None) -> None:
        self._find = find

    def choose(self, wanted: Iterable[Voices], own: Iterable[Author], is_broker: Callable[[str], bool]) -> list[Author]:
        """Authors who together may state all of it, as few as are seen at once; Misuse when nobody at hand may."""
        given, chosen = {author.name: author for author in own}, dict[str, Author]()
        for each in wanted:
            if not any(may(each, name, is_broker) for name in chosen):
                found = self._one(each, given, is_broker)
                chosen[found.name] = found
        return list(chosen.values())

    def _one(self, wanted: Voices, own: Mapping[str, Author], is_broker: Callable[[str], bool]) -> Author:
        found = next((own[name] for name in wanted.names if name in own), None)
        if found is None and wanted.brokers:
            found = next((author for name, author in own.items() if is_broker(name)), None)
        return found or self._looked_up(wanted)

    def _looked_up(self, wanted: Voices) -> Author:
        locked: SealcastError | None = None
        for name in wanted.names:
            try:
                found = self._find(name)
            except (Unavailable, CannotOpen) as error:
                # A key under another lock: somebody else's may do.
                locked = locked or error
                continue
            if found is not None:
                return found
        raise locked or Misuse(
            f"this is for {_one_of(wanted)} to state, and no such key is at hand",
            hint="do it where that key is, or ask the service that has it: sealcast serve",
        )


NOBODY: Final = AuthorKeys()


@dataclass(frozen=True, slots=True)
class Statement:
    """What is signed: some changes, at their place in a realm's history."""

    realm: bytes
    first: int
    last: int
    before: bytes
    after: bytes

    def signed(self, authors: Iterable[Author]) -> str:
        """Everybody's signature, as the last row of the transaction keeps it."""
        return json.dumps({each.name: each.signer.sign(self._said_by(each.name)).hex() for each in authors})

    def is_by(self, author: str, key: VerifyKey, signature: bytes) -> bool:
        return key.verify(self._said_by(author), signature)

    def _said_by(self, author: str) -> bytes:
        return _LABEL + cbor.encode([self.realm, author, self.first, self.last, self.before, self.after])


class Judge:
    """Believes a history by what is pinned: the realm's id and its root. One for each reader of a registry."""

    def __init__(self, realm: bytes, root: bytes) -> None:
        """`root` is the SHA-256 of the root's certificate."""
        self.realm, self._root = realm, root
        #: Keys that were believed, by what they were believed for.
        self._known: dict[tuple[object, ...], VerifyKey] = {}

    def hearing(self, fold: Fold, chain: bytes, first: int) -> Hearing:
        """Begins to hear a transaction whose first version is `first`, after the chain that is given."""
        return Hearing(self, fold, chain, first)

    def key_of(self, author: str, fold: Fold, first: int) -> VerifyKey:
        """The key that an author is known by, in a transaction that began at `first`."""
        founding = fold.founding
        # (2)
        if founding is None or founding.id != self.realm or hashlib.sha256(founding.root).digest() != self._root:
            raise _no(StatementReason.ROOT, "it names another root than realm.json does")
        # (3)
        return self._administrator(founding) if author == ADMINISTRATOR else self._holder(author, fold, founding, first)

    def _administrator(self, founding: FoundRealm) -> VerifyKey:
        about = (founding.root, founding.administrator)
        if about not in self._known:
            try:
                self._known[about] = appointed(trust_of(founding).root, founding.administrator).verify_key
            except (AppointmentRejected, CertificateRejected) as error:
                raise _no(StatementReason.AUTHOR, error.message) from None
        return self._known[about]

    def _holder(self, author: str, fold: Fold, founding: FoundRealm, first: int) -> VerifyKey:
        who = fold.entities.read.get(author)
        if who is None:
            raise _no(StatementReason.AUTHOR, f"its author {author!r} is nobody")
        if who.revoked_at_version is not None and who.revoked_at_version < first:
            raise StatementRejected(
                StatementReason.AUTHOR,
                f"its author {author!r} was revoked at version {who.revoked_at_version}",
                hint=f"topics of a key center that was revoked move to another one: sealcast compromise {author}",
            )
        about = (founding, who.certificate, who.verify_key, who.roles)
        if about not in self._known:
            try:
                found = trust_of(founding).recognise(who.certificate)
            except CertificateRejected as error:
                raise _no(StatementReason.AUTHOR, f"its author {author!r}: {error.message}") from None
            if (found.name, found.verify_key, found.roles) != (author, who.verify_key, who.roles):
                raise _no(StatementReason.AUTHOR, f"the key of its author {author!r} is not the one of its certificate")
            self._known[about] = VerifyKey(who.verify_key)
        return self._known[about]


class Hearing:
    """Changes as they are folded, and the statements that they are part of."""

    def __init__(self, judge: Judge, fold: Fold, chain: bytes, first: int) -> None:
        self._judge, self._fold = judge, fold
        self._first, self._before = first, chain
        #: Whose word is needed, and the first change that needs it.
        self._wanted: dict[Voices, tuple[int, str]] = {}

    def hear(self, change: Change) -> None:
        """A change that was just applied."""
        self._wanted.setdefault(voices(self._fold, change), (self._fold.version, change.kind))

    def state(self, keys: AuthorKeys, own: Iterable[Author], after: bytes) -> str:
        """Signs what was heard since the last statement. It is then checked like anybody's."""
        return self._statement(after).signed(keys.choose(self._needed(), own, self._is_broker))

    def end(self, signed: str, after: bytes) -> None:
        """The transaction ends here: StatementRejected unless it is to be believed."""
        statement, signatures = self._statement(after), _read(signed)
        for author, signature in signatures.items():
            key = self._judge.key_of(author, self._fold, self._first)
            # (4)
            if not statement.is_by(author, key, signature):
                raise _no(StatementReason.SIGNATURE, f"{_span(statement)} not signed by {_shown(author)}")
        # (5)
        for each in self._needed():
            if not any(may(each, author, self._is_broker) for author in signatures):
                version, kind = self._wanted.get(each, (self._first, "found-realm"))
                said = " and ".join(map(_shown, list(signatures)[:3]))
                raise _no(
                    StatementReason.VOICE,
                    f"change {version} ({kind}) is for {_one_of(each)} to state, and {said} stated it",
                )
        self._first, self._before, self._wanted = self._fold.version + 1, after, {}

    def _needed(self) -> Iterable[Voices]:
        return (Voices((ADMINISTRATOR,), brokers=False),) if self._first == 1 else self._wanted

    def _statement(self, after: bytes) -> Statement:
        return Statement(self._judge.realm, self._first, self._fold.version, self._before, after)

    def _is_broker(self, name: str) -> bool:
        who = self._fold.entities.read.get(name)
        return who is not None and Role.BROKER in who.roles and not who.revoked


def signers(signed: str) -> frozenset[str]:
    """Who is said to have signed a transaction; StatementRejected when that cannot be read."""
    return frozenset(_read(signed))


def may(wanted: Voices, author: str, is_broker: Callable[[str], bool]) -> bool:
    """Whether an author's word is enough."""
    return author in wanted.names or (wanted.brokers and is_broker(author))


def _read(signed: str) -> dict[str, bytes]:
    # (1)
    try:
        found = {str(author): bytes.fromhex(signature) for author, signature in json.loads(signed).items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise _no(StatementReason.UNSIGNED, "its signatures cannot be read") from None
    if not 0 < len(found) <= MAX_AUTHORS or any(len(each) != SIGNATURE_BYTES for each in found.values()):
        raise _no(StatementReason.UNSIGNED, "it has no signature, or something else in place of one")
    return found


def _span(statement: Statement) -> str:
    if statement.first == statement.last:
        return f"change {statement.last} was"
    return f"changes {statement.first} to {statement.last} were"


def _shown(author: str) -> str:
    return author if author == ADMINISTRATOR else repr(author)


def _one_of(wanted: Voices) -> str:
    return " or ".join([*map(_shown, wanted.names), *(["any broker"] if wanted.brokers else [])])


def _no(reason: StatementReason, message: str) -> StatementRejected:
    return StatementRejected(reason, message)


__all__ = [
    "NOBODY",
    "Author",
    "AuthorKeys",
    "Hearing",
    "Judge",
    "Statement",
    "StatementReason",
    "StatementRejected",
    "signers",
]
