"""No pre-filter: every key may be there. The way to run, and to measure, without one."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from sealcast.prefilters.port import (
    Answers,
    Keys,
    Packed,
    Prefilter,
    PrefilterReason,
    PrefilterRejected,
    checked,
    checked_one,
    pack,
)


class NoFilter(Prefilter):
    kind: ClassVar[str] = "none"

    @classmethod
    def sized(cls, items: int, rate: float, seed: int) -> NoFilter:
        return cls()

    @classmethod
    def unpacked(cls, parts: Packed) -> NoFilter:
        if parts != Packed(cls.kind, 0, (0, 0, 0), b""):
            raise PrefilterRejected(PrefilterReason.SHAPE, "a filter of kind none has neither sizes nor a body")
        return cls()

    def insert(self, keys: Keys) -> None:
        checked(keys)

    def may_contain(self, keys: Keys) -> Answers:
        return np.ones(len(checked(keys)), np.bool_)

    def may_contain_one(self, key: int) -> bool:
        checked_one(key)
        return True

    @property
    def memory(self) -> int:
        return 0

    @property
    def false_positive_rate(self) -> float:
        return 1.0

    def to_bytes(self) -> bytes:
        return pack(Packed(self.kind, 0, (0, 0, 0), b""))
