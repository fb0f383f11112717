"""What a peer needs to find its places among others, and how the key center issues it (paper 003, section 6.3).

    attribute/connecting     [topic, epoch, [[attribute, label], ...]]
                          -> attribute/connecting     [epoch, parameters, [[attribute, label, key, token, request,
                                                                            hidden, request, hidden], ...]]

For each label: the key that opens connection requests of labels below it, the token that finds events which have it,
and requests of its own, each with the connection key that it hides. Requests count for who asked for them and for
nobody else. They are used once each while there are some, so that two searches of one peer cannot be told to be the
same peer's by the request alone.

Who may subscribe may ask for any label, since it may subscribe to anything. Who may only publish gets what a rendezvous
needs: the roots, which open every request, and neither token nor request of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from sealcast.control.bodies import Body, Name, binary, rows, text
from sealcast.control.center.requests import Epoch
from sealcast.control.center.rules import CenterReason, no
from sealcast.errors import Misuse
from sealcast.primitives.secrets import Secret
from sealcast.protections.attribute.credentials import EventSpace
from sealcast.protections.attribute.scheme import ConnectionKey, Label, MasterSecret, RoutingToken
from sealcast.protections.attribute.spaces import CredentialSpace
from sealcast.wire.limits import (
    MAX_ATTRIBUTE_LABEL_BYTES,
    MAX_ATTRIBUTE_PARAMETERS_BYTES,
    MAX_CONNECTION_REQUEST_BYTES,
    MAX_ROUTING_TOKEN_BYTES,
)

#: Labels of one request: a peer has a place for each.
MAX_PLACES: Final = 256
#: Connection requests that each label gets at a time.
REQUESTS_EACH: Final = 2
_MAX_SPACE_BYTES: Final = 255
_POINT_BYTES: Final = 48
_HIDDEN_BYTES: Final = 32

#: An attribute's tree, and a label in it.
TreeLabel = tuple[str, Label]

_SPACE: Final = text(_MAX_SPACE_BYTES)
_LABEL: Final = binary(0, MAX_ATTRIBUTE_LABEL_BYTES)
_TOKEN: Final = binary(0, MAX_ROUTING_TOKEN_BYTES)
_REQUEST: Final = (binary(0, MAX_CONNECTION_REQUEST_BYTES), binary(0, _HIDDEN_BYTES))
_WANTED: Final = rows(MAX_PLACES, _SPACE, _LABEL)
_GIVEN: Final = rows(MAX_PLACES, _SPACE, _LABEL, binary(_POINT_BYTES, _POINT_BYTES), _TOKEN, *REQUESTS_EACH * _REQUEST)

Parameters = Annotated[bytes, binary(1, MAX_ATTRIBUTE_PARAMETERS_BYTES)]
WantedPlaces = Annotated[tuple[TreeLabel, ...], _WANTED]
#: Attribute, label, key, token, and twice a request with the key that it hides.
GivenPlace = tuple[str, Label, bytes, bytes, bytes, bytes, bytes, bytes]
GivenPlaces = Annotated[tuple[GivenPlace, ...], _GIVEN]


@dataclass(frozen=True, slots=True)
class WantConnecting(Body):
    """Keys and requests for places, in an epoch."""

    KIND = "attribute/connecting"
    MAX_ITEMS = 3 * MAX_PLACES + 16
    MAX_DEPTH = 3
    topic: Name
    epoch: Epoch
    places: WantedPlaces


@dataclass(frozen=True, slots=True)
class Connecting(Body):
    KIND = "attribute/connecting"
    MAX_ITEMS = 9 * MAX_PLACES + 16
    MAX_DEPTH = 3
    epoch: Epoch
    parameters: Parameters
    places: GivenPlaces


class ConnectingPlace(NamedTuple):
    """One label's keys."""

    key: ConnectionKey
    #: Nothing, for who may not subscribe.
    token: RoutingToken
    #: Each with the connection key that it hides.
    requests: tuple[tuple[bytes, Secret], ...]


def places_of(given: Connecting) -> dict[TreeLabel, ConnectingPlace]:
    """What was given, by attribute and label."""
    found = dict[TreeLabel, ConnectingPlace]()
    for attribute, label, point, token, *pairs in given.places:
        requests = [(made, hidden) for made, hidden in zip(pairs[::2], pairs[1::2], strict=True) if made and hidden]
        found[attribute, label] = ConnectingPlace(
            ConnectionKey(given.epoch, attribute, point),
            RoutingToken(given.epoch, attribute, token),
            tuple((made, Secret(hidden)) for made, hidden in requests),
        )
    return found


def made_places(
    master: MasterSecret, space: EventSpace, epoch: int, wanted: Iterable[TreeLabel], origin: str | None
) -> GivenPlaces:
    """At the key center, for `origin`, who may subscribe; None for who may not. CenterRejected for what is no label of
    the schema, and for what one may not have."""
    return tuple(_place(master, space, epoch, attribute, label, origin) for attribute, label in wanted)


def _place(
    master: MasterSecret, space: EventSpace, epoch: int, attribute: str, label: Label, origin: str | None
) -> GivenPlace:
    try:
        space.position(attribute, label)
    except Misuse as error:
        raise no(CenterReason.FORM, error.message) from None
    about = space.spaces[attribute]
    if origin is None and label != about.root:
        raise no(CenterReason.FORM, "who may not subscribe has no place of its own, only the roots of a rendezvous")
    key = master.connection_key(epoch, attribute, label).to_bytes()
    if origin is None:
        return attribute, label, key, b"", b"", b"", b"", b""
    (token,) = master.tokens(epoch, {attribute: [label]})
    first, first_hidden = _request(master, epoch, about, label, origin)
    second, second_hidden = _request(master, epoch, about, label, origin)
    return attribute, label, key, token.token, first, first_hidden, second, second_hidden


def _request(
    master: MasterSecret, epoch: int, about: CredentialSpace, label: Label, origin: str
) -> tuple[bytes, bytes]:
    made, hidden = master.connection_request(epoch, about.name, about.path(label), about.positions, origin)
    return made.to_bytes(), hidden.reveal()
