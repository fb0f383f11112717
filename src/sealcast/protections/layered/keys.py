"""The payload's key: an element of the group that travels through the layers, and what is derived from it.

    kP     a random element; EN2 = kP^K reaches whoever subscribed, layer by layer
    body   EN3 = AES-GCM, committing to its key, under derive(extract(kP), "event", event id)

The event's id is in the derivation, so that one kP may serve several events and each key seals once: its nonce is zero.

**How long a kP may serve.** Making and relayering it is the one thing that caches cannot save while every event has a
fresh one. Events with one set of labels reach one set of subscribers, and that they have one set of labels every
broker on the way sees anyway; so they may share their kP without telling anyone anything new. What it costs is time:
a subscriber that had one of them and left could open the later ones, had it their bodies. So a kP ends with the
epoch, after so many events, and whenever the publisher's tree changes.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from sealcast.errors import CannotOpen
from sealcast.primitives import kdf
from sealcast.primitives.aead import COMMITMENT_BYTES, NONCE_BYTES, SealingKey
from sealcast.primitives.groups import Element, Group
from sealcast.primitives.secrets import Secret

DEFAULT_USES: Final = 1
#: Sets of labels whose payload key is kept.
MAX_KEPT: Final = 16_384
_NONCE: Final = bytes(NONCE_BYTES)


def body_key(group: Group, shared: Element, event: bytes, aad: bytes) -> SealingKey:
    extracted = Secret(kdf.hkdf_extract(b"sealcast/1 layered payload", group.encode(shared)))
    return SealingKey(kdf.derive(extracted, b"event", event), aad)


def seal_body(key: SealingKey, payload: bytes) -> bytes:
    return key.commitment + key.seal(_NONCE, payload)


def open_body(key: SealingKey, body: bytes) -> bytes:
    if len(body) < COMMITMENT_BYTES:
        raise CannotOpen("a body is shorter than its commitment")
    return key.open(_NONCE, body[:COMMITMENT_BYTES], body[COMMITMENT_BYTES:])


class PayloadKeys:
    """A publisher's kP: fresh for every event, or for so many events with one set of labels."""

    def __init__(self, group: Group, uses: int = DEFAULT_USES) -> None:
        self._group = group
        self._uses = uses
        self._kept: OrderedDict[frozenset[bytes], tuple[Element, int]] = OrderedDict()

    def take(self, labels: frozenset[bytes]) -> Element:
        if self._uses > 1 and labels in self._kept:
            shared, left = self._kept.pop(labels)
        else:
            shared, left = self._group.random(), self._uses
        if left > 1:
            self._kept[labels] = shared, left - 1
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return shared

    def forget(self) -> None:
        """When somebody left, or an epoch ended."""
        self._kept.clear()
