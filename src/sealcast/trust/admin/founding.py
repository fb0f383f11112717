"""Making a realm: an authority, a key center, two discovery nodes and a broker, each with a certificate."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from sealcast.errors import Misuse
from sealcast.log import files
from sealcast.trust.admin.entities import enrolment, private_keys
from sealcast.trust.certificates.authority import Authority, CertificateWanted
from sealcast.trust.certificates.roles import Role
from sealcast.trust.keys import administrator
from sealcast.trust.keys.identity import Identity
from sealcast.trust.layout import FIRST_BROKER, FIRST_CENTER, FIRST_DISCOVERY_NODES, Layout, RealmMark
from sealcast.trust.realm.changes import Change, FoundRealm
from sealcast.trust.registry import Registry
from sealcast.trust.statements import Author, Judge
from sealcast.trust.storage import address


def found(
    directory: str | Path, name: str | None, registry: str | None, clock: Callable[[], int], *, at_hand: bool = True
) -> Path:
    """Makes a realm in a directory that is empty or does not exist yet, with its registry there or at a URL."""
    root = Path(directory).absolute()
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        known = (root / "realm.json").exists()
        raise Misuse(
            f"{root} {'is a realm already' if known else 'exists and is not empty'}",
            hint=f"use it: --realm {root}" if known else "name a new directory",
        )
    now, id, paths = clock(), os.urandom(16), Layout(root)
    authority = Authority.generate(id, now)
    where = registry and address.written(registry)
    mark = RealmMark(name or root.name, id, authority.root.fingerprint, where, at_hand)
    files.make_directory(root)
    # First, because it can fail for reasons that are not here: an empty directory can be tried again.
    judge = Judge(id, mark.root)
    changes = Registry.create(mark.registry_address(paths), realm=id, clock=clock, judge=judge)
    for each in (paths.secrets, paths.entities, root / "topics"):
        files.make_directory(each)
    authority.save(paths.authority)
    author = administrator.make(paths.administrator_key)
    changes.apply_many(_first_changes(authority, author, _holders(paths), now), author)
    # Last, because it is what makes the directory a realm: before it, `init` can simply be run again elsewhere.
    files.replace_file(paths.mark, mark.to_bytes())
    return root


def _holders(paths: Layout) -> list[tuple[Identity, Role]]:
    """Everyone who runs the realm, each with its secrets in its own file."""
    first = {Role.KEY_CENTER: (FIRST_CENTER,), Role.BROKER: (FIRST_BROKER,), Role.DISCOVERY: FIRST_DISCOVERY_NODES}
    return [(identity, role) for role, names in first.items() for identity in private_keys(paths, role, names)]


def _first_changes(
    authority: Authority, author: Author, holders: list[tuple[Identity, Role]], now: int
) -> list[Change]:
    wanted = [CertificateWanted(who.name, who.public_keys, frozenset({role})) for who, role in holders]
    issued = authority.issue_many(wanted, now)
    appointment = authority.appoint(bytes(author.signer.verify_key))
    below = tuple(each.der for each in authority.authorities)
    founding = FoundRealm(authority.realm_id, authority.root.der, below, appointment)
    return [founding, *(enrolment(c, role) for c, (_, role) in zip(issued, holders, strict=True))]
