"""Keys from what people can remember: scrypt (RFC 7914), which makes every guess cost time and memory.

    stretch(passphrase, salt, cost) = scrypt(P = passphrase, S = salt, N = 2 ** cost, r = 8, p = 1, 32 bytes)

N = 2 ** 17 takes 128 MiB and a few tenths of a second: once for whoever knows the passphrase, and once per guess for
whoever does not. The text is normalised (NFC), so that the same passphrase typed on another keyboard is the same.
"""

from __future__ import annotations

import hashlib
import unicodedata
from typing import Final

from sealcast.errors import Misuse
from sealcast.primitives.secrets import KEY_BYTES, Secret

SALT_BYTES: Final = 16
#: What is written; what is read may cost less (a test) or a little more (a later release), not gigabytes.
COST: Final = 17
LEAST_COST, MOST_COST = 10, 20
#: A passphrase shorter than this is found in seconds, whatever a guess costs.
LEAST_CHARACTERS: Final = 12
_BLOCK: Final = 8


def from_text(text: str) -> Secret:
    """A passphrase as somebody wrote it; refused when anybody could guess it."""
    if len(text) < LEAST_CHARACTERS:
        raise Misuse(
            f"a passphrase has at least {LEAST_CHARACTERS} characters, this one has {len(text)}",
            hint="five or six words drawn at random are easy to keep and hard to guess",
        )
    return Secret(unicodedata.normalize("NFC", text).encode())


def stretch(passphrase: Secret, salt: bytes, cost: int = COST) -> Secret:
    """The key that the passphrase stands for under this salt."""
    if len(salt) != SALT_BYTES:
        raise Misuse(f"a salt has {SALT_BYTES} bytes, not {len(salt)}")
    if not LEAST_COST <= cost <= MOST_COST:
        raise Misuse(f"the cost of a guess is 2 to the {LEAST_COST} to {MOST_COST}, not to the {cost}")
    memory = 128 * _BLOCK << cost
    return Secret(
        hashlib.scrypt(
            passphrase.reveal(), salt=salt, n=1 << cost, r=_BLOCK, p=1, maxmem=memory + (1 << 20), dklen=KEY_BYTES
        )
    )
