"""Attacks on the algebra, mounted on whole nodes: each breaks a weaker variant and fails on ours.

The weaker variants are the paper's cipher as printed (all of Z_p*, exponents modulo p - 1, nothing checked), labels
that are numbers and not hashed, a modulus with a smooth p - 1, and multiplication by x alone, of any x.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from math import gcd, prod
from random import Random

import gmpy2
import pytest

from sealcast.errors import CannotOpen, Rejected
from sealcast.lab.shikfa.net import Net, only
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import Element, Exponent, Group
from sealcast.primitives.modular import SafePrimeGroup, group14
from sealcast.protections.layered import keys
from sealcast.protections.layered.messages import FilterMessage, Notification
from sealcast.protections.layered.open import Opener
from sealcast.protections.layered.tree import Tree
from sealcast.wire.notifications import LayeredEntry
from tests.schemes.layered_net import TOY

PARENTS = {"v3": "P", "v2": "v3", "v1": "v2", "S": "v1", "T": "v1"}


class Printed(SafePrimeGroup):
    """The paper's cipher: x^k modulo p on all of Z_p*, k d = 1 modulo p - 1. Whatever comes is taken."""

    @property
    def order(self) -> int:
        return self.prime - 1

    def hash(self, data: bytes) -> Element:
        drawn = int.from_bytes(super().hash(data) + super().hash(b"more" + data), "big")
        return Element((drawn % self.prime).to_bytes(self.wire_bytes, "big"))

    def decode(self, data: bytes) -> Element:
        return Element(bytes(data))


class Numbers(SafePrimeGroup):
    """Labels are numbers, squared and not hashed: in the right group, and still with structure."""

    def hash(self, data: bytes) -> Element:
        number = int(data[-4:]) if data[-4:].isdigit() else 2
        return Element(pow(number, 2, self.prime).to_bytes(self.wire_bytes, "big"))


class Weak(Net):
    """Exponents prime to the order, where that is none."""

    def agreed(self, descendant: str, ancestor: str) -> Exponent:
        while gcd(value := self.random.randrange(1, self.group.order), self.group.order) != 1:
            pass
        return Exponent(value, self.group.order)


PRINTED = Printed("printed", TOY.prime)


def net(group: Group, seed: int = 1) -> Net:
    return Weak(Tree("P", PARENTS, 2), group, Random(seed))


def number(element: bytes) -> int:
    return int.from_bytes(element, "big")


def packed(value: int, group: Group) -> bytes:
    return value.to_bytes(group.wire_bytes, "big")


# --- Legendre's symbol ------------------------------------------------------------------------------------------------


def symbol_of(group: SafePrimeGroup, element: bytes) -> int:
    return int(gmpy2.legendre(number(element), group.prime))


def rightly_guessed(group: SafePrimeGroup) -> int:
    """Of 60 filters, one of two labels each, how many v1 tells by the symbol of what is in its table."""
    random, right = Random(5), 0
    for seed in range(60):
        world = net(group, seed)
        labels = [b"label %d" % i for i in range(40)]
        of = {label: symbol_of(group, world.hashes(label)) for label in labels}
        other = next((label for label in labels if of[label] != of[labels[0]]), labels[1])
        wanted = random.choice((labels[0], other))
        world.subscribe("S", only(wanted))
        (row,) = world.brokers["v1"].table.rows()
        likely = [label for label in (labels[0], other) if of[label] == symbol_of(group, row.slots[0][0])]
        right += random.choice(likely) == wanted
    return right


def test_legendres_symbol() -> None:
    assert rightly_guessed(PRINTED) == 60
    # Ours: everything has the same symbol, whatever the label, and v1 guesses.
    assert 18 <= rightly_guessed(TOY) <= 42
    world = net(TOY)
    for label in (b"a", b"b", b"c", b"d"):
        world.subscribe("S", only(label))
        world.publish(frozenset((label,)), b"x")
    tokens = [t for _, m in world.filters() for slot in m.slots for t in slot]
    tokens += [t for _, m in world.notifications() for entry in m.entries for t in (*entry.tokens, entry.key)]
    assert {symbol_of(TOY, token) for token in tokens} == {1}


# --- small subgroups --------------------------------------------------------------------------------------------------

PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


def smooth() -> Printed:
    """p - 1 is 2 times small primes."""
    random = Random(1)
    while True:
        chosen = 2 * prod(PRIMES) * random.choice((41, 43, 47, 53, 59, 61)) * random.choice((67, 71, 73, 79, 83))
        if gmpy2.is_prime(chosen + 1):
            return Printed("smooth", chosen + 1)


def test_small_subgroup() -> None:
    """S sends v1 elements of small order as filters and, with whoever listens above, reads v1's key for its r-th
    ancestor off what is forwarded: once for every small prime."""
    group = smooth()
    world, p = net(group), group.prime
    known, secret = world.keys["S", "v1"].reveal(), world.keys["v1", "v3"].reveal()
    remainders = {}
    for order in PRIMES:
        base = next(b for b in (pow(a, (p - 1) // order, p) for a in range(2, 100)) if b != 1)
        (up,) = world.brokers["v1"].on_filter("S", FilterMessage(((packed(base, group),),), ("S",)))
        answer = number(up.slots[0][0])
        power = next(e for e in range(order) if pow(base, e, p) == answer)
        remainders[order] = power * known % order
    assert remainders == {order: secret % order for order in PRIMES}

    # Ours: the group has no small order. What has one is refused, as a filter and as an event, and leaves no row.
    for ours, bad in ((TOY, packed(TOY.prime - 1, TOY)), (group14(), packed(group14().prime - 1, group14()))):
        broker = net(ours).brokers["v1"]
        with pytest.raises(Rejected):
            broker.on_filter("S", FilterMessage(((bad,),), ("S",)))
        assert len(broker.table) == 0
    members = [v for v in range(2, 3_000) if symbol_of(TOY, packed(v, TOY)) == 1]
    assert all(pow(v, TOY.order, TOY.prime) == 1 and gmpy2.is_prime(TOY.order) for v in members)


def test_small_subgroup_of_the_twist() -> None:
    """Multiplication by x alone works on x of the curve's twist, whose order has the factor 13."""
    p, n = 2**256 - 2**32 - 977, CURVE.order
    u = next(u for u in range(2, 50) if gmpy2.legendre(u, p) == -1)

    def add(a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
        if a is None or b is None:
            return a or b
        if a[0] == b[0] and (a[1] + b[1]) % p == 0:
            return None
        up, down = (3 * a[0] * a[0], 2 * a[1]) if a == b else (b[1] - a[1], b[0] - a[0])
        slope = up * pow(down, -1, p) % p
        x = (slope * slope - a[0] - b[0]) % p
        return x, (slope * (a[0] - x) - a[1]) % p

    def times(point: tuple[int, int] | None, k: int) -> tuple[int, int] | None:
        found = None
        for bit in bin(k)[2:]:
            found = add(found, found)
            found = add(found, point) if bit == "1" else found
        return found

    twist, order, point = 2 * p + 2 - n, 13, None
    assert twist % (order * order) == 0
    x = 0
    while point is None:
        x += 1
        square = (x**3 + 7 * u**3) % p
        if gmpy2.legendre(square, p) == 1:
            point = times((x, pow(square, (p + 1) // 4, p)), twist // (order * order))
            point = times(point, order) or point  # its order was 13 or its square
    assert times(point, order) is None
    sent = point[0] * pow(u, -1, p) % p
    assert gmpy2.legendre(sent**3 + 7, p) == -1  # no point of the curve has this x
    secret = Random(3).randrange(1, n)
    answer = times(point, secret)  # a node that multiplies by x alone, and does not ask
    read = [e for e in range(order) if (t := times(point, e)) == answer or (t and answer and t[0] == answer[0])]
    assert secret % order in read and len(read) <= 2  # known up to its sign
    world = net(CURVE)
    for head in (b"\2", b"\3"):
        with pytest.raises(Rejected, match="not on the curve"):
            world.brokers["v1"].on_filter("S", FilterMessage(((head + sent.to_bytes(32, "big"),),), ("S",)))


# --- the identity, and -1 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1, TOY.prime - 1], ids=["identity", "-1"])
def test_what_every_key_leaves_alone(value: int) -> None:
    """Planted as a filter it is itself on every link, and in every table; planted in an event, it hits them all."""
    mark = packed(value, PRINTED)
    world = net(PRINTED)
    messages, sender = [FilterMessage(((mark,),), ("S",))], "S"
    for name in ("v1", "v2", "v3"):
        assert [m.slots for m in messages] == [((mark,),)]  # known again by whoever listens
        messages, sender = [up for m in messages for up in world.brokers[name].on_filter(sender, m)], name
    # Anyone above may now send S something, without a key, through brokers that should drop what they cannot place.
    notice = Notification(b"e" * 16, (LayeredEntry((mark,), mark),), b"")
    for name, child in (("v3", "v2"), ("v2", "v1"), ("v1", "S")):
        notice = world.brokers[name].on_notification(notice)[child]
    assert notice.entries[0].tokens == (mark,)
    # Ours.
    ours = net(TOY)
    with pytest.raises(Rejected):
        ours.brokers["v1"].on_filter("S", FilterMessage(((mark,),), ("S",)))
    with pytest.raises(Rejected):
        ours.brokers["v3"].on_notification(Notification(b"e" * 16, (LayeredEntry((mark,), mark),), b""))
    assert all(len(broker.table) == 0 for broker in ours.brokers.values())


def forged(world: Net, key: bytes, shared: Element) -> Notification:
    """What a broker sends to a subscriber, with a payload of its own."""
    event = b"e" * 16
    body = keys.seal_body(keys.body_key(world.group, shared, event, b""), b"forged")
    return Notification(event, (LayeredEntry((), key, final=True),), body)


def test_a_payload_key_that_is_the_identity() -> None:
    """A broker sends the identity as the payload key: whatever the layers, it is what the subscriber derives from."""
    identity = packed(1, PRINTED)
    world = net(PRINTED)
    opener = Opener(world.tree.place("S"), world.brokers["S"].layers)
    assert opener.open(forged(world, identity, Element(identity))) == b"forged"
    ours = net(TOY)
    with pytest.raises(Rejected):
        Opener(ours.tree.place("S"), ours.brokers["S"].layers).open(forged(ours, identity, Element(identity)))


def test_opening_is_not_believing() -> None:
    """A filter's token has the layers that a payload key has. A broker that knows what a subscriber asked for can send
    that token as a payload key, and seal what it likes under it. So a subscriber believes the publisher's signature,
    which is over the event's id and its body; that something opens says nothing about who wrote it."""
    world = net(CURVE)
    world.subscribe("S", only(b"oil"))
    token = next(m.slots[0][0] for sent, m in world.filters() if sent.sender == "S")
    opener = Opener(world.tree.place("S"), world.brokers["S"].layers)
    assert opener.open(forged(world, token, world.hashes(b"oil"))) == b"forged"
    with pytest.raises(CannotOpen):
        opener.open(forged(world, token, world.hashes(b"gas")))


# --- products ---------------------------------------------------------------------------------------------------------


def hits_of_a_product(group: SafePrimeGroup) -> set[bytes]:
    """v1 multiplies two rows of S and sends the product up as one more filter of S's: what that subscribes it to."""
    world = net(group)
    for label in (b"0007", b"0011"):
        world.subscribe("S", only(label))
    rows = [number(row.slots[0][0]) for row in world.brokers["v1"].table.rows()]
    made = Element(packed(prod(rows) % group.prime, group))
    up = FilterMessage(((world.brokers["v1"].put_on(made),),), ("v1", "S"))
    for message in world.brokers["v2"].on_filter("v1", up):
        world.brokers["v3"].on_filter("v2", message)
    others = [b"%04d" % i for i in range(2, 120) if i not in (7, 11)]
    return {label for label in others if _reaches(world, label)}


def _reaches(world: Net, label: bytes) -> bool:
    before = len(world.sent)
    with suppress(CannotOpen):  # the layers of the forged row are not those that S takes off
        world.publish(frozenset((label,)), b"x")
    return any(sent.receiver == "v1" for sent in world.sent[before:])


def test_products() -> None:
    """From rows for 7 and 11 comes one for 77, that nobody subscribed to; hashed labels have no product."""
    assert hits_of_a_product(Numbers("numbers", TOY.prime)) == {b"0077"}
    assert hits_of_a_product(TOY) == set()


# --- what is no element -----------------------------------------------------------------------------------------------


def not_elements(group: Group) -> list[bytes]:
    size = group.wire_bytes
    always = [b"", b"\0", bytes(size), b"\xff" * size, group.encode(group.hash(b"f")) + b"\0", bytes(size - 1)]
    if isinstance(group, SafePrimeGroup):
        p = group.prime
        other = next(x for x in range(2, 100) if gmpy2.legendre(x, p) == -1)
        good = number(group.hash(b"f"))
        # ... and a member spelled a second time, as one more than p would be if it fitted.
        return always + [packed(x, group) for x in (1, p - 1, other, p - good) if x.bit_length() <= 8 * size]
    good = group.encode(group.hash(b"f"))
    infinity, hybrid, whole = b"\0", b"\6" + good[1:], b"\4" + group.hash(b"f")
    beyond = b"\2" + (2**256 - 2**32 - 977 + 1).to_bytes(32, "big")
    no_point = b"\2" + (5).to_bytes(32, "big")
    return [*always, infinity, hybrid, whole, beyond, no_point]


@pytest.mark.parametrize("group", [CURVE, group14(), TOY], ids=lambda g: g.name)
def test_nothing_but_elements_gets_in(group: Group) -> None:
    world = net(group)
    good = group.encode(group.hash(b"good"))
    world.subscribe("S", only(b"oil"))
    token = next(m.slots[0][0] for sent, m in world.filters() if sent.sender == "v1" and sent.receiver == "v2")
    opener = Opener(world.tree.place("S"), world.brokers["S"].layers)
    before = {name: len(broker.table) for name, broker in world.brokers.items()}
    for bad, name in product(not_elements(group), ("v1", "v2")):
        sender, path = ("S", ("S",)) if name == "v1" else ("v1", ("v1", "S"))
        # A good token beside it changes nothing: all of a filter, or none of it.
        with pytest.raises(Rejected):
            world.brokers[name].on_filter(sender, FilterMessage(((good,), (bad,)), path))
        with pytest.raises(Rejected):
            world.brokers[name].on_notification(Notification(b"e", (LayeredEntry((good, bad), good),), b""))
        with pytest.raises(Rejected):
            opener.open(Notification(b"e", (LayeredEntry((), bad, final=True),), b""))
    assert {name: len(broker.table) for name, broker in world.brokers.items()} == before
    # The payload key is looked at where it is worked with: on a hit.
    event = world.publish(frozenset((b"oil",)), b"x").event
    arrived = next(m for sent, m in world.notifications() if sent.receiver == "v1" and m.event == event)
    with pytest.raises(Rejected):
        entry = LayeredEntry(arrived.entries[0].tokens, not_elements(group)[0])
        world.brokers["v1"].on_notification(Notification(event, (entry,), arrived.body))
    assert len(token) == group.wire_bytes
