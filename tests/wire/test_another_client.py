"""SPEC.md is enough: a client written from it alone reads what we write, and we read what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sealcast.clients.publisher import Publisher as OurPublisher
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.log.piece_reader import sealed_reader
from sealcast.model.event import Event
from sealcast.trust.deployment import Realm
from sealcast.wire import sealed
from tests.clients.pump import pump
from tests.wire import another_client as theirs
from tests.wire.frames import SCHEMA, Publisher, messages, seeded

FRAMES = json.loads((Path(__file__).parent.parent / "vectors" / "frames.json").read_text())
KEYS = {name: bytes.fromhex(value) for name, value in FRAMES["keys"].items()}
SCHEMA_JSON = SCHEMA.to_json()
FILTERS = ["price < 20", "symbol = 'S1'", "hot", "price BETWEEN 5 AND 9 OR symbol = 'S6'", "price > 1000"]


def test_it_reads_our_frames_and_events() -> None:
    (good,) = [v for v in FRAMES["vectors"] if "reason" not in v]
    header, batch = theirs.read_frame(bytes.fromhex(good["frame"]), KEYS["verify_key"], KEYS["pair_key"])
    assert [m.hex() for m in batch] == good["messages"]
    assert (header[2], header[4], header[7]) == ("ticker-1", 40, theirs.schema_digest(json.dumps(SCHEMA_JSON)))
    values, payload, kind = theirs.read_message(SCHEMA_JSON, batch[1])
    assert (values, payload, kind) == (
        SCHEMA.parse({"symbol": "S1", "price": "1.25", "hot": False}),
        b"event 1",
        "text/plain",
    )


@pytest.mark.parametrize(
    "vector",
    [v for v in FRAMES["vectors"] if v.get("reason") in ("token", "signature", "seal", "root")],
    ids=lambda v: v["why"],
)
def test_it_refuses_what_must_be_refused(vector: dict[str, str]) -> None:
    with pytest.raises(theirs.Refused, match=vector["reason"]):
        theirs.read_frame(bytes.fromhex(vector["frame"]), KEYS["verify_key"], KEYS["pair_key"])


def test_its_frames_are_ours_byte_for_byte() -> None:
    us = Publisher()
    batch = [
        theirs.write_message(
            SCHEMA_JSON,
            {"symbol": f"S{i % 7}", "price": f"{i}.25", "hot": None if i % 3 == 0 else i % 2 == 0},
            f"event {i}".encode(),
            "text/plain",
            seeded("salts", 16 * 5)[16 * i : 16 * i + 16],
        )
        for i in range(5)
    ]
    assert batch == messages(5)
    header = {
        1: us.topic,
        2: us.name,
        3: us.boot,
        4: 7,
        5: 5,
        6: 1_767_225_600_000_000,
        7: SCHEMA.digest,
        8: us.epoch,
        9: b"",
    }
    data = theirs.write_frame(header, batch, KEYS["sign_seed"], KEYS["pair_key"], us.token)
    assert data == us.publish(batch, sequence=7)
    assert us.admit(data) == batch


@pytest.mark.parametrize("crowd", [0, 60], ids=["a few", "a crowd"])
def test_it_opens_its_mailbox_and_no_more(tmp_path: Path, crowd: int) -> None:
    """Through the broker's whole path: pair key from the registry, pieces from the pipeline, the rest its own. A crowd
    is served under group keys: handed out, of tables, and grown."""
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic("ticks", SCHEMA, access="members")
    filters = [*FILTERS, *(f"price > {i % 20} AND price < {i % 23 + 15}" for i in range(crowd))]
    names = [f"subscriber-{i}" for i in range(len(filters))]
    realm.enrol_many(["exchange", *names])
    realm.subscribe_many("ticks", [(n, f, None) for n, f in zip(names, filters, strict=True)])
    events = [
        Event(
            {"symbol": f"S{i % 7}", "price": f"{i % 40}.25", "hot": None if i % 3 == 0 else i % 2 == 0},
            f"event {i}".encode(),
        )
        for i in range(120)
    ]
    positions = []
    with OurPublisher(realm, "ticks", "exchange") as publisher:
        for start in range(0, len(events), 40):
            positions += [*publisher.publish(events[start : start + 17]), *publisher.publish(events[start + 17 :][:23])]
            pump(realm, "ticks")
    reader = sealed_reader(realm.paths.topic("ticks").root)
    pieces = [sealed.encode(reader.piece(ref)) for i in range(3) for ref in reader.record(i).entry.pieces]

    state = realm.state()
    topic = state.topic("ticks")
    verify_keys = {"exchange": bytes(state.entity("exchange").verify_key)}
    parsed = [(p, SCHEMA.parse(e.attributes), e) for p, e in zip(positions, events, strict=True)]
    seen = 0
    for name, text in list(zip(names, filters, strict=True))[:12]:
        slot, handed = state.slot_of("ticks", name), state.pair_key("ticks", topic.epoch, name)
        assert slot is not None
        assert handed is not None
        private = realm.identity(name).kem.private.reveal()
        holder = theirs.Holder(slot, theirs.receive_pair_key(private, handed, topic.id, topic.epoch, name))
        opened = [o for data in pieces for o in theirs.open_piece(data, holder, verify_keys, SCHEMA_JSON)]
        wanted = [(p, v, e) for p, v, e in parsed if evaluate(parse(text, SCHEMA), v, e.payload) is True]
        assert [o.position for o in opened] == [(p.partition, p.offset, p.row) for p, _, _ in wanted]
        assert [(o.values, o.payload) for o in opened] == [(v, e.payload) for _, v, e in wanted]
        seen += len(opened)
        for other in names[:5]:
            if other != name and opened:
                stranger = realm.identity(other).pair_key(state, "ticks").reveal()
                with pytest.raises(theirs.Refused):
                    for data in pieces:
                        theirs.open_piece(data, theirs.Holder(slot, stranger), verify_keys, SCHEMA_JSON)
    assert seen > 30
    kinds = {kind for data in pieces for kind in sealed.parse(data).key_kind.tolist()}
    assert kinds == ({0, 2, 3} if crowd else {0})
