"""Deciding about posts: who sent each, whether it may, what it costs; then the tables change.

    log --prove: checks 1 to 10--> queues, one a sender --(11) to (14)--> TurnDraft.take: checks 15 to 20 of each filter

**Costs.** A token costs a broker two powers. Each sender has one account, whatever trees it posts in, and a post is
charged by its tokens before any of them is computed. Who cannot pay waits, with its own posts and nobody else's, and is
not refused: a post that is lost would be missed. A broker passes on what those below it were charged for, so its
account is as many times as large as readers stand below it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sealcast.control.budgets import Allowance, Budgets
from sealcast.errors import Corrupt, FrameRejected
from sealcast.log.port import Record
from sealcast.log.post_log import MAX_SHARE, FilterPosts
from sealcast.model.protection import Layered
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.layered.filters.checks import Doorkeeper, PostReason, PostRefused, ProvenPost, refuse
from sealcast.protections.layered.filters.fold import PostCredential, TableFold
from sealcast.protections.layered.filters.queue import PostQueue, WaitingPost
from sealcast.protections.layered.filters.records import Stream
from sealcast.protections.layered.filters.turns import TURN_BYTES, Tables, TurnDraft, tokens_of
from sealcast.wire.taken import TakenHeader, is_statement

#: An account holds what a reader may have in so many trees, and fills up by one tree's worth in so many seconds: on the
#: curve, at the defaults, two seconds of a broker's time once, and then a part in a thousand of it.
TREES_AT_ONCE: Final = 8
SECONDS_A_TREE: Final = 200
#: Of topics that were made when a reader could have more.
_MAX_BURST: Final = 65_536
#: Accounts that are remembered: as many readers as one broker is likely to have.
_MAX_ACCOUNTS: Final = 65_536

#: Keeps what a broker below states of how far it has taken what is handed on; PostRefused for what cannot be true.
NoteTaken = Callable[[TakenHeader], None]
#: Streams that end, each in the tree of a number.
Ending = tuple[tuple[int, Stream], ...]


def allowance_of(layering: Layered) -> Allowance:
    """What one sender may post, in tokens."""
    most = layering.reader_labels
    return Allowance(per_second=max(1, most // SECONDS_A_TREE), burst=min(TREES_AT_ONCE * most, _MAX_BURST))


class Intake(Unpicklable):
    """The posts of one keeper, on their way from the log into its tables."""

    def __init__(
        self, posts: FilterPosts, allowance: Allowance, clock: Callable[[], int], note_taken: NoteTaken
    ) -> None:
        self.queue = PostQueue(0)
        #: The first end of a token that was shown in this turn.
        self.shown_until_us: int | None = None
        self._posts, self._clock, self._note_taken = posts, clock, note_taken
        self._budgets = Budgets(allowance, max_keys=_MAX_ACCOUNTS)
        self._door: Doorkeeper | None = None

    def restart(self, fold: TableFold) -> None:
        """From what the log of turns says: another process may have taken turns, or this one failed."""
        if (end := self._posts.end()) < fold.scanned:
            raise Corrupt(
                f"{self._posts.shown} has {end} filter posts, but {fold.scanned} were taken: posts {end} to "
                f"{fold.scanned - 1} were removed, or an old copy was put back",
                hint="restore the newest copy",
            )
        self.queue = PostQueue(fold.taken)

    def begin(self, door: Doorkeeper) -> None:
        """A new turn, as of one state of the realm: what was proven as of another is proven again."""
        self.shown_until_us = None
        self.queue.begin(forget=door is not self._door)
        self._door = door

    def decided_us(self, sender: str, now_us: int, grace_us: int) -> int:
        """Up to which time everything that a sender posted has been decided about; not longer ago than the grace."""
        since_us = self.queue.since_us(sender)
        return now_us if since_us is None else min(now_us, max(since_us, now_us - grace_us))

    def mark(self) -> None:
        """For whoever posts: how far this is, and who has to wait."""
        self._posts.take(self.queue.scanned, self.queue.waiting(), self.queue.taken)

    def take(self, tables: Tables, draft: TurnDraft, door: Doorkeeper) -> Ending | None:
        """Decides about posts, one of each sender in turn, until the draft is full: None then. Otherwise the streams
        that have to end before the next post can be taken; or nothing, if no post can be decided about now."""
        for _ in self.queue.scan(self._posts.read, lambda record: self._proven(tables.fold, draft, door, record)):
            pass
        while draft.size < TURN_BYTES:
            found = self.queue.next()
            if found is None:
                return ()
            ending = self._decide(tables, draft, door, *found)
            if ending:
                return ending
        return None

    # --- before its turn ------------------------------------------------------------------------------

    def _proven(self, fold: TableFold, draft: TurnDraft, door: Doorkeeper, record: Record) -> ProvenPost | None:
        """A post that is worth waiting for; None for one that was refused, or taken before, and for a statement, which
        changes no table."""
        counted, sender = record.offset < fold.scanned, ""
        try:
            if is_statement(record.data):
                said = door.prove_taken(record)
                sender = said.sender
                self._note_taken(said)
                return None
            proven = door.prove(record, fold.kept)  # (1) to (9)
            sender, number_of = proven.stream.sender, fold.numbers.get(proven.tree)
            if number_of is not None:
                door.check_number(proven, fold.trees[number_of].heads)  # (10)
            if proven.stream.own and self.queue.count(sender) >= 2 * MAX_SHARE:
                # Its own client had stopped long before.
                refuse(PostReason.BUDGET, f"{sender!r} has {self.queue.count(sender)} posts waiting")
        except PostRefused as error:
            if not counted:
                draft.refused(record.offset, sender, error)
            return None
        return proven

    # --- when its turn has come -----------------------------------------------------------------------

    def _decide(
        self, tables: Tables, draft: TurnDraft, door: Doorkeeper, sender: str, post: WaitingPost
    ) -> Ending | None:
        """Takes one post, refuses it with a reason, or sets its sender aside; the streams that have to end first, if
        any: then it is asked again."""
        fold, proven = tables.fold, post.proven or self._read_again(tables.fold, draft, door, post)
        if proven is None:
            self.queue.done(sender)
            return None
        number_of = draft.open(proven.tree)
        try:
            door.check_number(proven, fold.trees[number_of].heads)  # (10)
        except PostRefused as error:
            draft.refused(post.offset, sender, error)
            self.queue.done(sender)
            return None
        if not tables.can_pass_on(number_of) and tables.may_yet(number_of, door):
            self.queue.set_aside(sender)  # a key has to come
            return None
        stream, known = proven.stream, fold.credentials.get(sender)
        if stream.own and known is not None and known.until_us <= proven.time_us and (held := fold.held(stream)):
            return held
        back_us = door.back_us(sender) if stream.own else None
        if back_us is not None and (old := tuple(at for at in fold.held(stream) if fold.head(*at) < back_us)):
            return old  # said again at once, they would not go up: nothing would have changed here
        try:
            shown = _admitted(door, proven)  # (11) to (13)
            # (14) what one may use, charged before a single power is computed
            if not self._budgets.ready(sender, self._clock()):
                self.queue.set_aside(sender)
                return None
            try:
                filters = proven.post.filters()
            except FrameRejected as error:
                refuse(PostReason.FORM, error.message)
        except PostRefused as error:
            draft.refused(post.offset, sender, error)
            draft.seen(number_of, proven)
            self.queue.done(sender)
            return None
        if proven.post.header.fresh and draft.weight(number_of, stream) > TURN_BYTES:
            return ((number_of, stream),)
        readers = 1 if stream.own else max(1, door.readers_below(sender, proven.tree.generation))
        self._budgets.spend(sender, self._clock(), max(1, -(-tokens_of(filters) // readers)))
        self._budgets.good(sender)
        if shown is not None and _supersedes(shown, known, door, proven):
            draft.shown(sender, shown)
            self.shown_until_us = min(shown.until_us, self.shown_until_us or shown.until_us)
        draft.take(number_of, proven, filters)
        self.queue.done(sender)
        return None

    def _read_again(self, fold: TableFold, draft: TurnDraft, door: Doorkeeper, post: WaitingPost) -> ProvenPost | None:
        """A post whose proof was not kept, or is of another state of the realm."""
        found = [post.record] if post.record is not None else self._posts.read(post.offset, 1)
        if not found or found[0].offset != post.offset:
            return None  # it waited for so long that the log has dropped it
        try:
            return door.prove(found[0], fold.kept)
        except PostRefused as error:
            draft.refused(post.offset, "", error)
            return None


def _admitted(door: Doorkeeper, proven: ProvenPost) -> PostCredential | None:
    """Whether its sender may: a broker because it is one, a subscriber by its token, which is returned."""
    if proven.stream.own:
        return PostCredential(proven.post.token, door.check_token(proven))  # (11), (12)
    # (13) what others want is not taken back as a whole
    if proven.post.header.fresh:
        refuse(PostReason.FRESH, "a broker says what changes, one by one")
    return None


def _supersedes(shown: PostCredential, known: PostCredential | None, door: Doorkeeper, proven: ProvenPost) -> bool:
    """Of two tokens the later end counts, unless that one is void by now."""
    if known is None or shown.until_us > known.until_us:
        return True
    sender, at_us, epoch = proven.stream.sender, proven.time_us, door.topic.epoch
    return shown.token != known.token and not door.still_reads(sender, known.token, at_us, epoch)
