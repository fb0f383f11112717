"""Which keys seal an event for an arbitrary group: one file an algorithm, one interface."""

from sealcast.groupkeys.interface import Algorithm, GroupKey, KeyPlan, KeyRef, PairKey, Planner
from sealcast.groupkeys.naive import Naive

__all__ = ["Algorithm", "GroupKey", "KeyPlan", "KeyRef", "Naive", "PairKey", "Planner"]
