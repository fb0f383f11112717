"""Filters that dismiss events before encrypted matching: "certainly nobody", or "perhaps somebody"."""

from sealcast.prefilters.catalog import FILTERS, from_bytes, sized
from sealcast.prefilters.members import Members
from sealcast.prefilters.port import Answers, Full, Keys, Prefilter, PrefilterRejected, Reason, keys_of

__all__ = [
    "FILTERS",
    "Answers",
    "Full",
    "Keys",
    "Members",
    "Prefilter",
    "PrefilterRejected",
    "Reason",
    "from_bytes",
    "keys_of",
    "sized",
]
