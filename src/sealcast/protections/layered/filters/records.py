"""A broker's routing table as a log: each record is one turn of its keeper, whole or not there at all.

    turn     = [taken, steps, refused, up, scanned]
    taken    : the posts before this offset have been decided about
    scanned  : those before this one have been looked at, and what was refused then has been counted; earlier releases
               decided in the order of the log, and did not write it
    steps    : CBOR of [step, ...]: what changed, in order; below
    refused  : how many posts, and filters of posts, were refused for which reason, and the first of them in words
    up       : CBOR of [[publisher, epoch, generation, parent, [[slots, path, remove], ...]], ...]: what goes to parents

A turn is the unit of everything: a crash leaves all of it or nothing, the table has no state within one, and what has
to go up is written down with what made it so. A row stands here as it is in the table, peeled: elements from which this
broker has taken its layer, and at least r - 1 layers of others are still on. So whoever folds the log needs no power,
and no key. The file holds what the broker's memory holds, no more: which rows are equal, where they came from, how they
go together. Whoever reads it learns what the broker knows; whoever writes it must have the broker's journal key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sealcast.errors import Corrupt, FrameRejected
from sealcast.log.annals import MAX_NOTE_BYTES
from sealcast.primitives.groups import Element
from sealcast.protections.layered.table import Conjunction
from sealcast.protections.layered.tree import Path, TreeId
from sealcast.wire import cbor
from sealcast.wire.limits import MAX_CBOR_ITEMS
from sealcast.wire.posts import PostedFilter

CONTEXT: Final = b"sealcast/1 filter table"
#: Refusals of one turn that are kept in words; all are counted.
MAX_TOLD: Final = 32
_OPENED, _TOOK, _SHOWN, _WITHDREW, _DROPPED, _ENDED = range(1, 7)


class Stream(NamedTuple):
    """One sender, in one of its two roles: who reads for itself, or a broker that passes on what others want."""

    sender: str
    own: bool


class RowChange(NamedTuple):
    """One row, one path more or less."""

    slots: Conjunction
    path: Path
    remove: bool


@dataclass(frozen=True, slots=True)
class OpenedTree:
    """A tree that had no table here yet. Trees are numbered in the order in which they were opened."""

    tree: TreeId
    #: Where this broker stands in it: its ancestors up to r, the parent first.
    chain: Path
    layers: int


@dataclass(frozen=True, slots=True)
class Took:
    """A post that was taken, and what was taken of it; nothing, if all of it was refused."""

    tree: int
    stream: Stream
    number: int
    changes: tuple[RowChange, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """The token by which a subscriber reads, and until when."""

    subscriber: str
    token: bytes
    until_us: int


@dataclass(frozen=True, slots=True)
class Withdrew:
    """What came in a stream has ended without its sender's word: the oldest so many of its rows."""

    tree: int
    stream: Stream
    rows: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """A tree whose time is over."""

    tree: int


@dataclass(frozen=True, slots=True)
class EndedEpochs:
    """The first epoch and the first generation that are kept: of those before them, nothing is routed from here on, and
    no tree is opened."""

    epoch: int
    generation: int


Step = OpenedTree | Took | Shown | Withdrew | Dropped | EndedEpochs


class PostRefusal(NamedTuple):
    """A post, or a filter of one, that has no effect."""

    offset: int
    #: Who says to have sent it; proven unless the reason is about that.
    sender: str
    reason: str
    detail: str


class Upwards(NamedTuple):
    """What one turn sends to one tree's parent."""

    tree: TreeId
    parent: str
    filters: tuple[PostedFilter, ...]


@dataclass(frozen=True, slots=True)
class TableTurn:
    """One record, taken apart."""

    taken: int
    steps: tuple[Step, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    told: tuple[PostRefusal, ...] = ()
    #: Encoded: folding does not look into it.
    up: bytes = b""
    #: Not before `taken`: posts wait for their sender's turn.
    scanned: int = 0


# --- writing --------------------------------------------------------------------------------------


def encode(turn: TableTurn) -> bytes:
    refused = [dict(turn.counts), [list(each) for each in turn.told]]
    steps = cbor.encode([_plain(step) for step in turn.steps])
    return cbor.encode([turn.taken, steps, refused, turn.up, turn.scanned])


def _plain(step: Step) -> list[object]:
    match step:
        case OpenedTree(tree, chain, layers):
            return [_OPENED, *tree, chain, layers]
        case Took(number_of, stream, number, changes):
            # A path is most often the one before.
            paths = {path: i for i, path in enumerate(dict.fromkeys(change.path for change in changes))}
            rows = [_packed(change, paths) for change in changes]
            return [_TOOK, number_of, *stream, number, list(paths), rows]
        case Shown(subscriber, token, until_us):
            return [_SHOWN, subscriber, token, until_us]
        case Withdrew(number_of, stream, rows_gone):
            return [_WITHDREW, number_of, *stream, rows_gone]
        case Dropped(number_of):
            return [_DROPPED, number_of]
        case EndedEpochs(epoch, generation):
            return [_ENDED, epoch, generation]


def _packed(change: RowChange, paths: Mapping[Path, int]) -> list[object]:
    """A row in two strings, the elements joined: they are all of one length, and reading many is cheap."""
    sizes = b"".join(len(slot).to_bytes(2, "big") for slot in change.slots)
    return [sizes, b"".join(map(b"".join, change.slots)), paths[change.path], change.remove]


def encode_up(up: list[Upwards]) -> bytes:
    return cbor.encode([[*u.tree, u.parent, [list(f) for f in u.filters]] for u in up]) if up else b""


# --- reading: our own file, so that what does not fit is damage ---------------------------------------


def parse(data: bytes, where: str) -> TableTurn:
    match _decoded(data, where):
        case [int(taken), bytes(steps), [dict(counts), list(told)], bytes(up), *scanned] if _is_end(scanned):
            found = tuple(_step(step, where) for step in _listed(steps, where))
            refusals = tuple(PostRefusal(*each) for each in told if isinstance(each, list) and len(each) == 4)
            return TableTurn(taken, found, counts, refusals, up, scanned[0] if scanned else 0)
    raise Corrupt(f"{where} is no turn of a keeper")


def _is_end(scanned: list[Any]) -> bool:
    return not scanned or (len(scanned) == 1 and type(scanned[0]) is int)


def up_of(data: bytes, where: str) -> list[Upwards]:
    """What a turn sends up; the rest of it is not looked at."""
    match _decoded(data, where):
        case [int(), bytes(), list(), bytes(up), *scanned] if _is_end(scanned):
            return parse_up(up, where)
    raise Corrupt(f"{where} is no turn of a keeper")


def parse_up(data: bytes, where: str) -> list[Upwards]:
    if not data:
        return []
    found = []
    for each in _listed(data, where):
        match each:
            case [str(publisher), int(epoch), int(generation), str(parent), list(filters)]:
                tree = TreeId(publisher, epoch, generation)
                posted = (PostedFilter(tuple(map(tuple, s)), tuple(p), r) for s, p, r in filters)
                found.append(Upwards(tree, parent, tuple(posted)))
            case _:
                raise Corrupt(f"{where} does not say what goes up")
    return found


def _step(step: Any, where: str) -> Step:
    match step:
        case [1, str(publisher), int(epoch), int(generation), list(chain), int(layers)]:
            return OpenedTree(TreeId(publisher, epoch, generation), tuple(chain), layers)
        case [2, int(tree), str(sender), bool(own), int(number), list(paths), list(rows)]:
            known = [tuple(path) for path in paths]
            try:
                changes = tuple(_unpacked(known, *row) for row in rows)
            except (TypeError, ValueError, IndexError, ZeroDivisionError):
                raise Corrupt(f"{where} has rows that cannot be read") from None
            return Took(tree, Stream(sender, own), number, changes)
        case [3, str(subscriber), bytes(token), int(until_us)]:
            return Shown(subscriber, token, until_us)
        case [4, int(tree), str(sender), bool(own), int(gone)]:
            return Withdrew(tree, Stream(sender, own), gone)
        case [5, int(tree)]:
            return Dropped(tree)
        case [6, int(epoch), int(generation)]:
            return EndedEpochs(epoch, generation)
    raise Corrupt(f"{where} has a step that no keeper takes")


def _unpacked(paths: list[Path], sizes: bytes, joined: bytes, path: int, remove: bool) -> RowChange:
    counts = [int.from_bytes(sizes[at : at + 2], "big") for at in range(0, len(sizes), 2)]
    size, at, slots = len(joined) // sum(counts), 0, []
    for count in counts:
        slots.append(tuple(Element(joined[i : i + size]) for i in range(at, at + count * size, size)))
        at += count * size
    return RowChange(tuple(slots), paths[path], remove)


def _listed(data: bytes, where: str) -> list[Any]:
    found = _decoded(data, where)
    if not isinstance(found, list):
        raise Corrupt(f"{where} has no list where one was written")
    return found


def _decoded(data: bytes, where: str) -> Any:
    try:
        return cbor.decode(data, max_bytes=MAX_NOTE_BYTES, max_items=MAX_CBOR_ITEMS)
    except FrameRejected as error:
        raise Corrupt(f"{where}: {error.message}") from None
