"""Credentials with the real scheme against brute force: what is opened is what the filter is true of (spec A.3).

Every pair goes through keys, sealing, the routing test and opening, on both pairing libraries and in both profiles.
The second library is for the soak: every day, test_scheme.py has each open what the other sealed.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest

from sealcast.errors import CannotOpen
from sealcast.filters.evaluate import evaluate
from sealcast.filters.labels import StringPlan
from sealcast.model.schema import Value
from sealcast.primitives.pairing import available, named
from sealcast.protections.attribute import scheme
from sealcast.protections.attribute.credentials import EventSpace, WantedLabels
from sealcast.protections.attribute.scheme import (
    AttributeReason,
    AttributeRejected,
    AttributeSealer,
    EventHeader,
    Opener,
    OutgoingEvent,
    PlacedLabel,
    Profile,
    TagKind,
)
from tests.effort import seeds
from tests.protections.attribute.asked import SCHEMA, Asker, condition

EPOCH = 3
#: As deep as the filters of `asked` go: every label costs.
SHORT = StringPlan(text=12, suffix=3)


class Topic:
    """A key server, and a publisher of everything."""

    def __init__(self, library: str, profile: Profile, *, joint: bool = False, tags: TagKind = TagKind.KEYED) -> None:
        self.space = EventSpace(SCHEMA, SHORT, joint=joint)
        self.master = scheme.setup(profile, tags, named(library))
        self.parameters = self.master.public()
        self._sealer = self.sealer(self.space.everything)

    def sealer(self, may: WantedLabels) -> AttributeSealer:
        return AttributeSealer(self.parameters, self.master.publisher_key(EPOCH, may))

    def seal(self, values: Mapping[str, Value], payload: bytes) -> bytes:
        (sealed,) = self._sealer.seal([OutgoingEvent(self.space.event(values), payload)])
        return sealed

    def key(self, wanted: WantedLabels) -> scheme.SubscriptionKey:
        placed = {
            name: [PlacedLabel(self.space.position(name, label), label) for label in labels]
            for name, labels in wanted.items()
        }
        return self.master.subscription_key(EPOCH, placed)

    def opener(self, text: str) -> Opener:
        asked = condition(text, self.space.schema)
        return Opener(self.parameters, [self.key(wanted) for wanted in self.space.subscriptions(asked)])


def opened(opener: Opener, sealed: bytes) -> scheme.OpenedContent | None:
    """None for an event of somebody else's; whatever else is wrong with it is raised."""
    try:
        return opener.open(sealed)
    except AttributeRejected as error:
        assert error.reason in (AttributeReason.MISMATCH, AttributeReason.EPOCH)
        return None


@pytest.mark.parametrize(("library", "profile"), seeds(product(available(), Profile), daily=2), ids=str)
def test_what_is_opened_is_what_the_filter_is_true_of(library: str, profile: Profile) -> None:
    topic, asker = Topic(library, profile), Asker(11)
    events = [asker.event() for _ in range(12)]
    sealed = [topic.seal(event, b"event %d" % number) for number, event in enumerate(events)]
    pairs = found = 0
    while pairs < 240:
        text = asker.filter()
        asked, opener = condition(text), topic.opener(text)
        for number, event in enumerate(events):
            expected = evaluate(asked, event) is True
            result = opened(opener, sealed[number])
            assert (result is not None) is expected, (text, event)
            if result is not None:
                assert result.payload == b"event %d" % number
                topic.space.verify(event, result.own, "the label that opened it")
                topic.space.verify(event, result.publisher, "what its publisher may publish")
            pairs, found = pairs + 1, found + expected
    assert 20 < found < 220


@pytest.mark.parametrize("library", seeds(available(), daily=1))
def test_the_joint_space_agrees_with_the_filter(library: str) -> None:
    topic, asker = Topic(library, Profile.A, joint=True), Asker(12)
    events = [asker.event() for _ in range(6)]
    sealed = [topic.seal(event, b"") for event in events]
    for _ in range(10):
        text = asker.filter()
        asked, opener = condition(text), topic.opener(text)
        for event, message in zip(events, sealed, strict=True):
            assert (opened(opener, message) is not None) is (evaluate(asked, event) is True), (text, event)


def test_the_label_that_matched_is_found_by_its_tag() -> None:
    """Of many labels of one's own, the one that an event has is found without trying to decrypt with each."""
    topic = Topic(available()[0], Profile.A)
    (wanted,) = topic.space.subscriptions(condition("pulse IN (21, 30, 77, 99, 121, 150) AND ward IN ('a1', 'b1')"))
    assert len(wanted["pulse"]) == 6
    event = SCHEMA.parse({"pulse": 99, "ward": "b1"})
    sealed = topic.seal(event, b"")
    header, _ = EventHeader.read(sealed)
    tokens = [token for name in ("pulse", "ward") for token in topic.master.tokens(EPOCH, {name: wanted[name]})]
    matched = [label for name in ("pulse", "ward") for label in wanted[name] if label in topic.space.event(event)[name]]
    hits = scheme.route_many(topic.parameters, tokens, [header])[0]
    labels = [label for name in ("pulse", "ward") for label in wanted[name]]
    assert [label for label, hit in zip(labels, hits, strict=True) if hit] == matched and len(matched) == 2


@pytest.mark.parametrize("library", seeds(available(), daily=1))
def test_keys_of_two_alternatives_do_not_mix(library: str) -> None:
    """One subscriber with two subscriptions does not open what matches half of each (paper, section 4.3)."""
    topic = Topic(library, Profile.A)
    opener = topic.opener("(pulse = 100 AND ward = 'a1') OR (pulse = 50 AND ward = 'b1')")
    for pulse, ward, expected in ((100, "a1", True), (50, "b1", True), (100, "b1", False), (50, "a1", False)):
        sealed = topic.seal(SCHEMA.parse({"pulse": pulse, "ward": ward}), b"")
        assert (opened(opener, sealed) is not None) is expected


def test_what_a_publisher_may_not_publish_is_found_out_after_opening() -> None:
    """A publisher for ward a seals an event for everyone's labels of ward b, and signs in the name of ward a."""
    topic = Topic(available()[0], Profile.A)
    space = topic.space
    may = space.advertisement(condition("ward LIKE 'a%'"))
    honest, lie = SCHEMA.parse({"ward": "a1"}), SCHEMA.parse({"ward": "b1"})
    # Its own credential in the place of another label of b1: so its own sealer takes the event as covered.
    labels = dict(space.event(lie))
    ward = list(labels["ward"])
    ward[space.position("ward", may["ward"][0])] = may["ward"][0]
    (forged,) = topic.sealer(may).seal([OutgoingEvent({**labels, "ward": ward}, b"for ward b")])
    result = topic.opener("ward = 'b1'").open(forged)
    assert result.payload == b"for ward b"
    space.verify(lie, result.own, "the label that opened it")
    with pytest.raises(CannotOpen, match="does not cover the value of 'ward'"):
        space.verify(lie, result.publisher, "what its publisher may publish")
    # And what it may publish does not cover what the reader asked for.
    with pytest.raises(CannotOpen, match="does not cover the value of 'ward'"):
        space.verify(honest, result.own, "the label that opened it")


@pytest.mark.parametrize("given", [{}, {"ward": ""}, {"ward": "a"}, {"ward": "x" * 12, "note": "y" * 500, "pulse": 20}])
def test_every_event_takes_as_many_bytes(given: dict[str, object]) -> None:
    """Neither the length of a text nor an absent value shows, but for the payload's own length."""
    topic = Topic(available()[0], Profile.A)
    header, _ = EventHeader.read(topic.seal(SCHEMA.parse(given), b""))
    empty, _ = EventHeader.read(topic.seal(SCHEMA.parse({}), b""))
    assert len(header.raw) == len(empty.raw)
    assert [each.positions for each in header.attributes] == [each.positions for each in empty.attributes]
