"""Changes as the registry stores them: the kind of each, and a JSON object of its fields.

What is stored never changes its meaning, so the forms of earlier releases are read here, too. Changes that come from
elsewhere are read by `strict`, which relies on nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, get_args, get_type_hints

from sealcast.errors import Corrupt, Misuse, ParameterRejected, SchemaRejected
from sealcast.model import protection as protections
from sealcast.model.protection import Protection
from sealcast.model.schema import Schema
from sealcast.trust.certificates.roles import Role
from sealcast.trust.realm.changes import Access, Change, CreateTopic, Credential, Right, RotateTopic
from sealcast.trust.realm.parameters import KeyParameters

#: Tokens whose values are shared by what is read at a time.
CREDENTIALS_SHARED: Final = 4_096

_KINDS: Final[Mapping[str, type[Change]]] = {str(change.kind): change for change in get_args(Change)}


def to_json(change: Change) -> dict[str, Any]:
    """The body of a change; its kind is stored beside it."""
    return {f.name: _plain(getattr(change, f.name)) for f in fields(change)}


def from_json(kind: str, body: Mapping[str, Any]) -> Change:
    """The change that was stored, or Corrupt: nothing but `to_json` ever wrote one."""
    try:
        cls = _KINDS[kind]
        decoders = _DECODERS[kind]
        if "layering" in body:  # as releases before 0.2 stored it: one decision in two fields
            body = {k: v for k, v in body.items() if k != "layering"} | {
                "protection": {"name": body["protection"], **(body["layering"] or {})}
            }
        if kind == CreateTopic.kind and "parameters" not in body:  # as the first releases stored it
            body = {**body, "parameters": {}}
        if kind in (CreateTopic.kind, RotateTopic.kind) and "chained" not in body:  # as releases before 0.3 did
            body = {**body, "chained": False}
        return cls(**{k: decoders[k](v) if k in decoders else v for k, v in body.items()})
    except (KeyError, TypeError, ValueError, SchemaRejected, ParameterRejected, Misuse) as error:
        raise Corrupt(
            f"a stored change of kind {kind!r} is not one this release wrote ({type(error).__name__})"
        ) from None


def _plain(value: object) -> object:
    match value:
        case bytes():
            return value.hex()
        case Schema() | KeyParameters():
            return value.to_json()
        case Protection():
            return protections.to_json(value)
        case Credential():
            return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
        case tuple():
            return [_plain(v) for v in value]
        case StrEnum():
            return str(value)
        case _:
            return value


def _credential(body: dict[str, Any] | None) -> Credential | None:
    if body is None:
        return None
    return _shared_credential(**body)


@lru_cache(CREDENTIALS_SHARED, typed=True)
def _shared_credential(token: str, center: str, **more: Any) -> Credential:
    """One value for all subscriptions that live by one token: they come one after the other."""
    return Credential(token=bytes.fromhex(token), center=bytes.fromhex(center), **more)


#: How a field of a type that JSON does not have is read back.
_READ: Final[Mapping[Any, Callable[[Any], Any]]] = {
    bytes: bytes.fromhex,
    tuple[bytes, ...]: lambda body: tuple(map(bytes.fromhex, body)),
    tuple[Right, ...]: lambda body: tuple(map(Right, body)),
    tuple[Role, ...]: lambda body: tuple(map(Role, body)),
    tuple[str, ...]: tuple,
    tuple[int, ...]: tuple,
    Access: Access,
    Schema: Schema.from_json,
    Schema | None: lambda body: None if body is None else Schema.from_json(body),
    KeyParameters: KeyParameters.stored,
    Protection: protections.from_json,
    Credential: _credential,
    Credential | None: _credential,
}
_DECODERS: Final[Mapping[str, Mapping[str, Callable[[Any], Any]]]] = {
    kind: {name: _READ[hint] for name, hint in get_type_hints(change).items() if hint in _READ}
    for kind, change in _KINDS.items()
}
