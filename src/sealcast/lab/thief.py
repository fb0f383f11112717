"""Opening sealed events with keys that somebody kept or stole: outsiders of the demo, the revoked, the compromised."""

from __future__ import annotations

from sealcast.errors import CannotOpen
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import VerifyKey
from sealcast.protections.endpoint.open import Opener
from sealcast.trust.realm.state import RealmState
from sealcast.wire.sealed import SealedPiece


def opener(state: RealmState, topic: str, slot: int, pair: Secret, epoch: int | None = None) -> Opener:
    """Makes what opens a slot's events with a pair key, whatever the registry says of its owner by now."""
    about = state.topic(topic)

    def verify_key(name: str) -> VerifyKey:
        return VerifyKey(state.entity(name).verify_key)

    at = about.epoch if epoch is None else epoch
    return Opener(about.schema, about.id, at, slot, pair, verify_key, about.parameters.key_bits)


def opens(thief: Opener, piece: SealedPiece, event: int, use: int) -> bool:
    """Tries one key that an event was sealed under."""
    try:
        thief.open(piece, event, use)
    except CannotOpen:
        return False
    return True
