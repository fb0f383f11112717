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
from decimal import Decimal
from typing import Annotated, Any, Final

from sealcast.control.bodies import Body, Field, Name, binary, natural, optional, rows, set_of, text, word
from sealcast.errors import ParameterRejected, SchemaRejected
from sealcast.model.dataclass import dataclass
from sealcast.model.schema import Schema
from sealcast.primitives.encoding import joined
from sealcast.trust.realm.changes import EVERYTHING, Access, Right
from sealcast.trust.realm.rules.topics import MAX_SEALED_KEY_BYTES
from sealcast.wire.limits import MAX_EPOCH, MAX_TEMPLATE_BYTES, MAX_TIME_MICROS, MAX_TOKEN_BYTES

REGISTERED: Final = "center/registered"
DONE: Final = "center/done"

TOPIC_ID_BYTES: Final = 16
REGISTER_NONCE_BYTES: Final = 16
NONCE_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
MAX_PARTITIONS: Final = 1024
#: Pair keys in one answer: of the epoch that is, and of those before it that one was given.
MAX_KEYS: Final = 64
MAX_JSON_BYTES: Final = 262_144
_CHALLENGE: Final = b"sealcast/1 challenge"
_TOPIC_ID: Final = b"sealcast/1 topic id"


# --- their fields -------------------------------------------------------------------------------------


def _from_json(raw: Any) -> Any:
    if not isinstance(raw, bytes) or len(raw) > MAX_JSON_BYTES:
        raise ValueError(raw)
    return json.loads(raw, parse_float=Decimal)


def _to_json(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _read_schema(raw: Any) -> Schema:
    try:
        return Schema.from_json(_from_json(raw))
    except (ValueError, RecursionError):
        raise SchemaRejected("the schema is no JSON") from None


def _read_parameters(raw: Any) -> Mapping[str, object]:
    try:
        given = _from_json(raw)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise ParameterRejected("parameters", "parameters are an object of names and values")
    return given


_KEYS: Final = rows(MAX_KEYS, natural(MAX_EPOCH), binary(1, MAX_SEALED_KEY_BYTES))


def _read_keys(value: Any) -> Mapping[int, bytes]:
    keys = dict(found := _KEYS.read(value))
    if len(keys) != len(found):
        raise ValueError(value)
    return keys


Epoch = Annotated[int, natural(MAX_EPOCH)]
Nonce = Annotated[bytes, binary(NONCE_BYTES, NONCE_BYTES)]
PairKeys = Annotated[Mapping[int, bytes], Field(_read_keys, lambda keys: _KEYS.write(sorted(keys.items())))]
Parameters = Annotated[Mapping[str, object], Field(_read_parameters, lambda given: _to_json(dict(given)))]
SchemaField = Annotated[Schema, Field(_read_schema, lambda schema: _to_json(schema.to_json()))]
Rights = Annotated[frozenset[Right], set_of(Right)]
Time = natural(MAX_TIME_MICROS)


# --- requests -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register(Body):
    """A topic that its owner wants to be secure. The topic's id follows from the nonce: asking twice is asking once."""

    KIND = "center/register"
    name: Name
    nonce: Annotated[bytes, binary(REGISTER_NONCE_BYTES, REGISTER_NONCE_BYTES)]
    schema: SchemaField
    partitions: Annotated[int, natural(MAX_PARTITIONS)]
    access: Annotated[str, word(Access)]
    #: As its owner wrote them: `KeyParameters.parse` is the center's.
    parameters: Parameters


@dataclass(frozen=True, slots=True)
class Authorise(Body):
    """Rights for an entity, for a time, for what a template admits."""

    KIND = "center/authorise"
    topic: Name
    entity: Name
    rights: Rights
    not_before_us: Annotated[int, Time] = 0
    until_us: Annotated[int | None, optional(Time)] = None
    template: Annotated[str, text(MAX_TEMPLATE_BYTES)] = EVERYTHING


@dataclass(frozen=True, slots=True)
class Deauthorise(Body):
    """Rights that an entity no longer has."""

    KIND = "center/deauthorise"
    topic: Name
    entity: Name
    rights: Rights


@dataclass(frozen=True, slots=True)
class Rotate(Body):
    """The end of an epoch. It names the epoch, so that asking twice ends one and not two."""

    KIND = "center/rotate"
    topic: Name
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class WantCredentials(Body):
    """A token and the keys that go with it."""

    KIND = "center/credentials"
    topic: Name
    right: Annotated[Right, word(Right)]


@dataclass(frozen=True, slots=True)
class Proof(Body):
    """An answer to a challenge: the nonce, signed by the key that frames are signed with."""

    KIND = "center/prove"
    topic: Name
    nonce: Nonce
    signature: Annotated[bytes, binary(SIGNATURE_BYTES, SIGNATURE_BYTES)]


# --- answers ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Credentials(Body):
    """A token, the epoch that it is for, and pair keys by epoch, each sealed (HPKE) to the one who asked."""

    KIND = "center/credentials"
    MAX_DEPTH = 3
    MAX_ITEMS = 8 + 3 * MAX_KEYS
    token: Annotated[bytes, binary(1, MAX_TOKEN_BYTES)]
    epoch: Epoch
    pair_keys: PairKeys

    def holds(self) -> bool:
        return self.epoch in self.pair_keys


@dataclass(frozen=True, slots=True)
class Challenge(Body):
    """To be signed before a time is over."""

    KIND = "center/challenge"
    topic: Name
    nonce: Nonce
    before_us: Annotated[int, Time]


def topic_id(realm: bytes, center: str, owner: str, name: str, nonce: bytes) -> bytes:
    """The id of a registered topic. Keys and tokens are for an id: nobody may choose that of another's topic."""
    parts = (_TOPIC_ID, realm, center.encode(), owner.encode(), name.encode(), nonce)
    return hashlib.sha256(joined(parts)).digest()[:TOPIC_ID_BYTES]


def challenged(realm: bytes, center: str, topic: str, nonce: bytes) -> bytes:
    """What is signed in answer to a challenge: nothing else that this key signs begins like it."""
    return joined((_CHALLENGE, realm, center.encode(), topic.encode(), nonce))
