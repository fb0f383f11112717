"""SPEC.md is enough: a client written from it alone reads what we write, and we read what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sealcast.clients.publisher import Publisher as OurPublisher
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.log.embedded import EmbeddedTopic
from sealcast.model.event import Event
from sealcast.model.stages import Received
from sealcast.pipeline.context import TopicWorker
from sealcast.pipeline.fused import handle
from sealcast.trust.deployment import Realm
from sealcast.wire import sealed
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
    "vector", [v for v in FRAMES["vectors"] if v.get("reason") in ("signature", "seal", "root")], ids=lambda v: v["why"]
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
    data = theirs.write_frame(header, batch, KEYS["sign_seed"], KEYS["pair_key"])
    assert data == us.publish(batch, sequence=7)
    assert us.admit(data) == batch


def test_it_opens_its_mailbox_and_no_more(tmp_path: Path) -> None:
    """Through the broker's whole path: pair key from the registry, piece from the pipeline, the rest its own."""
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic("ticks", SCHEMA)
    names = [f"subscriber-{i}" for i in range(len(FILTERS))]
    realm.enrol_many(["exchange", *names])
    realm.subscribe_many("ticks", [(n, f, None) for n, f in zip(names, FILTERS, strict=True)])
    events = [
        Event(
            {"symbol": f"S{i % 7}", "price": f"{i}.25", "hot": None if i % 3 == 0 else i % 2 == 0},
            f"event {i}".encode(),
        )
        for i in range(60)
    ]
    with OurPublisher(realm, "ticks", "exchange") as publisher:
        positions = [*publisher.publish(events[:37]), *publisher.publish(events[37:])]
    log = EmbeddedTopic(realm.paths.topic("ticks").frames_root, 1)
    records = list(log.partition(0).read(0))
    log.close()
    received = Received(0, [r.offset for r in records], [r.time_us for r in records], [r.data for r in records])
    data = sealed.encode(handle(received, TopicWorker(realm, "ticks").at(realm.registry.version())))

    state = realm.state()
    topic = state.topic("ticks")
    verify_keys = {"exchange": bytes(state.entity("exchange").verify_key)}
    seen = 0
    for name, text in zip(names, FILTERS, strict=True):
        slot, handed = state.slot_of("ticks", name), state.pair_key("ticks", topic.epoch, name)
        assert slot is not None
        assert handed is not None
        private = realm.identity(name).kem.private.reveal()
        pair = theirs.receive_pair_key(private, handed, topic.id, topic.epoch, name)
        opened = theirs.open_piece(data, slot, pair, verify_keys, SCHEMA_JSON)
        parsed = [(p, SCHEMA.parse(e.attributes), e) for p, e in zip(positions, events, strict=True)]
        wanted = [(p, v, e) for p, v, e in parsed if evaluate(parse(text, SCHEMA), v, e.payload) is True]
        assert [o.position for o in opened] == [(p.partition, p.offset, p.row) for p, _, _ in wanted]
        assert [(o.values, o.payload) for o in opened] == [(v, e.payload) for _, v, e in wanted]
        seen += len(opened)
        for other in names:
            if other != name and opened:
                stranger = realm.identity(other).pair_key(state, "ticks").reveal()
                with pytest.raises(theirs.Refused):
                    theirs.open_piece(data, slot, stranger, verify_keys, SCHEMA_JSON)
    assert seen > 30
