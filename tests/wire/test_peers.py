"""Messages between peers: read to what was written, refused in everything else."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import FrameRejected, Misuse
from sealcast.wire import cbor, limits, peers
from sealcast.wire.annotations import annotated
from sealcast.wire.peers import PeerMessage
from tests.effort import examples
from tests.vectors import make_peers as made
from tests.wire.test_spec import SPEC

VECTORS = json.loads(made.FILE.read_text())
NAMED = {v.get("why") or v["good"]: v for v in VECTORS["vectors"]}


def test_the_vectors_are_what_the_code_makes() -> None:
    assert made.FILE.read_text() == made.text(), "run `python -m tests.vectors.make_peers` and say why"


@pytest.mark.parametrize("name", NAMED)
def test_vectors(name: str) -> None:
    vector = NAMED[name]
    data = bytes.fromhex(vector["message"])
    if "reason" in vector:
        with pytest.raises(FrameRejected) as caught:
            peers.parse(data)
        assert caught.value.reason == vector["reason"]
    else:
        message = peers.parse(data)
        assert (message.topic, message.source, message.target, message.body) == (made.TOPIC, *made.GOOD[name])
        assert peers.encode(message) == data


def test_every_kind_has_a_vector_and_a_row_in_the_specification() -> None:
    assert {type(body) for _, _, body in made.GOOD.values()} == set(peers.KINDS.values())
    section = SPEC.split("Messages between peers\n")[1].split("\n## ")[0]
    rows = {int(kind): name for kind, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", section, re.M)}
    assert rows == {kind: body.__name__ for kind, body in peers.KINDS.items()}


def test_every_field_is_checked() -> None:
    for body in peers.KINDS.values():
        assert list(annotated(body)) == list(body.__dataclass_fields__)


ids = st.lists(st.binary(min_size=16, max_size=16), max_size=20).map(tuple)
seats = st.none() | st.integers(0, limits.MAX_PEER_SEAT)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
bodies = (
    st.builds(
        peers.Search,
        st.binary(min_size=16, max_size=16),
        names,
        st.integers(0, limits.MAX_PEER_SEAT),
        names,
        st.binary(min_size=1, max_size=200),
        st.integers(0, 2),
        st.lists(st.tuples(names, st.integers(0, limits.MAX_PULSE)), max_size=8).map(tuple),
        st.integers(0, 255),
    )
    | st.builds(peers.Inventory, ids, st.integers(0, limits.MAX_PEER_MILLISECONDS), st.integers(0, limits.MAX_PULSE))
    | st.builds(peers.Carry, st.binary(min_size=1, max_size=200))
)


@given(seats, seats, bodies)
def test_what_is_written_is_read(source: int | None, target: int | None, body: peers.PeerBody) -> None:
    message = PeerMessage(made.TOPIC, source, target, body)
    assert peers.parse(peers.encode(message)) == message


@examples(60, soak=300)
@given(st.sampled_from(sorted(made.GOOD)), st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_is_refused_or_read_as_what_it_says(name: str, at: int, flip: int) -> None:
    data = bytearray(made.good(name))
    data[at % len(data)] ^= flip
    try:
        message = peers.parse(bytes(data))
    except FrameRejected:
        return
    assert peers.encode(message) == bytes(data)


@given(st.binary(max_size=300))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(FrameRejected):
        peers.parse(noise)


def test_the_largest_message_is_read_and_a_larger_one_is_not() -> None:
    largest = PeerMessage(made.TOPIC, 0, 1, peers.Carry(bytes(limits.MAX_PEER_EVENT_BYTES)))
    assert peers.parse(peers.encode(largest)) == largest
    with pytest.raises(Misuse):
        peers.encode(PeerMessage(made.TOPIC, 0, 1, peers.Carry(bytes(limits.MAX_PEER_EVENT_BYTES + 1))))
    with pytest.raises(FrameRejected):
        peers.parse(bytes(limits.MAX_PEER_MESSAGE_BYTES + 1))


def test_the_largest_inventory_is_read_and_a_larger_one_is_not() -> None:
    most = tuple(n.to_bytes(16, "big") for n in range(limits.MAX_INVENTORY_EVENTS + 1))
    largest = PeerMessage(made.TOPIC, 0, 1, peers.Inventory(most[1:], 0, 0))
    assert peers.parse(peers.encode(largest)) == largest
    with pytest.raises(FrameRejected):
        peers.parse(cbor.encode([peers.MAGIC, 1, made.TOPIC, 15, 1, 0, [list(most)]]))


@pytest.mark.parametrize(
    "body",
    [peers.Decline(b""), peers.Taken(b"short"), peers.Unlink(-1), peers.Pulse("", 0, 0), peers.Announce(b"")],
)
def test_messages_that_cannot_be_are_not_made(body: peers.PeerBody) -> None:
    with pytest.raises(Misuse):
        peers.encode(PeerMessage(made.TOPIC, 0, 1, body))


def test_an_event_is_named_by_its_bytes() -> None:
    assert peers.event_id(b"a") != peers.event_id(b"b")
    assert len(peers.event_id(b"a")) == 16
