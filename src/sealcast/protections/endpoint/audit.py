"""The check of an endpoint topic: what every broker that reads must have done, and whether each delivery opens.

    who gets what    admission and matching done again (`protections.witness.reading`)
    the keys         each is held by exactly those who open through it, and has reached them (audit_keys.py)
    the bodies       each opens, under the key that its receiver is to use, to the very message that was published

It needs the broker's secrets, since it opens frames and names keys: it is broker-side code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from sealcast.errors import CannotOpen, NotFound
from sealcast.groupkeys.interface import KeyRef, holders_of
from sealcast.log.entry import PieceRef
from sealcast.log.reseals import Resealed
from sealcast.primitives import labels
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.secrets import Secret
from sealcast.protections.endpoint.audit_keys import KeyAudit
from sealcast.protections.endpoint.sealer import EndpointSealer, sealer_of
from sealcast.protections.endpoint.tables import WRAP
from sealcast.protections.witness.expected import Expected
from sealcast.protections.witness.places import Delivered, Pairs, admitted_places, places
from sealcast.protections.witness.reading import ReadingAudit
from sealcast.protections.witness.report import Kind
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.realm.machine import FIRST_EPOCH
from sealcast.wire.sealed import TABLE, SealedPiece


class EndpointAudit(ReadingAudit):
    """One topic at one broker, with its keys."""

    def __init__(self, realm: BrokerRealm, topic: str, **options: Any) -> None:
        """`options` are those of `ReadingAudit`."""
        super().__init__(realm, topic, **options)
        # The newest version still has the keys of every epoch.
        self._state = realm.state()
        self._keys = cache(lambda epoch, incarnation: KeyAudit(self._sealer(epoch, incarnation)))
        #: A piece could not be read: what it handed out is unknown.
        self._lost_keys = False

    def judge(self, piece: SealedPiece | None, ref: PieceRef, version: int, where: str, later: Resealed | None) -> None:
        # What was handed out with a piece that cannot be read, or whose events were removed, is unknown.
        self._lost_keys |= piece is None or (later is not None and later.removal is not None)
        super().judge(piece, ref, version, where, later)

    def opening(
        self, piece: SealedPiece, delivered: Delivered, expected: Expected | None, beyond: Pairs, where: str
    ) -> None:
        strangers = delivered.slot.size and int(delivered.slot.max()) >= len(self._names)
        if strangers or not FIRST_EPOCH <= piece.epoch <= self._about.epoch:
            self._lost_keys = True
            if not strangers:
                self.add(Kind.KEYS, f"{where}: it is sealed in epoch {piece.epoch}, which the topic never had")
            return  # to a slot that nobody has (said above), or in no epoch: there is no key to try
        incarnation = self._state.incarnation(self._about.name, self._broker.name, piece.version)
        try:
            keys = self._keys(piece.epoch, incarnation)
        except NotFound:
            if piece.epoch == self._about.epoch or not self._about.parameters.forgets:
                raise
            self._lost_keys = True
            self.report.gap(
                "the broker has forgotten keys of past epochs: who holds them, and what opens, is not known"
            )
            return
        keys.blind |= self._lost_keys
        refs, problems = keys.take(piece, groups_of(piece, delivered, expected))
        for text in problems:
            self.add(Kind.KEYS, f"{where}: {text}")
        if expected is not None:
            closed = unopenable(piece, delivered, expected, keys.sealer, refs)
            said = set(beyond)
            lost = [pair for pair in closed if pair not in said]
            self.say(Kind.LOST, lost, piece.partition, where, "was delivered and does not open for it")

    def _sealer(self, epoch: int, incarnation: bytes) -> EndpointSealer:
        about = replace(self._about, epoch=epoch)
        return sealer_of(self._state, about, self._broker, lambda slot: self._names[slot], incarnation)


# --- does it open? --------------------------------------------------------------------------------------


def unopenable(
    piece: SealedPiece, delivered: Delivered, expected: Expected, sealer: EndpointSealer, refs: Mapping[int, KeyRef]
) -> Iterator[tuple[int, int]]:
    """(slot, place) of deliveries that the key they are to be opened through does not open to the very message that was
    published. `refs` are the keys of the piece that are what they should be (`audit_keys`)."""
    nonces = piece.nonces()
    published = dict(zip(admitted_places(expected.admitted).tolist(), expected.admitted.messages, strict=True))
    content = [Secret(key) for key in sealer.content_keys(nonces)]
    here = places(piece).tolist()

    def opens(key: SealingKey, event: int) -> bool:
        try:
            return key.open(nonces[event], piece.commitment(event), piece.body(event)) == published.get(here[event])
        except CannotOpen:
            return False

    def good(event: int, use: int) -> bool:
        key = int(piece.uses[use])
        ref = refs.get(key)
        if ref is None or not sound[event]:
            return False
        if not piece.wrapped[event]:
            return opens(sealer.body_key(ref), event)
        nonce, wrap = nonces[event], piece.wrap(use)
        try:
            if piece.key_kind[key] == TABLE:
                return Secret(labels.unmask(sealer.secret(ref), nonce, WRAP, wrap)) == content[event]
            return sealer.wrap_key(ref).unwrap(nonce, wrap) == content[event]
        except CannotOpen:
            return False

    aad, bits = sealer.associated_data, sealer.key_bits
    sound = [not piece.wrapped[e] or opens(SealingKey(content[e], aad, bits), e) for e in range(len(piece))]
    # Whoever opens an event through one use does so with one key: it is tried once.
    tried: dict[int, bool] = {}
    for slot, event, use in zip(delivered.slot.tolist(), delivered.event.tolist(), delivered.use.tolist(), strict=True):
        if use not in tried:
            tried[use] = good(event, use)
        ref = refs.get(int(piece.uses[use]))
        if not tried[use] or ref is None or slot not in _holders(ref):
            yield slot, here[event]


_holders = lru_cache(4_096)(holders_of)


def groups_of(piece: SealedPiece, delivered: Delivered, expected: Expected | None) -> Callable[[int], list[int]]:
    """Who should get an event of a piece; as far as nobody can tell, who does."""
    if expected is None:
        slot, event, at = delivered.slot, delivered.event, np.arange(len(piece))
    else:
        slot, event = expected.slot, expected.event
        at = np.searchsorted(admitted_places(expected.admitted), places(piece))
    order = np.argsort(event, kind="stable")
    slot, event = slot[order], event[order]

    def group(number: int) -> list[int]:
        start, end = np.searchsorted(event, [at[number], at[number] + 1]).tolist()
        found: list[int] = slot[start:end].tolist()
        return found

    return group
