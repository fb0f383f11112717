"""What a publisher repeats after nobody answered: the frames that are in doubt, as they were, and no more."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sealcast.clients import publisher as publishers
from sealcast.clients.publisher import EVENTS_PER_FRAME, Publisher
from sealcast.clients.unfinished import Unfinished
from sealcast.errors import Unavailable
from sealcast.log.carriers import CarrierAway
from sealcast.model import Event, Schema
from sealcast.trust.deployment import Realm
from sealcast.wire import frame

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 10_000}]})
FRAMES = 3
EVENTS = [Event({"price": n}, b"%d" % n) for n in range((FRAMES - 1) * EVENTS_PER_FRAME + 7)]


@pytest.fixture
def writing(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> Publisher:
    """It appends one frame at a time."""
    monkeypatch.setattr(publishers, "BYTES_PER_APPEND", 1)
    return Publisher(realm, "quotes", "nyse")


@pytest.fixture
def realm(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    made = Realm.create(tmp_path_factory.mktemp("unfinished") / "realm")
    made.create_topic("quotes", SCHEMA, access="members")
    made.enrol_many(["nyse"])
    return made


class Silent:
    """A log of which somebody does not answer the call of that number, and that has appended the frames, or has not."""

    def __init__(
        self,
        writing: Publisher,
        monkeypatch: pytest.MonkeyPatch,
        at: int,
        appends: bool,
        error: type[Unavailable] = CarrierAway,
    ) -> None:
        self._real, self._at, self._appends, self.calls = writing.log.append, at, appends, 0
        self._error = error
        monkeypatch.setattr(writing.log, "append", self.append)

    def append(self, frames: Sequence[bytes]) -> Sequence[int] | None:
        self.calls += 1
        if self.calls == self._at and not self._appends:
            raise self._error("silence")
        offsets = self._real(frames)
        if self.calls == self._at:
            raise self._error("silence")
        return offsets


def frames_of(writing: Publisher) -> list[bytes]:
    return [record.data for record in writing.log.read(0)]


def let_through(frames: Sequence[bytes]) -> list[int]:
    """How many events are in each frame that replay detection lets through: each number of a boot once."""
    counts, seen = list[int](), set[tuple[bytes, int]]()
    for header in (frame.parse(data).header for data in frames):
        numbers = {(header.boot, header.sequence + n) for n in range(header.count)}
        counts += [header.count] if seen.isdisjoint(numbers) else []
        seen |= numbers
    return counts


@pytest.mark.parametrize("error", [CarrierAway, Unavailable])
@pytest.mark.parametrize("appends", [True, False])
@pytest.mark.parametrize("at", range(1, FRAMES + 1))
def test_the_same_events_again_are_the_same_frames(
    writing: Publisher, monkeypatch: pytest.MonkeyPatch, at: int, appends: bool, error: type[Unavailable]
) -> None:
    Silent(writing, monkeypatch, at, appends, error)
    with pytest.raises(error):
        writing.publish(EVENTS)
    positions = writing.publish(list(EVENTS))
    found = frames_of(writing)
    assert len(found) == FRAMES + appends and len(set(found)) == FRAMES
    assert let_through(found) == [EVENTS_PER_FRAME, EVENTS_PER_FRAME, 7]
    assert len(positions) == len(EVENTS) and list(positions) == sorted(set(positions))
    writing.publish(EVENTS)
    assert len(set(frames_of(writing))) == 2 * FRAMES, "a call that succeeded is over: these are new events"


def test_what_waits_on_this_machine_is_not_sealed_again(writing: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a gateway that could not be reached, and a disk that was full then."""
    waiting = list[bytes]()

    def append(frames: Sequence[bytes]) -> None:
        if len(waiting) == 1 and not told:
            told.append("full")
            raise Unavailable("the disk is full")
        waiting.extend(frames)

    told = list[str]()
    monkeypatch.setattr(writing.log, "append", append)
    with pytest.raises(Unavailable):
        writing.publish_admissible(EVENTS)
    assert writing.publish_admissible(EVENTS).queued == len(EVENTS)
    assert let_through(waiting) == [EVENTS_PER_FRAME, EVENTS_PER_FRAME, 7] and len(waiting) == FRAMES


def test_sealed_anew_they_would_be_doubled(writing: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unfinished, "is_repeated", lambda self, *about: False)
    Silent(writing, monkeypatch, 2, True)
    with pytest.raises(Unavailable):
        writing.publish(EVENTS)
    writing.publish(EVENTS)
    assert sum(let_through(frames_of(writing))) == len(EVENTS) + 2 * EVENTS_PER_FRAME


@pytest.mark.parametrize(
    "other",
    [
        EVENTS[:-1],
        [*EVENTS[:-1], Event({"price": 1}, b"other")],
        [Event(event.attributes, event.payload, "text/plain") for event in EVENTS],
    ],
)
def test_other_events_are_other_frames(writing: Publisher, monkeypatch: pytest.MonkeyPatch, other: list[Event]) -> None:
    Silent(writing, monkeypatch, 1, False)
    with pytest.raises(CarrierAway):
        writing.publish(EVENTS)
    writing.publish(other)
    assert sum(let_through(frames_of(writing))) == len(other)


def test_what_brokers_would_refuse_is_sealed_anew(
    realm: Realm, writing: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an epoch has ended, frames of it may come too late."""
    Silent(writing, monkeypatch, 1, False)
    with pytest.raises(CarrierAway):
        writing.publish(EVENTS)
    realm.rotate("quotes")
    writing.publish(EVENTS)
    assert {frame.parse(data).header.epoch for data in frames_of(writing)} == {realm.state().topic("quotes").epoch}
