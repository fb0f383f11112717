"""The bytes that MQTT carries: what is altered, cut or too long is refused with a reason, and nothing is believed."""

from __future__ import annotations

import gc
import zlib
from pathlib import Path
from random import Random

import pytest

from sealcast import Event, Realm
from sealcast.errors import CannotOpen, FrameRejected, Misuse, NotFound, Rejected
from sealcast.mqtt import Client, channels, credentials
from sealcast.mqtt.choice import carrier_for
from sealcast.mqtt.mail import Mail
from sealcast.mqtt.messages import MAGIC, MAX_BYTES, Message
from sealcast.mqtt.seen import SeenEvents
from sealcast.wire import frame, limits
from sealcast.wire.searching import SealedRejected
from tests.protections.world import SCHEMA, TOPIC


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    made = Realm.create(tmp_path_factory.mktemp("formats") / "realm")
    made.create_topic(TOPIC, SCHEMA, protection="searchable", access="members")
    made.enrol_many(["nyse", "xetra", "ann"])
    made.subscribe(TOPIC, "ann", "price < 200")
    return made


@pytest.fixture(scope="module")
def sealed(realm: Realm) -> bytes:
    carrier = carrier_for(realm, TOPIC, "nyse", "broker", "broker")
    ((channel, data),) = carrier.seal(Event({"price": 3, "symbol": "A"}, b"payload"))
    carrier.close()
    assert channel == channels.events(TOPIC)
    return data


# --- events ------------------------------------------------------------------------------------------------


def test_a_message_is_what_was_sealed(realm: Realm, sealed: bytes) -> None:
    found = Message.parse(sealed)
    assert found.to_bytes() == sealed and found.publisher == "nyse"
    assert found.epoch == realm.state().topic(TOPIC).epoch == found.header().epoch
    assert found.block.startswith(b"SB1") and b"payload" not in sealed
    carrier = carrier_for(realm, TOPIC, "ann", "broker", None)
    (opened,) = carrier.open(sealed)
    assert opened.event is not None and opened.event.payload == b"payload"
    assert opened.event.attributes == {"price": 3, "symbol": "A"} and opened.event.publisher == "nyse"
    assert opened.boot == found.header().boot
    carrier.close()


def test_every_altered_byte_is_noticed(realm: Realm, sealed: bytes) -> None:
    carrier, random = carrier_for(realm, TOPIC, "ann", "broker", None), Random(2)
    places = {*range(120), *(random.randrange(len(sealed)) for _ in range(300)), len(sealed) - 1}
    for at in sorted(place for place in places if place < len(sealed)):
        altered = bytearray(sealed)
        altered[at] ^= 1 << random.randrange(8)
        (opened,) = carrier.open(bytes(altered))
        # Where the block begins is for brokers. A reader finds it by itself, so a wrong offset harms nobody else.
        begins = sealed.index(Message.parse(sealed).signed) + len(Message.parse(sealed).signed)
        if not begins <= at < begins + 4:
            assert opened.event is None and isinstance(opened.error, CannotOpen), at
    for cut in range(0, len(sealed), 37):
        (opened,) = carrier.open(sealed[:cut])
        assert opened.event is None
    carrier.close()


def test_what_is_said_to_brokers_is_what_was_signed(realm: Realm, sealed: bytes) -> None:
    """A broker matches by the outer epoch and publisher: they are no others than the signed ones."""
    found, carrier = Message.parse(sealed), carrier_for(realm, TOPIC, "ann", "broker", None)
    for other in (
        Message(found.epoch + 1, found.publisher, found.signed, found.offset, found.message),
        Message(found.epoch, "xetra", found.signed, found.offset, found.message),
    ):
        (opened,) = carrier.open(other.to_bytes())
        assert opened.event is None and opened.error is not None and "something else" in opened.error.message
    carrier.close()


def test_limits(sealed: bytes) -> None:
    found = Message.parse(sealed)
    for data in (
        b"",
        MAGIC,
        b"SCQ2" + sealed[4:],
        Message(limits.MAX_EPOCH + 1, "nyse", found.signed, 0, found.message).to_bytes(),
        Message(1, "", found.signed, 0, found.message).to_bytes(),
        Message(1, "no/name", found.signed, 0, found.message).to_bytes(),
        Message(1, "nyse", b"", 0, found.message).to_bytes(),
        Message(1, "nyse", bytes(limits.MAX_SIGNED_BYTES + 1), 0, found.message).to_bytes(),
        Message(1, "nyse", found.signed, len(found.message), found.message).to_bytes(),
        Message(1, "nyse", found.signed, 0, b"").to_bytes(),
        bytes(MAX_BYTES + 1),
    ):
        with pytest.raises(FrameRejected):
            Message.parse(data)
    with pytest.raises(SealedRejected):
        assert Message(1, "nyse", found.signed, 0, found.message).block
    with pytest.raises(CannotOpen):
        Message(1, "nyse", b"\x00", 0, found.message).header()
    assert frame.parse_signed(found.signed).header.count == 1


# --- mail ---------------------------------------------------------------------------------------------------


def test_mail_is_bounded() -> None:
    head = b"SCM1" + bytes([0, 6]) + b"broker" + bytes(24)
    bomb = head + zlib.compress(bytes(80 << 20), 9)
    for data in (b"", b"SCM1", head, head + b"rubbish", bomb, head + zlib.compress(b"no piece"), b"SCM2" + head[4:]):
        with pytest.raises(FrameRejected):
            Mail.parse(data)


# --- names, windows, passwords ------------------------------------------------------------------------------


def test_channels() -> None:
    assert channels.topic_of_events(channels.events("quotes")) == "quotes"
    assert channels.frames_for(channels.frames("quotes")) == ("quotes", None)
    assert channels.frames_for(channels.frames("quotes", "b2")) == ("quotes", "b2")
    for other in ("", "sealcast/v1", "sealcast/v1/a/b/events", "x/sealcast/v1/a/events", "sealcast/v1/+/events", "#"):
        assert channels.topic_of_events(other) is None and channels.frames_for(other) is None


def test_what_was_seen_is_seen() -> None:
    random, seen, had = Random(4), SeenEvents(window=64, boots=3), set[int]()
    for number in [*range(200), *(random.randrange(200) for _ in range(500))]:
        assert seen.add("nyse", b"boot", number) == (number not in had)
        had.add(number)
    assert seen.add("nyse", b"other", 5) and seen.add("xetra", b"boot", 5)
    jumps = SeenEvents(window=64)
    for number, new in [(10, True), (1000, True), (937, True), (936, False), (10, False), (999, True), (999, False)]:
        assert jumps.add("nyse", b"", number) == new
    for n in range(10):
        seen.add("nyse", b"%d" % n, 0)
    assert len(seen) == 3


def test_passwords(realm: Realm, tmp_path: Path) -> None:
    keeper, ann = credentials.PasswordChecker(realm), realm.identity("ann")
    good = credentials.password(ann, realm.id, "id", realm.clock())
    keeper.admit("ann", "id", good)
    for name, client_id, given in [
        ("ann", "id", good),
        ("ann", "id", ""),
        ("ann", "id", good[:-4]),
        ("ann", "id", "é" * 40),
        ("ann", "x" * 300, credentials.password(ann, realm.id, "x" * 300, realm.clock())),
        ("nobody", "id", credentials.password(ann, realm.id, "id", realm.clock())),
    ]:
        with pytest.raises(Rejected):
            keeper.admit(name, client_id, given)


def test_a_broker_matches_only_sealed_filters(realm: Realm) -> None:
    realm.create_topic("plain", SCHEMA, access="members")
    with pytest.raises(Misuse, match="no MQTT broker matches"):
        carrier_for(realm, "plain", "ann", "broker", "broker")


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_client_of_nobody_is_refused_and_leaves_nothing_behind(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "realm")
    with pytest.raises(NotFound, match="zoe"):
        Client(realm, "zoe")
    gc.collect()
