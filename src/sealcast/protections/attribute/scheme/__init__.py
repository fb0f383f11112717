"""The scheme of Tariq, Koldehofe and Rothermel (paper 003, section 5) on BLS12-381, repaired. No files, no realm.

    key server    setup, MasterSecret: keys of publishers and subscriptions, tokens, connection requests
    publisher     AttributeSealer: events with labels -> sealed bytes
    peer          route, route_many: does an event have the label of a token; ConnectionKey.open
                  inspect: are its points points
    subscriber    Opener: sealed bytes -> payload, and in whose name it was published

equations    what both profiles share; profile_a, profile_p: the two; waters: a hash whose logarithms have an owner
naming       the strings that keys are for, and the hashes
sign         signatures in the name of credentials, verified in batches
contents     keys, nonces and messages around the equations
"""

from __future__ import annotations

from sealcast.protections.attribute.scheme.equations import Labels
from sealcast.protections.attribute.scheme.inspect import inspect
from sealcast.protections.attribute.scheme.master import MasterSecret, PlacedLabel, setup
from sealcast.protections.attribute.scheme.naming import Label
from sealcast.protections.attribute.scheme.open import OpenedContent, Opener
from sealcast.protections.attribute.scheme.parameters import PublicParameters
from sealcast.protections.attribute.scheme.requests import ConnectionKey
from sealcast.protections.attribute.scheme.seal import AttributeSealer, OutgoingEvent, SealOptions
from sealcast.protections.attribute.scheme.tags import RoutingToken, route, route_many
from sealcast.wire.attribute import AttributeReason, AttributeRejected, EventHeader, Profile, TagKind
from sealcast.wire.attribute_keys import ConnectionRequest, PublisherKey, SubscriptionKey

__all__ = [
    "AttributeReason",
    "AttributeRejected",
    "AttributeSealer",
    "ConnectionKey",
    "ConnectionRequest",
    "EventHeader",
    "Label",
    "Labels",
    "MasterSecret",
    "OpenedContent",
    "Opener",
    "OutgoingEvent",
    "PlacedLabel",
    "Profile",
    "PublicParameters",
    "PublisherKey",
    "RoutingToken",
    "SealOptions",
    "SubscriptionKey",
    "TagKind",
    "inspect",
    "route",
    "route_many",
    "setup",
]
