"""A client's home: its own directory in a realm that is on other machines.

    HOME/realm.json           the realm's name, id and pinned root; the gateway's address
    HOME/registry.sqlite      a copy of the registry, of verified rows alone
    HOME/entities/NAME.key    an entity's private keys, as in every realm
    HOME/entities/NAME.crt    its certificate, and those that lead from it to the root
    HOME/secrets/...          the same of a broker, a key center, a discovery node or a gateway on a machine of its own
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
from sealcast.trust.certificates.roles import Role
from sealcast.trust.layout import FIRST_BROKER, Layout, RealmMark, read_mark
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


def key_file(paths: Layout, role: Role, name: str) -> Path:
    """Where the keys of somebody of a role are."""
    places = {
        Role.BROKER: paths.broker_key_of,
        Role.KEY_CENTER: paths.center_key,
        Role.DISCOVERY: paths.discovery_key,
        Role.GATEWAY: paths.gateway_key,
    }
    return places.get(role, paths.entity_key)(name)


def chain_file(paths: Layout, role: Role, name: str) -> Path:
    """Where the certificate of somebody of a role is, with those that lead from it to the root: beside its keys."""
    return key_file(paths, role, name).with_suffix(".crt")


def write_chain(paths: Layout, name: str, chain: Sequence[bytes], role: Role = Role.ENTITY) -> None:
    """Keeps a certificate with those that lead to the root, which is the last."""
    path = chain_file(paths, role, name)
    files.make_directory(path.parent)
    files.replace_file(path, b"".join(map(x509.pem, chain)))


def read_chain(paths: Layout, name: str, role: Role = Role.ENTITY) -> list[bytes]:
    """The certificate, and those that lead to the root, which is the last."""
    path = chain_file(paths, role, name)
    try:
        text = path.read_bytes()[: _MAX_CHAIN_BYTES + 1].decode("ascii")
        found = [ssl.PEM_cert_to_DER_cert(part.strip() + "\n" + _END) for part in text.split(_END)[:-1]]
        if len(found) < 2 or len(text) > _MAX_CHAIN_BYTES:
            raise ValueError("too few, or too many")
    except FileNotFoundError:
        raise NotFound(
            f"there is no certificate of {role} {name!r} here ({path} does not exist)",
            hint="join the realm from this machine: sealcast join sealcast://HOST:PORT --code CODE",
        ) from None
    except ValueError:
        raise Corrupt(f"{path} does not hold certificates", hint="restore it from a copy, or join again") from None
    return found


def joined(paths: Layout, role: Role = Role.ENTITY) -> list[str]:
    """Those of a role whose keys and certificates are in a home."""
    directories = {key_file(paths, role, name).parent for name in (FIRST_BROKER, "another")}
    names = sorted({path.stem for directory in directories for path in directory.glob("*.crt")})
    found = [n for n in names if chain_file(paths, role, n).exists() and key_file(paths, role, n).exists()]
    if not found:
        invite = "sealcast entity invite NAME" + ("" if role is Role.ENTITY else f" --role {role}")
        raise NotFound(
            f"no {role} has joined the realm from {paths.root}",
            hint=f"get a code from the administrator ({invite}), and: sealcast join",
        )
    return found
