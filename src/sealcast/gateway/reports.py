"""What callers send for others to read: filter posts, reports of cursors, and frames that brokers hand to each other.

A cursor is its reader's own file, on its own machine. A report of it is what `status` shows, and what a broker goes by
when it throws away what everybody has: signed by the reader, so that no gateway invents one.

    Ed25519 over  label | CBOR [realm id, topic id, broker, part, name, [record, piece, rank], tag]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sealcast.errors import FrameRejected, Misuse, NotFound, Rejected
from sealcast.gateway import access
from sealcast.gateway.access import HOPS
from sealcast.gateway.asked import ApiCall, CborAnswer, NoAnswer
from sealcast.gateway.mail import kept_at, paths_of
from sealcast.gateway.problems import Refusal, forbidden
from sealcast.log.cursor import Cursor, CursorFile, Saved
from sealcast.log.forwarded import ForwardedLog
from sealcast.log.ledger import LedgerReader
from sealcast.primitives.sign import VerifyKey
from sealcast.wire import cbor, frame, taken
from sealcast.wire import posts as wire

if TYPE_CHECKING:
    from sealcast.gateway.hub import Hub

CURSOR_LABEL: Final = b"sealcast/1 cursor report\0"


async def posts(hub: Hub, asked: ApiCall) -> NoAnswer:
    """Appends filter posts of the caller to its broker's log, and what it states to have taken; answers when they are
    durable."""
    state, topic, broker = hub.newest.seen.state, asked.path["topic"], asked.path["broker"]
    about = hub.topic_at(state, topic, broker)
    if not about.protection.overlay or broker not in state.overlay(topic).parents:
        raise Misuse(f"broker {broker!r} takes no filter posts of topic {topic!r}")
    made: list[bytes] = asked.body["posts"]

    def work() -> None:
        for data in made:
            try:
                header = taken.parse(data).header if taken.is_statement(data) else wire.parse(data).header
            except FrameRejected as error:
                raise Refusal(422, error.code, error.message, reason=error.reason) from None
            access.be(asked.caller, header.sender, "a post")
            if (header.topic, header.receiver) != (about.id, broker):
                raise Misuse("a post is for the broker and the topic that its header names")
        with hub.realm.carriers.posts(state, topic, broker) as log:
            log.check_share(asked.caller.name)
            log.append(made)

    await hub.workers.run(work)
    return NoAnswer()


async def cursor(hub: Hub, asked: ApiCall) -> NoAnswer:
    """Keeps a report of how far the caller has read."""
    state, topic, broker, name = hub.newest.seen.state, *(asked.path[e] for e in ("topic", "broker", "name"))
    about = hub.topic_at(state, topic, broker)
    access.be(asked.caller, name, "a cursor")
    part, place, tag = str(asked.query["part"]), asked.body["cursor"], asked.body["tag"]
    said = cursor_report(hub.realm.id, about.id, broker, part, name, place, tag)
    if not VerifyKey(state.entity(name).verify_key).verify(said, asked.body["signature"]):
        raise Rejected("the report is not signed by its reader")
    slot = 0 if part == HOPS else state.slot_of(topic, name)
    if slot is None or not access.reads(state, asked.caller, topic):
        raise forbidden(f"{name!r} is no reader of topic {topic!r}")
    paths = paths_of(hub, topic, broker, part)

    def work() -> None:
        file, at = CursorFile(paths.cursors, name, slot), Cursor(*place)
        with LedgerReader(kept_at(hub, state, topic, broker, part)) as ledger, file.locked():
            if at.entry > ledger.end() or ledger.tag_before(at.entry) != tag:
                raise Misuse("the report is not about this ledger")
            known = file.load()
            if known.cursor < at:
                file.save(Saved(at, tag, known.had))

    await hub.workers.run(work)
    return NoAnswer()


def cursor_report(realm: bytes, topic: bytes, broker: str, part: str, name: str, place: list[int], tag: bytes) -> bytes:
    """What a reader signs when it says how far it has read."""
    return CURSOR_LABEL + cbor.encode([realm, topic, broker, part, name, place, tag])


# --- between brokers ----------------------------------------------------------------------------------


async def forwarded(hub: Hub, asked: ApiCall) -> CborAnswer:
    """How far a broker's frames have come to another one, in offsets of where they came from."""
    topic, partition = str(asked.query["topic"]), asked.number("partition")
    taken, origin = asked.number("taken"), asked.number("origin")

    def work() -> dict[str, object]:
        log = _block(hub, asked, topic, partition)
        if taken > log.end():
            raise Misuse(f"there are {log.end()} frames in this partition, and not {taken}")
        return {"next": log.next_origin(), "through": log.through(taken), "index": log.index_of(origin)}

    return CborAnswer(await hub.workers.run(work))


async def forward(hub: Hub, asked: ApiCall) -> CborAnswer:
    """Hands a broker's frames to another one, each once, in their order."""
    topic, partition, pairs = (asked.body[each] for each in ("topic", "partition", "frames"))
    state, broker = hub.newest.seen.state, asked.path["broker"]

    def work() -> int:
        log = _block(hub, asked, topic, partition)
        if partition // state.topic(topic).partitions != state.broker_number(asked.caller.name):
            raise forbidden(f"partition {partition} is not in the block of {asked.caller.name!r}")
        for _, data in pairs:
            try:
                header = frame.parse(data).header
            except FrameRejected as error:
                raise Refusal(422, error.code, error.message, reason=error.reason) from None
            if header.topic != state.topic(topic).id:
                raise Misuse(f"a frame that is forwarded to {broker!r} is of another topic than {topic!r}")
        log.take([(offset, data) for offset, data in pairs])
        return log.next_origin()

    return CborAnswer({"next": await hub.workers.run(work)})


def _block(hub: Hub, asked: ApiCall, topic: str, partition: int) -> ForwardedLog:
    """A partition of another broker's block in a broker's log."""
    state, broker = hub.newest.seen.state, asked.path["broker"]
    about = hub.topic_at(state, topic, broker)
    access.be_broker(asked.caller)
    if broker not in state.serving(topic) or asked.caller.name not in state.serving(topic):
        raise forbidden(f"frames of topic {topic!r} go between the brokers that serve it")
    if partition // about.partitions == state.broker_number(broker):
        raise forbidden(f"partition {partition} is the own one of {broker!r}: publishers append to it")
    if partition >= about.partitions * len(state.brokers()):
        raise NotFound(f"topic {topic!r} has no partition {partition}")
    return hub.frames.at(state, topic, broker).log.forwarded(partition)
