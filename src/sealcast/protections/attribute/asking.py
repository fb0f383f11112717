"""What peers ask the topic's key center for, and what it answers: each a list of CBOR with exactly these fields.

    attribute/publishing     [topic, epoch]               -> attribute/publishing    [epoch, parameters, key]
    attribute/subscribing    [topic, id, epoch, filter]   -> attribute/subscribing   [id, epoch, parameters, [key, ...]]
    attribute/ending         [topic, [id, ...]]           -> center/done             [version]

The first two may be answered by a challenge, as a request for a token may (`control.center`). Answers come in envelopes
that are sealed to who asked. A filter that is a disjunction is several subscriptions, whose keys cannot be mixed: a key
for each. Asking for keys of a subscription that is not registered yet registers it: that it exists, and whose it is.
What it asks for, only the center learns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from sealcast.control.bodies import Body, Field, Name, Names, binary, text
from sealcast.control.center.requests import Epoch
from sealcast.control.desk import MAX_IDS
from sealcast.control.envelopes import MAX_BODY_BYTES
from sealcast.filters.labels.compile import MAX_CONJUNCTIONS
from sealcast.model.protection import MAX_FILTER_CHARACTERS

KeyBytes = binary(1, MAX_BODY_BYTES)


def _read_keys(value: object) -> tuple[bytes, ...]:
    if not isinstance(value, list) or len(value) > MAX_CONJUNCTIONS:
        raise ValueError(value)
    return tuple(map(KeyBytes.read, value))


Bytes = Annotated[bytes, KeyBytes]
Keys = Annotated[tuple[bytes, ...], Field(_read_keys, list)]
#: UTF-8 has at most four bytes a character.
FilterText = Annotated[str, text(4 * MAX_FILTER_CHARACTERS)]


@dataclass(frozen=True, slots=True)
class WantPublishing(Body):
    """The key that a publisher signs with in an epoch."""

    KIND = "attribute/publishing"
    topic: Name
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Publishing(Body):
    KIND = "attribute/publishing"
    epoch: Epoch
    parameters: Bytes
    key: Bytes


@dataclass(frozen=True, slots=True)
class WantSubscribing(Body):
    """The keys of one subscription in an epoch; the id is its owner's choice."""

    KIND = "attribute/subscribing"
    topic: Name
    id: Name
    epoch: Epoch
    filter: FilterText


@dataclass(frozen=True, slots=True)
class Subscribing(Body):
    KIND = "attribute/subscribing"
    MAX_ITEMS = MAX_CONJUNCTIONS + 16
    id: Name
    epoch: Epoch
    parameters: Bytes
    #: One for each alternative of the filter; none for a filter that nothing matches.
    keys: Keys


@dataclass(frozen=True, slots=True)
class EndSubscribing(Body):
    """The end of subscriptions that one has, all of them or none."""

    KIND = "attribute/ending"
    MAX_ITEMS = MAX_IDS + 16
    topic: Name
    ids: Names
