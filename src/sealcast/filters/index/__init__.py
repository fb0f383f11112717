"""Many subscriptions against many events at once.

core      the way through: `Index.build`, `match`, `pairs`
plan      what is found how: lists, blocks or dense words
overlay   a changed table without building everything again
snapshot  a compiled index as a file that workers map
"""

from sealcast.filters.index.core import Index
from sealcast.filters.index.overlay import Overlay

__all__ = ["Index", "Overlay"]
