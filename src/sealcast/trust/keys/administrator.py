"""The administrator's own key: it signs what the administrator states, and the realm's root has appointed it.

It is apart from the authority's keys, so that rights are granted and taken away every day without those being at hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, Misuse, NotFound
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey
from sealcast.trust.realm.authors import ADMINISTRATOR
from sealcast.trust.statements import Author
from sealcast.trust.vault import keyfile

KIND: Final = "sealcast administrator"


def make(path: Path) -> Author:
    """A new key in its file. One that an attempt left behind, being cut short, was never appointed: it is as good as
    new."""
    if not path.exists():
        keyfile.write(path, KIND, {"ed25519_seed": SigningKey.generate().seed.reveal().hex()})
    return load(path)


def load(path: Path) -> Author:
    missing = NotFound(
        f"the administrator's key is not here ({path} does not exist)",
        hint="run this where the realm was made, or copy the file to where the realm is administered",
    )
    body = keyfile.read(path, KIND, missing)
    try:
        return Author(ADMINISTRATOR, SigningKey(Secret(bytes.fromhex(body["ed25519_seed"]))))
    except (KeyError, ValueError, TypeError, Misuse):
        raise Corrupt(f"{path} does not hold an administrator's key", hint="restore it from a copy") from None
