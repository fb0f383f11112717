"""ENCRYPT NOTIFICATION: an event for each r-th descendant, and for whoever subscribes above them.

    K = product of k(x, P) over the nodes x from P's child down to the target
    EN1 = H(label)^K of each label,   EN2 = kP^K,   EN3 = the payload under kP, once

The publisher never gets filters and does not know who gets what: it encrypts for places in its tree.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from operator import mul
from random import SystemRandom
from typing import Final

from sealcast.errors import Misuse
from sealcast.model.memo import Memo
from sealcast.primitives.groups import CachedHashes, Exponent
from sealcast.protections.layered import keys
from sealcast.protections.layered.layers import MAX_CACHED_TOKENS, Layers
from sealcast.protections.layered.messages import Notification
from sealcast.protections.layered.tree import Path
from sealcast.wire.notifications import EVENT_BYTES, LayeredEntry

#: Labels to pad with, for each one that an event may have.
STOCK: Final = 2
_DRAW: Final = SystemRandom()


class TreePublisher:
    """One publisher in its tree."""

    def __init__(
        self,
        layers: Layers,
        hashes: CachedHashes,
        targets: Iterable[Path],
        aad: bytes = b"",
        *,
        key_uses: int = keys.DEFAULT_USES,
        cached: int = MAX_CACHED_TOKENS,
    ) -> None:
        self._layers = layers
        self._group = layers.group
        self._hashes = hashes
        self._aad = aad
        self._payload_keys = keys.PayloadKeys(layers.group, key_uses)
        #: Tokens of labels, for each target.
        self._tokens: dict[Path, Memo[bytes, bytes]] = {}
        self._kept = cached
        self._stock: list[bytes] = []
        self._targets: dict[Path, Exponent] = {}
        self.retarget(targets)

    def retarget(self, targets: Iterable[Path]) -> None:
        """The tree changed."""
        key = self._layers.key
        self._targets = {target: reduce(mul, map(key, target)) for target in targets}
        self._tokens = {target: Memo(self._kept // len(self._targets)) for target in self._targets}
        self._payload_keys.forget()

    def encrypt_notification(
        self, labels: Collection[bytes], payload: bytes, event: bytes | None = None, *, pad_to: int = 0
    ) -> dict[str, Notification]:
        """For each child. `pad_to` adds tokens of nothing, so that the number of labels says nothing."""
        event = event if event is not None else os.urandom(EVENT_BYTES)
        distinct = frozenset(labels)
        if not distinct:
            raise Misuse("an event has labels: at least the roots of its attributes")
        shared = self._payload_keys.take(distinct)
        body = keys.seal_body(keys.body_key(self._group, shared, event, self._aad), payload)
        padding = self._padding(pad_to - len(distinct), pad_to)
        bundles: dict[str, list[LayeredEntry]] = {}
        for target, exponent in self._targets.items():
            tokens = self._encrypted(target, (*distinct, *padding))
            key = self._group.encode(self._group.power(shared, exponent))
            bundles.setdefault(target[0], []).append(LayeredEntry(tuple(sorted(tokens)), key))
        return {child: Notification(event, tuple(entries), body) for child, entries in bundles.items()}

    def _padding(self, count: int, most: int) -> list[bytes]:
        """Labels that nobody asks for, under the same layers as all others, out of a stock that only this publisher
        knows: fresh ones would be told from an event's own by never coming again."""
        if count <= 0:
            return []
        self._stock += [b"\0padding" + os.urandom(16) for _ in range(STOCK * most - len(self._stock))]
        return _DRAW.sample(self._stock, count)

    def prepare(self, labels: Sequence[bytes]) -> None:
        """Encrypts the labels of events that come next, together, if they are not too many to be kept."""
        if len(labels) * len(self._targets) <= self._kept:
            for target in self._targets:
                self._encrypted(target, labels)

    def _encrypted(self, target: Path, labels: Sequence[bytes]) -> list[bytes]:
        def made(new: Sequence[bytes]) -> list[bytes]:
            elements = self._group.power_many(self._hashes.many(new), self._targets[target])
            return list(map(self._group.encode, elements))

        return self._tokens[target].many(labels, made)
