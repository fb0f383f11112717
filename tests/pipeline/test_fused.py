"""The broker's part of the path without Spark: frames in, a sealed piece out, opened by those it is for alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sealcast.broker import path
from sealcast.broker.path import handle
from sealcast.broker.replay import Windows
from sealcast.broker.rulings import received_of, rule_frames
from sealcast.clients.publisher import Publisher
from sealcast.errors import CannotOpen
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.lab import market
from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.offsets import AS_STAMPED
from sealcast.model import Event, OpenedEvent, Position
from sealcast.model.stages import Ruled
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import VerifyKey
from sealcast.protections.endpoint.broker import EndpointStep
from sealcast.protections.endpoint.open import Opener
from sealcast.protections.steps import StepName
from sealcast.trust.deployment import Realm
from sealcast.wire import sealed as wire
from sealcast.wire.sealed import SealedPiece

SUBSCRIBERS = 40
EVENTS = 400


class Market:
    """A realm with a market in it, its frames, and the piece the broker makes of them."""

    def __init__(self, root: Path) -> None:
        self.realm = Realm.create(root / "realm")
        self.realm.create_topic("ticks", market.SCHEMA, access="members")
        self.names = [f"s{i}" for i in range(SUBSCRIBERS)]
        self.realm.enrol_many(["exchange", "outsider", *self.names])
        self.filters = market.filters(SUBSCRIBERS, seed=5, n_symbols=20)
        self.realm.subscribe_many("ticks", [(n, f, None) for n, f in zip(self.names, self.filters, strict=True)])
        self.events = market.ticks(EVENTS, seed=6, n_symbols=20).events()
        with Publisher(self.realm, "ticks", "exchange") as publisher:
            self.positions = publisher.publish(self.events)
        self.worker = EndpointStep(StepName(str(self.realm.paths.root), "ticks"))

    def ruled(self) -> Ruled:
        """All frames of the log, authenticated and none of them seen before."""
        with EmbeddedTopic(self.realm.paths.topic("ticks").frames_root, 1) as log:
            records, gate = list(log.partition(0).read(0)), self.worker.gate(self.realm.registry.version())
            codes = rule_frames(Windows(gate.bounds), log, [(0, 0, len(records))], gate, AS_STAMPED, 0)[0]
        assert not codes.any()
        return Ruled(received_of(0, records, AS_STAMPED), codes)

    def piece(self) -> SealedPiece:
        return handle(self.ruled(), self.worker.at(self.realm.registry.version()))

    def opener(self, name: str, pair: Secret | None = None, slot: int | None = None) -> Opener:
        state = self.realm.state()
        topic = state.topic("ticks")
        own = state.slot_of("ticks", name)
        return Opener(
            topic.schema,
            topic.id,
            topic.epoch,
            slot if slot is not None else own if own is not None else 0,
            pair if pair is not None else self.realm.identity(name).pair_key(state, "ticks"),
            lambda publisher: VerifyKey(state.entity(publisher).verify_key),
        )

    def wanted(self, subscriber: int) -> list[Position]:
        condition = parse(self.filters[subscriber], market.SCHEMA)
        return [
            position
            for position, event in zip(self.positions, self.events, strict=True)
            if evaluate(condition, market.SCHEMA.parse(event.attributes), event.payload) is True
        ]


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Market]:
    yield Market(tmp_path_factory.mktemp("market"))


@pytest.fixture(scope="module")
def piece(day: Market) -> SealedPiece:
    return wire.parse(wire.encode(day.piece()))


def as_event(opened: OpenedEvent) -> Event:
    return Event(opened.attributes, opened.payload, opened.content_type)


def test_each_subscriber_opens_exactly_what_its_filter_says(day: Market, piece: SealedPiece) -> None:
    by_position = dict(zip(day.positions, day.events, strict=True))
    total = 0
    for i, name in enumerate(day.names):
        opened = day.opener(name).open_rows(piece)
        assert [o.position for o in opened] == day.wanted(i)
        assert all(dict(o.attributes) == by_position[o.position].attributes for o in opened)
        assert all(as_event(o).payload == by_position[o.position].payload for o in opened)
        assert all(o.publisher == "exchange" for o in opened)
        total += len(opened)
    assert total == piece.counts["deliveries"] > SUBSCRIBERS


def test_nobody_opens_what_was_not_for_them(day: Market, piece: SealedPiece) -> None:
    """Every subscriber, and an outsider, tries every use of every event: also those in others' mailboxes."""
    outsiders = [*day.names[:5], "outsider"]
    for name in outsiders:
        opener = day.opener(name)
        own_events, own_uses = piece.rows_for(day.realm.state().slot_of("ticks", name) or 0)
        own = set(zip(own_events.tolist(), own_uses.tolist(), strict=True)) if name != "outsider" else set()
        for event in range(len(piece)):
            for use in range(int(piece.use_start[event]), int(piece.use_start[event + 1])):
                if (event, use) in own:
                    continue
                with pytest.raises(CannotOpen):
                    opener.open(piece, event, use)


def test_pooled_keys_open_no_more_than_their_owners(day: Market, piece: SealedPiece) -> None:
    """A coalition lies about slots: each member's key against every mailbox of those outside the coalition."""
    state = day.realm.state()
    coalition = day.names[:4]
    pairs = [day.realm.identity(n).pair_key(state, "ticks") for n in coalition]
    inside = {e for n in coalition for e in piece.rows_for(state.slot_of("ticks", n) or 0)[0].tolist()}
    for slot in piece.slots.tolist():
        events, uses = piece.rows_for(slot)
        for event, use in zip(events.tolist(), uses.tolist(), strict=True):
            if event in inside:
                continue
            for pair in pairs:
                with pytest.raises(CannotOpen):
                    day.opener("outsider", pair=pair, slot=slot).open(piece, event, use)


def test_a_batch_that_is_run_again_by_a_worker_that_remembers_as_much_writes_the_same_bytes(day: Market) -> None:
    """Here, nothing. What a worker remembers may change the plan, and never a ciphertext (test_group_keys.py)."""
    version = day.realm.registry.version()
    one, again = (EndpointStep(StepName(str(day.realm.paths.root), "ticks")).at(version) for _ in range(2))
    assert wire.encode(handle(day.ruled(), one)) == wire.encode(handle(day.ruled(), again))


def test_a_revoked_subscriber_gets_nothing_from_the_next_version_on(tmp_path: Path) -> None:
    """Interested and authorised: the subscription stays, the right is gone (paper 000, dynamic access control)."""
    day = Market(tmp_path)
    before = day.realm.registry.version()
    who = next(i for i in range(SUBSCRIBERS) if day.wanted(i))
    day.realm.revoke("ticks", day.names[who])
    after = day.realm.registry.version()
    slot = day.realm.state().slot_of("ticks", day.names[who])
    assert slot is not None
    assert day.worker.at(before).topic == day.worker.at(after).topic
    old, new = (handle(day.ruled(), day.worker.at(version)) for version in (before, after))
    assert len(old.rows_for(slot)[0]) == len(day.wanted(who)) > 0
    assert len(new.rows_for(slot)[0]) == 0
    assert np.array_equal(np.delete(old.slots, np.searchsorted(old.slots, slot)), new.slots)


@pytest.mark.parametrize("field", ["bodies", "commitments", "wraps", "handouts", "links"])
def test_an_altered_piece_opens_for_nobody_as_anything_else(day: Market, piece: SealedPiece, field: str) -> None:
    """Not even the digest of the piece is relied on: what a subscriber opens proves itself."""
    altered = bytearray(getattr(piece, field))
    for at in range(0, len(altered), 7):
        altered[at] ^= 1
    forged = SealedPiece(**{f: getattr(piece, f) for f in piece.__dataclass_fields__} | {field: bytes(altered)})
    refused = 0
    for name in day.names:
        events, uses = piece.rows_for(day.realm.state().slot_of("ticks", name) or 0)
        honest, opener = day.opener(name), day.opener(name)
        for event, use in zip(events.tolist(), uses.tolist(), strict=True):
            try:
                opened = opener.open(forged, event, use)
            except CannotOpen:
                refused += 1
            else:
                assert opened == honest.open(piece, event, use)
    whole = field in ("bodies", "commitments")
    assert refused == piece.counts["deliveries"] if whole else bool(refused) == bool(altered)


def test_a_dense_batch_becomes_several_pieces_that_say_the_same(
    day: Market, piece: SealedPiece, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every event alone in its frame, and room for hardly any deliveries."""
    with Publisher(day.realm, "ticks", "exchange") as publisher:
        for event in day.events[:40]:
            publisher.publish_one(event)
    ruled = day.ruled()
    at = day.worker.at(day.realm.registry.version())
    whole = handle(ruled, at)
    monkeypatch.setattr(path, "MAX_DELIVERIES_PER_PIECE", 20)
    pieces = [piece for piece, *_ in path.handle_bounded(ruled, at)]
    assert len(pieces) > 3
    assert [p.first_offset for p in pieces[1:]] == [p.end_offset for p in pieces[:-1]]
    assert (pieces[0].first_offset, pieces[-1].end_offset) == (whole.first_offset, whole.end_offset)
    for name in day.names[:10]:
        opener = day.opener(name)
        assert [o for p in pieces for o in opener.open_rows(p)] == day.opener(name).open_rows(whole)
