"""The rows of a registry as a history: read back, held against its rules and its authors, and continued.

A row is chained to the one before by its digest, obeys the rules, and belongs to a transaction that was stated by those
who may (`statements`). Without a judge, signatures are neither asked for nor made: for looking into a file that is
nobody's realm, and for tests of the rules.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sealcast.errors import Corrupt, Misuse, Rejected
from sealcast.trust.heads import Head
from sealcast.trust.realm import stored, strict
from sealcast.trust.realm.changes import Change
from sealcast.trust.realm.machine import EMPTY, Fold, RealmState
from sealcast.trust.statements import Author, AuthorKeys, Judge, StatementRejected
from sealcast.trust.storage.trouble import damaged, not_believed
from sealcast.trust.vetting import vet

if TYPE_CHECKING:
    from sealcast.trust.storage.rows import ChangeRow, Rows

_CHAIN_START: Final = bytes(32)
_SIGNED_HINT: Final = "open it by its realm: SEALCAST_REALM, or --realm DIR"


class KnownVersion(NamedTuple):
    """A version of a realm, and the chain up to it."""

    state: RealmState
    chain: bytes
    #: Whether a transaction ends here: only from there a history is read on.
    whole: bool = True


START: Final = KnownVersion(EMPTY, _CHAIN_START)


class StatingKeys(NamedTuple):
    """By whose keys changes are stated: those in hand, and those that can be looked up."""

    own: Sequence[Author]
    others: AuthorKeys


def read(rows: Rows, start: KnownVersion, version: int, judge: Judge | None, where: str) -> KnownVersion:
    """The history from the end of a transaction to a version; Corrupt, with the reason, when it is not one."""
    fold, chain, found = Fold(start.state), start.chain, start
    hearing = None if judge is None else judge.hearing(fold, chain, fold.version + 1)
    end = version if hearing is None else rows.signed_from(version)
    if end is None and rows.signed_from(1) is None:
        raise Misuse(
            f"nobody signed the changes in {where}: it was written by a release that did not sign them",
            hint="if you believe what stands there, sign it once: sealcast registry migrate",
        )
    if end is None:
        raise not_believed(where, f"change {version} is signed by nobody")
    while fold.version < end:
        page = rows.between(fold.version, end)
        if not page:
            raise damaged(where, f"change {fold.version + 1} is missing")
        for number, at_us, kind, body, link, signed in page:
            chain = _link(chain, number, at_us, kind, body)
            if chain != link or number != fold.version + 1:
                raise _other_row(where, number)
            change = decode(where, number, kind, body)
            try:
                fold.apply(change)
                if hearing is not None:
                    hearing.hear(change)
                    if signed:
                        hearing.end(signed, chain)
            except StatementRejected as error:
                raise not_believed(where, f"{_which(error, number)}{error.message}", str(error.reason)) from None
            except (Misuse, Rejected) as error:
                raise damaged(where, f"change {number} contradicts those before it: {error.message}") from None
            if number == version:
                found = KnownVersion(fold.state(), chain, hearing is None or bool(signed))
    return found


def hold(rows: Rows, start: Head, end: Head, where: str) -> None:
    """Corrupt, unless the rows after one head lead to another, which was verified before. So they are the rows that
    were verified then: nobody finds others with the same digests."""
    version, chain = start
    while version < end.version:
        page = rows.between(version, end.version)
        if not page:
            raise damaged(where, f"change {version + 1} is missing")
        for row in page:
            chain = linked(chain, row)
            if row.version != version + 1 or row.chain != chain:
                raise _other_row(where, row.version)
            version = row.version
    if chain != end.chain:
        raise _other_row(where, version)


def add(
    rows: Rows,
    before: KnownVersion,
    changes: Sequence[Change],
    now: int,
    judge: Judge | None,
    keys: StatingKeys,
    since: KnownVersion | None = None,
) -> KnownVersion:
    """Continues a history by one transaction, stated by whoever may of those whose keys are at hand.

    With `since`, the transaction is said to have begun there: its authors take over what nobody signed.
    """
    from sealcast.trust.storage.rows import ChangeRow

    if not changes:
        return before
    if judge is None and rows.signed_from(before.state.version) is not None:
        raise Misuse("the changes of this registry are signed, and whoever writes here is not known", hint=_SIGNED_HINT)
    fold, chain, made = Fold(before.state), before.chain, list[ChangeRow]()
    start = before if since is None else since
    hearing = None if judge is None else judge.hearing(fold, start.chain, start.state.version + 1)
    for change in changes:
        fold.apply(change)
        vet(fold, change, now)
        if hearing is not None:
            hearing.hear(change)
        body = strict.written(change)
        chain = _link(chain, fold.version, now, change.kind, body)
        made.append(ChangeRow(fold.version, now, change.kind, body, chain))
    if hearing is not None:
        signed = hearing.state(keys.others, keys.own, chain)
        # What we could not read ourselves is never written: everybody else would be refused the whole registry.
        hearing.end(signed, chain)
        made[-1] = made[-1]._replace(signed=signed)
    rows.add(made)
    return KnownVersion(fold.state(), chain)


def take_over(
    rows: Rows, before: KnownVersion, given: Sequence[ChangeRow], now: int, drift_us: int, judge: Judge | None
) -> KnownVersion:
    """Continues a history by one transaction that was made and signed elsewhere. It is judged as one made here, and as
    one that is read: rules, vetting, chain and signatures."""
    if judge is None:
        raise Misuse("nobody is known here: this registry was opened without its realm")
    if not given or not given[-1].signed or any(row.signed for row in given[:-1]):
        raise Misuse("a transaction is signed at its end, and nowhere else")
    fold, chain = Fold(before.state), before.chain
    hearing = judge.hearing(fold, chain, fold.version + 1)
    for row in given:
        if abs(row.at_us - now) > drift_us:
            raise Misuse(
                f"change {row.version} is stamped {(row.at_us - now) / 1e6:+.0f} seconds off this clock",
                hint="set the clock right",
            )
        chain = _link(chain, row.version, row.at_us, row.kind, row.body)
        if row.version != fold.version + 1 or row.chain != chain:
            raise Misuse(f"change {row.version} does not follow the one before it")
        change = strict.read(row.kind, row.body)
        fold.apply(change)
        vet(fold, change, now)
        hearing.hear(change)
    hearing.end(given[-1].signed, chain)
    rows.add(given)
    return KnownVersion(fold.state(), chain)


def decode(where: str, version: int, kind: str, body: str) -> Change:
    try:
        return stored.from_json(kind, json.loads(body))
    except (ValueError, Corrupt) as error:
        raise damaged(where, f"change {version} cannot be read ({error})") from None


def claim(realm: bytes) -> Callable[[Rows], None]:
    """Says whose a registry is, in the registry."""
    return lambda rows: rows.claim(realm, owned(realm))


def owned(realm: bytes) -> bytes:
    """The check of a realm's claim."""
    return _link(_CHAIN_START, 0, 0, "realm", realm.hex())


def linked(chain: bytes, row: ChangeRow) -> bytes:
    """The chain after a row, if it follows that one."""
    return _link(chain, row.version, row.at_us, row.kind, row.body)


def _link(chain: bytes, version: int, at_us: int, kind: str, body: str) -> bytes:
    return hashlib.sha256(chain + f"{version}\0{at_us}\0{kind}\0{body}".encode()).digest()


def _other_row(where: str, number: int) -> Corrupt:
    return damaged(where, f"change {number} is not the one that was written, or one before it is missing")


def _which(error: StatementRejected, number: int) -> str:
    """The transaction that was looked at, unless the message names it."""
    return "" if error.message.startswith("change") else f"the transaction that ends with change {number}: "
