"""Many subscriptions against many events at once.

core      the way through: `Index.build`, `match`, `pairs`
building  which box goes where when an index is built
plan      what is found how: lists, blocks or dense words
changed   a changed table without building everything again
fan       from boxes to subscriptions
metering  what the filters will cost on a batch, before they are asked
snapshot  a compiled index as a file that workers map
"""

from sealcast.filters.index.changed import ChangedIndex
from sealcast.filters.index.core import Index

__all__ = ["ChangedIndex", "Index"]
