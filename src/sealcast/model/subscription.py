"""A subscription: whose it is, on which topic, and by what content."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Subscription:
    """One subscriber's interest. `filter` is text: SQL, or another format behind its prefix (`path:`, `tags:`, ...)."""

    id: str
    topic: str
    subscriber: str
    filter: str
