"""Whether two clients see one history: each prints a signed head, and the other holds it against its own registry."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sealcast.errors import Rejected
from sealcast.trust.handles import OpenRealm
from sealcast.trust.heads import Head, SignedHead
from sealcast.trust.statements import Author


class Histories(StrEnum):
    """How another's history is to the one that is here."""

    SAME = "same"
    #: What is here goes on from what the other saw.
    EXTENDS = "extends"
    #: The other saw more than is here: it has to hold our head against its registry.
    BEHIND = "behind"
    FORK = "fork"


@dataclass(frozen=True, slots=True)
class ComparedHeads:
    """What comes of it."""

    verdict: Histories
    ours: Head
    theirs: Head
    author: str


def signed_head(realm: OpenRealm, author: Author) -> SignedHead:
    """The newest version that is seen here, with its author's word."""
    return SignedHead.make(realm.id, realm.registry.head(), author)


def compare(realm: OpenRealm, other: SignedHead) -> ComparedHeads:
    """Holds what somebody saw against this registry; Rejected when nobody who is known here signed it."""
    if other.realm != realm.id:
        raise Rejected(f"this is the head of another realm ({other.realm.hex()})")
    if not other.is_by(realm.registry.key_of(other.author)):
        raise Rejected(f"this head was not signed by {other.author!r}", hint="ask for it again, over another way")
    ours, theirs = realm.registry.head(), other.head
    if theirs.version > ours.version:
        verdict = Histories.BEHIND
    elif realm.registry.chain_at(theirs.version) != theirs.chain:
        verdict = Histories.FORK
    else:
        verdict = Histories.SAME if theirs.version == ours.version else Histories.EXTENDS
    return ComparedHeads(verdict, ours, theirs, other.author)
