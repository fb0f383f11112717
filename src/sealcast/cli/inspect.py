"""sealcast inspect: what any file or directory of ours is, and what it reveals to whoever has it."""

from __future__ import annotations

import json as jsonlib
import sqlite3
import stat
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sealcast.cli import talk
from sealcast.errors import FrameRejected, NotFound, Rejected

if TYPE_CHECKING:
    from sealcast.trust.realm.topics import TopicState

app = talk.Commands(shared=talk.JSON_ONLY)

#: A frame is the largest thing that is read whole without being asked what it is first.
_HEAD: Final = 64
Found = dict[str, Any]
_KEY_FILES: Final = {
    "sealcast authority": "an authority's private key",
    "sealcast broker": "the trusted broker's secrets",
    "sealcast key center": "a key center's secrets",
    "sealcast entity": "an entity's private keys",
}


@app.command(epilog="Example: sealcast inspect topics/quotes/pieces/0000-*.piece")
def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file or a directory of a realm, or a copied one.")],
) -> None:
    """Say what a file or directory is, check that it is whole, and say what it reveals. No key is ever shown.

    This knows realms, registries, key files, kept tokens, frame logs and their segments, single frames, ledgers, sealed
    pieces, hop pieces, peer pieces, sealed filters and cursors. It needs no key: it shows what anyone who has the file
    can learn.
    """
    found = look(file)
    if talk.emitted({"file": str(file), **found}):
        return
    talk.say(f"{file}: {found.pop('is')}")
    reveals, hides = found.pop("reveals"), found.pop("hides")
    talk.pairs([(name.replace("_", " "), _shown(value)) for name, value in found.items()])
    talk.say("")
    talk.pairs([("reveals", reveals), ("hides", hides)])


def look(path: Path) -> Found:
    """What it is, what is in it, what it reveals and what it hides."""
    if not path.exists():
        raise NotFound(f"{path} does not exist", hint="name a file of a realm: a log, a piece, a ledger, a key file")
    if path.is_dir():
        for name, looker in _DIRECTORIES.items():
            if any(path.glob(name)):
                return looker(path)
        raise Rejected(f"{path} is a directory, but not a realm, a log or a ledger", hint="name a file in it")
    with path.open("rb") as file:
        head = file.read(_HEAD)
    for mark, looker in _FILES:
        if mark(head):
            return looker(path)
    if path.suffix == ".idx" or path.name == "frontier":
        return _result("a log's own bookkeeping", reveals="offsets and sizes", hides="everything else")
    raise Rejected(
        f"{path} is not a file that Sealcast writes",
        hint="name a frame, a piece, a log, a ledger, a key file or a registry",
    )


def _result(what: str, *, reveals: str, hides: str, **facts: object) -> Found:
    return {"is": what, **facts, "reveals": reveals, "hides": hides}


# --- directories ------------------------------------------------------------------------------------------


def _realm(path: Path) -> Found:
    from sealcast.trust.deployment import Realm

    realm = Realm(path)
    state = realm.state()
    return _result(
        "a realm",
        name=realm.name,
        id=realm.id.hex(),
        version=state.version,
        topics=list(state.topics),
        entities=len(state.entities),
        has_broker_secrets=realm.paths.broker_key.exists(),
        has_keys_of=sorted(p.stem for p in realm.paths.entities.glob("*.key")),
        reveals="everything that its files reveal",
        hides="events and private keys, from whoever cannot also unlock its key files",
    )


def _log(path: Path) -> Found:
    from sealcast.log.embedded import FrameLog

    if path.name == "ledger" or (path / "commit.lock").exists():
        return _ledger(path)
    with FrameLog(path, read_only=True) as log:
        checked = log.verify()
        first = next(log.read(log.start()), None) if log.end() > log.start() else None
        return _result(
            "a partition of a topic's frame log",
            records=log.end() - log.start(),
            first_offset=log.start(),
            end_offset=log.end(),
            whole=f"yes: {checked.end - checked.start} records verified against their chain",
            **_first_frame(first.data if first else b""),
            reveals="of each frame: topic id, publisher, time, how many events, its size",
            hides="attributes and payloads: frames are sealed to the broker",
        )


def _ledger(path: Path) -> Found:
    from sealcast.log.ledger import LedgerReader

    with LedgerReader(path) as reader:
        records, last, totals = reader.verify(), reader.last(), Counter[str]()
        for committed in reader.entries():
            totals.update(committed.entry.counts)
        return _result(
            "a topic's ledger",
            batches=records,
            whole="yes: chained, and every batch starts where the one before ended (tags need the broker's key)",
            handled_up_to=str(last.entry.end) if last else "nothing yet",
            counts=dict(totals),
            reveals="which frames each batch handled, under which version, and how many events and deliveries",
            hides="events; and it cannot be rewritten without the broker's journal key",
        )


# --- files ------------------------------------------------------------------------------------------------


def _registry(path: Path) -> Found:
    from sealcast.trust.registry import Registry
    from sealcast.trust.storage.schema import APPLICATION_ID

    with sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True) as connection:
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise Rejected(f"{path} is an SQLite database, but not a registry of Sealcast")
    state = Registry(path).state()
    return _result(
        "a realm's registry",
        version=state.version,
        whole="yes: every change is chained to the one before, and obeys the rules (who signed it, its realm knows: "
        "sealcast registry show)",
        topics=list(state.topics),
        entities=len(state.entities),
        revoked=sum(e.revoked for e in state.entities.values()),
        subscriptions=sum(len(t.subscriptions) for t in state.topics.values()),
        filters_in_clear=sum(map(_in_clear, state.topics.values())),
        reveals="names, public keys, rights, schemas, who subscribes to what topic, and the filters counted above",
        hides="private keys and filters; keys are in it, each sealed to its owner",
    )


def _key_file(path: Path) -> Found:
    from sealcast.trust.vault import keyfile, unlock_file

    try:
        kind = str(jsonlib.loads(path.read_bytes())["kind"])
    except (ValueError, KeyError, TypeError):
        return _plain_json(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    shown = f"{mode:04o}" + (", readable by others: it will be refused" if mode & 0o077 else "")
    if kind == unlock_file.KIND:
        held = unlock_file.read(path, path.read_bytes()[: unlock_file.MAX_BYTES + 1])
        if isinstance(held, unlock_file.WrappedKey):
            return _result(
                "a wrapped unlock key",
                mode=shown,
                id=held.id.hex(),
                wrapped_by=held.service,
                reveals="that it exists, and which key service wraps it",
                hides="the unlock key, from whoever cannot also use that service",
            )
        opens = "every private key that was sealed under it, to whoever has those files too"
        return _result("an unlock key", mode=shown, reveals=opens, hides="nothing; it is not shown here")
    owner = {"entity": path.stem} if kind == "sealcast entity" else {}
    return _result(
        _KEY_FILES.get(kind, f"private keys ({kind})"),
        **owner,
        mode=shown,
        sealed_under=str(keyfile.look(path).lock),
        reveals="that it exists, and what unlocks it",
        hides="its keys, from whoever cannot also unlock it",
    )


def _plain_json(path: Path) -> Found:
    try:
        body = jsonlib.loads(path.read_bytes())
    except ValueError:
        raise Rejected(f"{path} is damaged, or not a file that Sealcast writes") from None
    if isinstance(body, dict) and {"cursor", "slot", "tag"} <= set(body):
        place = dict(zip(("batch", "piece", "delivery"), body["cursor"], strict=False))
        facts = {"subscriber": path.stem, "slot": body["slot"], "next": place}
        return _result(
            "a subscriber's durable cursor", **facts, reveals="how far it has read", hides="what it has read"
        )
    if isinstance(body, dict) and {"format", "name", "id", "root"} == set(body) - {"registry", "discovery", "at_hand"}:
        return _result("a realm's mark", **body, reveals="the realm's name and id", hides="nothing")
    raise Rejected(
        f"{path} is JSON, but not a file that Sealcast writes",
        hint="of a realm, realm.json and key files are JSON: name one of them, or a file of a log",
    )


def _in_clear(topic: TopicState) -> int:
    """Filters that an earlier release stored as they are, where brokers read them."""
    from sealcast.wire.sealed_texts import is_sealed_text

    read = topic.topic.protection.brokers_read
    return sum(not is_sealed_text(each.filter) for each in topic.subscriptions.values()) if read else 0


def _segment(path: Path) -> Found:
    from sealcast.log.layout import SEGMENT_MAGIC
    from sealcast.log.segment import Segment

    with closing(Segment(path.parent, int(path.stem))) as segment:
        records, first = 0, b""
        for step in segment.walk(segment.begin, segment.size()):
            first, records = first or step.data, records + 1
    return _result(
        "a segment of a log",
        format=SEGMENT_MAGIC.decode(),
        records=records,
        first_offset=segment.first,
        whole="yes: every record verified against the chain",
        **_first_frame(first),
        reveals="when each record was written and how long it is; of frames also topic id, publisher, count",
        hides="attributes and payloads: what it holds is sealed",
    )


def _first_frame(data: bytes) -> dict[str, object]:
    from sealcast.wire import frame

    try:
        header = frame.parse(data).header
    except FrameRejected:
        return {}
    return {"first_frame_by": header.publisher, "topic_id": header.topic.hex(), "epoch": header.epoch}


def _frame(path: Path) -> Found:
    from sealcast.cli.times import moment
    from sealcast.wire import frame
    from sealcast.wire.limits import MAX_FRAME_BYTES

    with path.open("rb") as file:
        got = frame.parse(file.read(MAX_FRAME_BYTES + 1))
    header = got.header
    return _result(
        "a frame: one publisher's batch of events",
        publisher=header.publisher,
        topic_id=header.topic.hex(),
        epoch=header.epoch,
        events=header.count,
        first_sequence=header.sequence,
        published_at=moment(header.time),
        schema=header.schema.hex(),
        root=header.root.hex(),
        sealed_bytes=len(got.sealed),
        reveals="who published how many events, when, on which topic, and how large they are together",
        hides="attributes and payloads: sealed to the broker; whether the signature is the publisher's needs its key",
    )


def _piece(path: Path) -> Found:
    from sealcast.wire import sealed

    piece = sealed.parse(path.read_bytes())
    return _result(
        "a sealed piece: what one task of the pipeline delivered",
        topic_id=piece.topic.hex(),
        epoch=piece.epoch,
        version=piece.version,
        frames=f"{piece.partition}/{piece.first_offset} to before {piece.partition}/{piece.end_offset}",
        events=len(piece),
        deliveries=piece.deliveries,
        subscribers=len(piece.slots),
        keys_used=len(piece.uses),
        sealed_bytes=len(piece.bodies),
        rejected=len(piece.rejected),
        counts=dict(piece.counts),
        reveals="publishers, times, sizes, which subscriber (by slot) gets which event, and what was refused and why",
        hides="attributes and payloads: each event opens only for those it is sealed for",
    )


def _hop_piece(path: Path) -> Found:
    from sealcast.wire import hops

    piece = hops.parse(path.read_bytes())
    taken = f"{piece.partition}/{piece.first_offset} to before {piece.partition}/{piece.end_offset}"
    return _result(
        "a hop piece: what a broker of a layered topic handed on in one task",
        topic_id=piece.topic.hex(),
        broker=piece.node,
        version=piece.version,
        taken_from=taken,
        events=len(piece),
        messages=len(piece.row_event),
        recipients=list(piece.recipients),
        encrypted_bytes=len(piece.bodies),
        entry_bytes=len(piece.entries),
        rejected=len(piece.rejected),
        counts=dict(piece.counts),
        reveals="publishers, times, sizes, which broker or subscriber gets which event, how many tokens of it were hit "
        "and which are equal",
        hides="attributes, filters and payloads: under layers of several nodes; events open only for their subscribers",
    )


def _peer_piece(path: Path) -> Found:
    from sealcast.wire import peer_pieces

    piece = peer_pieces.parse(path.read_bytes())
    publishers = sorted({frame.partition for frame in piece.frames})
    return _result(
        "a peer piece: what a peer of an attribute topic took in",
        topic_id=piece.topic.hex(),
        peer=piece.peer,
        version=piece.version,
        taken=f"{piece.first_offset} to before {piece.end_offset}",
        events=len(piece),
        publishers_by_number=publishers,
        encrypted_bytes=len(piece.bodies),
        rejected=len(piece.rejected),
        counts=dict(piece.counts),
        reveals="publishers, times and sizes of events that this peer opened, and how many positions attributes have",
        hides="attributes, filters and payloads: only keys of a subscription that matches open an event",
    )


def _credentials(path: Path) -> Found:
    return _result(
        "an entity's keys of one epoch of an attribute topic, as its key center gave them",
        sealed_bytes=path.stat().st_size,
        reveals="the epoch, in its name, and that its owner publishes or subscribes",
        hides="the keys and what they are for: sealed under a key that follows from its owner's own",
    )


def _kept(path: Path) -> Found:
    from sealcast.cli.times import moment
    from sealcast.control.center.requests import Credentials
    from sealcast.trust.tokens.claims import parse

    given = Credentials.from_bytes(path.read_bytes())
    said = parse(given.token).claims
    return _result(
        "a key center's answer, as an entity keeps it",
        entity=said.subject,
        center=said.issuer,
        topic_id=said.topic.hex(),
        rights=sorted(map(str, said.rights)),
        template=str(said.template),
        until=moment(said.expires_us),
        keys_of_epochs=sorted(given.pair_keys),
        reveals="who may do what on which topic, and until when: all that a token says",
        hides="the pair keys: each is sealed to that entity; and the token works with that entity's key alone",
    )


def _table(path: Path) -> Found:
    return _result(
        "a topic's compiled filters, for the next worker of its broker",
        bytes=path.stat().st_size,
        reveals="how large the table is",
        hides="the filters: it is sealed under its broker's key",
    )


def _snapshot(path: Path) -> Found:
    return _result(
        "a state of the registry that a user verified, for its next process",
        bytes=path.stat().st_size,
        reveals="all that the registry shows",
        hides="nothing; it counts for the user whose key beside it made its tag, and for nobody else",
    )


def _sealed_filter(path: Path) -> Found:
    from sealcast.wire.limits import MAX_SEALED_FILTER_CHARACTERS
    from sealcast.wire.searching import TAG_BYTES, SealedFilter

    with path.open("rb") as file:
        text = file.read(MAX_SEALED_FILTER_CHARACTERS + 2).decode("ascii", "replace").rstrip("\n")
    sealed = SealedFilter.from_text(text)
    sealed.check_points()
    return _result(
        "a sealed filter of a searchable topic",
        epoch=sealed.epoch,
        conjunctions=len(sealed.conjunctions),
        slots=[len(conjunction) for conjunction in sealed.conjunctions],
        labels=len(sealed.labels),
        tags=len({label[:TAG_BYTES] for label in sealed.labels}),
        reveals="how many alternatives, slots and labels it has, and the tags of its labels",
        hides="what it asks for: labels are sealed with its subscriber's keys",
    )


def _is_kept(head: bytes) -> bool:
    """Three things, of which the first is a token: a tagged COSE_Sign1 in a byte string."""
    return head[:1] == b"\x83" and head[4:6] == b"\xd2\x84"


def _starts(prefix: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.startswith(prefix)


def _holds(word: bytes) -> Callable[[bytes], bool]:
    return lambda head: word in head


_DIRECTORIES: Final[dict[str, Callable[[Path], Found]]] = {"realm.json": _realm, "*.seg": _log}
_FILES: Final[tuple[tuple[Callable[[bytes], bool], Callable[[Path], Found]], ...]] = (
    (_starts(b"SQLite format 3\0"), _registry),
    (_starts(b"SEALSEG1"), _segment),
    (_is_kept, _kept),
    (_holds(b"sealcast-frame"), _frame),
    (_holds(b"sealcast-piece"), _piece),
    (_holds(b"sealcast-hop"), _hop_piece),
    (_holds(b"sealcast-peer-piece"), _peer_piece),
    (_starts(b"SCR1"), _credentials),
    (_starts(b"sealcast table 1"), _table),
    (_starts(b"sealcast snapshot 1"), _snapshot),
    (_starts(b"sealed:"), _sealed_filter),
    (_starts(b"{"), _key_file),
)


def _shown(value: object) -> object:
    match value:
        case list():
            return ", ".join(map(str, value)) or "none"
        case dict():
            return ", ".join(f"{k} {v}" for k, v in value.items()) or "none"
        case _:
            return value
