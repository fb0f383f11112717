"""A subscription: whose it is, on which topic, and by what content."""

from __future__ import annotations

from typing import NamedTuple


class Subscription(NamedTuple):
    """One subscriber's interest. `filter` is text: SQL, or another format behind its prefix (`path:`, `tags:`, ...)."""

    id: str
    topic: str
    subscriber: str
    filter: str
