"""Every kind of value that a realm's state is made of, written out: what a snapshot may hold."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from typing import Final

from sealcast.model.protection import PROTECTIONS, Retention
from sealcast.model.schema import Attribute, Schema, Type
from sealcast.model.subscription import Subscription
from sealcast.trust.certificates.lists import Cause, Revoked
from sealcast.trust.certificates.revocation import RevocationView
from sealcast.trust.certificates.roles import Role
from sealcast.trust.realm.changes import Access, Credential, FoundRealm, Right
from sealcast.trust.realm.overlays import Leave
from sealcast.trust.realm.parameters import KeyParameters, TokenHash
from sealcast.trust.realm.state import AnnouncedPeer, BrokerGateway, Carried, CarriedName, Entity, RealmState
from sealcast.trust.realm.topics import DeletedTopic, LayerKey, Move, ReceivingKey, Stay, Term, Topic, TopicState

_ALL: Final[tuple[type, ...]] = (
    Access,
    AnnouncedPeer,
    Attribute,
    BrokerGateway,
    Carried,
    CarriedName,
    Cause,
    Credential,
    Decimal,
    DeletedTopic,
    Entity,
    FoundRealm,
    KeyParameters,
    LayerKey,
    Leave,
    Move,
    RealmState,
    ReceivingKey,
    Retention,
    RevocationView,
    Revoked,
    Right,
    Role,
    Schema,
    Stay,
    Subscription,
    Term,
    TokenHash,
    Topic,
    TopicState,
    Type,
    *PROTECTIONS.values(),
)

#: By module and name.
KINDS: Final[Mapping[tuple[str, str], Callable[..., object]]] = {
    (kind.__module__, kind.__qualname__): kind for kind in _ALL
}


def shape() -> str:
    """A digest of all kinds with the names of their parts. A release that changed any of them reads no snapshot of the
    one before."""
    hasher = hashlib.sha256()
    for kind in _ALL:
        hasher.update(f"{kind.__module__}.{kind.__qualname__}({', '.join(_parts(kind))})\n".encode())
    return hasher.hexdigest()


def _parts(kind: type) -> list[str]:
    if is_dataclass(kind):
        return [each.name for each in fields(kind)]
    if issubclass(kind, Enum):
        return [each.name for each in kind]
    return list(getattr(kind, "_fields", ()))
