"""Labels: what encrypted matching compares, since all it can compare is equality.

    a value    ->  the labels of every set that it lies in: the prefixes of its place, of its text, of its text reversed
    a filter   ->  some conjunctions of slots, a slot being the fewest labels that together are what it asks of one
                   attribute; an event matches if, of one conjunction, it has a label of each slot

So that `price BETWEEN 10 AND 20 AND symbol LIKE 'AC%'` becomes equalities, and whoever can test equality under
encryption can route by content: three protections share this room. It is exact: `matches` says what `evaluate` says,
of every event and every filter that is not refused.

grid       an attribute with an order and an end as places 0 .. Z - 1, and ranges as fewest aligned blocks
text       strings as a trie of digits in which order, prefixes and equality are all subtrees
naming     the bytes of a label
events     values -> labels, one event or a batch of columns
compile    a checked filter -> conjunctions, or a refusal that says what can be expressed
"""

from __future__ import annotations

from sealcast.filters.labels.compile import Conjunction, LabelCost, LabelFilter, label_filter
from sealcast.filters.labels.events import BatchLabels, Labeller
from sealcast.filters.labels.naming import StringPlan

__all__ = ["BatchLabels", "Conjunction", "LabelCost", "LabelFilter", "Labeller", "StringPlan", "label_filter"]
