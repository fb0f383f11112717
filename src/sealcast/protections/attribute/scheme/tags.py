"""The routing test: which of its children a peer hands an event to, on the tree of one attribute.

    keyed   k_c = HMAC(the epoch's routing key, Pu)    tag = HMAC(k_c, the header's id)[:16]    token = k_c
    paper   tag = H4(e(H3(Pu), hr)^b_i)                token = Pr3 = phi_r H3(Pu)               tag = H4(e(CT_i, Pr3))

Keyed tags take a hash where the paper's take a pairing, and a holder of a token cannot test a guess of its label. Their
price: publishers hold the routing key of the epoch, so that every publisher can tell which labels others' events have.
Whoever holds one of the paper's tokens tells its label by pairing it with a guess, as with every public-key tag.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sealcast.primitives.kdf import INNER_PAD, OUTER_PAD
from sealcast.protections.attribute.scheme.parameters import PublicParameters
from sealcast.wire.attribute import ROUTING_TAG_BYTES, EventHeader, SealedAttribute, TagKind

if TYPE_CHECKING:
    from hashlib import _Hash

MAX_KEYED_TOKENS: Final = 65_536


class RoutingToken(NamedTuple):
    """What a child gives its parent: it finds events that have one label of one attribute."""

    epoch: int
    attribute: str
    token: bytes


def keyed_tag(token: bytes, id: bytes) -> bytes:
    """HMAC-SHA256 of the header's id under a label's key, cut to 16 bytes."""
    start, end = _keyed(token)
    inside, outside = start.copy(), end.copy()
    inside.update(id)
    outside.update(inside.digest())
    return outside.digest()[:ROUTING_TAG_BYTES]


@lru_cache(MAX_KEYED_TOKENS)
def _keyed(token: bytes) -> tuple[_Hash, _Hash]:
    """Both hashes of HMAC with the key taken in: a copy costs a third of `hmac.digest`."""
    padded = token.ljust(64, b"\0")
    return hashlib.sha256(padded.translate(INNER_PAD)), hashlib.sha256(padded.translate(OUTER_PAD))


#: Of a header and one of its attributes: for each of some tokens, the tag that it has if it has the token's label.
Expected = Callable[[EventHeader, SealedAttribute], Iterator[bytes]]


def expecting(parameters: PublicParameters, tokens: Sequence[bytes]) -> Expected:
    """The tags that these tokens of one attribute look for. AttributeRejected, when the paper's are asked for, for a
    point that is none."""
    if parameters.tags is TagKind.PAPER:
        return lambda header, attribute: parameters.equations.expected_tags(tokens, attribute.first)
    keyed = list(map(_keyed, tokens))

    def tags(header: EventHeader, attribute: SealedAttribute) -> Iterator[bytes]:
        # `keyed_tag` written out: a call for each token would cost as much as its hashes.
        id = header.id
        for start, end in keyed:
            inside, outside = start.copy(), end.copy()
            inside.update(id)
            outside.update(inside.digest())
            yield outside.digest()[:ROUTING_TAG_BYTES]

    return tags


def matching(parameters: PublicParameters, token: RoutingToken, header: EventHeader) -> bool:
    """Whether the event has the token's label. AttributeRejected for a point that is none (paper's tags)."""
    attribute = header.attribute(token.attribute)
    if attribute is None or header.epoch != token.epoch or header.tags is not parameters.tags:
        return False
    if parameters.tags is TagKind.KEYED:
        return attribute.tagged(keyed_tag(token.token, header.id))
    return any(map(attribute.tagged, parameters.equations.expected_tags([token.token], attribute.first)))


def route(parameters: PublicParameters, tokens: Sequence[RoutingToken], header: EventHeader) -> bool:
    """Whether the event has a label of any of these tokens: then it is forwarded."""
    return any(matching(parameters, token, header) for token in tokens)


def route_many(
    parameters: PublicParameters, tokens: Sequence[RoutingToken], headers: Sequence[EventHeader]
) -> NDArray[np.bool_]:
    """`matching` of every header (rows) and token (columns), as a relay does it: tokens are made ready once."""
    found = np.zeros((len(headers), len(tokens)), np.bool_)
    columns: dict[tuple[int, str], list[int]] = {}
    for column, token in enumerate(tokens):
        columns.setdefault((token.epoch, token.attribute), []).append(column)
    expected = {
        group: expecting(parameters, [tokens[column].token for column in own]) for group, own in columns.items()
    }
    for row, header in enumerate(headers):
        if header.tags is parameters.tags:
            for attribute in header.attributes:
                group = header.epoch, attribute.name
                if group in expected:
                    for column, tag in zip(columns[group], expected[group](header, attribute), strict=True):
                        if attribute.tagged(tag):
                            found[row, column] = True
    return found
