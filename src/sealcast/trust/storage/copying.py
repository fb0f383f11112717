"""Copies a registry, row by row, from one database into another that has none: for backups, and for restoring them.

Rows are only added, and writers take turns until they have committed. So the rows up to a version are all there once
its row is, and stay as they are: they are read in pages, and nobody who writes waits meanwhile. They are copied as they
stand, chain and signatures included. Whoever reads the copy verifies it as it would verify the original.
"""

from __future__ import annotations

from sealcast.trust.storage.address import Address
from sealcast.trust.storage.opening import open_store
from sealcast.trust.storage.rows import Rows
from sealcast.trust.storage.trouble import damaged


def copy(source: Address, to: Address) -> int:
    """Copies all that is there now, in one transaction; the newest version of the copy. Misuse if `to` has a
    registry."""
    asked = open_store(source)
    owner, newest = asked.read(lambda rows: (rows.owner(), rows.newest()))
    if owner is None or owner.id is None:
        raise damaged(asked.shown, "it does not say of which realm it is")
    claimed = owner.id, owner.chain

    def fill(rows: Rows) -> None:
        rows.claim(*claimed)
        known = 0
        while known < newest:
            page = asked.read(lambda there, known=known: there.between(known, newest))  # type: ignore[misc]
            if not page:
                raise damaged(asked.shown, f"changes after {known} are missing")
            rows.add(page)
            known = page[-1].version

    open_store(to).create(fill)
    return newest
