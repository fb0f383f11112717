"""Everything that can happen to a realm, as values: what the registry stores and `realm.Fold` applies.

A change says what was decided, never how: it carries public bytes only, so that the registry can be copied to
anyone who must know who may do what. Rules have no clock: where time matters, the change says when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar, Final

from sealcast.errors import Corrupt, ParameterRejected, SchemaRejected
from sealcast.model.schema import Schema
from sealcast.trust.parameters import KeyParameters
from sealcast.trust.roles import Role

#: The template that admits every topic and every event: written out, for nothing empty means everything.
EVERYTHING: Final = "*"
DEFAULT_PARAMETERS: Final = KeyParameters()


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


# --- entities -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EnrolEntity:
    """A name gets its public keys. Names are never given twice, also not after a revocation."""

    kind: ClassVar = "enrol-entity"
    name: str
    verify_key: bytes
    kem_public: bytes
    roles: tuple[Role, ...] = (Role.ENTITY,)


@dataclass(frozen=True, slots=True)
class RevokeEntity:
    """From this version on the entity may do nothing, on any topic, for good."""

    kind: ClassVar = "revoke-entity"
    name: str


# --- topics and their keys ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateTopic:
    kind: ClassVar = "create-topic"
    name: str
    id: bytes
    schema: Schema
    partitions: int = 1
    protection: str = "endpoint"
    access: Access = Access.MEMBERS
    #: The one key center that manages the topic.
    center: str = ""
    parameters: KeyParameters = DEFAULT_PARAMETERS
    #: When its first epoch starts.
    at_us: int = 0


@dataclass(frozen=True, slots=True)
class RotateTopic:
    """A new epoch: new keys from now on; what was sealed in earlier epochs stays readable for who had their keys."""

    kind: ClassVar = "rotate-topic"
    topic: str
    epoch: int
    at_us: int


@dataclass(frozen=True, slots=True)
class PublishTopicKey:
    """A topic's key in one epoch, sealed (HPKE) by its center to one broker that serves it."""

    kind: ClassVar = "publish-topic-key"
    topic: str
    epoch: int
    broker: str
    sealed: bytes


@dataclass(frozen=True, slots=True)
class PublishPairKey:
    """The key that broker and entity share for a topic and epoch, sealed (HPKE) so that only that entity opens it."""

    kind: ClassVar = "publish-pair-key"
    topic: str
    epoch: int
    entity: str
    sealed: bytes


# --- rights -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Grant:
    """Gives rights, each for a time and for what a template admits; in place of the term that right had before."""

    kind: ClassVar = "grant"
    topic: str
    entity: str
    rights: tuple[Right, ...]
    not_before_us: int = 0
    #: None: until it is taken away.
    until_us: int | None = None
    template: str = EVERYTHING


@dataclass(frozen=True, slots=True)
class Revoke:
    """Takes rights on one topic away; `RevokeEntity` ends an entity altogether."""

    kind: ClassVar = "revoke"
    topic: str
    entity: str
    rights: tuple[Right, ...]


# --- subscriptions ------------------------------------------------------------------------------------


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


Change = (
    EnrolEntity
    | RevokeEntity
    | CreateTopic
    | RotateTopic
    | PublishTopicKey
    | PublishPairKey
    | Grant
    | Revoke
    | AddSubscription
    | RemoveSubscription
)

_KINDS: Final[Mapping[str, type[Change]]] = {
    str(c.kind): c
    for c in (
        EnrolEntity,
        RevokeEntity,
        CreateTopic,
        RotateTopic,
        PublishTopicKey,
        PublishPairKey,
        Grant,
        Revoke,
        AddSubscription,
        RemoveSubscription,
    )
}


# --- as JSON ------------------------------------------------------------------------------------------


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
    except (KeyError, TypeError, ValueError, SchemaRejected, ParameterRejected) as error:
        raise Corrupt(
            f"a stored change of kind {kind!r} is not one this release wrote ({type(error).__name__})"
        ) from None


def _plain(value: object) -> object:
    match value:
        case bytes():
            return value.hex()
        case Schema() | KeyParameters():
            return value.to_json()
        case tuple():
            return [_plain(v) for v in value]
        case StrEnum():
            return str(value)
        case _:
            return value


def _rights(body: list[str]) -> tuple[Right, ...]:
    return tuple(Right(r) for r in body)


def _roles(body: list[str]) -> tuple[Role, ...]:
    return tuple(Role(r) for r in body)


_DECODERS: Final[Mapping[str, Mapping[str, Callable[[Any], Any]]]] = {
    "enrol-entity": {"verify_key": bytes.fromhex, "kem_public": bytes.fromhex, "roles": _roles},
    "create-topic": {
        "id": bytes.fromhex,
        "schema": Schema.from_json,
        "access": Access,
        "parameters": KeyParameters.parse,
    },
    "publish-topic-key": {"sealed": bytes.fromhex},
    "publish-pair-key": {"sealed": bytes.fromhex},
    "grant": {"rights": _rights},
    "revoke": {"rights": _rights},
}
