"""A client's home: its own directory in a realm that is on other machines.

    HOME/realm.json           the realm's name, id and pinned root; the gateway's address
    HOME/registry.sqlite      a copy of the registry, of verified rows alone
    HOME/entities/NAME.key    an entity's private keys, as in every realm
    HOME/entities/NAME.crt    its certificate, and those that lead from it to the root
    HOME/wallets, topics, ... what is its own, laid out as in a realm on one machine

`sealcast join` makes one. It is found by the gateway's address, under `~/.local/share/sealcast` or SEALCAST_HOME.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, Misuse, NotFound
from sealcast.log import files
from sealcast.primitives import x509
from sealcast.trust import history
from sealcast.trust.layout import Layout, RealmMark, read_mark
from sealcast.trust.storage.opening import open_store

_END: Final = "-----END CERTIFICATE-----"
_MAX_CHAIN_BYTES: Final = 1 << 16


def make(directory: Path, mark: RealmMark) -> Layout:
    """A home in a directory that has none yet, for a realm that a gateway serves; made again, it is as it was."""
    paths = Layout(directory.absolute())
    refuse_another(paths, mark.id, mark.root)
    files.make_directory(paths.root)
    if not paths.registry.exists():
        open_store(paths.registry).create(history.claim(mark.id))
    files.replace_file(paths.mark, mark.to_bytes())
    return paths


def refuse_another(paths: Layout, id: bytes, root: bytes) -> None:
    """Misuse when the directory is another realm's, or the realm itself."""
    if paths.mark.exists():
        known = read_mark(paths)
        if (known.id, known.root) != (id, root):
            raise Misuse(f"{paths.root} is the home of another realm ({known.name})", hint="choose another directory")
        if known.gateway is None:
            raise Misuse(f"{paths.root} is the realm itself, and no home", hint="choose another directory")


def write_chain(paths: Layout, name: str, chain: Sequence[bytes]) -> None:
    """Keeps an entity's certificate with those that lead to the root, which is the last."""
    files.make_directory(paths.entities)
    files.replace_file(paths.entity_certificate(name), b"".join(map(x509.pem, chain)))


def read_chain(paths: Layout, name: str) -> list[bytes]:
    """The entity's certificate, and those that lead to the root, which is the last."""
    path = paths.entity_certificate(name)
    try:
        text = path.read_bytes()[: _MAX_CHAIN_BYTES + 1].decode("ascii")
        found = [ssl.PEM_cert_to_DER_cert(part.strip() + "\n" + _END) for part in text.split(_END)[:-1]]
        if len(found) < 2 or len(text) > _MAX_CHAIN_BYTES:
            raise ValueError("too few, or too many")
    except FileNotFoundError:
        raise NotFound(
            f"there is no certificate of entity {name!r} here ({path} does not exist)",
            hint="join the realm from this machine: sealcast join sealcast://HOST:PORT --code CODE",
        ) from None
    except ValueError:
        raise Corrupt(f"{path} does not hold certificates", hint="restore it from a copy, or join again") from None
    return found


def joined(paths: Layout) -> list[str]:
    """The entities whose keys and certificates are in a home."""
    names = sorted(path.stem for path in paths.entities.glob("*.crt")) if paths.entities.is_dir() else []
    found = [name for name in names if paths.entity_key(name).exists()]
    if not found:
        raise NotFound(
            f"nobody has joined the realm from {paths.root}",
            hint="get a code from the administrator (sealcast entity invite NAME), and: sealcast join",
        )
    return found
