"""A writer of the registry without any key: rows by SQL, chained and obeying the rules."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

from sealcast.trust import history
from sealcast.trust.deployment import Realm
from sealcast.trust.keys import peer_addresses
from sealcast.trust.keys.peer_addresses import PeerAddress, StatedAddress
from sealcast.trust.realm.changes import AnnouncePeer, Change
from sealcast.trust.realm.stored import to_json
from sealcast.trust.registry import Registry
from sealcast.trust.statements import Author, Judge, Statement

AT = PeerAddress("127.0.0.1", 7000, "0123456789abcdef" * 2)
GUARDS = [f"DROP TRIGGER IF EXISTS changes_no_{what}" for what in ("update", "delete")]


def insert(realm: Realm, *changes: Change, author: Author | None = None) -> None:
    """Rows after the last one, signed by somebody who may write them or not, or by nobody."""
    with closing(sqlite3.connect(realm.paths.registry)) as connection:
        last, at_us, before = connection.execute(
            "SELECT version, at_us, chain FROM changes ORDER BY version DESC LIMIT 1"
        ).fetchone()
        rows, chain = list[tuple[object, ...]](), before
        for version, change in enumerate(changes, last + 1):
            body = json.dumps(to_json(change))
            chain = history._link(chain, version, at_us, change.kind, body)
            rows.append((version, at_us, change.kind, body, chain, ""))
        if author is not None:
            said = Statement(realm.id, last + 1, last + len(rows), before, chain).signed([author])
            rows[-1] = (*rows[-1][:-1], said)
        connection.executemany("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?)", rows)
        connection.commit()


def rewrite(realm: Realm, alter: Callable[[int, str, dict[str, Any]], None]) -> None:
    """Bodies of rows that are there, and the whole chain again."""
    with closing(sqlite3.connect(realm.paths.registry)) as connection:
        connection.executescript("; ".join(GUARDS) + ";")
        chain = history.START.chain
        for version, at_us, kind, text in connection.execute(
            "SELECT version, at_us, kind, body FROM changes ORDER BY version"
        ).fetchall():
            body = json.loads(text)
            alter(version, kind, body)
            chain = history._link(chain, version, at_us, kind, json.dumps(body))
            connection.execute(
                "UPDATE changes SET body = ?, chain = ? WHERE version = ?", (json.dumps(body), chain, version)
            )
        connection.commit()


def strip(realm: Realm) -> None:
    """No signatures any more, as in a registry of a release that made none."""
    with closing(sqlite3.connect(realm.paths.registry)) as connection:
        connection.executescript("; ".join(GUARDS) + "; UPDATE changes SET signed = '';")


def unattended(realm: Realm) -> Registry:
    """The registry for somebody who has no keys but those that it brings."""
    return Registry(realm.paths.registry, realm.id, judge=Judge(realm.id, realm._root))


def announced(realm: Realm, name: str, sequence: int) -> AnnouncePeer:
    who = realm.author(name)
    assert who is not None
    return AnnouncePeer(
        name, peer_addresses.announce(who.signer, realm.id, name, StatedAddress(AT, False, sequence)), sequence
    )


def filled(realm: Realm, last: int) -> None:
    """Rows that somebody with a key of its own may add, until the number fits again."""
    registry, mallory = unattended(realm), realm.author("mallory")
    assert mallory is not None
    for sequence in range(registry.version(), last):
        registry.apply(announced(realm, "mallory", sequence), mallory)
    assert registry.version() == last
