"""The tables of a registry, and which revision of them a database has.

    changes           every change: version, time, kind, body, and the digest that chains it to the one before; the last
                      one of a transaction also has its authors' signatures
    realm             whose registry this is: one row, so that two realms never share one by mistake
    sealcast_schema   the revision, one row (Alembic's)

Rows of the first two are only ever added; triggers refuse everything else, on both databases. A new registry is made
here in one go; an older one is brought here by the steps in `trust/migrations`. Both ways end at the same schema.

A revision's name carries a check of itself: a flipped bit is damage, and not taken for a newer release.
"""

from __future__ import annotations

import hashlib
from typing import Final

APPLICATION_ID: Final = 0x5EA1CA57
VERSION_TABLE: Final = "sealcast_schema"
#: Oldest first. The last is what this release reads and writes.
REVISIONS: Final = ("0001_c73f56d0", "0002_12a0a444", "0003_b57bd089")
NEWEST: Final = REVISIONS[-1]
#: Tables that are only added to.
KEPT: Final = ("changes", "realm")


def is_revision(name: object) -> bool:
    """Whether it was ever the name of a revision, of this or a later release. A damaged one need not be a text."""
    if not isinstance(name, str):
        return False
    number, _, check = name.partition("_")
    return check == hashlib.sha256(f"sealcast registry {number}".encode()).hexdigest()[:8]
