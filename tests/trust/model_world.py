"""A realm as it is: the real one, with its clients and its broker, behind the few verbs that a model test needs.

Registry, keys, log, ledger and pieces are real, on disk; the broker's part runs the pipeline's own kernels, without
Spark. Only the clock is told: one for everything, which moves when it is told to, and by a microsecond when it is read.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.control.keepalive import KeepAlive
from sealcast.errors import CannotOpen, SealcastError
from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.piece_reader import sealed_reader
from sealcast.model import Event, Schema
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import VerifyKey
from sealcast.protections import steps
from sealcast.protections.endpoint.open import Opener
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.parameters import KeyParameters
from sealcast.trust.tokens import gates
from sealcast.wire import frame
from sealcast.wire.sealed import SealedPiece
from tests.clients.pump import pump
from tests.copies import remove_realm

SECOND = 1_000_000
SCHEMA = Schema.from_json(
    {"attributes": [{"name": "number", "type": "int", "min": 0}, {"name": "symbol", "type": "string"}]}
)
GRACE, SKEW, STALE, TOKEN = 100, 10, 5_000, 4_000
PARAMETERS = KeyParameters(grace_s=GRACE, max_skew_s=SKEW, stale_after_s=STALE, token_lifetime_s=TOKEN)
#: Topic: who is let in before anyone decides anything.
TOPICS = {"open": "members", "shut": "granted"}
BEGINNING = 1_800_000_000 * SECOND


class Clock:
    """Whole seconds when it is told; a microsecond each time it is read, so that no two things happen at once."""

    def __init__(self) -> None:
        self.now = BEGINNING

    def ns(self) -> int:
        self.now += 1
        return self.now * 1000

    def wait(self, seconds: int) -> None:
        self.now += seconds * SECOND


def founded(directory: Path) -> Path:
    """A realm with its topics, to be copied: founding one takes longer than all that a short test does with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", Clock().ns)
        realm = Realm.create(directory / "realm")
        for name, access in TOPICS.items():
            realm.create_topic(name, SCHEMA, access=access, parameters=PARAMETERS)
    return realm.paths.root


class World:
    """One realm, and everything that holds something of it in memory."""

    def __init__(self, template: Path, directory: Path) -> None:
        self.clock = Clock()
        self.clock.wait(1)
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(time, "time_ns", self.clock.ns)
        # Readers renew their tokens beside the reading, in threads: here nothing happens unless it was asked for.
        self._patch.setattr(KeepAlive, "look", lambda self, state: None)
        self.root = Path(shutil.copytree(template, directory))
        self.realm = Realm(self.root)
        self._publishers: dict[tuple[str, str], Publisher] = {}
        self._read: dict[str, list[SealedPiece]] = {topic: [] for topic in TOPICS}

    def crash(self) -> None:
        """Nothing in memory is left: of the administrator, of the broker, of the clients."""
        for publisher in self._publishers.values():
            publisher.close()
        self._publishers.clear()
        steps._open.cache_clear()
        steps.realm_of.cache_clear()
        gates._gate.cache_clear()
        gates._trust.cache_clear()
        self._read = {topic: [] for topic in TOPICS}
        self.realm = Realm(self.root)

    def close(self) -> None:
        self.crash()
        self._patch.undo()
        remove_realm(self.root)

    # --- publishing ---------------------------------------------------------------------------------

    def seal(self, topic: str, who: str, events: list[tuple[int, str]]) -> bytes:
        """One frame, not yet anywhere."""
        (data,) = self._publisher(topic, who).seal([_event(*event) for event in events])
        return data

    def publish(self, topic: str, who: str, events: list[tuple[int, str]]) -> bytes:
        """One frame in the log; its bytes."""
        (where, *_) = self._publisher(topic, who).publish([_event(*event) for event in events])
        with self._log(topic) as log:
            return next(iter(log.partition(0).read(where.offset, where.offset + 1))).data

    @staticmethod
    def token_of(data: bytes) -> bytes:
        """The token that a frame came with."""
        return frame.parse(data).token

    def append(self, topic: str, data: bytes) -> None:
        """By anyone who can write to the log, whatever it is."""
        with self._log(topic) as log:
            log.partition(0).append([data])

    def last(self, topic: str) -> tuple[int, int]:
        """Where the log's last frame lies, and when it came."""
        with self._log(topic) as log:
            end = log.partition(0).end()
            record = next(iter(log.partition(0).read(end - 1, end)))
            return record.offset, record.time_us

    def _log(self, topic: str) -> EmbeddedTopic:
        return EmbeddedTopic(self.realm.paths.topic(topic).frames_root, 1)

    def _publisher(self, topic: str, who: str) -> Publisher:
        found = self._publishers.get((topic, who))
        if found is None:
            found = self._publishers[topic, who] = Publisher(self.realm, topic, who)
        return found

    # --- reading ------------------------------------------------------------------------------------

    def read(self, topic: str, who: str) -> list[int]:
        """The numbers of all events in its mailbox, opened by its own client; or a refusal."""
        with Subscriber(self.realm, topic, who, from_=0) as subscriber:
            return [_number(event.attributes["number"]) for event in subscriber]

    def deliver(self, topic: str) -> dict[str, list[tuple[int, int]]]:
        """Everything that waits, as one batch: by subscriber, the (offset, row) of what was sealed for it."""
        before = len(self._pieces(topic))
        pump(self.realm, topic)
        slots, found = self.realm.state().slots_of(topic), dict[str, list[tuple[int, int]]]()
        for piece in self._pieces(topic)[before:]:
            for who, slot in slots.items():
                events, _ = piece.rows_for(slot)
                at = [piece.position(int(event)) for event in events]
                found.setdefault(who, []).extend((where.offset, where.row) for where in at)
        return found

    # --- attacking ----------------------------------------------------------------------------------

    def loot(self, topic: str, who: str) -> list[int]:
        """All that an entity can open of a topic with what it ever had: its key file, every key that was ever sealed to
        it, all that it learned from its own mailbox; tried on every event and every use of a key, whoever it is for,
        and with every slot, its own and those of others. Numbers in the order of the log."""
        state, opened = self.realm.state(), dict[tuple[int, int], int]()
        about, slots = state.topic(topic), state.slots_of(topic)
        keyring = self._keys_of(topic, who)
        pieces = self._pieces(topic)
        claimed = [slots[who]] if who in slots else []
        claimed += [slot for slot in slots.values() if slot not in claimed]
        for epoch, pair in keyring.items():
            for slot in claimed:
                opener = Opener(
                    SCHEMA, about.id, epoch, slot, pair, lambda n: VerifyKey(state.entity(n).verify_key), 256
                )
                for piece in pieces:
                    own = [(int(e), int(u)) for e, u in zip(*piece.rows_for(slot), strict=True)]
                    for event, use in [*own, *_all_uses(piece)]:
                        try:
                            got = opener.open(piece, event, use)
                        except CannotOpen:
                            continue
                        opened[got.position.offset, got.position.row] = _number(got.attributes["number"])
        return [number for _, number in sorted(opened.items())]

    def _keys_of(self, topic: str, who: str) -> dict[int, Secret]:
        state = self.realm.state()
        if who not in state.entities:
            return {}
        identity, found = self.realm.identity(who), dict[int, Secret]()
        for epoch in range(1, state.topic(topic).epoch + 1):
            if state.pair_key(topic, epoch, who) is not None:
                found[epoch] = identity.pair_key(state, topic, epoch)
        return found

    def _pieces(self, topic: str) -> list[SealedPiece]:
        """Of all batches so far: each of them makes one, for there is one partition, and no batch of nothing."""
        reader, known = sealed_reader(self.realm.paths.topic(topic).root), self._read[topic]
        try:
            entries = [reader.record(index).entry for index in range(len(known), reader.ledger.end())]
            known += [reader.piece(entry.pieces[0]) for entry in entries]
            return known
        finally:
            reader.close()


def refused(act: object, *args: object) -> bool:
    """Whether the act was refused; anything but a refusal goes on."""
    assert callable(act)
    try:
        act(*args)
    except SealcastError:
        return True
    return False


def _all_uses(piece: SealedPiece) -> Iterator[tuple[int, int]]:
    for event in range(len(piece)):
        for use in range(int(piece.use_start[event]), int(piece.use_start[event + 1])):
            yield event, use


def _event(number: int, symbol: str) -> Event:
    return Event({"number": number, "symbol": symbol}, f"event {number}".encode())


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value
