"""Table 2 of paper 002: what a publication costs a broker, without a pre-filter, with Bloom, and with cuckoo.

The paper's cells, with its parameters: 1 to 20 subscriptions to one topic name each, a Bloom filter for 800 keys at
0.01, a cuckoo filter of 100 buckets with 8 entries of 2 bytes. A publication either matches none of the subscriptions,
or the last one. The paper compares them one by one (A0, `protections.searchable.reference`). Beside it stand the broker
algorithm that we use (A4), alone and inside the MQTT broker, where parsing the message and looking up who may read are
counted, too. All of it goes on to 100,000 subscriptions; from 1,000 on, both filters are sized for what they hold.

Times are of another machine and library than the printed ones, so relations are judged, and not milliseconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from sealcast.clients.realm import Realm
from sealcast.lab.report import Report, Row, Told, columns
from sealcast.model.event import Event
from sealcast.model.schema import Schema
from sealcast.mqtt.direct import DirectCarrier
from sealcast.mqtt.matching import MessageMatcher
from sealcast.prefilters import Prefilter, keys_of, sized
from sealcast.prefilters.cuckoo import CuckooFilter
from sealcast.primitives.groups import Exponent
from sealcast.primitives.halves import MasterKey, broker_half
from sealcast.primitives.secrets import KEY_BYTES, Secret
from sealcast.protections.searchable import reference
from sealcast.protections.searchable.scheme import Holder, UserKeys
from sealcast.protections.searchable.search import Registered, SearchIndex
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.layout import FIRST_BROKER
from sealcast.wire.searching import packed_block

NAME: Final = "nguyen/table2"
SUBSCRIPTIONS: Final = (1, 5, 10, 15, 20)
MORE: Final = (1_000, 10_000, 100_000)
#: What the paper's filters hold: 100 buckets of 8 entries.
PAPER_ITEMS: Final = 800
#: Of one subscriber inside the broker, which allows each no more than some thousands.
FILTERS_EACH: Final = 1_000
QUICK_MORE: Final = (1_000,)
TAG_BITS: Final = 16
ROUNDS: Final = 15
QUICK_ROUNDS: Final = 5
#: Of the sequential algorithm there are as many rounds as make so many comparisons, but never fewer than these.
COMPARISONS: Final = 15_000
FEWEST_ROUNDS: Final = 3
#: Rounds of a look-up in a pre-filter, which takes microseconds.
LOOK_UPS: Final = 1_000
_TOPIC_ID: Final = bytes(16)
_EPOCH: Final = 1
_SEED: Final = 1
_TOPIC: Final = "publications"
_PUBLISHER, _READER = "publisher", "reader"
#: Columns as the paper prints them, in milliseconds, by number of subscriptions.
PRINTED: Final[Mapping[str, tuple[float, ...]]] = {
    "no pre-filter": (1.567, 7.294, 23.685, 34.918, 57.497),
    "Bloom, no match": (0.260, 0.254, 0.280, 0.250, 0.296),
    "Bloom, match": (1.540, 9.917, 18.719, 35.828, 53.877),
    "cuckoo, no match": (0.136, 0.115, 0.138, 0.196, 0.137),
    "cuckoo, match": (2.058, 9.372, 20.773, 33.300, 51.202),
}
#: Pre-filters inside the MQTT broker, as the cells name them and as `prefilters` does.
INSIDE: Final = {"no pre-filter": "none", "Bloom": "bloom", "cuckoo": "cuckoo"}
#: What we add: the algorithm that brokers run, alone and inside the MQTT broker.
OURS: Final = (
    *("A4, no match", "A4, first match", "A4, match"),
    *(f"MQTT broker, {name}, {case}" for name in INSIDE for case in ("no match", "match")),
)
_cells: Final = columns("subscriptions", "cell", "printed", "measured", "unit", "agrees")
Times = Mapping[tuple[int, str], float]
#: Cells and their milliseconds, one after the other as they are measured.
Cells = Iterator[tuple[str, float]]
#: The cell, what the paper prints if it does, what was measured, and when that agrees.
_Relation = tuple[str, float | None, float, Callable[[float], bool]]


@dataclass(frozen=True, slots=True)
class PaperKeys:
    """A key center's keys for one topic and epoch, of a publisher and of one who subscribes."""

    halves: Mapping[str, Exponent]
    publisher: UserKeys
    reader: UserKeys

    @classmethod
    def make(cls) -> PaperKeys:
        master, topic_key = MasterKey.derive(Secret(os.urandom(KEY_BYTES)), b"table2"), Secret(os.urandom(KEY_BYTES))
        halves = {name: broker_half(topic_key, name.encode()) for name in (_PUBLISHER, _READER)}
        publisher, reader = (
            UserKeys(master.part(halves[name]), holder(name), TAG_BITS) for name in (_PUBLISHER, _READER)
        )
        return cls(halves, publisher, reader)


def holder(name: str) -> Holder:
    return Holder(_TOPIC_ID, _EPOCH, name)


def topic(number: int) -> bytes:
    return b"topic-%d" % number


# --- measuring ------------------------------------------------------------------------------------------


def run(quick: bool, told: Told) -> Report:
    rounds, more = (QUICK_ROUNDS, QUICK_MORE) if quick else (ROUNDS, MORE)
    counts, found, world = (*SUBSCRIPTIONS, *more), dict[tuple[int, str], float](), PaperKeys.make()
    # A cell takes about as long as there are subscriptions.
    done, whole = 0, len((*PRINTED, *OURS)) * sum(counts)
    for count in counts:
        for part in (as_printed, searched, inside_broker):
            for cell, ms in part(world, count, rounds):
                found[count, cell], done = ms, done + count
                told(done, whole)
    return report(found, counts)


def as_printed(world: PaperKeys, count: int, rounds: int) -> Cells:
    """The paper's columns: filters over topics' tags, and the sequential comparison."""
    # To compare with 100,000 takes seconds, and the comparisons are all alike: the quickest of a few says enough.
    rounds = max(FEWEST_ROUNDS, min(rounds, COMPARISONS // count))
    half, labels = world.halves[_READER], [world.reader.seal_label(topic(number)) for number in range(count)]
    read = [reference.Label.read(holder(_READER), half, label) for label in labels]
    last, none = (
        reference.Trapdoor.read(world.halves[_PUBLISHER], world.publisher.trapdoor(topic(number)))
        for number in (count - 1, count + 1_000_000)
    )
    assert reference.a0(read, last) == [count - 1] and not reference.a0(read, none)
    tags = keys_of([world.publisher.tag(topic(number)) for number in range(count)])
    stranger = keys_of([b"no tag of theirs"])
    yield "no pre-filter", _ms(lambda: reference.a0(read, none), rounds)
    for name, prefilter in _filters(count).items():
        prefilter.insert(tags)
        may_contain = prefilter.may_contain
        yield f"{name}, no match", _ms(partial(may_contain, stranger), LOOK_UPS)
        yield f"{name}, match", _ms(lambda ask=may_contain: ask(tags[-1:]).all() and reference.a0(read, last), rounds)  # type: ignore[misc]


def searched(world: PaperKeys, count: int, rounds: int) -> Cells:
    """What our index takes for a publication with one trapdoor: of no topic, of one seen first, and of one known."""
    index = SearchIndex(_TOPIC_ID, TAG_BITS)
    filters = (world.reader.seal_filter([[[topic(number)]]]) for number in range(count))
    rows = [Registered(number, _READER, each) for number, each in enumerate(filters)]
    assert not index.add(rows, lambda epoch, user: world.halves.get(user))

    def search(block: bytes) -> int:
        found = index.search([_PUBLISHER], [_EPOCH], [block], lambda epoch, user: world.halves.get(user))
        return len(found.matches[0])

    def block(number: int) -> bytes:
        return packed_block([world.publisher.trapdoor(topic(number))])

    none, last = block(count + 1_000_000), block(count - 1)
    # A topic is seen first only once, so each round takes another.
    first = min(_ms(partial(search, block(number)), 1) for number in range(max(0, count - rounds), count))
    assert search(none) == 0 and search(last) == 1
    yield "A4, no match", _ms(lambda: search(none), 10 * rounds)
    yield "A4, first match", first
    yield "A4, match", _ms(lambda: search(last), 10 * rounds)


def _filters(count: int) -> dict[str, Prefilter]:
    """The paper's own filters; for more than they hold, larger ones of the same error."""
    bloom = sized("bloom", max(count, PAPER_ITEMS), 0.01, _SEED)
    return {
        "Bloom": bloom,
        "cuckoo": CuckooFilter(100, 8, 16, _SEED) if count <= PAPER_ITEMS else sized("cuckoo", count, 0.01, _SEED),
    }


def inside_broker(_world: PaperKeys, count: int, rounds: int) -> Cells:
    """From a message's bytes to the users it is for, as the MQTT broker does it, in a realm of its own."""
    schema = Schema.from_json({"attributes": [{"name": "topic", "type": "string", "max_length": 16}]})
    with TemporaryDirectory() as directory:
        realm = Realm.create(Path(directory) / "realm")
        realm.create_topic(_TOPIC, schema, protection="searchable", access="members")
        readers = [f"{_READER}-{number}" for number in range(-(-count // FILTERS_EACH))]
        realm.enrol_many([_PUBLISHER, *readers])
        wanted = [
            (readers[number // FILTERS_EACH], f"topic = '{topic(number).decode()}'", None) for number in range(count)
        ]
        realm.subscribe_many(_TOPIC, wanted)
        with DirectCarrier(realm, _TOPIC, _PUBLISHER, FIRST_BROKER) as carrier:
            ((_, last),), ((_, none),) = (
                carrier.seal(Event({"topic": topic(number).decode()}, b"payload")) for number in (count - 1, 900_000)
            )
        for name, kind in INSIDE.items():
            matcher = MessageMatcher(BrokerRealm(realm.paths.root), FIRST_BROKER, kind)
            assert matcher.users(_TOPIC, [last, none]) == [{readers[-1]}, frozenset()]
            for case, message in (("no match", none), ("match", last)):
                yield f"MQTT broker, {name}, {case}", _ms(partial(matcher.users, _TOPIC, [message]), 10 * rounds)


def _ms(call: Callable[[], object], rounds: int) -> float:
    """The quickest of some rounds, in milliseconds."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return 1_000 * min(times)


# --- the report -----------------------------------------------------------------------------------------


def report(found: Times, counts: Sequence[int]) -> Report:
    rows = [row for count in counts for row in _rows(found, count)]
    rows += [_relation(*each) for each in _relations(found)]
    notes = [
        "the quickest round of each, in milliseconds. The printed times are of Charm on another machine: relations are "
        "judged, not times",
        "`no pre-filter` compares a publication with every subscription (A0); with a match, the pre-filter comes "
        "before that and helps nothing, as in the paper",
        "A4 is what brokers run: a topic that was seen costs one look-up, whatever the number of subscriptions; a "
        "topic seen first is compared with the labels of its tag only",
        "our cuckoo filter is made for batches, and pays for that with one key at a time; in batches it is far "
        "ahead of the paper's (nguyen/table1)",
        "inside the MQTT broker, taking the message apart, its many trapdoors (one for each prefix of a text), and who "
        "may read are counted, too",
    ]
    agrees = all(row["agrees"] for row in rows if row["agrees"] is not None)
    return Report(NAME, rows, agrees, notes, [])


def _rows(found: Times, count: int) -> list[Row]:
    at = SUBSCRIPTIONS.index(count) if count in SUBSCRIPTIONS else None
    return [
        _cells(
            subscriptions=count,
            cell=cell,
            printed=PRINTED[cell][at] if at is not None and cell in PRINTED else None,
            measured=float(f"{found[count, cell]:.4g}"),
            unit="ms",
        )
        for cell in (*PRINTED, *OURS)
        if (count, cell) in found
    ]


def _relations(found: Times) -> list[_Relation]:
    """What the paper concludes from its table, and what we add to it."""
    first, last = SUBSCRIPTIONS[0], SUBSCRIPTIONS[-1]

    def printed(cell: str, at: int = -1) -> float:
        return PRINTED[cell][at]

    plain = "no pre-filter"
    growth = found[last, plain] / found[first, plain]
    relations: list[_Relation] = [
        ("20 subscriptions / 1, no pre-filter", printed(plain) / printed(plain, 0), growth, lambda ratio: ratio > 10),
    ]
    for name in ("Bloom", "cuckoo"):
        saved = found[last, plain] / found[last, f"{name}, no match"]
        relations.append(
            (f"no pre-filter / {name}, no match", printed(plain) / printed(f"{name}, no match"), saved, _more)
        )
        helped = found[last, f"{name}, match"] / found[last, plain]
        relations.append(
            (f"{name}, match / no pre-filter", printed(f"{name}, match") / printed(plain), helped, _about_one)
        )
    faster = found[last, "Bloom, no match"] / found[last, "cuckoo, no match"]
    relations.append(
        ("Bloom / cuckoo, no match", printed("Bloom, no match") / printed("cuckoo, no match"), faster, _more)
    )
    ours = found[last, plain] / found[last, "A4, match"]
    relations.append(("no pre-filter / A4, match", None, ours, _more))
    return relations


def _more(ratio: float) -> bool:
    return ratio > 1


def _about_one(ratio: float) -> bool:
    return 0.5 < ratio < 2


def _relation(cell: str, printed: float | None, measured: float, agrees: Callable[[float], bool]) -> Row:
    return _cells(
        subscriptions=SUBSCRIPTIONS[-1],
        cell=cell,
        printed=None if printed is None else round(printed, 2),
        measured=float(f"{measured:.3g}"),
        unit="times",
        agrees=agrees(measured),
    )
