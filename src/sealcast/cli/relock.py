"""sealcast relock: key files under another lock."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sealcast.cli import talk
from sealcast.errors import Misuse

app = talk.Commands(shared=talk.JSON_ONLY)


class By(StrEnum):
    """What a key file can be locked by."""

    PASSPHRASE = "passphrase"
    KEY = "key"


@app.command(epilog="Example: sealcast relock entities/alice.key --by passphrase --to alice.key")
def relock(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Key files that can be unlocked here.")],
    by: Annotated[By, typer.Option(help="Lock them with a passphrase, or with your unlock key.")],
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a new file [default: change the file in place].")
    ] = None,
) -> None:
    """Seal private keys again: under a passphrase to hand them to their owner, or under your own unlock key.

    Key files are sealed under an unlock key that never leaves its user. To give one away, lock a copy with a
    passphrase; its owner then locks it with a key of their own. The passphrase is read from the file that
    SEALCAST_PASSPHRASE_FILE names.
    """
    from sealcast.trust.vault import keyfile

    if to is not None and len(files) > 1:
        raise Misuse("--to writes one file, but several were named", hint="relock them one at a time")
    locks = {file: keyfile.relock(file, to, by) for file in files}
    document = {"files": [{"file": str(to or file), "lock": lock.as_json()} for file, lock in locks.items()]}
    talk.answer(document, *(f"{to or file} is locked by {lock}" for file, lock in locks.items()))
