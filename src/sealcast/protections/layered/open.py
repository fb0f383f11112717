"""open: what reached a subscriber -> the payload, with the subscriber's own keys.

(1) of the entries, one is final: its key carries the layers that the subscriber put on its own filters;
(2) they come off in one power, and kP is what is left;
(3) the body opens under the key that kP gives this event, and that it is committed to.
"""

from __future__ import annotations

from functools import lru_cache

from sealcast.errors import CannotOpen
from sealcast.primitives.groups import Element
from sealcast.protections.layered import keys
from sealcast.protections.layered.layers import MAX_CACHED_KEYS, Layers
from sealcast.protections.layered.messages import Notification
from sealcast.protections.layered.subscribe import own_layers
from sealcast.protections.layered.tree import Place


class Opener:
    """What one subscriber can open."""

    def __init__(self, place: Place, layers: Layers, aad: bytes = b"") -> None:
        self._group = layers.group
        self._aad = aad
        self._off = own_layers(place, layers).inverse
        self._shared = lru_cache(MAX_CACHED_KEYS)(self._peeled)

    def open(self, message: Notification) -> bytes:
        final = [entry for entry in message.entries if entry.final]
        if len(final) != 1:
            raise CannotOpen(f"{len(final)} entries of a notification are for this subscriber, not one")
        key = keys.body_key(self._group, self._shared(final[0].key), message.event, self._aad)
        return keys.open_body(key, message.body)

    def _peeled(self, key: bytes) -> Element:
        return self._group.power(self._group.decode(key), self._off)
