"""Everything that can happen to a realm, as values: what the registry stores and `realm.Fold` applies.

A change says what was decided, never how: it carries public bytes only, so that the registry can be copied to
anyone who must know who may do what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar, Final

from sealcast.errors import Corrupt, SchemaRejected
from sealcast.model.schema import Schema


class Right(StrEnum):
    """What one may do on a topic."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"


class Access(StrEnum):
    """Whom a topic lets in before anyone grants anything."""

    #: Every enrolled entity may publish and subscribe, except where a right was taken away.
    MEMBERS = "members"
    #: Nobody may do anything, except where a right was granted.
    GRANTED = "granted"


@dataclass(frozen=True, slots=True)
class EnrolEntity:
    """A name gets its public keys. Names are never given twice, also not after a revocation."""

    kind: ClassVar = "enrol-entity"
    name: str
    verify_key: bytes
    kem_public: bytes


@dataclass(frozen=True, slots=True)
class RevokeEntity:
    """From this version on the entity may do nothing, on any topic, for good."""

    kind: ClassVar = "revoke-entity"
    name: str


@dataclass(frozen=True, slots=True)
class CreateTopic:
    kind: ClassVar = "create-topic"
    name: str
    id: bytes
    schema: Schema
    partitions: int = 1
    protection: str = "endpoint"
    access: Access = Access.MEMBERS


@dataclass(frozen=True, slots=True)
class Grant:
    kind: ClassVar = "grant"
    topic: str
    entity: str
    rights: tuple[Right, ...]


@dataclass(frozen=True, slots=True)
class Revoke:
    """Takes rights on one topic away; `RevokeEntity` ends an entity altogether."""

    kind: ClassVar = "revoke"
    topic: str
    entity: str
    rights: tuple[Right, ...]


@dataclass(frozen=True, slots=True)
class AddSubscription:
    kind: ClassVar = "add-subscription"
    id: str
    topic: str
    subscriber: str
    filter: str


@dataclass(frozen=True, slots=True)
class RemoveSubscription:
    kind: ClassVar = "remove-subscription"
    id: str


@dataclass(frozen=True, slots=True)
class PublishPairKey:
    """The key that broker and entity share for a topic and epoch, sealed (HPKE) so that only that entity opens it."""

    kind: ClassVar = "publish-pair-key"
    topic: str
    epoch: int
    entity: str
    sealed: bytes


Change = (
    EnrolEntity | RevokeEntity | CreateTopic | Grant | Revoke | AddSubscription | RemoveSubscription | PublishPairKey
)

_KINDS: Final[Mapping[str, type[Change]]] = {
    str(c.kind): c
    for c in (
        EnrolEntity,
        RevokeEntity,
        CreateTopic,
        Grant,
        Revoke,
        AddSubscription,
        RemoveSubscription,
        PublishPairKey,
    )
}


def to_json(change: Change) -> dict[str, Any]:
    """The body of a change; its kind is stored beside it."""
    return {f.name: _plain(getattr(change, f.name)) for f in fields(change)}


def from_json(kind: str, body: Mapping[str, Any]) -> Change:
    """The change that was stored, or Corrupt: nothing but `to_json` ever wrote one."""
    try:
        cls = _KINDS[kind]
        decoders = _DECODERS.get(kind)
        if decoders is None:
            return cls(**body)
        return cls(**{k: decoders[k](v) if k in decoders else v for k, v in body.items()})
    except (KeyError, TypeError, ValueError, SchemaRejected) as error:
        raise Corrupt(
            f"a stored change of kind {kind!r} is not one this release wrote ({type(error).__name__})"
        ) from None


def _plain(value: object) -> object:
    match value:
        case bytes():
            return value.hex()
        case Schema():
            return value.to_json()
        case tuple():
            return [str(v) for v in value]
        case StrEnum():
            return str(value)
        case _:
            return value


def _rights(body: list[str]) -> tuple[Right, ...]:
    return tuple(Right(r) for r in body)


_DECODERS: Final[Mapping[str, Mapping[str, Callable[[Any], Any]]]] = {
    "enrol-entity": {"verify_key": bytes.fromhex, "kem_public": bytes.fromhex},
    "create-topic": {"id": bytes.fromhex, "schema": Schema.from_json, "access": Access},
    "grant": {"rights": _rights},
    "revoke": {"rights": _rights},
    "publish-pair-key": {"sealed": bytes.fromhex},
}
