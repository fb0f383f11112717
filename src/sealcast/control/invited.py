"""Invitations as the administrator's side keeps them: a small file of its own, beside the administrator's keys.

    invitation(id, request_key, answer_key, name, grants, until_us, attempts, standing, claimed)

`id` and the two keys are derived from the code, which is not kept. `claimed` is the digest of the public keys that used
the invitation; it is written before anybody is enrolled, so that whatever is cut short goes on with those keys only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, Misuse, NotFound
from sealcast.log.closing import Closing
from sealcast.log.database import ServiceDatabase
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.trust.certificates.roles import Role
from sealcast.trust.invitations import InvitationKeys
from sealcast.trust.realm.changes import Grant, Right

FORMAT: Final = 2
OPEN: Final = "open"
USED: Final = "used"
REVOKED: Final = "revoked"
#: Of one invitation: requests that name it and were not made with its code.
MAX_ATTEMPTS: Final = 16
MAX_OPEN: Final = 1_024
#: Those that were used, ended or revoked; the oldest are let go beyond this.
MAX_PAST: Final = 4_096

_FIELDS: Final = "id, request_key, answer_key, name, grants, until_us, attempts, standing, claimed, role, hosts"
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS invitation (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB NOT NULL UNIQUE, request_key BLOB NOT NULL,
    answer_key BLOB NOT NULL, name TEXT NOT NULL, grants TEXT NOT NULL, until_us INTEGER NOT NULL,
    attempts INTEGER NOT NULL, standing TEXT NOT NULL CHECK (standing IN ('open', 'used', 'revoked')), claimed BLOB,
    role TEXT NOT NULL, hosts TEXT NOT NULL
);
"""


@dataclass(frozen=True, slots=True)
class Invitation(Unpicklable):
    """One invitation."""

    id: bytes
    keys: InvitationKeys = field(repr=False)
    name: str
    grants: tuple[Grant, ...]
    until_us: int
    #: How many bogus requests it stands yet.
    attempts: int
    standing: str
    #: Digest of the public keys that it was used for.
    claimed: bytes | None
    role: Role = Role.ENTITY
    #: Of a gateway: where it answers.
    hosts: tuple[str, ...] = ()

    def describe(self, now_us: int) -> str:
        """Its standing, in a word."""
        if self.standing == OPEN:
            return "expired" if now_us >= self.until_us else "blocked" if self.attempts <= 0 else OPEN
        return self.standing


class Invitations(Closing, Unpicklable):
    """All invitations of a realm."""

    def __init__(self, path: Path) -> None:
        hint = "remove it: open invitations are lost with it, and are made again"
        self._db = ServiceDatabase(path, _SCHEMA, format=FORMAT, hint=hint)

    def add(
        self,
        keys: InvitationKeys,
        name: str,
        grants: Sequence[Grant],
        until_us: int,
        now_us: int,
        role: Role = Role.ENTITY,
        hosts: Sequence[str] = (),
    ) -> None:
        """Misuse when there is an open one for that name, or too many of them."""
        said = json.dumps([[each.topic, [str(right) for right in each.rights]] for each in grants])
        with self._db.transaction() as db:
            open_ = "standing = 'open' AND until_us > ? AND attempts > 0"
            if db.execute(f"SELECT 1 FROM invitation WHERE name = ? AND {open_}", (name, now_us)).fetchone():
                raise Misuse(
                    f"{name!r} is invited already",
                    hint=f"if the code was lost: sealcast entity invitations --revoke {name}",
                )
            (count,) = db.execute(f"SELECT count(*) FROM invitation WHERE {open_}", (now_us,)).fetchone()
            if count >= MAX_OPEN:
                raise Misuse(f"there are {count} open invitations", hint="revoke those that nobody will use")
            db.execute(
                f"DELETE FROM invitation WHERE NOT ({open_}) AND number <= "
                "(SELECT coalesce(max(number), 0) FROM invitation) - ?",
                (now_us, MAX_OPEN + MAX_PAST),
            )
            kept = keys.id, keys.request.reveal(), keys.answer.reveal()
            row = (*kept, name, said, until_us, MAX_ATTEMPTS, OPEN, None, str(role), json.dumps(list(hosts)))
            db.execute(f"INSERT INTO invitation ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def find(self, id: bytes) -> Invitation | None:
        row = self._db.row(f"SELECT {_FIELDS} FROM invitation WHERE id = ?", id)
        return None if row is None else self._read(row)

    def all(self) -> list[Invitation]:
        """The oldest first."""
        return [self._read(row) for row in self._db.rows(f"SELECT {_FIELDS} FROM invitation ORDER BY number")]

    def bogus(self, id: bytes) -> None:
        """Somebody named it without having its code."""
        with self._db.transaction() as db:
            db.execute("UPDATE invitation SET attempts = attempts - 1 WHERE id = ? AND attempts > 0", (id,))

    def claim(self, id: bytes, keys: bytes) -> bool:
        """Uses it for these keys, for good; whether it is theirs."""
        with self._db.transaction() as db:
            update = "UPDATE invitation SET standing = 'used', claimed = ? WHERE id = ? AND standing = 'open'"
            db.execute(update, (keys, id))
            row = db.execute("SELECT claimed FROM invitation WHERE id = ?", (id,)).fetchone()
        return row is not None and row[0] == keys

    def revoke(self, name: str, now_us: int) -> None:
        """Ends the open invitation of a name."""
        with self._db.transaction() as db:
            update = "UPDATE invitation SET standing = 'revoked' WHERE name = ? AND standing = 'open'"
            if not db.execute(update, (name,)).rowcount:
                raise NotFound(f"there is no open invitation for {name!r}", hint="see: sealcast entity invitations")

    def close(self) -> None:
        self._db.close()

    def _read(self, row: tuple[bytes, bytes, bytes, str, str, int, int, str, bytes | None, str, str]) -> Invitation:
        id, request, answer, name, said, until_us, attempts, standing, claimed, role, hosts = row
        try:
            grants = tuple(Grant(topic, name, tuple(map(Right, rights))) for topic, rights in json.loads(said))
        except (ValueError, TypeError):
            raise Corrupt(f"{self._db.path} holds an invitation that cannot be read") from None
        keys = InvitationKeys(id, Secret(request), Secret(answer))
        place = Role(role), tuple(json.loads(hosts))
        return Invitation(id, keys, name, grants, until_us, attempts, standing, claimed, *place)
