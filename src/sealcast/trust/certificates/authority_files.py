"""An authority's files: a key file and a certificate for the root and for each authority under it.

root.key, root.pem                 the root; the key may be elsewhere
authority-1.key, authority-1.pem   the first authority under it, and so on
revocations/                       the lists (`revocation.RevocationStore`)
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, Misuse, NotFound, Rejected
from sealcast.log import files
from sealcast.primitives import x509
from sealcast.primitives.p256 import P256SigningKey
from sealcast.primitives.secrets import Secret
from sealcast.trust.certificates import profile
from sealcast.trust.certificates.profile import Certificate
from sealcast.trust.vault import keyfile

KIND: Final = "sealcast authority"
LISTS: Final = "revocations"
_ROOT: Final = "root"
_NUMBERED: Final = re.compile(r"authority-([1-9]\d{0,4})\.pem", re.ASCII)


def stem(number: int) -> str:
    return f"authority-{number}" if number else _ROOT


def key_path(directory: Path, number: int) -> Path:
    return directory / f"{stem(number)}.key"


def write_key(directory: Path, number: int, key: P256SigningKey, realm: bytes) -> None:
    body = {"realm": realm.hex(), "number": number, "p256_private": key.private.reveal().hex()}
    keyfile.write(key_path(directory, number), KIND, body)


def read_key(directory: Path, number: int, certificate: Certificate | None) -> P256SigningKey:
    """The key of that number, which must be its certificate's, if it has one already."""
    path = key_path(directory, number)
    body = keyfile.read(path, KIND, NotFound(f"{path} does not exist"))
    try:
        key = P256SigningKey(Secret(bytes.fromhex(body["p256_private"])))
    except (KeyError, ValueError, TypeError, Misuse):
        raise Corrupt(f"{path} holds no authority's key", hint="restore it from a copy") from None
    if certificate is not None and bytes(key.verify_key) != certificate.identity_key:
        raise Corrupt(f"{path} holds another key than its certificate's", hint="restore both from one copy")
    return key


def write_certificate(directory: Path, number: int, certificate: Certificate) -> None:
    files.replace_file(directory / f"{stem(number)}.pem", x509.pem(certificate.der))


def read_certificates(directory: Path) -> list[Certificate]:
    """The root's, and those of the authorities under it in the order of their numbers."""
    if not (directory / f"{_ROOT}.pem").exists():
        raise NotFound(f"there is no authority in {directory}", hint="the machine where the realm was made has it")
    numbers = sorted(int(m[1]) for p in directory.iterdir() if (m := _NUMBERED.fullmatch(p.name)))
    if numbers != list(range(1, len(numbers) + 1)) or not numbers:
        raise Corrupt(f"{directory} lacks an authority's certificate", hint="restore it from a copy")
    return [_read_certificate(directory / f"{stem(number)}.pem") for number in (0, *numbers)]


def _read_certificate(path: Path) -> Certificate:
    try:
        with files.named(path, "reading"):
            return profile.parse(x509.from_pem(path.read_bytes()))
    except Rejected as error:
        raise Corrupt(
            f"{path} holds no authority's certificate: {error.message}", hint="restore it from a copy"
        ) from None
