"""Whose signature a broker's records bear: for everyone who reads a ledger that is not its own."""

from __future__ import annotations

from typing import Final

from sealcast.log.annals import JournalSigner
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic
from sealcast.trust.tokens.gates import verify_key_of

#: The part of a broker's journal that says what it handed on in an overlay.
HOPS_PART: Final = b"hops"


def journal_signer(state: RealmState, topic: Topic, broker: str, part: bytes = b"") -> JournalSigner:
    """Of a broker's ledger on a topic, or of a part of it; where peers carry events, of a peer's. CertificateRejected
    if the registry gives the broker another key than its certificate."""
    return JournalSigner(verify_key_of(state, broker), topic.id + part)
