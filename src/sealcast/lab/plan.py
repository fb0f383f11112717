"""`sealcast plan keys`: on somebody's own events and subscriptions, which group key algorithm to choose, and with what.

    match    the events against the subscriptions, with the pipeline's own index: the groups that there really are
    try      every algorithm with several policies, numbers of clusters and trees, as many cache entries as fit in the
             memory given, each a Spark task; the first half of the events only warms it up
    plan     the best of each algorithm once more with its planner, in micro-batches as the pipeline has them: what it
             hands out and what subscribers are left to keep

Encryptions are counted by the rule of paper 000, in which those that hand a new key out are included. Every
subscription is taken for a subscriber of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sealcast.errors import EventRejected, Misuse, Rejected
from sealcast.filters import bits
from sealcast.filters.bits import Indices, Words
from sealcast.filters.check import fit
from sealcast.filters.index import Index
from sealcast.filters.parse import parse
from sealcast.groupkeys.catalog import ALGORITHMS, Setting, entry_bytes, make
from sealcast.groupkeys.clusters import around, by_rule
from sealcast.groupkeys.interface import GrownKey, KeyPlan
from sealcast.groupkeys.key_tree import KeyTree
from sealcast.groupkeys.mosaic.tables import labels_of
from sealcast.groupkeys.policies import POLICIES
from sealcast.lab.match_input import GivenEvent, Inputs
from sealcast.lab.points import run_all
from sealcast.lab.report import Told
from sealcast.lab.tally import portions_of, tally
from sealcast.primitives.secrets import KEY_BYTES
from sealcast.wire.records import RecordCodec

#: Events that are looked at; more say little more and take longer. And the bytes that their groups may take.
MAX_EVENTS: Final = 20_000
QUICK_EVENTS: Final = 2_000
MAX_GROUP_BYTES: Final = 256 << 20
#: Events of a micro-batch when handing out is looked at.
BATCH: Final = 512
#: Of the events, those that only warm caches up.
WARM_SHARE: Final = 0.5
#: Fewer counted events than this say little.
FEW_EVENTS: Final = 500
_AT_ONCE: Final = 4_096
#: Who is similar takes time that grows with the square of the subscribers, and is known from so many events.
MAX_SIMILAR: Final = 4_000
SIMILAR_EVENTS: Final = 2_048
_ARITIES: Final = (2, 3, 4)
_TREES: Final = (1, 2, 4)
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)


def parse_memory(text: str) -> int:
    """Bytes: a number, or one with kB, MB, GB (thousands) or KiB, MiB, GiB (1,024s)."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise Misuse(f"{text!r} is no size", hint="bytes, or a number and a unit: 500000, 2MB, 1.5MiB")
    power = " kmgt".index(found[2].lower()) if found[2] else 0
    return int(float(found[1]) * (1024 if found[3] else 1000) ** power)


# --- the workload ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class PlanWorkload:
    """The groups of a stretch of events: distinct ones, and which of them each wanted event has."""

    subscribers: int
    groups: Words
    group_of: Indices
    #: Events that were looked at, that the schema refused, and that were left aside.
    events: int
    refused: int
    left_out: int

    def rows(self, here: slice) -> Words:
        return self.groups[self.group_of[here]]

    @property
    def wanted(self) -> int:
        return int(self.group_of.size)

    @property
    def warmup(self) -> int:
        return int(WARM_SHARE * self.wanted)

    @property
    def past(self) -> Words:
        """What a broker would know when it makes clusters: nothing of the events that are counted."""
        return self.rows(slice(0, min(self.warmup, SIMILAR_EVENTS)))

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark's encrypted broadcasts take bytes, and fail on the buffers that arrays are pickled as.
        arrays = self.groups.tobytes(), self.group_of.tobytes()
        return _unpickled, (self.subscribers, *arrays, self.events, self.refused, self.left_out)


def _unpickled(subscribers: int, groups: bytes, group_of: bytes, *counts: int) -> PlanWorkload:
    words = np.frombuffer(groups, np.uint64).reshape(-1, bits.words_for(subscribers))
    return PlanWorkload(subscribers, words, np.frombuffer(group_of, np.int64), *counts)


def workload(inputs: Inputs, quick: bool = False) -> PlanWorkload:
    """Matches the first events of the file: who gets what."""
    if not inputs.subscriptions:
        raise Rejected("there are no subscriptions: without subscribers there are no keys to plan")
    subscribers = len(inputs.subscriptions)
    room = MAX_GROUP_BYTES // (8 * bits.words_for(subscribers))
    given = inputs.events[: max(1, min(QUICK_EVENTS if quick else MAX_EVENTS, room))]
    index = Index.build([fit(parse(s.filter), inputs.schema) for s in inputs.subscriptions], inputs.schema)
    found, refused = [np.empty((0, bits.words_for(subscribers)), np.uint64)], 0
    for start in range(0, len(given), _AT_ONCE):
        some = given[start : start + _AT_ONCE]
        columns, payloads = _columns(inputs, some)
        refused += len(some) - columns.num_rows
        matched = index.match(columns, payloads)
        found.append(matched[matched.any(axis=1)])
    groups, group_of = bits.unique_rows(np.concatenate(found))
    if not group_of.size:
        raise Rejected(
            f"none of {len(given):,} events is wanted by any of {subscribers:,} subscriptions: nothing to plan",
            hint="sealcast match shows which event matches what",
        )
    return PlanWorkload(subscribers, groups, group_of, len(given), refused, len(inputs.events) - len(given))


def _columns(inputs: Inputs, some: Sequence[GivenEvent]) -> tuple[pa.RecordBatch, list[bytes]]:
    """Events as the index reads them; those off the schema are left out, as a publisher would leave them out."""
    codec = RecordCodec(inputs.schema)
    messages, payloads = list[bytes](), list[bytes]()
    for given in some:
        try:
            messages += codec.encode([inputs.schema.parse(given.event.attributes)], [given.event.payload])
        except EventRejected:
            continue
        payloads.append(given.event.payload)
    return codec.decode(messages).columns, payloads


# --- what is tried --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Choice:
    """An algorithm with all its parameters, and what it takes at the broker."""

    algorithm: str
    setting: Setting
    broker_bytes: int

    def parameters(self) -> dict[str, object]:
        """The parameters that change anything, and the entries of the cache where there is one."""
        chosen = {name: getattr(self.setting, name) for name in sorted(ALGORITHMS[self.algorithm].options)}
        has_cache = self.algorithm not in ("naive", "key-tree", "mosaic")
        return {**({"cache": self.setting.cache} if has_cache else {}), **chosen}


def choices(subscribers: int, memory: int, quick: bool = False) -> list[Choice]:
    """Lists every setting that is worth trying and fits in the memory."""
    n = subscribers
    whole = memory // entry_bytes(n)
    policies = [name for name in POLICIES if not quick or name != "tinylfu"]
    ways = ("id", "similarity") if n <= MAX_SIMILAR else ("id",)
    found = [Choice("naive", Setting(n, 0), 0)]
    for policy in policies:
        found.append(Choice("simple", Setting(n, whole, policy=policy), whole * entry_bytes(n)))
    found.append(Choice("build-up", Setting(n, whole), whole * entry_bytes(n)))
    for algorithm in ("clustered", "clustered-popular"):
        for k in _clusters(algorithm, n, memory, quick):
            entries, taken = _entries(algorithm, n, k, memory)
            settings = [Setting(n, entries, k, policy, clustering=way) for policy in policies for way in ways]
            found += [Choice(algorithm, setting, taken) for setting in settings]
    for arity in _ARITIES[: 1 if quick else None]:
        for trees in _TREES[: 2 if quick else None]:
            taken = KeyTree(n, arity, trees).keys * KEY_BYTES
            if taken <= memory:
                found.append(Choice("key-tree", Setting(n, 0, arity=arity, trees=trees), taken))
    found.append(Choice("mosaic", Setting(n, whole), whole * entry_bytes(n)))
    return found


def _entries(algorithm: str, n: int, k: int, memory: int) -> tuple[int, int]:
    """How many fit, and what they take: an entry of a cluster is about that cluster's subscribers only."""
    part = entry_bytes(-(-n // k))
    if algorithm == "clustered":
        return memory // part, memory // part * part
    pairs, rest = divmod(memory, entry_bytes(n) + part)
    one_more = int(rest >= part)  # of an odd number, the clusters get the last
    return 2 * pairs + one_more, pairs * (entry_bytes(n) + part) + one_more * part


def _clusters(algorithm: str, n: int, memory: int, quick: bool) -> list[int]:
    """Numbers of clusters worth trying: the paper's, some around it, and few large ones for groups that are alike."""
    rule = 1
    for _ in range(8):  # the rule asks for the entries, which depend on the clusters
        entries, _ = _entries(algorithm, n, rule, memory)
        rule = by_rule(n, entries if algorithm == "clustered" else entries - entries // 2)
    near = around(rule, n, (0.5, 1) if quick else (0.5, 0.7, 1, 1.4))
    few = [k for k in ((4, 32) if quick else (2, 4, 8, 16, 32, 64)) if k <= n]
    return sorted({*near, *few})


# --- trying ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """What a choice costs on the workload."""

    choice: Choice
    encryptions: float
    error: float
    max: int

    @property
    def rank(self) -> tuple[float, int]:
        return self.encryptions, self.choice.broker_bytes


@dataclass(frozen=True, slots=True)
class HandoutCost:
    """The keys that a choice hands out: for each event, and to a subscriber on average and at most."""

    per_event: float
    keys_mean: float
    keys_max: int


def tried(choice: Choice, work: PlanWorkload) -> PlanOutcome:
    """Counts a choice on the workload, in this process."""
    algorithm = make(choice.algorithm, choice.setting, work.past)
    found = tally(algorithm, portions_of(work.rows(slice(None))), work.warmup)
    return PlanOutcome(choice, found.mean, found.error, found.max)


def handed(choice: Choice, work: PlanWorkload) -> HandoutCost:
    """Plans micro-batch by micro-batch, as the pipeline does, and looks at what goes out besides events."""
    algorithm = make(choice.algorithm, choice.setting, work.past)
    keys = np.zeros(work.subscribers, np.int64)
    counted, sent = 0, 0
    for here in _batches(work.wanted):
        plan = algorithm.plan(*bits.unique_rows(work.rows(here)))
        _give(plan, keys)
        if here.start >= work.warmup:
            counted += min(here.stop, work.wanted) - here.start
            sent += _handouts(plan)
    return HandoutCost(sent / counted if counted else 0.0, float(keys.mean()), int(keys.max()))


def _batches(events: int) -> Iterator[slice]:
    return (slice(start, start + BATCH) for start in range(0, events, BATCH))


def _handouts(plan: KeyPlan) -> int:
    """Keys and parts of tables under pair keys, and keys under other keys, which serve all who hold those."""
    wrapped = sum(
        not _is_stem(plan, key, under)
        for key, under in zip(plan.link_key.tolist(), plan.link_under.tolist(), strict=True)
    )
    return int(plan.handout_slot.size + plan.table_slot.size) + wrapped


def _is_stem(plan: KeyPlan, key: int, under: int) -> bool:
    ref = plan.keys[key]
    return isinstance(ref, GrownKey) and ref.stem == plan.keys[under]


def _give(plan: KeyPlan, keys: Indices) -> None:
    """Adds what a plan gives each slot, as if it kept all: keys, and labels of tables."""
    np.add.at(keys, plan.handout_slot, 1)
    # Whoever holds the stem derives the key; the others are sent it: in the end, all its members hold it.
    handed_out = set(plan.handout_key.tolist())
    for key in set(plan.link_key.tolist()) - handed_out:
        np.add.at(keys, np.array(sorted(plan.holders(key)), np.int64), 1)
    for slot, table in zip(plan.table_slot.tolist(), plan.table_of.tolist(), strict=True):
        slots = plan.tables[table]
        keys[slot] += len(labels_of(slots.index(slot), len(slots)))


# --- the advice -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Advice:
    """The best of every algorithm, the best first."""

    work: PlanWorkload
    memory: int
    quick: bool
    ranked: Sequence[tuple[PlanOutcome, HandoutCost]]
    tried: int

    def rows(self) -> list[dict[str, object]]:
        return [
            {
                "rank": rank,
                "algorithm": outcome.choice.algorithm,
                "parameters": outcome.choice.parameters(),
                "encryptions": round(outcome.encryptions, 3),
                "error": round(outcome.error, 4),
                "max": outcome.max,
                "handouts": round(given.per_event, 3),
                "keys_per_subscriber": round(given.keys_mean, 1),
                "keys_per_subscriber_max": given.keys_max,
                "subscriber_bytes": round(KEY_BYTES * given.keys_mean),
                "broker_bytes": outcome.choice.broker_bytes,
            }
            for rank, (outcome, given) in enumerate(self.ranked, start=1)
        ]

    def notes(self) -> list[str]:
        counted = self.work.wanted - self.work.warmup
        told = [
            f"{self.tried} settings tried on {self.work.wanted:,} wanted events of {self.work.events:,}, "
            f"{self.work.groups.shape[0]:,} different groups; the last {counted:,} are counted",
            "handouts are keys that go out besides the events; keys per subscriber are what it was given, were it to "
            "keep all",
        ]
        if counted < FEW_EVENTS:
            told.append(f"{counted:,} events say little: caches are hardly warm")
        if self.work.refused:
            told.append(f"{self.work.refused:,} events are off the schema and were left out")
        if self.work.left_out:
            told.append(f"the last {self.work.left_out:,} events of the file were not looked at")
        return told

    def as_json(self) -> dict[str, object]:
        rows = self.rows()
        return {
            "subscribers": self.work.subscribers,
            "events": self.work.events,
            "wanted": self.work.wanted,
            "groups": int(self.work.groups.shape[0]),
            "memory": self.memory,
            "quick": self.quick,
            "choice": rows[0],
            "rows": rows,
            "notes": self.notes(),
        }


def advise(work: PlanWorkload, memory: int, quick: bool, told: Told) -> Advice:
    """Tries everything that fits, on Spark, and ranks the best of every algorithm."""
    from sealcast.pipeline.session import session

    points = choices(work.subscribers, memory, quick)
    shared = session(app_name="sealcast plan", short_lived=True).sparkContext.broadcast(work)
    found = run_all(points, lambda choice: tried(choice, shared.value), told, _work)
    best: dict[str, PlanOutcome] = {}
    for outcome in sorted(found, key=lambda o: o.rank):
        best.setdefault(outcome.choice.algorithm, outcome)
    given = run_all([o.choice for o in best.values()], lambda choice: handed(choice, shared.value), told)
    shared.destroy()
    return Advice(work, memory, quick, list(zip(best.values(), given, strict=True)), len(points))


def _work(choice: Choice) -> float:
    """Who takes longest, roughly: build-up searches its cache, clusters cost a look-up each."""
    return choice.setting.cache if choice.algorithm == "build-up" else choice.setting.clusters or 1
