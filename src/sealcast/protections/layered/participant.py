"""Where a client stands in the trees of a `layered` topic, and with which keys: for publishers and subscribers alike.

A subscriber needs its ancestors up to r, a publisher its descendants down to r. Nobody looks at more of the overlay
than that, so that what others do far away costs neither of them anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from sealcast.errors import KeyMissing, NotFound, SealcastError
from sealcast.primitives.algebra import group_named
from sealcast.primitives.groups import CachedHashes, Group
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.layered.agreement import layers_for
from sealcast.protections.layered.layering import layering_of
from sealcast.protections.layered.layers import Layers
from sealcast.protections.layered.open import Opener
from sealcast.protections.layered.subscribe import FilterEncrypter
from sealcast.protections.layered.tree import Path, Tree, TreeId, TreePlace
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.layer_keys import Agreement, agreement_keys, overlay_of
from sealcast.trust.realm.overlays import Overlay
from sealcast.trust.realm.state import RealmState


def trees_now(state: RealmState, topic: str, subscriber: str) -> list[TreeId]:
    """The trees that a subscriber has filters in: one for everyone else who publishes."""
    epoch, generation = state.topic(topic).epoch, state.overlay(topic).generation
    return [TreeId(name, epoch, generation) for name in state.publishers_of(topic) if name != subscriber]


class Participant(Unpicklable):
    """One subscriber's places and keys on one topic; what was worked out once for a tree is kept."""

    def __init__(self, realm: EntityRealm, topic: str, identity: Identity) -> None:
        self._realm, self._topic, self._identity = realm, topic, identity
        self._group: Group | None = None
        self._hashes: dict[TreeId, CachedHashes] = {}
        self._openers: dict[TreeId, Opener] = {}
        self._encrypters: dict[TreeId, FilterEncrypter] = {}

    def encrypter(self, state: RealmState, tree: TreeId) -> FilterEncrypter | None:
        """What encrypts filters for a tree; None while somebody above has not announced its key yet."""
        found = self._encrypters.get(tree)
        if found is None:
            place, layers = self._place(state, tree, former=False)
            if any(not _shares(layers, ancestor) for ancestor in place.chain):
                return None
            hashes = CachedHashes(layers.group, tree.domain(state.topic(self._topic).id))
            found = self._encrypters[tree] = FilterEncrypter(place, layers, hashes)
        return found

    def opener(self, tree: TreeId) -> Opener:
        """What opens events of a tree, also of one that is over; KeyMissing where this subscriber has no part in it, or
        none any more."""
        found = self._openers.get(tree)
        if found is None:
            state = self._realm.state()
            try:
                # Also under the keys of those who were revoked since: what was delivered before stays readable.
                place, layers = self._place(state, tree, former=True)
                found = Opener(place, layers, tree.domain(state.topic(self._topic).id))
            except SealcastError as error:
                raise KeyMissing(
                    f"{self._identity.name!r} has no keys for the tree of {tree.publisher!r}, epoch {tree.epoch}, "
                    f"generation {tree.generation}: {error.message}",
                    hint=error.hint,
                ) from None
            self._openers[tree] = found
        return found

    def _place(self, state: RealmState, tree: TreeId, *, former: bool) -> tuple[TreePlace, Layers]:
        layering, name = layering_of(state, self._topic), self._identity.name
        overlay = overlay_of(self._realm, state, self._topic, tree.generation)
        home = overlay.stood(name)
        if home is None:
            raise NotFound(f"{name!r} stood nowhere in that generation of the overlay")
        chain = (name, home, *overlay.path_up(home), tree.publisher)
        # Its own way up and nothing else: the keys that it shares are with those on it.
        small = Tree(tree.publisher, dict(pairwise(chain)), layering.layers)
        if self._group is None:
            self._group = group_named(layering.group)
        keys = agreement_keys(self._realm, self._identity, state, self._topic, tree.epoch, former=former)
        return small.place(name), layers_for(keys, small, tree, self._group)


def _shares(layers: Layers, other: str) -> bool:
    try:
        layers.key(other)
    except SealcastError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class OverlayBelow:
    """What a publisher sees of the overlay: everyone down to r hops."""

    tree: TreeId
    #: Of each, whom it stands below; and what it announced, if it did.
    parents: dict[str, str]
    announced: dict[str, bytes | None]
    layers: int

    @classmethod
    def of(cls, state: RealmState, topic: str, publisher: str) -> OverlayBelow:
        overlay, layering = state.overlay(topic), layering_of(state, topic)
        epoch = state.topic(topic).epoch
        parents = dict(_down(overlay, publisher, layering.layers))
        revoked = (name for name in parents if state.entity(name).revoked)
        announced = {name: state.layer_key(topic, epoch, name) for name in parents} | dict.fromkeys(revoked)
        return cls(TreeId(publisher, epoch, overlay.generation), parents, announced, layering.layers)

    def targets(self, layers: Layers, subscribers: frozenset[str]) -> list[Path]:
        """Whom it encrypts for: all on the way have announced keys. Behind the others nobody can have asked yet."""
        every = Tree(self.tree.publisher, self.parents, self.layers).targets(subscribers)
        return [target for target in every if all(_shares(layers, name) for name in target)]

    def keys(self, agreement: Agreement, group: Group) -> Layers:
        return layers_for(agreement, Tree(self.tree.publisher, self.parents, self.layers), self.tree, group)


def _down(overlay: Overlay, publisher: str, layers: int) -> Iterator[tuple[str, str]]:
    level = [(root, publisher) for root in overlay.roots]
    for _ in range(layers):
        yield from level
        level = [(b, at) for at, _ in level if at in overlay.parents for b in overlay.below(at) if b != publisher]
