"""Remedies in a client's home. Some commands need the realm itself, and are refused there: a hint that names one of
them says whose it is."""

from __future__ import annotations

import re
from typing import Final

from sealcast.errors import SealcastError

#: What needs the realm itself, as one types it. A test runs each of them in a home.
NEED_THE_REALM: Final = frozenset(
    {
        *("topic create", "topic alter", "topic delete", "topic serve", "topic move"),
        *("entity enrol", "entity invite", "entity invitations", "entity renew", "entity revoke"),
        *("broker add", "broker list", "broker show", "carrier add", "overlay add", "overlay place", "overlay show"),
        *("grant", "revoke", "maintain", "compromise", "forget", "backup", "audit", "why", "check", "rejected list"),
        *("authority show", "authority succeed", "authority appoint", "authority replace", "authority crl"),
        *("registry migrate", "replay", "console", "group remove"),
    }
)
_NAMED: Final = re.compile(r"sealcast ([a-z-]+(?: [a-z-]+)?)")


def remedy(hint: str, realm: str | None) -> str:
    """A hint as it helps where the command was given."""
    if not any(_needs(named) for named in _NAMED.findall(hint)) or not _in_home(realm):
        return hint
    return f"this is for whoever administers the realm, where the realm is: {hint}"


def _needs(named: str) -> bool:
    return named in NEED_THE_REALM or named.partition(" ")[0] in NEED_THE_REALM


def _in_home(realm: str | None) -> bool:
    from sealcast.trust import layout

    try:
        return layout.read_mark(layout.find(realm)).gateway is not None
    except (SealcastError, OSError):
        return False
