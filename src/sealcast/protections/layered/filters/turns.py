"""A turn in the making: the tables in memory have changed already, the log has not been told yet.

What goes up is a balance. A row that came and went within the turn, or went and came again because its subscriber said
everything anew, leaves nothing to say: equal rows have equal tokens and paths on their way up, whoever they came from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from sealcast.errors import Rejected
from sealcast.protections.layered.filters import records
from sealcast.protections.layered.filters.agreed import LayersOf
from sealcast.protections.layered.filters.checks import Doorkeeper, PostReason, PostRefused, ProvenPost, refuse
from sealcast.protections.layered.filters.fold import PostCredential, TableFold, TreeTable, size_of
from sealcast.protections.layered.filters.kept import Kept
from sealcast.protections.layered.filters.records import (
    MAX_TOLD,
    Dropped,
    EndedEpochs,
    OpenedTree,
    PostRefusal,
    RowChange,
    Shown,
    Step,
    Stream,
    TableTurn,
    Took,
    Upwards,
    Withdrew,
)
from sealcast.protections.layered.layering import layering_of
from sealcast.protections.layered.messages import FilterMessage, Slots
from sealcast.protections.layered.route import RoutingNode
from sealcast.protections.layered.tree import Path, TreeId
from sealcast.wire.posts import PostedFilter

#: What one record takes in or withdraws before the next one is begun, in bytes of tokens on the wire. One post more may
#: be in it, and what that one ends by being fresh: still far below what a record may have.
TURN_BYTES: Final = 1 << 20
_MAX_DETAIL: Final = 256


def tokens_of(filters: Iterable[PostedFilter]) -> int:
    """How many powers it takes to peel them."""
    return sum(len(slot) for wanted in filters for slot in wanted.slots)


class Tables:
    """The tables of one broker with its keys: what a keeper changes."""

    def __init__(self, fold: TableFold, layers: LayersOf) -> None:
        self.fold = fold
        self._layers_of = layers
        self._brokers: dict[int, RoutingNode] = {}

    def broker(self, number_of: int) -> RoutingNode:
        tree = self.fold.trees[number_of]
        found = self._brokers.get(number_of)
        if found is None:
            layers = self._layers_of(tree.id, tree.place)
            found = self._brokers[number_of] = RoutingNode(tree.place, layers, tree.table)
        return found

    def forget(self, number_of: int) -> None:
        self._brokers.pop(number_of, None)

    def can_pass_on(self, number_of: int) -> bool:
        """Whether the ancestor whose layer is put on next has announced its key: until then, filters wait."""
        broker = self.broker(number_of)
        if broker.place.parent == broker.place.publisher:
            return True
        try:
            broker.layers.key(broker.place.top)
        except Rejected:
            return False
        return True

    def may_yet(self, number_of: int, door: Doorkeeper) -> bool:
        """Whether it is worth waiting for that key: keys are announced in their epoch, by who is in the overlay."""
        tree = self.fold.trees[number_of]
        return tree.id.epoch == door.topic.epoch and (
            tree.place.top == tree.id.publisher or tree.place.top in door.overlay.parents
        )


class TurnDraft:
    """One turn. Whatever is done to it is done to the tables; `turn` says what it was."""

    def __init__(self, tables: Tables, door: Doorkeeper) -> None:
        self._tables, self._fold, self._door = tables, tables.fold, door
        self.steps: list[Step] = []
        self._counts: Counter[str] = Counter()
        self._told: list[PostRefusal] = []
        self._passes_on: dict[int, bool] = {}
        #: Bytes of tokens in it, as they are on the wire.
        self.size = 0
        #: For each tree: how often each filter goes up, to begin (1) or to end (-1).
        self._up: dict[int, Counter[tuple[Slots, Path]]] = {}

    def turn(self, taken: int, scanned: int) -> TableTurn | None:
        """What it was; None if it was nothing."""
        if not self.steps and not self._counts and taken == self._fold.taken:
            return None
        up = [self._upwards(number_of, net) for number_of, net in self._up.items() if any(net.values())]
        refused = dict(self._counts), tuple(self._told)
        return TableTurn(taken, tuple(self.steps), *refused, records.encode_up(up), scanned)

    def _upwards(self, number_of: int, net: Counter[tuple[Slots, Path]]) -> Upwards:
        tree = self._fold.trees[number_of]
        filters = (PostedFilter(slots, path, by < 0) for (slots, path), by in net.items() if by)
        return Upwards(tree.id, tree.place.parent, tuple(filters))

    # --- posts ----------------------------------------------------------------------------------------

    def refused(self, offset: int, sender: str, error: PostRefused) -> None:
        self._counts[str(error.reason)] += 1
        if error.reason is not PostReason.SEEN and len(self._told) < MAX_TOLD:
            self._told.append(PostRefusal(offset, sender, str(error.reason), error.message[:_MAX_DETAIL]))

    def open(self, tree: TreeId) -> int:
        """The number of a tree; its table begins empty."""
        found = self._fold.numbers.get(tree)
        if found is None:
            layers = self._door.topic.protection.depth
            # Where it stood in that generation: what is passed on goes up the way that events come down.
            chain = (*self._door.overlay_in(tree.generation).path_up(self._door.node), tree.publisher)[:layers]
            step = OpenedTree(tree, chain, layers)
            found = self._fold.opened
            self._fold.open(step)
            self.steps.append(step)
        return found

    def seen(self, number_of: int, proven: ProvenPost) -> None:
        """A post that is refused as a whole, by who it is proven to be from: it is not taken later either."""
        self._took(number_of, proven, [])

    def take(self, number_of: int, proven: ProvenPost, filters: Iterable[PostedFilter]) -> None:
        """What can be taken of a post's filters; each other one is refused by itself."""
        tree, broker, stream = self._fold.trees[number_of], self._tables.broker(number_of), proven.stream
        if proven.post.header.fresh:
            # All of it, here: what is said again at once does not go up as an end and a beginning.
            self.withdraw(number_of, stream, at_once=True)
        changes = []
        for wanted in filters:
            if wanted.remove and not stream.own and self._door.has_left(wanted.path[-1]):
                continue  # this broker ends that row by itself, and does not wait to be told
            try:
                change = self._row(tree, broker, stream, wanted)
                self._change(number_of, stream, change)
            except PostRefused as error:
                ended = error.reason is PostReason.UNKNOWN and self._door.back_us(wanted.path[-1]) is not None
                if not ended:  # by this broker itself, when its subscriber was gone
                    self.refused(proven.offset, stream.sender, error)
            else:
                changes.append(change)
        self._took(number_of, proven, changes)

    def weight(self, number_of: int, stream: Stream) -> int:
        """Bytes of tokens of a stream's rows."""
        tokens = self._fold.trees[number_of].tokens.get(stream, 0)
        return tokens * self._tables.broker(number_of).layers.group.wire_bytes

    def _took(self, number_of: int, proven: ProvenPost, changes: list[RowChange]) -> None:
        number = proven.post.header.number
        self._fold.trees[number_of].heads[proven.stream] = number
        self.steps.append(Took(number_of, proven.stream, number, tuple(changes)))

    def _row(self, tree: TreeTable, broker: RoutingNode, stream: Stream, wanted: PostedFilter) -> RowChange:
        """Checks 15 to 18 of a filter, and the row that it is about."""
        self._door.check_path(tree.id.generation, stream, wanted, tree.place.layers)  # (15)
        self._check_quota(tree, stream, wanted)  # (16)
        # (17) under a key that is shared with whoever put the layer on
        try:
            broker.layers.key(wanted.path[-1])
        except Rejected as error:
            refuse(PostReason.KEYS, error.message)
        # (18) elements of the group, and nothing else
        try:
            row = broker.peeled(stream.sender, FilterMessage(*wanted))
        except Rejected as error:
            refuse(PostReason.ELEMENT, error.message)
        return RowChange(row, wanted.path, wanted.remove)

    def _check_quota(self, tree: TreeTable, stream: Stream, wanted: PostedFilter) -> None:
        """(16) No more than one may have, told before anything is computed: a row has as many tokens as its filter."""
        layering = layering_of(self._door.state, self._door.topic.name)
        widest = max(map(len, wanted.slots))
        if widest > layering.slot_labels:
            refuse(PostReason.QUOTA, f"a slot has {widest} tokens, and {layering.slot_labels} are allowed")
        readers = 1 if stream.own else self._door.readers_below(stream.sender, tree.id.generation)
        most = readers * layering.reader_labels
        if not wanted.remove and tree.tokens.get(stream, 0) + tokens_of([wanted]) > most:
            refuse(PostReason.QUOTA, f"{stream.sender!r} has the {most} tokens in filters that it may have")

    def _change(self, number_of: int, stream: Stream, change: RowChange, count: int = 1) -> None:
        tree, broker = self._fold.trees[number_of], self._tables.broker(number_of)
        if number_of not in self._passes_on:
            # Who left the overlay does not hear of it; nor can anybody be told where a key is gone. Such tables end by
            # themselves.
            parent = tree.place.parent
            heard = parent == tree.id.publisher or parent in self._door.overlay.parents
            self._passes_on[number_of] = heard and self._tables.can_pass_on(number_of)
        try:
            if self._passes_on[number_of]:
                up = broker.change(change.slots, change.path, remove=change.remove, count=count)
            else:
                up = []
                if change.remove:
                    tree.table.remove(change.slots, change.path, count)
                else:
                    tree.table.add(change.slots, change.path)
        except Rejected as error:
            # (19), (20) room for it; something to end
            refuse(PostReason.UNKNOWN if change.remove else PostReason.ROWS, error.message)
        tree.count(stream, change.slots, change.path, -count if change.remove else count)
        self._fold.changed += 1
        self.size += size_of(change.slots) * broker.layers.group.wire_bytes
        net = self._up.setdefault(number_of, Counter())
        for message in up:
            net[message.slots, message.path] += -1 if message.remove else 1

    # --- without a post -------------------------------------------------------------------------------

    def shown(self, subscriber: str, credential: PostCredential) -> None:
        if self._fold.credentials.get(subscriber) != credential:
            self._fold.credentials[subscriber] = credential
            self.steps.append(Shown(subscriber, credential.token, credential.until_us))

    def withdraw(self, number_of: int, stream: Stream, *, at_once: bool = False) -> bool:
        """Ends what came in a stream, the oldest rows first, as many as a turn holds or `at_once`; was that all?"""
        tree, gone = self._fold.trees[number_of], 0
        for slots, path, count in tree.oldest(stream, len(tree.rows.get(stream, {}))):
            if gone and self.size >= TURN_BYTES and not at_once:
                break
            self._change(number_of, stream, RowChange(slots, path, True), count)
            gone += 1
        if gone:
            self.steps.append(Withdrew(number_of, stream, gone))
        return stream not in tree.rows

    def end_rows(self, number_of: int, stream: Stream, gone: Collection[str]) -> bool:
        """Ends what came in a stream for somebody who has left, as much as a turn holds; was that all?"""
        tree, changes, whole = self._fold.trees[number_of], list[RowChange](), True
        for (slots, path), count in list(tree.rows.get(stream, {}).items()):
            if path[-1] not in gone:
                continue
            if changes and self.size >= TURN_BYTES:
                whole = False
                break
            end = RowChange(slots, path, True)
            for _ in range(count):
                self._change(number_of, stream, end)
                changes.append(end)
        if changes:
            self.steps.append(Took(number_of, stream, tree.heads[stream], tuple(changes)))
        return whole

    def keep(self, kept: Kept) -> None:
        """What is before it is not routed any more, and no post for it is taken: its tables are dropped with this."""
        if kept == self._fold.kept:
            return
        step = EndedEpochs(*kept)
        self._fold.end(step)
        self.steps.append(step)
        for number_of, tree in list(self._fold.trees.items()):
            if not kept.has(tree.id.epoch, tree.id.generation):
                self._drop(number_of)

    def _drop(self, number_of: int) -> None:
        self._fold.drop(number_of)
        self._tables.forget(number_of)
        self._up.pop(number_of, None)
        self.steps.append(Dropped(number_of))
