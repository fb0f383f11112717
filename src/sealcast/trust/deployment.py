"""A realm as one handle: everything a command or a client takes, and what its administrator does.

Opening a realm reads public things only. What an administrator does (enrol, create, grant, subscribe) also needs the
secrets of the authority and of key centers, because whoever is enrolled gets a certificate, and whoever gets a right
gets the keys that go with it, in the same transaction; they are read when that happens and not before, so a client can
hold this handle on a machine that has no secrets at all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

from sealcast.trust.admin import founding
from sealcast.trust.admin.authorities import AuthorityAdministration
from sealcast.trust.admin.maintenance import Maintenance
from sealcast.trust.admin.topics import BOTH as BOTH
from sealcast.trust.registry import now_us as now_us


class Realm(AuthorityAdministration, Maintenance):
    """One deployment: its registry, its topics, and where its files lie."""

    @classmethod
    def create(
        cls,
        directory: str | Path,
        name: str | None = None,
        *,
        registry: str | None = None,
        clock: Callable[[], int] = now_us,
    ) -> Self:
        """A new realm in a directory that is empty or does not exist yet; its registry there too, or at a URL.

        With it come its authority, a key center, a broker and two discovery nodes.
        """
        return cls(founding.found(directory, name, registry, clock), clock=clock)
