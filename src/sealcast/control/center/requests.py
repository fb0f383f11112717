"""What a key center is asked, and what it answers: each a list of CBOR with exactly these fields.

    center/register      [name, nonce, schema, partitions, access, parameters]      -> center/registered  [epoch]
    center/authorise     [topic, entity, rights, from, until or null, template]     -> center/done        [version]
    center/deauthorise   [topic, entity, rights]                                    -> center/done        [version]
    center/rotate        [topic, the epoch that is to end]                          -> center/registered  [epoch]
    center/credentials   [topic, right]      -> center/credentials  [token, epoch, [[epoch, sealed pair key], ...]]
                                             or center/challenge    [topic, nonce, answer before]
    center/prove         [topic, nonce, signature]                                  -> center/done        [0]

Who asks is not among the fields: the envelope has proven it. Schema and parameters travel as JSON, as their author
wrote them: it is the center that refuses them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeVar

from sealcast.control.envelopes import MAX_BODY_BYTES
from sealcast.errors import FrameRejected, ParameterRejected, Rejected, SchemaRejected
from sealcast.model.schema import Schema
from sealcast.primitives.encoding import joined
from sealcast.trust.realm.changes import EVERYTHING, Access, Right
from sealcast.wire import cbor
from sealcast.wire.limits import MAX_EPOCH, MAX_TEMPLATE_BYTES, MAX_TIME_MICROS, MAX_TOKEN_BYTES

REGISTER: Final = "center/register"
AUTHORISE: Final = "center/authorise"
DEAUTHORISE: Final = "center/deauthorise"
ROTATE: Final = "center/rotate"
CREDENTIALS: Final = "center/credentials"
PROVE: Final = "center/prove"
CENTER_KINDS: Final = frozenset({REGISTER, AUTHORISE, DEAUTHORISE, ROTATE, CREDENTIALS, PROVE})

REGISTERED: Final = "center/registered"
DONE: Final = "center/done"
CHALLENGE: Final = "center/challenge"

TOPIC_ID_BYTES: Final = 16
REGISTER_NONCE_BYTES: Final = 16
NONCE_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
MAX_NAME: Final = 64
MAX_PARTITIONS: Final = 1024
#: Pair keys in one answer: of the epoch that is, and of those before it that one was given.
MAX_KEYS: Final = 64
MAX_SEALED_BYTES: Final = 512
MAX_JSON_BYTES: Final = 262_144
_CHALLENGE: Final = b"sealcast/1 challenge"
_TOPIC_ID: Final = b"sealcast/1 topic id"

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Register:
    """A topic that its owner wants to be secure. The topic's id follows from the nonce: asking twice is asking once."""

    name: str
    nonce: bytes
    schema: Schema
    partitions: int
    access: str
    #: As its owner wrote them: `KeyParameters.parse` is the center's.
    parameters: Mapping[str, object]

    def to_bytes(self) -> bytes:
        schema, parameters = _to_json(self.schema.to_json()), _to_json(dict(self.parameters))
        return cbor.encode([self.name, self.nonce, schema, self.partitions, str(self.access), parameters])

    @classmethod
    def from_bytes(cls, data: bytes) -> Register:
        match _read(data):
            case [str(name), bytes(nonce), bytes(schema), int(partitions), str(access), bytes(parameters)]:
                if (
                    _name(name)
                    and len(nonce) == REGISTER_NONCE_BYTES
                    and access in tuple(Access)
                    and _natural(partitions, MAX_PARTITIONS)
                ):
                    return cls(name, nonce, _schema(schema), partitions, access, _parameters(parameters))
        raise _no(REGISTER)


@dataclass(frozen=True, slots=True)
class Authorise:
    """Rights for an entity, for a time, for what a template admits."""

    topic: str
    entity: str
    rights: frozenset[Right]
    not_before_us: int = 0
    until_us: int | None = None
    template: str = EVERYTHING

    def to_bytes(self) -> bytes:
        return cbor.encode(
            [self.topic, self.entity, _words(self.rights), self.not_before_us, self.until_us, self.template]
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Authorise:
        match _read(data):
            case [str(topic), str(entity), list(rights), int(begins), (int() | None) as ends, str(template)]:
                times = (begins, *(() if ends is None else (ends,)))
                bounded = 0 < len(template.encode()) <= MAX_TEMPLATE_BYTES
                if _names(topic, entity) and bounded and all(_natural(t, MAX_TIME_MICROS) for t in times):
                    return cls(topic, entity, _rights(rights, AUTHORISE), begins, ends, template)
        raise _no(AUTHORISE)


@dataclass(frozen=True, slots=True)
class Deauthorise:
    """Rights that an entity no longer has."""

    topic: str
    entity: str
    rights: frozenset[Right]

    def to_bytes(self) -> bytes:
        return cbor.encode([self.topic, self.entity, _words(self.rights)])

    @classmethod
    def from_bytes(cls, data: bytes) -> Deauthorise:
        match _read(data):
            case [str(topic), str(entity), list(rights)] if _names(topic, entity):
                return cls(topic, entity, _rights(rights, DEAUTHORISE))
        raise _no(DEAUTHORISE)


@dataclass(frozen=True, slots=True)
class Rotate:
    """The end of an epoch. It names the epoch, so that asking twice ends one and not two."""

    topic: str
    epoch: int

    def to_bytes(self) -> bytes:
        return cbor.encode([self.topic, self.epoch])

    @classmethod
    def from_bytes(cls, data: bytes) -> Rotate:
        match _read(data):
            case [str(topic), int(epoch)] if _name(topic) and _natural(epoch, MAX_EPOCH):
                return cls(topic, epoch)
        raise _no(ROTATE)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A token and the keys that go with it."""

    topic: str
    right: Right

    def to_bytes(self) -> bytes:
        return cbor.encode([self.topic, str(self.right)])

    @classmethod
    def from_bytes(cls, data: bytes) -> Wanted:
        match _read(data):
            case [str(topic), str(right)] if _name(topic) and right in tuple(Right):
                return cls(topic, Right(right))
        raise _no(CREDENTIALS)


@dataclass(frozen=True, slots=True)
class Proof:
    """An answer to a challenge: the nonce, signed by the key that frames are signed with."""

    topic: str
    nonce: bytes
    signature: bytes

    def to_bytes(self) -> bytes:
        return cbor.encode([self.topic, self.nonce, self.signature])

    @classmethod
    def from_bytes(cls, data: bytes) -> Proof:
        match _read(data):
            case [str(topic), bytes(nonce), bytes(signature)] if _name(topic) and len(nonce) == NONCE_BYTES:
                if len(signature) == SIGNATURE_BYTES:
                    return cls(topic, nonce, signature)
        raise _no(PROVE)


# --- answers ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Credentials:
    """A token, the epoch that it is for, and pair keys by epoch, each sealed (HPKE) to the one who asked."""

    token: bytes
    epoch: int
    pair_keys: Mapping[int, bytes]

    def to_bytes(self) -> bytes:
        keys = [[epoch, sealed] for epoch, sealed in sorted(self.pair_keys.items())]
        return cbor.encode([self.token, self.epoch, keys])

    @classmethod
    def from_bytes(cls, data: bytes) -> Credentials:
        """FrameRejected when it is none."""
        match cbor.decode(data, max_bytes=MAX_BODY_BYTES, max_depth=3, max_items=8 + 3 * MAX_KEYS):
            case [bytes(token), int(epoch), list(keys)] if 0 < len(token) <= MAX_TOKEN_BYTES and len(keys) <= MAX_KEYS:
                pairs = dict(map(_pair_key, keys))
                if _natural(epoch, MAX_EPOCH) and len(pairs) == len(keys) and epoch in pairs:
                    return cls(token, epoch, pairs)
        raise cbor.refused("a center's answer is a token, its epoch, and pair keys")


@dataclass(frozen=True, slots=True)
class Challenge:
    """To be signed before a time is over."""

    topic: str
    nonce: bytes
    before_us: int

    def to_bytes(self) -> bytes:
        return cbor.encode([self.topic, self.nonce, self.before_us])

    @classmethod
    def from_bytes(cls, data: bytes) -> Challenge:
        """FrameRejected when it is none."""
        match cbor.decode(data, max_bytes=1_024, max_depth=2, max_items=8):
            case [str(topic), bytes(nonce), int(before)] if _name(topic) and len(nonce) == NONCE_BYTES:
                if _natural(before, MAX_TIME_MICROS):
                    return cls(topic, nonce, before)
        raise cbor.refused("a challenge is a topic, a nonce and a time")


def topic_id(realm: bytes, center: str, owner: str, name: str, nonce: bytes) -> bytes:
    """The id of a registered topic. Keys and tokens are for an id: nobody may choose that of another's topic."""
    parts = (_TOPIC_ID, realm, center.encode(), owner.encode(), name.encode(), nonce)
    return hashlib.sha256(joined(parts)).digest()[:TOPIC_ID_BYTES]


def challenged(realm: bytes, center: str, topic: str, nonce: bytes) -> bytes:
    """What is signed in answer to a challenge: nothing else that this key signs begins like it."""
    return joined((_CHALLENGE, realm, center.encode(), topic.encode(), nonce))


# --- reading ------------------------------------------------------------------------------------------


def _read(data: bytes) -> object:
    try:
        return cbor.decode(data, max_bytes=MAX_BODY_BYTES, max_depth=2, max_items=32)
    except FrameRejected:
        return None


def _no(kind: str) -> Rejected:
    return cbor.refused(f"the fields are not those of a {kind} request")


def _natural(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _name(text: str) -> bool:
    return 0 < len(text.encode()) <= MAX_NAME


def _names(*texts: str) -> bool:
    return all(map(_name, texts))


def _words(rights: frozenset[Right]) -> list[str]:
    return sorted(map(str, rights))


def _rights(words: list[object], kind: str) -> frozenset[Right]:
    """In one order, each once, at least one: the same rights are the same bytes."""
    if not words or not all(isinstance(w, str) and w in tuple(Right) for w in words):
        raise _no(kind)
    found = frozenset(Right(str(w)) for w in words)
    if words != _words(found):
        raise _no(kind)
    return found


def _pair_key(item: object) -> tuple[int, bytes]:
    match item:
        case [int(epoch), bytes(sealed)] if _natural(epoch, MAX_EPOCH) and 0 < len(sealed) <= MAX_SEALED_BYTES:
            return epoch, sealed
    raise cbor.refused("a pair key in an answer is an epoch and sealed bytes")


def _to_json(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _from_json(raw: bytes) -> Any:
    if len(raw) > MAX_JSON_BYTES:
        raise ValueError
    return json.loads(raw, parse_float=Decimal)


def _schema(raw: bytes) -> Schema:
    try:
        return Schema.from_json(_from_json(raw))
    except (ValueError, RecursionError):
        raise SchemaRejected("the schema is no JSON") from None


def _parameters(raw: bytes) -> Mapping[str, object]:
    try:
        given = _from_json(raw)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise ParameterRejected("parameters", "parameters are an object of names and values")
    return given
