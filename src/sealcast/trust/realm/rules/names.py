"""What a name must look like, whoever gives it."""

from __future__ import annotations

from sealcast.errors import Misuse
from sealcast.model.names import NAME


def check_name(what: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise Misuse(
            f"{name!r} is no {what} name",
            hint="1 to 64 of A-Z a-z 0-9 . _ - and the first no dot or dash",
        )
