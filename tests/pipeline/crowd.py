"""A topic whose groups are chosen at will, through real filters: who wants group number g says so in its filter.

And what its subscribers can open, each alone or many together, with all that they were ever given.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

from sealcast.clients.publisher import Publisher
from sealcast.errors import CannotOpen
from sealcast.log.piece_reader import sealed_reader
from sealcast.model import Event, Position, Schema
from sealcast.primitives import aead, labels
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import VerifyKey
from sealcast.protections.endpoint import keys
from sealcast.protections.endpoint.keyring import Keyring
from sealcast.protections.endpoint.open import Opener
from sealcast.protections.endpoint.tables import LINK, WRAP, TablePart
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.frames import associated_data
from sealcast.trust.keys.topic_keys import at_broker
from sealcast.trust.layout import FIRST_BROKER
from sealcast.trust.realm.changes import Right
from sealcast.wire.sealed import PAIR, TABLE, SealedPiece
from tests.clients.pump import pump

SCHEMA = Schema.from_json({"attributes": [{"name": "g", "type": "int", "min": 0, "max": 1_000_000}]})
TOPIC = "t"
#: An epoch, and an incarnation in it: what keys are of.
Era = tuple[int, bytes]


class Crowd:
    """A realm with one topic, and the truth about who was to get which event."""

    def __init__(
        self, root: Path, subscribers: int, algorithm: str = "mosaic", seed: int = 1, partitions: int = 1
    ) -> None:
        self.rng = random.Random(seed)
        self.realm = Realm.create(root / "realm")
        self.realm.create_topic(TOPIC, SCHEMA, group_keys=algorithm, partitions=partitions, access="members")
        self.publishers = [f"publisher{i}" for i in range(2 * partitions)] if partitions > 1 else ["publisher"]
        self.realm.enrol_many(self.publishers)
        self.wishes: dict[str, set[int]] = {}
        self.gone: set[str] = set()
        #: Of each event: who was to get it when it was handled.
        self.groups: dict[Position, frozenset[str]] = {}
        self._waiting: list[tuple[Position, int]] = []
        self._incarnation = cache(lambda version: self.realm.state().incarnation(TOPIC, FIRST_BROKER, version))
        self.join({f"s{i}": set() for i in range(subscribers)})

    def join(self, wishes: dict[str, set[int]]) -> None:
        self.realm.enrol_many(list(wishes))
        # A wish that no event has: everyone has a filter, and a slot.
        self.wishes |= {name: {999_999, *wanted} for name, wanted in wishes.items()}
        self.realm.subscribe_many(TOPIC, [(name, self._filter(name), name) for name in wishes])

    def want(self, groups: dict[int, Iterable[str]]) -> None:
        """New groups, by number; subscriptions are renewed. Who has left cannot want anything."""
        for number, names in groups.items():
            for name in set(names) - self.gone:
                self.wishes[name].add(number)
        changed = {name for names in groups.values() for name in names} - self.gone
        old = [s.id for s in self.realm.state().subscriptions_of(TOPIC) if s.subscriber in changed]
        self.realm.unsubscribe(*old)
        self.realm.subscribe_many(TOPIC, [(name, self._filter(name), None) for name in sorted(changed)])

    def leave(self, name: str) -> None:
        self.gone.add(name)
        self.realm.revoke(TOPIC, name, [Right.SUBSCRIBE])

    def come_back(self, name: str) -> None:
        self.gone.discard(name)
        self.realm.grant(TOPIC, name, [Right.SUBSCRIBE])

    def publish(self, numbers: Iterable[int]) -> None:
        wanted = list(numbers)
        with Publisher(self.realm, TOPIC, self.rng.choice(self.publishers)) as publisher:
            positions = publisher.publish([Event({"g": g}, f"event of {g}".encode()) for g in wanted])
        self._waiting += zip(positions, wanted, strict=True)

    def pump(self, by: Callable[[Realm, str], Mapping[str, int]] = pump) -> Mapping[str, int]:
        """Handle what was published; `by` Spark, or without it."""
        for position, number in self._waiting:
            members = frozenset(n for n, wanted in self.wishes.items() if number in wanted and n not in self.gone)
            self.groups[position] = members
        self._waiting = []
        return by(self.realm, TOPIC)

    def pieces(self) -> list[SealedPiece]:
        reader = sealed_reader(self.realm.paths.topic(TOPIC).root)
        return [reader.piece(ref) for index in range(reader.ledger.end()) for ref in reader.record(index).entry.pieces]

    def slot(self, name: str) -> int:
        slot = self.realm.state().slot_of(TOPIC, name)
        assert slot is not None
        return slot

    def era(self, piece: SealedPiece) -> Era:
        return piece.epoch, self._incarnation(piece.version)

    def pair(self, name: str, era: Era) -> Secret:
        epoch, incarnation = era
        return at_broker(
            self.realm.identity(name).pair_key(self.realm.state(), TOPIC, epoch), FIRST_BROKER, incarnation
        )

    def opener(self, name: str, era: Era = (1, b""), **options: int) -> Opener:
        state = self.realm.state()
        about = state.topic(TOPIC)

        def verify_key(publisher: str) -> VerifyKey:
            return VerifyKey(state.entity(publisher).verify_key)

        return Opener(SCHEMA, about.id, era[0], self.slot(name), self.pair(name, era), verify_key, **options)

    def opened(self, name: str, pieces: list[SealedPiece], **options: int) -> set[Position]:
        """What a subscriber opens of all pieces, in order, with its own keys and nothing else."""
        openers: dict[Era, Opener] = {}
        found: set[Position] = set()
        for piece in pieces:
            era = self.era(piece)
            if era not in openers:
                openers[era] = self.opener(name, era, **options)
            found |= {event.position for event in openers[era].open_rows(piece)}
        return found

    def _filter(self, name: str) -> str:
        return f"g IN ({', '.join(map(str, sorted(self.wishes[name])))})"


class Pool:
    """A coalition: everything that any of its members was ever given or could derive, in one hand."""

    def __init__(self, crowd: Crowd, names: Iterable[str], pieces: list[SealedPiece]) -> None:
        about = crowd.realm.state().topic(TOPIC)
        self._bits = about.parameters.key_bits
        self._topic = about.id
        self._era = crowd.era
        self._secrets: dict[tuple[Era, bytes], bytes] = {}
        self._parts: dict[tuple[Era, bytes], list[TablePart]] = {}
        for name in names:
            slot = crowd.slot(name)
            for era in {*map(crowd.era, pieces), *((each, b"") for each in range(1, about.epoch + 1))}:
                pair = crowd.pair(name, era)
                self._secrets[era, keys.pair_id(slot)] = pair.reveal()
                ring = Keyring(slot, pair, self._data(era[0]), self._bits)
                for piece in pieces:
                    if crowd.era(piece) == era:
                        ring._take(piece)
                for held, value in ring._held.items():
                    if isinstance(value, TablePart):
                        self._parts.setdefault((era, held), []).append(value)
                    else:
                        self._secrets[era, held] = value
        for piece in pieces:  # whatever links lead to, from anything that anyone has
            for key in range(len(piece.key_kind)):
                self._find(piece, key, set())

    def opens(self, piece: SealedPiece, event: int) -> bool:
        """By any way to any key that the event was sealed under."""
        nonce = aead.nonce(piece.position(event))
        for use in range(int(piece.use_start[event]), int(piece.use_start[event + 1])):
            key = int(piece.uses[use])
            secret = self._find(piece, key, set())
            if secret is not None and self._try(piece, event, use, secret, nonce, int(piece.key_kind[key])):
                return True
        return False

    def guesses(self, piece: SealedPiece, event: int) -> bool:
        """By trying every secret that the coalition has, whatever its name says, in every way there is."""
        nonce = aead.nonce(piece.position(event))
        uses = range(int(piece.use_start[event]), int(piece.use_start[event + 1]))
        secrets = {value for (epoch, _), value in self._secrets.items() if epoch == self._era(piece)}
        return any(
            self._try(piece, event, use, secret, nonce, kind)
            for secret in secrets
            for use in uses
            for kind in (PAIR, TABLE)
        )

    def _try(self, piece: SealedPiece, event: int, use: int, secret: bytes, nonce: bytes, kind: int) -> bool:
        data = self._data(piece.epoch)
        try:
            if not piece.wrapped[event]:
                cipher = keys.body_key(Secret(secret), data, self._bits)
            elif kind == TABLE:
                content = labels.unmask(secret, nonce, WRAP, piece.wrap(use))
                cipher = SealingKey(Secret(content), data, self._bits)
            else:
                content = keys.wrap_key(Secret(secret), data, self._bits).unwrap(nonce, piece.wrap(use)).reveal()
                cipher = SealingKey(Secret(content), data, self._bits)
            cipher.open(nonce, piece.commitment(event), piece.body(event))
        except CannotOpen:
            return False
        return True

    def _find(self, piece: SealedPiece, key: int, tried: set[int]) -> bytes | None:
        key_id = piece.key_id(key)
        name = (self._era(piece), key_id)
        if name in self._secrets:
            return self._secrets[name]
        if piece.key_kind[key] == TABLE:
            pattern = int.from_bytes(key_id[12:], "big")
            for part in self._parts.get((self._era(piece), key_id[:12]), ()):
                if part.covers(pattern):
                    self._secrets[name] = part.key(pattern)
                    return self._secrets[name]
            return None
        if key in tried:
            return None
        tried.add(key)
        for under, masked in piece.links_to(key):
            other = self._find(piece, under, tried)
            if other is not None:
                grown = labels.grow(other, key_id) if masked is None else labels.unmask(other, key_id, LINK, masked)
                self._secrets[name] = grown
                return grown
        return None

    def _data(self, epoch: int) -> bytes:
        return associated_data(self._topic, epoch)
