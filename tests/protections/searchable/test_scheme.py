"""The scheme: against an implementation by the book, and against those who would break it."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import CannotOpen, Misuse, Rejected
from sealcast.primitives import points
from sealcast.primitives.curve import CURVE, ORDER
from sealcast.primitives.groups import Element, Exponent
from sealcast.primitives.halves import PART_BYTES, MasterKey, UserPart, broker_half
from sealcast.primitives.secrets import Secret
from sealcast.protections.searchable import scheme
from sealcast.protections.searchable.scheme import Holder, UserKeys
from sealcast.trust.keys.topic_keys import place
from sealcast.wire.searching import FIRST_POINT, LABEL_BYTES, SECOND_POINT, TRAPDOOR_BYTES
from tests.protections.searchable import by_the_book as book
from tests.protections.searchable.world import TOPIC_ID, World, rekeyed_label
from tests.vectors import make_searchable

VECTORS = Path(make_searchable.HERE / "searchable.json")
DICTIONARY = [f"symbol {i}".encode() for i in range(200)]


def encrypted(world: World, user: str, label: bytes) -> Element:
    (found,) = scheme.re_encrypt([label], world.known_half(user))
    assert found is not None
    return found


def token(world: World, user: str, trapdoor: bytes) -> Element:
    found = scheme.token(trapdoor, world.known_half(user))
    assert found is not None
    return found


def meets(world: World, subscriber: str, label: bytes, publisher: str, trapdoor: bytes) -> bool:
    c = encrypted(world, subscriber, label)
    return scheme.matches(c, token(world, publisher, trapdoor), scheme.check_of(label), bound(subscriber))


def bound(user: str) -> bytes:
    return Holder(TOPIC_ID, 1, user).bound


# --- vectors ----------------------------------------------------------------------------------------------------------


def test_vectors_are_what_the_book_makes() -> None:
    assert json.loads(VECTORS.read_text()) == make_searchable.made()


@pytest.mark.parametrize("number", range(12))
def test_we_make_the_vectors(number: int) -> None:
    whole = json.loads(VECTORS.read_text())
    case, topic_id, epoch = whole["cases"][number], bytes.fromhex(whole["topic_id"]), whole["epoch"]
    topic_key = Secret(bytes.fromhex(whole["topic_key"]))
    master = MasterKey.derive(Secret(bytes.fromhex(whole["content"])), place(topic_id, epoch, ""))
    halves = {name: broker_half(topic_key, place(topic_id, epoch, name)) for name in whole["broker_halves"]}
    parts = {name: master.part(half) for name, half in halves.items()}
    assert CURVE.encode(master.public).hex() == whole["H"]
    assert master.search.reveal().hex() == whole["search"]
    assert {name: half.packed.hex() for name, half in halves.items()} == whole["broker_halves"]
    assert {name: part.half.packed.hex() for name, part in parts.items()} == whole["user_halves"]

    label, bits = bytes.fromhex(case["label"]), case["tag_bits"]
    holders = {name: Holder(topic_id, epoch, name) for name in parts}
    subscriber, publisher = (
        UserKeys(parts[case[who]], holders[case[who]], bits) for who in ("subscriber", "publisher")
    )
    r, s = (Exponent(int(case[name], 16), ORDER) for name in ("label_r", "trapdoor_r"))
    sealed = subscriber.tag(label) + (subscriber._sealed(subscriber.sigma(label), r) or b"")
    trapdoor = publisher.tag(label) + (publisher._trapdoor(publisher.sigma(label), s) or b"")
    assert (sealed.hex(), trapdoor.hex()) == (case["sealed_label"], case["trapdoor"])
    (c,) = scheme.re_encrypt([sealed], halves[case["subscriber"]])
    t = scheme.token(trapdoor, halves[case["publisher"]])
    assert c is not None and t is not None
    assert (CURVE.encode(c).hex(), CURVE.encode(t).hex()) == (case["C"], case["T"])
    assert scheme.token(trapdoor, halves[case["publisher"]], expected=t) == t
    assert scheme.token(trapdoor, halves[case["publisher"]], expected=c) == t
    for name, holder in holders.items():
        assert scheme.matches(c, t, scheme.check_of(sealed), holder.bound) == (name == case["subscriber"])


@given(first=st.integers(1, ORDER - 1), second=st.integers(1, ORDER - 1), factor=st.integers(1, ORDER - 1))
@settings(max_examples=25, deadline=None)
def test_points_agree_with_the_book(first: int, second: int, factor: int) -> None:
    a, b = book.times(first, book.G), book.times(second, book.G)
    one, other = (points.base(Exponent(k, ORDER)) for k in (first, second))
    exponent = Exponent(factor, ORDER)

    def same(ours: Element | None, books: book.Point) -> bool:
        return (None if ours is None else CURVE.encode(ours)) == (None if books is None else book.compressed(books))

    assert same(points.add(one, other), book.add(a, b))
    assert same(points.subtract(one, other), book.add(a, book.minus(b)))
    assert same(points.add_base(one, exponent), book.add(a, book.times(factor, book.G)))
    assert points.base_wire(exponent) == book.compressed(book.times(factor, book.G))
    whole = book.add(book.times(factor, a), b)
    (found,) = points.multiply_add_many([(CURVE.encode(one), CURVE.encode(other))], exponent)
    assert same(found, whole)
    assert same(points.multiply_add(CURVE.encode(one), CURVE.encode(other), exponent, one), whole)


def test_infinity_is_none_everywhere() -> None:
    k = points.random_exponent()
    negative = Exponent(ORDER - k.reveal(), ORDER)
    one, other = points.base(k), points.base(negative)
    unit = Exponent(1, ORDER)
    assert points.add(one, other) is None
    assert points.subtract(one, one) is None
    assert points.add_base(one, negative) is None
    assert points.differences([one, other], one)[0] == b""
    assert points.multiply_add_many([(CURVE.encode(one), CURVE.encode(other))], unit) == [None]
    for guess in (one, other, points.base(unit)):
        assert points.multiply_add(CURVE.encode(one), CURVE.encode(other), unit, guess) is None


# --- the scheme -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [0, 8, 16, 32])
def test_everybodys_trapdoor_meets_everybodys_label(bits: int) -> None:
    world = World(tag_bits=bits)
    for subscriber in world.users:
        label = world.keys(subscriber).seal_label(b"w")
        for publisher in world.users:
            keys = world.keys(publisher)
            assert meets(world, subscriber, label, publisher, keys.trapdoor(b"w"))
            assert not meets(world, subscriber, label, publisher, keys.trapdoor(b"v"))


def test_a_token_does_not_depend_on_who_published() -> None:
    world = World()
    assert len({token(world, user, world.keys(user).trapdoor(b"w")) for user in world.users}) == 1


def test_what_is_made_twice_has_only_its_tag_in_common() -> None:
    keys = World().keys("ana")
    for make in (keys.seal_label, keys.trapdoor):
        one, other = make(b"w"), make(b"w")
        assert one[:4] == other[:4]
        assert one[FIRST_POINT] != other[FIRST_POINT] and one[SECOND_POINT] != other[SECOND_POINT]
        assert make(b"w")[70:] != one[70:] or len(one) == TRAPDOOR_BYTES


def test_a_label_and_a_token_that_are_equal_do_not_match() -> None:
    world = World()
    sealed = world.keys("ana").seal_label(b"w")
    c = encrypted(world, "ana", sealed)
    ana = bound("ana")
    assert not scheme.matches(c, c, scheme.check_of(sealed), ana)
    assert not scheme.matches(c, c, hashlib.sha256(ana).digest()[:16], ana)
    assert scheme.matching([c], [scheme.check_of(sealed)], [ana], c) == []


def test_another_epoch_and_another_topic_match_nothing() -> None:
    world, other = World(), World()
    sealed = world.keys("ana").seal_label(b"w")
    assert not meets(world, "ana", sealed, "bo", world.keys("bo", epoch=2).trapdoor(b"w"))
    assert not meets(world, "ana", sealed, "bo", other.keys("bo").trapdoor(b"w"))


def test_a_trapdoor_means_nothing_under_anothers_half() -> None:
    world = World()
    sealed, trapdoor = world.keys("ana").seal_label(b"w"), world.keys("bo").trapdoor(b"w")
    assert meets(world, "ana", sealed, "bo", trapdoor)
    assert not meets(world, "ana", sealed, "cy", trapdoor)
    assert not meets(world, "cy", sealed, "bo", trapdoor)


def test_without_its_broker_half_nothing_of_a_user_matches() -> None:
    """Whoever deleted the half can only guess one: t2 by itself, or any other half, is no token."""
    world = World()
    sealed, trapdoor = world.keys("ana").seal_label(b"w"), world.keys("bo").trapdoor(b"w")
    c, t2 = encrypted(world, "ana", sealed), CURVE.decode(trapdoor[SECOND_POINT])
    assert not scheme.matches(c, t2, scheme.check_of(sealed), bound("ana"))
    guess = scheme.token(trapdoor, points.random_exponent())
    assert guess is not None and not scheme.matches(c, guess, scheme.check_of(sealed), bound("ana"))


# --- attacks ----------------------------------------------------------------------------------------------------------


def test_a_broker_and_one_user_have_the_master_key_and_open_everything() -> None:
    """What the scheme cannot resist; `explain` says so first."""
    world = World()
    part = world.master().part(world.known_half("cy"))  # cy's, who shares it with a broker
    x = (part.half.reveal() + world.known_half("cy").reveal()) % ORDER
    assert points.base(Exponent(x, ORDER)) == world.master().public
    colluding = UserKeys(part, Holder(TOPIC_ID, 1, "cy"), world.tag_bits)
    wanted = DICTIONARY[117]
    label, trapdoor = world.keys("ana").seal_label(wanted), world.keys("bo").trapdoor(wanted)
    # x c1 = C: the label opens without ana's half or the broker's half of ana.
    c = CURVE.power(CURVE.decode(label[FIRST_POINT]), Exponent(x, ORDER))
    tokens = {word: CURVE.power(part.public, colluding.sigma(word)) for word in DICTIONARY}
    assert [w for w, t in tokens.items() if scheme.matches(c, t, scheme.check_of(label), bound("ana"))] == [wanted]
    assert [w for w, t in tokens.items() if t == token(world, "bo", trapdoor)] == [wanted]


def test_a_broker_alone_opens_nothing_with_the_same_dictionary() -> None:
    """It has H, all of its halves and what is sent, and neither x nor S."""
    world = World()
    label = world.keys("ana").seal_label(DICTIONARY[117])
    c, public = encrypted(world, "ana", label), world.master().public
    part = UserPart(world.known_half("ana"), Secret(world.topic_key.reveal()), public)
    guessed = UserKeys(part, Holder(TOPIC_ID, 1, "ana"), 32)
    tokens = [CURVE.power(public, guessed.sigma(word)) for word in DICTIONARY]
    assert not any(scheme.matches(c, t, scheme.check_of(label), bound("ana")) for t in tokens)


def _unkeyed_tag(word: bytes) -> bytes:
    """The weakened variant: what pre-filters of paper 002 hash."""
    return hashlib.sha256(word).digest()[:4]


def test_a_dictionary_opens_plain_hashes_and_not_our_tags() -> None:
    world = World(tag_bits=32)
    keys = world.keys("ana")
    book_of = {_unkeyed_tag(word): word for word in DICTIONARY}
    opened = [book_of.get(_unkeyed_tag(word)) for word in DICTIONARY]
    assert opened == DICTIONARY  # every subscription, with the weakened variant
    assert [book_of.get(keys.seal_label(word)[:4]) for word in DICTIONARY].count(None) == len(DICTIONARY)
    # Nor does whoever hashes under a key of its own, or under another epoch's.
    for other in (World(tag_bits=32).keys("ana"), world.keys("ana", epoch=2)):
        theirs = {other.tag(word): word for word in DICTIONARY}
        assert not any(theirs.get(keys.tag(word)) for word in DICTIONARY)


def test_a_dictionary_opens_labels_whose_exponents_are_plain_hashes() -> None:
    """Unkeyed sigma: a broker computes every token itself, since it has H."""
    world = World()
    wanted, public = DICTIONARY[5], world.master().public

    def plain(word: bytes) -> Exponent:
        return Exponent(int.from_bytes(hashlib.sha512(word).digest(), "big") % ORDER, ORDER)

    weak = world.keys("ana")._sealed(plain(wanted), points.random_exponent())
    assert weak is not None
    ours = world.keys("ana").seal_label(wanted)
    for label, expected in ((bytes(4) + weak, [wanted]), (ours, [])):
        c = encrypted(world, "ana", label)
        tokens = {word: CURVE.power(public, plain(word)) for word in DICTIONARY}
        found = [w for w, t in tokens.items() if scheme.matches(c, t, scheme.check_of(label), bound("ana"))]
        assert found == expected


@pytest.mark.parametrize("weakened", [True, False])
def test_anothers_label_under_ones_own_key_matches_nothing(weakened: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that does not say whose a label is, as the paper has it, lets cy follow ana's filter."""
    world = World()
    if weakened:
        monkeypatch.setattr(Holder, "bound", property(lambda _: bytes(scheme.BOUND_BYTES)))
    theirs, trapdoor = world.keys("ana").seal_label(b"w"), world.keys("bo").trapdoor(b"w")
    copied = rekeyed_label(theirs, world.master().part(world.known_half("cy")).half)
    assert encrypted(world, "cy", copied) == encrypted(world, "ana", theirs), "the broker computes the same C"
    assert meets(world, "ana", theirs, "bo", trapdoor)
    assert meets(world, "cy", copied, "bo", trapdoor) == weakened


NAMES = st.from_regex(r"[a-z]{1,9}", fullmatch=True)
HOLDERS = st.tuples(st.binary(min_size=16, max_size=16), st.integers(0, 2**63), NAMES)


@given(one=HOLDERS, other=HOLDERS)
def test_what_labels_are_bound_to_differs_with_each_of_its_parts(
    one: tuple[bytes, int, str], other: tuple[bytes, int, str]
) -> None:
    for part in range(3):
        mixed = (*one[:part], other[part], *one[part + 1 :])
        assert (Holder(*mixed).bound == Holder(*one).bound) == (other[part] == one[part])


# --- what is refused --------------------------------------------------------------------------------------------------

NOT_ON_THE_CURVE = b"\x02" + (5).to_bytes(32, "big")
POINTS = {
    "not on the curve": NOT_ON_THE_CURVE,
    "infinity": bytes(33),
    "x beyond the field": b"\x02" + b"\xff" * 32,
    "uncompressed": b"\x04" + CURVE.encode(points.base(Exponent(1, ORDER)))[1:],
    "short": b"\x02" * 32,
    "long": b"\x02" * 34,
    "empty": b"",
}


@pytest.mark.parametrize("point", POINTS.values(), ids=POINTS)
def test_what_is_no_point_is_refused(point: bytes) -> None:
    good, half = points.base_wire(Exponent(7, ORDER)), Exponent(3, ORDER)
    guess = points.base(half)
    for pair in ((point, good), (good, point)):
        with pytest.raises(Rejected):
            points.multiply_add_many([(good, good), pair], half)
        with pytest.raises(Rejected):
            points.multiply_add(*pair, half, guess)
        with pytest.raises(Rejected):
            points.check(pair)


def test_nothing_is_computed_before_every_point_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    good = points.base_wire(Exponent(7, ORDER))

    class Untouchable:
        def __getattr__(self, name: str) -> object:
            assert name == "secp256k1_ec_pubkey_parse", f"{name} was called before every point was read"
            return getattr(lib, name)

    lib = points.lib
    monkeypatch.setattr(points, "lib", Untouchable())
    with pytest.raises(Rejected):
        points.multiply_add_many([(good, good), (good, NOT_ON_THE_CURVE)], Exponent(3, ORDER))


def test_a_users_part_is_read_as_it_was_written() -> None:
    part = World().master().part(points.random_exponent())
    again = UserPart.from_bytes(part.to_bytes())
    assert again.to_bytes() == part.to_bytes() and len(part.to_bytes()) == PART_BYTES == 97


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: bytes(32) + data[32:],
        lambda data: ORDER.to_bytes(32, "big") + data[32:],
        lambda data: data[:64] + NOT_ON_THE_CURVE,
        lambda data: data[:64] + bytes(33),
    ],
)
def test_a_damaged_part_is_refused(damage: object) -> None:
    data = World().master().part(points.random_exponent()).to_bytes()
    with pytest.raises(CannotOpen):
        UserPart.from_bytes(damage(data))  # type: ignore[operator]


def test_keys_stay_in_their_process_and_show_nothing() -> None:
    world = World()
    part = world.master().part(world.known_half("ana"))
    for secret in (part, world.master(), world.keys("ana"), world.known_half("ana")):
        with pytest.raises(Misuse):
            pickle.dumps(secret)
        with pytest.raises(Misuse):
            copy.deepcopy(secret)
        assert repr(secret) == f"<{type(secret).__name__}>"


@pytest.mark.parametrize("bits", [-1, 33])
def test_tags_have_at_most_32_bits(bits: int) -> None:
    with pytest.raises(Misuse, match="0 to 32 bits"):
        World(tag_bits=bits).keys("ana")


def test_sizes() -> None:
    keys = World().keys("ana")
    assert len(keys.seal_label(b"w")) == LABEL_BYTES == 86
    assert len(keys.trapdoor(b"w")) == TRAPDOOR_BYTES == 70
