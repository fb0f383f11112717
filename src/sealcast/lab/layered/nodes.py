"""The private directory of a run: what each participant has, and nothing that another one has.

    publics         everyone's public key, in the order of the network's names
    keys/NAME       one participant's own private key
    wanted/NAME     what a subscriber asks for, in labels
    tables/NAME     a broker's routing table, as its own task built it
    events/N        events that the publisher is about to encrypt

A worker gets the directory's name and the network's two numbers, and makes of a participant's own file what that
participant is: keys never travel, in no plan and no closure. Layers' exponents are agreed pairwise by X25519, each
side from its own private key. One process may well become several participants in turn, as an embedded tree does; what
one of them does with its keys, the code of another cannot reach but through messages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import pyarrow as pa

from sealcast.filters.labels import Conjunction, LabelFilter
from sealcast.lab.layered.network import PUBLISHER, Network
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import CachedHashes, Element, Group
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.primitives.x25519 import PUBLIC_BYTES, AgreementKey
from sealcast.protections.layered.agreement import exponents_for
from sealcast.protections.layered.layers import Layers
from sealcast.protections.layered.open import Opener
from sealcast.protections.layered.publish import Publisher
from sealcast.protections.layered.route import Broker
from sealcast.protections.layered.subscribe import Subscriber
from sealcast.protections.layered.table import Conjunction as Row
from sealcast.protections.layered.table import RoutingTable
from sealcast.protections.layered.tree import Path as Hops
from sealcast.protections.layered.tree import TreeId
from sealcast.wire import cbor

GROUP: Final[Group] = CURVE
#: Keys are fresh in every run; the domain tells these from keys for something else.
DOMAIN: Final = b"match"
#: A batch is over soon, and all of its labels come at once: more than a broker keeps that runs for months.
CACHED: Final = 1 << 18

_TREE: Final = TreeId(PUBLISHER, epoch=1, generation=0)
_TABLE: Final = pa.schema(
    [
        pa.field("slots", pa.list_(pa.list_(pa.binary()))),
        pa.field("paths", pa.list_(pa.list_(pa.string()))),
        pa.field("counts", pa.list_(pa.int64())),
    ]
)


class Nodes:
    """The participants of one run, as far as this process has become any of them."""

    def __init__(self, root: Path, network: Network) -> None:
        self.root = root
        self.network = network
        self._tree = network.tree
        self._publics: dict[str, bytes] = {}
        self._hashes = CachedHashes(GROUP, DOMAIN, CACHED)
        self._brokers: dict[str, Broker] = {}
        self._openers: dict[str, Opener] = {}

    # --- made once, before anything runs --------------------------------------------------------------------------

    def create(self, wanted: Sequence[LabelFilter]) -> None:
        for name in ("keys", "wanted", "tables", "events"):
            (self.root / name).mkdir(mode=0o700)
        publics = []
        for name in self.network.names:
            key = AgreementKey.generate()
            _write(self.root / "keys" / name, key.private.reveal())
            publics.append(key.public)
        _write(self.root / "publics", b"".join(publics))
        for number, one in enumerate(wanted):
            slots = [conjunction.slots for conjunction in one.conjunctions]
            _write(self.root / "wanted" / self.network.subscriber(number), cbor.encode(slots))

    def put_events(self, number: int, places: Sequence[int], messages: Sequence[bytes]) -> None:
        _write(self.root / "events" / str(number), cbor.encode([list(places), list(messages)]))

    # --- participants ---------------------------------------------------------------------------------------------

    def events(self, number: int) -> tuple[list[int], list[bytes]]:
        raw = (self.root / "events" / str(number)).read_bytes()
        places, messages = cbor.decode(raw, max_bytes=len(raw))
        return places, messages

    def publisher(self) -> Publisher:
        layers = self._layers(PUBLISHER)
        return Publisher(layers, self._hashes, self.network.targets(), DOMAIN, cached=CACHED)

    def subscriber(self, name: str) -> tuple[Subscriber, LabelFilter]:
        raw = (self.root / "wanted" / name).read_bytes()
        conjunctions = (Conjunction(tuple(map(tuple, slots))) for slots in cbor.decode(raw, max_bytes=len(raw)))
        subscriber = Subscriber(self._tree.place(name), self._layers(name), self._hashes)
        return subscriber, LabelFilter(tuple(conjunctions))

    def opener(self, name: str) -> Opener:
        if name not in self._openers:
            self._openers[name] = Opener(self._tree.place(name), self._layers(name), DOMAIN)
        return self._openers[name]

    def broker(self, name: str) -> Broker:
        """With its table."""
        if name not in self._brokers:
            self._brokers[name] = self.new_broker(name, self._table(name))
        return self._brokers[name]

    def new_broker(self, name: str, table: RoutingTable | None = None) -> Broker:
        return Broker(self._tree.place(name), self._layers(name), table)

    # --- tables ---------------------------------------------------------------------------------------------------

    def keep_table(self, broker: Broker) -> None:
        rows = [
            {"slots": row.slots, "paths": list(row.paths), "counts": list(row.paths.values())}
            for row in broker.table.rows()
        ]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, _TABLE) as writer:
            writer.write_table(pa.Table.from_pylist(rows, schema=_TABLE))
        _write(self.root / "tables" / broker.place.name, sink.getvalue().to_pybytes())

    def _table(self, name: str) -> RoutingTable:
        table, path = RoutingTable(), self.root / "tables" / name
        if path.exists():  # else no filter came here
            for slots, paths, counts in _rows(pa.ipc.open_file(path.read_bytes()).read_all()):
                for way, count in zip(paths, counts, strict=True):
                    for _ in range(count):
                        table.add(slots, way)
        return table

    # --- keys -----------------------------------------------------------------------------------------------------

    def _layers(self, name: str) -> Layers:
        own = AgreementKey(Secret((self.root / "keys" / name).read_bytes()))
        keys = exponents_for(_Agreement(name, own, self._public), self._tree, _TREE, GROUP)
        return Layers(GROUP, keys, CACHED)

    def _public(self, name: str) -> bytes:
        if not self._publics:
            raw = (self.root / "publics").read_bytes()
            for i, one in enumerate(self.network.names):
                self._publics[one] = raw[i * PUBLIC_BYTES : (i + 1) * PUBLIC_BYTES]
        return self._publics[name]


class _Agreement(Unpicklable):
    """What one participant shares with others, each pair by itself."""

    def __init__(self, name: str, own: AgreementKey, public: Callable[[str], bytes]) -> None:
        self.name = name
        self.topic_id = DOMAIN
        self.epoch = _TREE.epoch
        self._own = own
        self._public = public

    def pair(self, peer: str) -> Secret:
        return self._own.agreed(self._public(peer), DOMAIN, *sorted((self.name.encode(), peer.encode())))


def here(root: str, layers: int, subscribers: int) -> Nodes:
    """The participants of a run in this process; of the last run only, since runs share workers."""
    return _here(root, layers, subscribers, os.getpid())


@lru_cache(1)
def _here(root: str, layers: int, subscribers: int, process: int) -> Nodes:
    return Nodes(Path(root), Network(layers, subscribers))


def _rows(table: pa.Table) -> Iterator[tuple[Row, list[Hops], list[int]]]:
    for row in table.to_pylist():
        yield (
            tuple(tuple(map(Element, slot)) for slot in row["slots"]),
            [tuple(path) for path in row["paths"]],
            row["counts"],
        )


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all: a task that runs again writes the same."""
    new = path.with_name(f"{path.name}.{os.getpid()}")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
    new.rename(path)
