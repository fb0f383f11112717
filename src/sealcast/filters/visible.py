"""Whether brokers see all that a filter asks about: some protections hide attributes or payloads from them."""

from __future__ import annotations

from sealcast.errors import FilterRejected
from sealcast.filters import tree
from sealcast.filters.cost import names, walk
from sealcast.filters.tree import Condition


def refuse_unseen(condition: Condition, hidden: frozenset[str], *, payloads_seen: bool) -> None:
    """FilterRejected names the first thing that nobody who evaluates the filter could know."""
    for name in sorted(names(condition) & hidden):
        raise FilterRejected(
            "sealed",
            f"attribute {name!r} is sealed: brokers do not see it, and cannot match on it",
            hint="ask about other attributes, and look at this one when the event is opened",
        )
    if not payloads_seen and any(isinstance(node, tree.XPath) for node, _ in walk(condition)):
        raise FilterRejected("sealed", "XPath asks about payloads, which brokers of this topic do not see")
