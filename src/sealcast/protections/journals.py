"""Whose signature a broker's records bear: for everyone who reads a ledger that is not its own."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from sealcast.log.annals import JournalSigner
from sealcast.primitives.sign import VerifyKey
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic

#: The part of a broker's journal that says what it handed on in an overlay.
HOPS_PART: Final = b"hops"
_MAX_SIGNERS: Final = 1_024


def journal_signer(state: RealmState, topic: Topic, broker: str, part: bytes = b"") -> JournalSigner:
    """Of a broker's ledger on a topic, or of a part of it; where peers carry events, of a peer's."""
    return _signer(state.entity(broker).verify_key, topic.id + part)


@lru_cache(_MAX_SIGNERS)
def _signer(verify_key: bytes, scope: bytes) -> JournalSigner:
    return JournalSigner(VerifyKey(verify_key), scope)
