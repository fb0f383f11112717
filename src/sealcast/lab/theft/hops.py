"""Hop pieces of a layered topic, tried with stolen agreement keys: a reader's, and those of a broker on the way.

A reader's keys take all layers off what was addressed to it, and open the body. A broker's take one off, which opens
nothing: it tries each of its keys, and all of them together, on every payload key that passed it. What its key does
give is what routing is made of. It is tried as such: with its layer off, a token that came in is one of those that went
out below, which tells whom each label leads to.

No broker can seal any of this again, because none opens it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import reduce
from itertools import chain
from operator import mul
from typing import Final, NamedTuple

from sealcast.errors import CannotOpen, FrameRejected, KeyMissing, Rejected, SealcastError
from sealcast.lab.theft.pieces import SomePieces, bytes_in, lying_at
from sealcast.log.pieces import Pieces
from sealcast.primitives.algebra import group_named
from sealcast.primitives.groups import Element, Exponent
from sealcast.primitives.secrets import Unpicklable
from sealcast.primitives.x25519 import AgreementKey
from sealcast.protections.layered import keys
from sealcast.protections.layered.agreement import exponents_for
from sealcast.protections.layered.layering import layering_of
from sealcast.protections.layered.layers import Layers
from sealcast.protections.layered.open import EventOpener, Opener
from sealcast.protections.layered.tree import Tree, TreeId
from sealcast.protections.verify import publishers_keys
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.layer_keys import Agreement, LayerKeyring, overlay_of
from sealcast.trust.realm.state import RealmState
from sealcast.wire import hops
from sealcast.wire.frame import parse_signed
from sealcast.wire.hops import HopPiece
from sealcast.wire.notifications import LayeredEntry, parse_entries

#: Events that a broker's layer key is shown to follow: that many prove it.
ROUTES_TRIED: Final = 1_000


class _Taken(LayerKeyring):
    """Agreement keys as a thief has them: in memory, whatever became of the files."""

    def __init__(self, realm: Realm, identity: Identity, halves: Mapping[int, AgreementKey]) -> None:
        super().__init__(realm, identity)
        self._halves = halves

    def own(self, state: RealmState, topic: str, epoch: int) -> AgreementKey:
        if epoch not in self._halves:
            raise KeyMissing(f"no agreement key of epoch {epoch} was taken")
        return self._halves[epoch]


class _Position(NamedTuple):
    """Where the victim stood in one tree, and the exponents it shared, by the other one's name."""

    tree: Tree
    exponents: dict[str, Exponent]


class LayerThief(Unpicklable):
    """One victim's agreement keys, at work on one topic."""

    def __init__(
        self,
        realm: Realm,
        topic: str,
        identity: Identity,
        halves: Mapping[int, AgreementKey],
        only: Collection[bytes] | None = None,
    ) -> None:
        """On all events, or on those of these ids `only`."""
        self._realm, self._topic, self._name, self._only = realm, topic, identity.name, only
        self._state = realm.state()
        self._about = self._state.topic(topic)
        self._keyring = _Taken(realm, identity, halves)
        self._group = group_named(layering_of(self._state, topic).group)
        self._known: dict[TreeId, _Position] = {}

    def opened(self) -> tuple[int, int]:
        """Deliveries addressed to it as a reader that it opens, and all that there are."""
        opener = EventOpener(self._about, publishers_keys(lambda: self._state), self._opener)
        good = tried = 0
        for piece, row, _ in self._incoming():
            if any(entry.final for entry in entries_of(piece, row)):
                tried += 1
                with suppress(CannotOpen, Rejected):
                    opener.open(piece, row)
                    good += 1
        return good, tried

    def opened_as_broker(self) -> tuple[int, int]:
        """Events that passed it whose body opens with its keys, each alone and its own way up together; and all."""
        good = tried = 0
        for piece, row, event in self._incoming():
            tried += 1
            good += self._opens_body(piece, row, event)
        return good, tried

    def routed(self) -> int:
        """Events whose labels it follows with its keys: a token that came in, without its layer, is one that went out,
        without the layer that it put on."""
        sent, found = self._outgoing(), 0
        for piece, row, event in self._incoming():
            if found >= ROUTES_TRIED:
                break
            found += bool(self._bare(piece, row, event) & self._sent_bare(sent.get(piece.event_id(event), ())))
        return found

    # --- keys ---------------------------------------------------------------------------------------

    def _position(self, tree: TreeId) -> _Position:
        if tree not in self._known:
            whole = overlay_of(self._realm, self._state, self._topic, tree.generation)
            parents = whole.parents_for(tree.publisher)
            # Also those who left in that generation: keys were agreed on with them, and what was routed is theirs.
            for name in (self._name, *whole.left):
                if name != tree.publisher and (home := whole.stood(name)) is not None:
                    parents.setdefault(name, home)
            small = Tree(tree.publisher, parents, layering_of(self._state, self._topic).layers)
            if self._name not in small:
                raise KeyMissing(f"{self._name!r} stood nowhere in generation {tree.generation}")
            trust, now = self._realm.trust(self._state), self._realm.clock()
            agreed = Agreement(self._keyring, self._state, self._about, tree.epoch, trust, now, former=True)
            self._known[tree] = _Position(small, exponents_for(agreed, small, tree, self._group))
        return self._known[tree]

    def _opener(self, tree: TreeId) -> Opener:
        try:
            at = self._position(tree)
            layers = Layers(self._group, at.exponents)
            return Opener(at.tree.place(self._name), layers, tree.domain(self._about.id))
        except SealcastError as error:
            raise CannotOpen(error.message) from None

    # --- what passed a broker -----------------------------------------------------------------------

    def _incoming(self) -> Iterator[tuple[HopPiece, int, int]]:
        for piece in hop_pieces(self._realm, self._state, self._topic):
            for row in piece.rows_for(self._name):
                event = piece.event_of(row)
                if self._only is None or piece.event_id(event) in self._only:
                    yield piece, row, event

    def _outgoing(self) -> dict[bytes, list[tuple[TreeId, bytes]]]:
        """By event: the tokens that it sent on."""
        found = defaultdict[bytes, list[tuple[TreeId, bytes]]](list)
        for piece in _handed_on(self._realm, self._state, self._topic, self._name):
            for row in range(len(piece.row_event)):
                event = piece.event_of(row)
                tree, tokens = tree_of(piece, event), chain(*(entry.tokens for entry in entries_of(piece, row)))
                found[piece.event_id(event)] += [(tree, token) for token in tokens]
        return found

    def _bare(self, piece: HopPiece, row: int, event: int) -> set[Element]:
        """The tokens of a row without the layer that is this broker's to take off."""
        try:
            at = self._position(tree_of(piece, event))
            off = at.exponents[at.tree.place(self._name).top]
        except (SealcastError, KeyError):
            return set()
        return {self._without(token, off) for entry in entries_of(piece, row) for token in entry.tokens}

    def _sent_bare(self, sent: Iterator[tuple[TreeId, bytes]] | list[tuple[TreeId, bytes]] | tuple[()]) -> set[Element]:
        """Tokens that went out without the layer that it put on: whose it was it does not know, and tries each."""
        found = set[Element]()
        for tree, token in sent:
            try:
                at = self._position(tree)
            except SealcastError:
                continue
            above = set(at.tree.ancestors(self._name))
            found |= {self._without(token, on) for other, on in at.exponents.items() if other not in above}
        return found

    def _opens_body(self, piece: HopPiece, row: int, event: int) -> bool:
        tree = tree_of(piece, event)
        try:
            at = self._position(tree)
            together = [at.exponents[name] for name in at.tree.place(self._name).chain if name in at.exponents]
        except SealcastError:
            return False
        tries = [*at.exponents.values(), *([reduce(mul, together)] if len(together) > 1 else ())]
        for entry in entries_of(piece, row):
            for exponent in tries:
                shared = self._without(entry.key, exponent)
                key = keys.body_key(self._group, shared, piece.event_id(event), tree.domain(self._about.id))
                with suppress(CannotOpen):
                    keys.open_body(key, piece.body(event))
                    return True
        return False

    def _without(self, element: bytes, layer: Exponent) -> Element:
        return self._group.power(self._group.decode(element), layer.inverse)


def hop_pieces(realm: Realm, state: RealmState, topic: str) -> Iterator[HopPiece]:
    """Every hop piece that lies here: what roots took in, and what brokers handed on."""
    for broker in state.brokers():
        for lying in lying_at(realm, topic, broker):
            yield from _pieces(lying.delivered)
        yield from _handed_on(realm, state, topic, broker)


def _handed_on(realm: Realm, state: RealmState, topic: str, broker: str) -> Iterator[HopPiece]:
    yield from _pieces(SomePieces(Pieces(realm.paths.topic(topic, broker).hops.pieces)))
    if (topic, broker) in state.journals:
        yield from _pieces(SomePieces(realm.carriers.journal(state, topic, broker, "hops").pieces))


def tree_of(piece: HopPiece, event: int) -> TreeId:
    header = parse_signed(piece.frame(event).signed).header
    return TreeId(header.publisher, header.epoch, piece.place(event)[2])


def entries_of(piece: HopPiece, row: int) -> tuple[LayeredEntry, ...]:
    """The entries of a row; none where they cannot be read."""
    try:
        return tuple(parse_entries(piece.entries_of(row)))
    except Rejected:
        return ()


def _pieces(pieces: SomePieces) -> Iterator[HopPiece]:
    for data in bytes_in(pieces):
        with suppress(FrameRejected):
            yield hops.parse(data)
