"""An excerpt of a piece opens as the whole one does, for its recipient, and has nothing that is for others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from sealcast import Publisher, Realm
from sealcast.errors import CannotOpen, Misuse
from sealcast.groupkeys.catalog import ALGORITHMS
from sealcast.model import Event, Schema
from sealcast.primitives import merkle
from sealcast.protections.port import DEFAULT_KEY_MEMORY, Reader, client_side
from sealcast.protections.stays import FoundPart
from sealcast.wire import excerpts, hops, sealed
from sealcast.wire.hops import HopPiece
from tests.clients.layered_pump import pump as layered_pump
from tests.clients.pump import pump

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 255}]})
NAMES = [f"s{n}" for n in range(9)]
CASES = [("payload", None), ("layered", None), *(("endpoint", name) for name in ALGORITHMS)]


@pytest.mark.parametrize(("protection", "algorithm"), CASES)
def test_excerpts_open_as_pieces_do(tmp_path: Path, protection: str, algorithm: str | None) -> None:
    random, realm = Random(5), Realm.create(tmp_path / "realm")
    extra = {} if algorithm is None else {"group_keys": algorithm}
    realm.create_topic("quotes", SCHEMA, protection=protection, **extra, access="members")
    realm.enrol_many(["nyse", *NAMES])
    for n, name in enumerate(NAMES):
        realm.subscribe("quotes", name, f"price BETWEEN {13 * n} AND {100 + 17 * n}")
    run: Callable[[Realm, str], object] = layered_pump if protection == "layered" else pump
    run(realm, "quotes")
    with Publisher(realm, "quotes", "nyse") as publisher:
        for _ in range(3):
            publisher.publish(
                [Event({"price": random.randrange(256)}, b"%d" % random.getrandbits(60)) for _ in range(40)]
            )
            run(realm, "quotes")
    checked = 0
    for name in NAMES:
        side = client_side(realm.state().topic("quotes").protection)
        reader = Reader(realm, "quotes", name, None, None, DEFAULT_KEY_MEMORY)
        whole, apart = side.inbox(reader), side.inbox(reader)
        for part in list(whole.mail.parts()):
            start = 0
            while start < len(part.part):
                found = part.cut(start, min(start + random.randint(1, 7), len(part.part)))
                start += len(found.part)
                piece, recipient = found.part.piece, whole.mail.mailbox(found.broker).recipient
                data = recipient.excerpt(piece, found.part.events, found.part.handles)
                cut = hops.parse(data) if isinstance(piece, HopPiece) else sealed.parse(data)
                events, handles = recipient.rows(cut)
                assert len(events) == len(found.part) == len(cut)
                again = dataclasses.replace(found.part, piece=cut, events=events, handles=handles)
                expected = whole.open(found)
                assert not expected.refused
                opened = apart.open(dataclasses.replace(found, part=again))
                assert list(opened.opened.events()) == list(expected.opened.events()) and not opened.refused
                checked += len(found.part)
        whole.close()
        apart.close()
    assert checked > 300


def test_an_excerpt_has_nothing_for_others(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic("quotes", SCHEMA, access="members")
    realm.enrol_many(["nyse", "ann", "bob"])
    realm.subscribe("quotes", "ann", "price < 100")
    realm.subscribe("quotes", "bob", "price > 50")
    with Publisher(realm, "quotes", "nyse") as publisher:
        publisher.publish([Event({"price": n}, b"payload %d" % n) for n in range(0, 200, 5)])
    pump(realm, "quotes")
    side = client_side(realm.state().topic("quotes").protection)
    inbox = side.inbox(Reader(realm, "quotes", "ann", None, None, DEFAULT_KEY_MEMORY))
    found = next(inbox.mail.parts()).cut(0, 3)
    piece = found.part.piece
    slots = realm.state().slots_of("quotes")
    cut = excerpts.of_sealed(piece, slots["ann"], found.part.events, found.part.handles)
    assert cut.slots.tolist() == [slots["ann"]] and len(cut.frames) == 1
    assert set(cut.handout_slot.tolist()) <= {slots["ann"]} and set(cut.table_slot.tolist()) <= {slots["ann"]}
    assert len(sealed.encode(cut)) < len(sealed.encode(piece)) / 2
    # Bob, with Ann's excerpt, opens nothing of what is Ann's alone.
    other = side.inbox(Reader(realm, "quotes", "bob", None, None, DEFAULT_KEY_MEMORY))
    hers = dataclasses.replace(found.part.cut(0, 1), piece=cut, events=[0], handles=[0])
    refused = other.open(FoundPart(0, found.stay, hers))
    assert isinstance(refused.refused[0], CannotOpen) and not len(refused.opened)
    with pytest.raises(Misuse):
        excerpts.of_sealed(piece, slots["ann"], [], [])


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13])
def test_pruned_nodes_keep_the_paths(count: int) -> None:
    nodes = merkle.build([merkle.leaf_hash(bytes([n])) for n in range(count)])
    for kept in ([0], [count - 1], list(range(0, count, 2))):
        pruned = merkle.pruned(nodes, count, kept)
        assert len(pruned) == len(nodes) and merkle.root(pruned, count) == merkle.root(nodes, count)
        for index in kept:
            assert merkle.path(pruned, count, index) == merkle.path(nodes, count, index)
    if count > 4:
        assert merkle.pruned(nodes, count, [0]).count(bytes(32)) > 0
