"""A PKCS#11 token as a key service: `pkcs11:token=LABEL;object=LABEL` (RFC 7512).

    module   SEALCAST_PKCS11_MODULE, the vendor's library
    PIN      the file that SEALCAST_PKCS11_PIN_FILE names, or the service manager's credential `sealcast.pkcs11-pin`

Neither is part of an address: it is written into a file, which must name no code and hold no secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from sealcast.errors import Misuse, Unavailable
from sealcast.primitives.secrets import Secret
from sealcast.primitives.token import TokenKey
from sealcast.trust.vault import credentials, private

MODULE_VARIABLE: Final = "SEALCAST_PKCS11_MODULE"
PIN_FILE_VARIABLE: Final = "SEALCAST_PKCS11_PIN_FILE"
PIN_CREDENTIAL: Final = "sealcast.pkcs11-pin"
MAX_PIN_BYTES: Final = 256
_TAKEN: Final = ("token", "object")


def open_service(rest: str, environment: Mapping[str, str] = os.environ) -> TokenKey:
    """The key that an address names."""
    named = _attributes(rest)
    module = environment.get(MODULE_VARIABLE)
    if not module:
        raise Unavailable(
            "no PKCS#11 module is named", hint=f"set {MODULE_VARIABLE} to the path of your token's library"
        )
    if not Path(module).is_file():
        raise Unavailable(f"{module} is no file", hint=f"{MODULE_VARIABLE} names it: the library of your token")
    return TokenKey(Path(module), named["token"], named["object"], _pin(environment))


def _attributes(rest: str) -> dict[str, str]:
    path, query, _ = rest.partition("?")
    if query:
        raise Misuse(
            "an address of a token has no query: it is written down, and must name no code and no secret",
            hint=f"module: {MODULE_VARIABLE}; PIN: {PIN_FILE_VARIABLE}",
        )
    found: dict[str, str] = {}
    for part in path.split(";"):
        name, _, value = part.partition("=")
        if name not in _TAKEN or name in found or not value:
            raise Misuse(f"{part!r} is not understood", hint="an address is pkcs11:token=LABEL;object=LABEL")
        found[name] = unquote(value)
    if set(found) != set(_TAKEN):
        raise Misuse("an address of a token names token and object", hint="pkcs11:token=LABEL;object=LABEL")
    return found


def _pin(environment: Mapping[str, str]) -> Secret:
    named = environment.get(PIN_FILE_VARIABLE)
    managed = credentials.find(PIN_CREDENTIAL, environment)
    if named:
        content = private.read(Path(named), MAX_PIN_BYTES)
    elif managed is not None:
        content = credentials.read(managed, MAX_PIN_BYTES)
    else:
        raise Unavailable(
            "no PIN was given for the token", hint=f"set {PIN_FILE_VARIABLE} to a file of your own with it"
        )
    pin = content.rstrip(b"\r\n")
    if not pin or len(content) > MAX_PIN_BYTES or not pin.isascii():
        raise Misuse(f"a PIN has 1 to {MAX_PIN_BYTES} ASCII characters", hint=f"see {PIN_FILE_VARIABLE}")
    return Secret(pin)
