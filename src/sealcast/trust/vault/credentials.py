"""Secrets that a service manager hands to a service: files in `CREDENTIALS_DIRECTORY` (systemd, LoadCredential=).

The directory is the service's own, in memory, and gone when it ends. systemd gives a service that is not root its
access by a list (ACL), which shows among the group's bits of a file's mode. So a credential's group bits say nothing,
and only what everybody may read is refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sealcast.trust.vault import private

DIRECTORY_VARIABLE: Final = "CREDENTIALS_DIRECTORY"


def find(name: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The file of a credential; None where there is no service manager, or it gave none of that name."""
    directory = environment.get(DIRECTORY_VARIABLE)
    path = Path(directory) / name if directory else None
    return path if path is not None and path.exists() else None


def read(path: Path, limit: int) -> bytes:
    """What is in a credential, up to one byte more than `limit`."""
    return private.read(path, limit, managed=True)
