"""The table keeper of one broker of a layered topic: what its children post, verified in order, becomes its table.

A turn:
    (1) old trees are dropped; new posts are read and checked (`checks`), those of each sender take turns (`queue`),
        and what is taken changes the tables, in memory (`intake`, `turns`)
    (2) whoever may not read any more, or is not below this broker any more, is withdrawn; so is what a broker below
        has passed on for somebody who left, whether that broker says so or not
    (3) a record says all of it, and what has to go up because of it: appended to the table log, durable
    (4) what the log says has to go up is posted to the parent, under numbers that follow from the log (`posting`)

A crash before 3 has changed nothing: the posts are still there. A crash after 3 posts again what was posted, perhaps,
under the same number, which the parent takes once. So a post is taken once and goes up once, whatever dies when.

**Whose time is over.** A subscriber's rows stand as long as its token, and a post is judged by the time at which the
log took it in. One that showed a newer token in time is not withdrawn because the keeper came late to it. One whose
token ended before its next post came has lost its rows by then, and says everything again.

**Backpressure.** A parent that does not keep up stops this keeper, some turns later, and those who post here get Busy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NoReturn

from sealcast.control.budgets import Allowance
from sealcast.log import files
from sealcast.log.closing import Closing
from sealcast.log.post_log import FilterPosts, PostLog
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.layered.filters.agreed import LayersOf, agreed_layers
from sealcast.protections.layered.filters.checks import Doorkeeper, PostReason, refuse
from sealcast.protections.layered.filters.fold import PostCredential
from sealcast.protections.layered.filters.intake import Ending, Intake, NoteTaken, allowance_of
from sealcast.protections.layered.filters.kept import kept_at
from sealcast.protections.layered.filters.posting import Pusher
from sealcast.protections.layered.filters.records import Stream
from sealcast.protections.layered.filters.table import TableLog
from sealcast.protections.layered.filters.turns import Tables, TurnDraft
from sealcast.protections.layered.layering import layering_of
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.layer_keys import LayerKeyring, held, overlay_of
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.overlays import Overlay
from sealcast.trust.tokens.token import VerifiedTokens
from sealcast.wire.taken import TakenHeader

#: Records that one call makes of posts; each of about `TURN_BYTES` of them, one post at least.
MAX_RECORDS: Final = 8
#: Turns whose filters have not reached the parent: with more, nothing is taken in.
MAX_BEHIND: Final = 256
_SECOND_US: Final = 1_000_000
_FOR_EVER: Final = 1 << 62


def _keeps_none(said: TakenHeader) -> NoReturn:
    refuse(PostReason.FORM, f"{said.sender!r} states what it took, and this keeper has no ledger")


class TableKeeper(Closing, Unpicklable):
    """One broker's keeper for one topic. Processes that run the same one take turns."""

    def __init__(
        self,
        realm: BrokerRealm,
        topic: str,
        node: str,
        *,
        layers: LayersOf | None = None,
        allowance: Allowance | None = None,
        note_taken: NoteTaken = _keeps_none,
    ) -> None:
        """`layers` gives the keys of a tree; without it, they are agreed on as everyone's are. `allowance` is what one
        sender may post, in tokens; without it, it follows from what a reader may have (`intake.allowance_of`).
        `note_taken` keeps how far brokers below are."""
        layering = layering_of(realm.state(), topic)
        self.node = node
        self._realm, self._topic = realm, topic
        secrets = realm.broker(node)
        paths = realm.paths.topic(topic, node)
        files.make_directory(paths.filters)
        self._keyring = LayerKeyring(realm, secrets.identity)
        self._layers = layers or agreed_layers(realm, topic, secrets.identity)
        self._lock = files.FileLock(paths.filters / "keeper.lock")
        self._posts = _posts_of(realm, topic, secrets)
        self._log = TableLog(realm, topic, secrets)
        self._identity = secrets.identity
        self._pusher: Pusher | None = None
        self._tables: Tables | None = None
        self._tokens = VerifiedTokens()
        self._intake = Intake(self._posts, allowance or allowance_of(layering), realm.clock, note_taken)
        self._door: Doorkeeper | None = None
        #: Overlays of generations that are over, which never change.
        self._past: dict[int, Overlay] = {}
        #: The state and the time up to which nobody's time is over.
        self._looked: tuple[int, int] = (-1, 0)

    # --- for others -----------------------------------------------------------------------------------

    def turn(self) -> int:
        """Decides about all posts there are and passes on what must go up; how much moved, 0 when nothing did."""
        with self._lock:
            try:
                return self._turn()
            except BaseException:
                # What is in memory may be ahead of the log, and the log is right.
                self._tables = self._pusher = None
                raise

    def version(self) -> int:
        """The table's version: how many turns have been recorded."""
        return self._log.version()

    def close(self) -> None:
        self._posts.close()
        self._log.close()
        self._lock.close()

    # --- a turn ---------------------------------------------------------------------------------------

    def _turn(self) -> int:
        tables, state = self._current(), self._realm.state()
        announced = self.node in state.overlay(self._topic).parents and self._keyring.ensure(self._topic)
        if announced:
            # Those below may have waited for it.
            state = self._realm.state()
        if self._door is None or self._door.state is not state:
            self._door = Doorkeeper(
                state, self._realm.trust(state), self._topic, self.node, self._tokens, self._overlay_of
            )
        pusher = self._pusher = self._pusher or Pusher(self._realm, self._topic, self._identity, self._log)
        moved = announced + pusher.push() + self._drop(tables, self._door)
        moved += self._take_posts(tables, self._door, pusher)
        moved += self._withdraw(tables, self._door, self._now_us()) + pusher.push()
        self._log.snapshot(tables.fold)
        return moved

    def _overlay_of(self, generation: int) -> Overlay:
        if generation not in self._past:
            self._past[generation] = overlay_of(self._realm, self._realm.state(), self._topic, generation)
        return self._past[generation]

    def _current(self) -> Tables:
        """The tables as the log has them: another process may have taken turns."""
        if self._tables is None or self._tables.fold.version != self._log.version():
            fold = self._log.fold() if self._tables is None else self._tables.fold
            self._tables = Tables(self._log.advance(fold, self._log.version()), self._layers)
            self._intake.restart(self._tables.fold)
            self._looked = (-1, 0)
        return self._tables

    def _now_us(self) -> int:
        """Up to which time all posts have been read."""
        unread = self._posts.read(self._intake.queue.scanned, 1)
        return unread[0].time_us if unread else self._realm.clock()

    def _record(self, draft: TurnDraft, tables: Tables) -> int:
        """Step 3; how many steps it has."""
        turn = draft.turn(self._intake.queue.taken, self._intake.queue.scanned)
        if turn is None:
            return 0
        self._log.append(turn, tables.fold.version)
        tables.fold.finish(turn)
        return len(turn.steps) + sum(turn.counts.values())

    # --- posts ----------------------------------------------------------------------------------------

    def _take_posts(self, tables: Tables, door: Doorkeeper, pusher: Pusher) -> int:
        """How much moved."""
        moved = 0
        self._intake.begin(door)
        for _ in range(MAX_RECORDS):
            if pusher.behind() >= MAX_BEHIND:
                break
            draft = TurnDraft(tables, door)
            ending = self._intake.take(tables, draft, door)
            moved += self._record(draft, tables)
            self._intake.mark()
            moved += pusher.push()
            if ending == ():
                break
            if ending is not None:
                moved += self._end(tables, door, ending)
        if self._intake.shown_until_us is not None:
            self._looked = self._looked[0], min(self._looked[1], self._intake.shown_until_us)
        return moved

    # --- without a post -------------------------------------------------------------------------------

    def _withdraw(self, tables: Tables, door: Doorkeeper, now_us: int) -> int:
        """Whatever came from those who have no part in it any more."""
        if self._looked[0] == door.state.version and now_us < self._looked[1]:
            return 0
        moved = self._end(tables, door, tuple(self._gone(tables, door, now_us))) + self._end_left(tables, door)
        again_us = _next_end(door, tables.fold.credentials, now_us)
        if self._intake.queue.waiting():
            again_us = min(again_us, now_us + _SECOND_US)  # somebody may have been spared for a post that waits
        self._looked = door.state.version, again_us
        return moved

    def _gone(self, tables: Tables, door: Doorkeeper, now_us: int) -> Iterator[tuple[int, Stream]]:
        standing: dict[tuple[Stream, int], bool] = {}
        for number_of, tree in tables.fold.trees.items():
            # In a tree of a generation that is over, everyone stands where they stood.
            current = tree.id.generation == door.overlay.generation
            for stream in tree.rows:
                at = stream, tree.id.epoch
                if at not in standing:
                    standing[at] = self._counts(tables, door, *at, now_us)
                if not standing[at] or (current and not door.is_below(stream, tree.id.generation)):
                    yield number_of, stream

    def _end_left(self, tables: Tables, door: Doorkeeper) -> int:
        """Removes what a broker below passed on for somebody who has left, without waiting for that broker's word."""
        moved, draft, left = 0, TurnDraft(tables, door), dict[int, frozenset[str]]()
        for number_of, tree in tables.fold.trees.items():
            generation = tree.id.generation
            if generation not in left:
                then = door.overlay_in(generation)
                left[generation] = frozenset(name for name in (*then.left, *then.places) if door.has_left(name))
            gone = left[generation]
            for stream in [each for each in tree.rows if gone and not each.own]:
                while not draft.end_rows(number_of, stream, gone):
                    moved += self._record(draft, tables)
                    draft = TurnDraft(tables, door)
        return moved + self._record(draft, tables)

    def _counts(self, tables: Tables, door: Doorkeeper, stream: Stream, epoch: int, now_us: int) -> bool:
        if not stream.own:
            return door.still_routes(stream.sender)
        known = tables.fold.credentials.get(stream.sender)
        grace_us = door.topic.parameters.grace_s * _SECOND_US
        at_us = self._intake.decided_us(stream.sender, now_us, grace_us)
        return known is not None and door.still_reads(stream.sender, known.token, at_us, epoch)

    def _end(self, tables: Tables, door: Doorkeeper, ending: Ending) -> int:
        """Withdraws these streams, in as many records as it takes."""
        moved, draft = 0, TurnDraft(tables, door)
        for number_of, stream in ending:
            while not draft.withdraw(number_of, stream):
                moved += self._record(draft, tables)
                draft = TurnDraft(tables, door)
        return moved + self._record(draft, tables)

    def _drop(self, tables: Tables, door: Doorkeeper) -> int:
        """Trees by which nothing is routed any more; then the keys for them."""
        kept, draft = kept_at(door.state, door.topic, self._realm.clock()), TurnDraft(tables, door)
        if kept.epoch < door.topic.epoch:
            # Its own keys of an epoch may be gone before its time: they were removed when somebody was compromised who
            # had agreed on some with this broker. What they routed ends with them.
            own = held(self._realm, door.state, door.topic, self.node)
            kept = kept._replace(epoch=max(kept.epoch, min(own, default=door.topic.epoch)))
        draft.keep(kept.and_since(tables.fold.kept))
        moved = self._record(draft, tables)
        if moved:
            self._past = {generation: old for generation, old in self._past.items() if generation >= kept.generation}
            self._keyring.forget(door.topic.name, before=kept.epoch)
        return moved


def _posts_of(realm: BrokerRealm, topic: str, secrets: BrokerSecrets) -> FilterPosts:
    """As they are numbered in the table's log."""
    state = realm.state()
    there = realm.carriers.overlay(state, topic, secrets.name)
    if there is None:
        return PostLog(realm.paths.topic(topic, secrets.name).filter_posts)
    with there.notes(secrets.journal_key(state.topic(topic).id)) as notes:
        return there.posts(notes.first_post())


def _next_end(door: Doorkeeper, credentials: Mapping[str, PostCredential], now_us: int) -> int:
    """When it is next worth looking, if nothing is decided until then: a token ends, or a right, or a grace."""
    times = [c.until_us for c in credentials.values()]
    for name in credentials:
        term = door.state.terms_of(door.topic.name, name).get(Right.SUBSCRIBE)
        if term is not None and term.until_us is not None:
            times.append(term.until_us)
    times.append(door.topic.epoch_starts[-1] + door.topic.parameters.grace_s * _SECOND_US + 1)
    return min((t for t in times if t > now_us), default=_FOR_EVER)
