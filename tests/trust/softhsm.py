"""A PKCS#11 token in software, made by SoftHSM's own tool: as real as a test's gets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

MODULE: Final = next(
    (path for path in Path("/usr/lib").glob("**/libsofthsm2.so")), Path("/usr/lib/softhsm/libsofthsm2.so")
)
LABEL: Final = "unlock-key"
ADDRESS: Final = f"pkcs11:token=sealcast;object={LABEL}"
PIN: Final = "1234567"

_MAKE: Final = (
    "import sys; from pathlib import Path; from sealcast.primitives.token import TokenKey\n"
    "from sealcast.primitives.secrets import Secret\n"
    "TokenKey(Path(sys.argv[1]), sys.argv[2], sys.argv[3], Secret(sys.argv[4].encode())).make()"
)


class Token(NamedTuple):
    """A token with one key in it."""

    configuration: Path
    label: str


def make_token(directory: Path, label: str = "sealcast") -> Token:
    """In a process of its own: a process knows the tokens of one configuration."""
    tokens = directory / "tokens"
    tokens.mkdir(parents=True)
    configuration = directory / "softhsm2.conf"
    configuration.write_text(f"directories.tokendir = {tokens}\nobjectstore.backend = file\nlog.level = ERROR\n")
    environment = {"SOFTHSM2_CONF": str(configuration), "PATH": "/usr/bin:/bin"}
    options = ("--init-token", "--free", "--label", label, "--pin", PIN, "--so-pin", "7654321")
    subprocess.run(["softhsm2-util", *options], env=environment, check=True, capture_output=True)
    command = [sys.executable, "-c", _MAKE, str(MODULE), label, LABEL, PIN]
    subprocess.run(command, env=environment, check=True)
    return Token(configuration, label)
