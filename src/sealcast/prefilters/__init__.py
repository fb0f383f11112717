"""Filters that dismiss events before encrypted matching: "certainly nobody", or "perhaps somebody"."""

from sealcast.prefilters.catalog import FILTERS, from_bytes, sized
from sealcast.prefilters.members import Members
from sealcast.prefilters.port import Answers, Full, Keys, Prefilter, PrefilterReason, PrefilterRejected, keys_of

__all__ = [
    "FILTERS",
    "Answers",
    "Full",
    "Keys",
    "Members",
    "Prefilter",
    "PrefilterReason",
    "PrefilterRejected",
    "from_bytes",
    "keys_of",
    "sized",
]
