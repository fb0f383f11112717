"""What a name of an entity, a topic or a subscription looks like."""

from __future__ import annotations

import re
from typing import Final

#: Safe as a file name, never mistaken for an option, and no longer than X.509 lets a common name be.
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", re.ASCII)
