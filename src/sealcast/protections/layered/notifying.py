"""A publisher's way on a `layered` topic: events become notifications for every root broker of the overlay.

By the newest registry, each time: who stands where down to r hops, and with which announced keys. While none of that
changes, nothing is worked out again, whatever else the registry learns. On first use, and in each new epoch, the
publisher announces its own key; from then on there is a tree of its own, and subscribers say in it what they want.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

from sealcast.errors import Misuse
from sealcast.model.bounded import bounded
from sealcast.primitives.algebra import group_named
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.checked import CheckedBatch, Refusals
from sealcast.protections.layered.layering import layering_of
from sealcast.protections.layered.participant import OverlayBelow
from sealcast.protections.layered.sealing import NotificationSealer, messages
from sealcast.protections.layered.together import refresh_all
from sealcast.protections.port import Messages
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.layer_keys import LayerKeyring, agreement_keys
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.state import RealmState

#: Of the messages of one frame, two an event; its limits on the wire are far above.
EVENTS_PER_FRAME: Final = 1_000
BYTES_PER_FRAME: Final = 4 << 20


class Notifying(Unpicklable):
    """One publisher on one layered topic."""

    def __init__(self, realm: EntityRealm, topic: str, identity: Identity, broker: str = FIRST_BROKER) -> None:
        if broker != FIRST_BROKER:
            raise Misuse(
                f"topic {topic!r} is layered: its publishers stand above all root brokers, and publish at each of them",
                hint=f"leave --broker away; where brokers stand: sealcast overlay show {topic}",
            )
        self._realm, self._topic, self._identity = realm, topic, identity
        self._keyring = LayerKeyring(realm, identity)
        self._below: OverlayBelow | None = None
        self._subscribers: frozenset[str] = frozenset()
        self._schema = b""
        self._sealer: NotificationSealer | None = None

    def take(self, state: RealmState, epoch: int) -> Sequence[str]:
        self._refuse_without_brokers(state)
        if self._keyring.ensure(self._topic, publishes=True):
            state = self._realm.state()
        overlay, below = state.overlay(self._topic), OverlayBelow.of(state, self._topic, self._identity.name)
        subscribers = frozenset(name for name in below.parents if name in overlay.places)
        schema = state.topic(self._topic).schema.digest
        if (self._below, self._subscribers, self._schema) != (below, subscribers, schema):
            self._rebuild(state, below, subscribers)
            if self._below is None or self._below.tree != below.tree:
                self._introduce()
            self._below, self._subscribers, self._schema = below, subscribers, schema
        reached = {target[0] for target in self._made.targets}
        return [root for root in overlay.roots if root in reached]

    def check(self, batch: CheckedBatch) -> Refusals:
        return self._made.check(batch)

    def messages(self, batch: CheckedBatch) -> Iterator[Messages]:
        roots = {target[0] for target in self._made.targets}
        sealed = self._made.seal(batch)
        for events in bounded(sealed, attrgetter("size"), BYTES_PER_FRAME, EVENTS_PER_FRAME):
            yield len(events), {root: messages(events, root) for root in roots}

    # --- inside ---------------------------------------------------------------------------------------

    @property
    def _made(self) -> NotificationSealer:
        assert self._sealer is not None
        return self._sealer

    def _introduce(self) -> None:
        """Whoever wants something says so in a new tree when it hears of it. Those whose keys are at hand, as in a
        realm that lives in one directory, do it now: before the first event, and not some time after it."""
        for _ in refresh_all(self._realm, [self._topic]):
            pass  # what one of them cannot do now, it does later; the publisher goes on

    def _refuse_without_brokers(self, state: RealmState) -> None:
        overlay = state.overlay(self._topic)
        if not overlay.roots:
            raise Misuse(
                f"topic {self._topic!r} has no broker in its overlay: nobody would take its events in",
                hint=f"add one: sealcast overlay add {self._topic} BROKER",
            )
        if self._identity.name in overlay.parents:
            raise Misuse(
                f"broker {self._identity.name!r} routes topic {self._topic!r}, and cannot publish on it, too",
                hint="publish as another entity",
            )

    def _rebuild(self, state: RealmState, below: OverlayBelow, subscribers: frozenset[str]) -> None:
        about, layering = state.topic(self._topic), layering_of(state, self._topic)
        agreed = agreement_keys(self._realm, self._identity, state, self._topic)
        layers = below.keys(agreed, group_named(layering.group))
        targets = below.targets(layers, subscribers)
        if not targets:
            raise self._nowhere(state, below)
        self._sealer = NotificationSealer(about.schema, about.id, below.tree, layers, targets, padded=layering.padded)

    def _nowhere(self, state: RealmState, below: OverlayBelow) -> Misuse:
        silent = [name for name in state.overlay(self._topic).parents if below.announced.get(name, b"") is None]
        if silent:
            return Misuse(
                f"no event could be routed: {silent[0]!r} has not announced its key for epoch {below.tree.epoch} of "
                f"topic {self._topic!r} yet",
                hint="brokers do that when they run: sealcast run, or sealcast run --once",
            )
        return Misuse(
            f"no event could be routed: below the roots of topic {self._topic!r} there is neither a broker nor a "
            "subscriber",
            hint=f"add a broker: sealcast overlay add {self._topic} BROKER --under {next(iter(below.parents))}",
        )
