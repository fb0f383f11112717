"""The attribute scheme: who opens what, on both libraries, both profiles and both kinds of tags."""

from __future__ import annotations

import itertools

import pytest

from sealcast.errors import Misuse
from sealcast.primitives.pairing import named
from sealcast.protections.attribute import scheme
from sealcast.protections.attribute.scheme import (
    AttributeReason,
    AttributeRejected,
    AttributeSealer,
    MasterSecret,
    Opener,
    Profile,
    PublicParameters,
    SealOptions,
    TagKind,
)
from sealcast.wire.attribute import EventHeader, SealedAttributeEvent
from sealcast.wire.attribute_keys import PublisherKey, SubscriptionKey
from tests.primitives.test_pairing import NEEDS_BOTH
from tests.protections.attribute.world import ATTRIBUTES, EPOCH, PAIRINGS, PROFILES, TAGS, World, event

EVERY = list(itertools.product(PAIRINGS, PROFILES, TAGS))


@pytest.fixture(scope="module", params=EVERY, ids="-".join)
def world(request: pytest.FixtureRequest) -> World:
    return World(*request.param)


def reason(opener: Opener, sealed: bytes) -> AttributeReason:
    with pytest.raises(AttributeRejected) as refused:
        opener.open(sealed)
    return refused.value.reason


def test_matching_credentials_open_an_event(world: World) -> None:
    sealed = world.seal(b"fever", heat="101", ward="010")
    opened = world.opener(heat="10", ward="010").open(sealed)
    assert opened.payload == b"fever"
    assert opened.publisher == dict.fromkeys(ATTRIBUTES, b"|")
    assert opened.own == {"heat": b"10|", "ward": b"010|", "zone": b"|"}


def test_other_credentials_do_not(world: World) -> None:
    sealed = world.seal(heat="101", ward="010")
    for wanted in ({"heat": "11"}, {"heat": "10", "ward": "011"}, {"zone": "0"}):
        assert reason(world.opener(**wanted), sealed) is AttributeReason.MISMATCH


def test_a_subscription_with_several_labels_is_a_product(world: World) -> None:
    opener = world.opener(heat=["00", "11"], ward=["0"])
    for heat, ward in itertools.product(("000", "010", "110"), ("011", "100")):
        sealed = world.seal(heat=heat, ward=ward)
        if heat[:2] in ("00", "11") and ward[0] == "0":
            assert opener.open(sealed).own["heat"] == heat[:2].encode() + b"|"
        else:
            assert reason(opener, sealed) is AttributeReason.MISMATCH


def test_several_subscriptions_are_alternatives(world: World) -> None:
    opener = world.opener(world.key(heat="0"), world.key(ward="1"))
    assert opener.open(world.seal(heat="111", ward="100")).subscription == 1
    assert reason(opener, world.seal(heat="111", ward="000")) is AttributeReason.MISMATCH


def test_another_epoch_has_other_keys(world: World) -> None:
    sealed = world.seal(heat="101")
    assert reason(world.opener(world.key(EPOCH + 1)), sealed) is AttributeReason.EPOCH
    # Also for whoever claims that keys of the last epoch were for this one.
    old = world.key(EPOCH - 1)
    claimed = SubscriptionKey(EPOCH, old.bond, old.credentials)
    assert reason(world.opener(claimed), sealed) in (AttributeReason.MISMATCH, AttributeReason.KEY)
    now = world.key()
    with_old_bond = SubscriptionKey(EPOCH, old.bond, now.credentials)
    assert reason(world.opener(with_old_bond), sealed) is AttributeReason.KEY


def test_keys_of_two_subscriptions_do_not_mix(world: World) -> None:
    """Section 4.3: whoever may read heat=1,ward=0 and heat=0,ward=1 may not read heat=1,ward=1."""
    one, other = world.key(heat="1", ward="0"), world.key(heat="0", ward="1")
    sealed = world.seal(heat="111", ward="111")
    assert reason(world.opener(one, other), sealed) is AttributeReason.MISMATCH
    heat = [c for c in one.credentials if c.attribute != "ward"]
    ward = [c for c in other.credentials if c.attribute == "ward"]
    for bond in (one.bond, other.bond):
        mixed = SubscriptionKey(EPOCH, bond, (*heat, *ward))
        assert reason(world.opener(mixed), sealed) is AttributeReason.KEY


def test_a_coalition_of_subscribers_opens_what_one_of_them_may(world: World) -> None:
    """Any choice of credentials out of three subscriptions, under any of their bonds, opens nothing more."""
    keys = [world.key(heat="1", ward="0"), world.key(heat="0", ward="1"), world.key(zone="1", ward="1")]
    sealed = world.seal(heat="111", ward="111", zone="000")
    pool = {name: [c for key in keys for c in key.credentials if c.attribute == name] for name in ATTRIBUTES}
    for bond in (key.bond for key in keys):
        coalition = SubscriptionKey(EPOCH, bond, tuple(itertools.chain.from_iterable(pool.values())))
        assert reason(world.opener(coalition), sealed) is AttributeReason.KEY


def test_a_position_without_a_label_opens_nothing(world: World) -> None:
    sealed = world.seal(heat="1")  # positions 2 and 3 are padding
    header = SealedAttributeEvent.parse(sealed).header
    assert all(attribute.positions == 4 for attribute in header.attributes)
    assert reason(world.opener(heat="10"), sealed) is AttributeReason.MISMATCH


def test_tokens_route_by_label_and_nothing_else(world: World) -> None:
    header = SealedAttributeEvent.parse(world.seal(heat="101")).header
    tokens = world.master.tokens(EPOCH, {"heat": [b"10|", b"11|", b"|"]})
    assert scheme.route_many(world.parameters, tokens, [header]).tolist() == [[True, False, True]]
    assert scheme.route(world.parameters, tokens, header) and not scheme.route(world.parameters, tokens[1:2], header)
    others = world.master.tokens(EPOCH + 1, {"heat": [b"10|"]}) + world.master.tokens(EPOCH, {"ward": [b"10|"]})
    assert not scheme.route(world.parameters, others, header)


def test_a_header_is_new_for_every_event_unless_it_is_asked_for(world: World) -> None:
    same = [event(b"%d" % i, heat="101") for i in range(3)]
    fresh = [SealedAttributeEvent.parse(one).header.raw for one in world.sealer().seal(same)]
    assert len(set(fresh)) == 3
    sealer = world.sealer(SealOptions(reuse=2))
    sealed = sealer.seal([*same, event(heat="100"), event(heat="000"), *same])
    parsed = [SealedAttributeEvent.parse(one) for one in sealed]
    assert len({one.header.raw for one in parsed}) == 4 and (sealer.hits, sealer.misses) == (4, 4)
    assert [one.number for one in parsed] == [0, 1, 2, 0, 0, 0, 1, 2]
    opener = world.opener(heat="1")
    assert [opener.open(one).payload for one in sealed[:3]] == [b"0", b"1", b"2"]


def test_a_session_signs_a_frame_at_once(world: World) -> None:
    sealed = world.sealer(SealOptions(reuse=8, session=True)).seal([event(b"%d" % i, heat="101") for i in range(5)])
    opened = world.opener(heat="10").open_many(sealed)
    assert [one.payload for one in opened if not isinstance(one, AttributeRejected)] == [b"%d" % i for i in range(5)]
    assert all(one.publisher["heat"] == b"|" for one in opened if not isinstance(one, AttributeRejected))


def test_signatures_of_many_events_are_verified_at_once(world: World) -> None:
    sealed = world.sealer(SealOptions(pseudonym=True)).seal([event(b"%d" % i) for i in range(4)])
    other = AttributeSealer(
        world.parameters,
        scheme.setup(world.parameters.profile, world.parameters.tags, world.pairing).publisher_key(
            EPOCH, {name: [b"|"] for name in ATTRIBUTES}
        ),
    )
    if world.publisher_key.routing is not None:  # a stranger who learned the routing key
        other._key = PublisherKey(EPOCH, world.publisher_key.routing, other._key.credentials)
    sealed.insert(2, other.seal([event(b"forged")])[0])
    found = world.opener().open_many(sealed)
    assert [one.reason if isinstance(one, AttributeRejected) else one.payload for one in found] == [
        b"0",
        b"1",
        AttributeReason.SIGNATURE,
        b"2",
        b"3",
    ]


def test_a_publisher_publishes_what_its_credentials_cover(world: World) -> None:
    key = world.master.publisher_key(EPOCH, {"heat": [b"10|", b"0|"], "ward": [b"|"], "zone": [b"|"]})
    sealer = AttributeSealer(world.parameters, key)
    (sealed,) = sealer.seal([event(heat="011")])
    assert world.opener().open(sealed).publisher == {"heat": b"0|", "ward": b"|", "zone": b"|"}
    with pytest.raises(Misuse, match="do not cover this value of heat"):
        sealer.seal([event(heat="110")])


def test_keys_and_parameters_survive_their_bytes(world: World) -> None:
    sealed = world.seal(heat="101")
    parameters = PublicParameters.from_bytes(world.parameters.to_bytes(), world.pairing)
    key = world.key(heat="1")
    again = SubscriptionKey.parse(key.to_bytes())
    assert again.to_bytes() == key.to_bytes() and parameters.to_bytes() == world.parameters.to_bytes()
    assert Opener(parameters, [again]).open(sealed).payload == b"payload"
    publisher = PublisherKey.parse(world.publisher_key.to_bytes())
    assert publisher.to_bytes() == world.publisher_key.to_bytes()
    master = MasterSecret.from_bytes(world.master.to_bytes(), world.pairing)
    assert master.public().to_bytes() == world.parameters.to_bytes()
    assert master.tokens(EPOCH, {"heat": [b"1|"]}) == world.master.tokens(EPOCH, {"heat": [b"1|"]})
    header = SealedAttributeEvent.parse(sealed).header
    assert EventHeader.parse(header.raw) == header


@NEEDS_BOTH
@pytest.mark.parametrize(("profile", "tags"), list(itertools.product(PROFILES, TAGS)), ids="-".join)
def test_both_libraries_speak_to_each_other(profile: Profile, tags: TagKind) -> None:
    """The master's bytes give the same parameters and tokens in both, and each opens what the other sealed."""
    fast = World("fast", profile, tags)
    portable = World.__new__(World)
    portable.pairing = named("portable")
    portable.master = MasterSecret.from_bytes(fast.master.to_bytes(), portable.pairing)
    portable.parameters = portable.master.public()
    portable.publisher_key = PublisherKey.parse(fast.publisher_key.to_bytes())
    assert portable.parameters.to_bytes() == fast.parameters.to_bytes()
    for sender, receiver in ((fast, portable), (portable, fast)):
        sealed = sender.seal(b"across", heat="101")
        key = SubscriptionKey.parse(sender.key(heat="1").to_bytes())
        assert receiver.opener(key).open(sealed).payload == b"across"
        (token,) = sender.master.tokens(EPOCH, {"heat": [b"1|"]})
        assert scheme.route(receiver.parameters, [token], SealedAttributeEvent.parse(sealed).header)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_one_exponent_for_a_subscription_opens_with_fewer_pairings(pairing: str) -> None:
    world = World(pairing, Profile.P)
    key = world.key(heat="1", ward="01", shared=True)
    assert len({one.second for one in key.credentials}) == 1
    assert world.opener(key).open(world.seal(heat="111", ward="011")).payload == b"payload"
    assert reason(world.opener(key), world.seal(heat="111", ward="111")) is AttributeReason.MISMATCH
    with pytest.raises(Misuse, match="profile P only"):
        World(pairing, Profile.A).key(shared=True)
