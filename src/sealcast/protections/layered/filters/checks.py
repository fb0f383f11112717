"""What a keeper asks of a post before it believes anything in it. Pure: a state, a post and a time in, a verdict out.

The checks are numbered; the first that fails is the reason, and every check has its own (`PostReason`, in this order).
The clock is the log's: a post is judged by when it came, even if the keeper comes to it later. And it is judged by the
overlay of its own generation: whoever moves meanwhile stood, when the post was made, where it stood then. A subscriber
has until the end of the grace to say something in an epoch or generation that is over. A broker passes on what was said
in time whenever it comes to it: from brokers it is taken for as long as the tree is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final, NoReturn

from sealcast.errors import CertificateRejected, FrameRejected, ReasonedRejection, TokenRejected
from sealcast.log.port import Record
from sealcast.primitives.sign import VerifyKey
from sealcast.protections.layered.filters.kept import Kept, in_grace
from sealcast.protections.layered.filters.records import Stream
from sealcast.protections.layered.tree import Path, TreeId
from sealcast.trust.certificates.certificate import Trust
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.overlays import Overlay
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import FIRST_EPOCH
from sealcast.trust.tokens import gates
from sealcast.trust.tokens.token import VerifiedTokens
from sealcast.wire import posts, taken
from sealcast.wire.posts import PostedFilter, SignedPost
from sealcast.wire.taken import TakenHeader

_SECOND_US: Final = 1_000_000


class PostReason(StrEnum):
    """Why a post has no effect, or a filter of it, in the order of the checks."""

    # Of a post: what can be seen without a key, and who it is from.
    FORM = "form"
    TOPIC = "topic"
    RECEIVER = "receiver"
    SENDER = "sender"
    CERTIFICATE = "certificate"
    SIGNATURE = "signature"
    # Which tree.
    EPOCH = "epoch"
    GENERATION = "generation"
    TREE = "tree"
    #: Seen before. Not a refusal: who posts at least once posts twice now and then.
    SEEN = "seen"
    # Whether it may.
    TOKEN = "token"
    RIGHT = "right"
    FRESH = "fresh"
    BUDGET = "budget"
    # Of one filter.
    PATH = "path"
    QUOTA = "quota"
    KEYS = "keys"
    ELEMENT = "element"
    ROWS = "rows"
    UNKNOWN = "unknown"
    # Of a statement of what a broker took.
    LEDGER = "ledger"


class PostRefused(ReasonedRejection[PostReason]):
    """A post, or a filter of one, that a keeper does not take."""

    code = "post"


def refuse(reason: PostReason, message: str) -> NoReturn:
    raise PostRefused(reason, message)


@dataclass(frozen=True, slots=True)
class ProvenPost:
    """A post whose sender, receiver and tree are proven. Whether the sender may is not known yet, nor what it says."""

    post: SignedPost
    tree: TreeId
    stream: Stream
    offset: int
    time_us: int
    verify_key: bytes


class Doorkeeper:
    """The checks of one broker's keeper, as of one state of the realm."""

    def __init__(
        self,
        state: RealmState,
        trust: Trust,
        topic: str,
        node: str,
        tokens: VerifiedTokens,
        past: Callable[[int], Overlay],
    ) -> None:
        """`past` gives the overlay of a generation that is over; it is asked for those that are kept, and no others."""
        self.state, self.topic, self.node = state, state.topic(topic), node
        self.overlay = state.overlay(topic)
        self._past = past
        self._trust = trust
        self._gate = gates.gate_of(state, tokens)
        self._publishers: dict[int, frozenset[str]] = {}
        self._keys: dict[str, VerifyKey] = {}
        self._readers: dict[tuple[str, int], int] = {}

    # --- a post ---------------------------------------------------------------------------------------

    def overlay_in(self, generation: int) -> Overlay:
        """Where everyone stood in a generation that is kept."""
        return self.overlay if generation == self.overlay.generation else self._past(generation)

    def is_below(self, stream: Stream, generation: int) -> bool:
        """Whether a sender stands right below, or did. Brokers that left the overlay have no part in it any more."""
        overlay, current = self.overlay_in(generation), self.overlay.parents
        if self.node not in current:
            return False
        if stream.own:
            return overlay.stood(stream.sender) == self.node
        return stream.sender in current and overlay.parents.get(stream.sender) == self.node

    def readers_below(self, broker: str, generation: int) -> int:
        """How many read somewhere below a broker: what it passes on is theirs."""
        if (broker, generation) not in self._readers:
            overlay, waiting, found = self.overlay_in(generation), [broker], 0
            while waiting:
                at = waiting.pop()
                if at in overlay.parents:
                    found += len(overlay.subscribers(at))
                    waiting.extend(overlay.children(at))
            self._readers[broker, generation] = found
        return self._readers[broker, generation]

    def prove(self, record: Record, kept: Kept) -> ProvenPost:
        """Checks 1 to 9: whose it is, and for which tree of those kept; PostRefused otherwise."""
        # (1) a post
        try:
            post = posts.parse_signed(record.data)
        except FrameRejected as error:
            refuse(PostReason.FORM, error.message)
        header = post.header
        # (2), (3) for this topic and this broker
        if header.topic != self.topic.id:
            refuse(PostReason.TOPIC, f"{header.sender!r} posted it for another topic than {self.topic.name!r}")
        if header.receiver != self.node:
            refuse(PostReason.RECEIVER, f"{header.sender!r} posted it to {header.receiver!r}, not to {self.node!r}")
        # (4) from somebody right below: a subscriber shows a token, a broker passes on what others want
        stream = Stream(header.sender, bool(post.token))
        tree = TreeId(header.publisher, header.epoch, header.generation)
        # Nobody has signed for the generation yet: older ones are not looked for.
        known = kept.generation <= tree.generation <= self.overlay.generation
        if not self.is_below(stream, tree.generation if known else self.overlay.generation):
            what = "reads" if stream.own else "is a broker"
            refuse(PostReason.SENDER, f"{header.sender!r} is nobody who {what} below {self.node!r}")
        # (5) whose certificate counts
        key = self._certified(header.sender, record.time_us)
        # (6) and who signed it
        if not key.verify(post.to_be_signed, post.signature):
            refuse(PostReason.SIGNATURE, f"{header.sender!r} did not sign this")
        self._check_tree(tree, stream, record.time_us, kept)  # (7) to (9)
        return ProvenPost(post, tree, stream, record.offset, record.time_us, bytes(key))

    def prove_taken(self, record: Record) -> TakenHeader:
        """Checks 1 to 6 of a statement of what a broker took: whose it is. It speaks for that broker and no other, so
        it need not stand right below: it may have stood there once."""
        try:
            said = taken.parse(record.data)  # (1)
        except FrameRejected as error:
            refuse(PostReason.FORM, error.message)
        header = said.header
        if header.topic != self.topic.id:  # (2)
            refuse(PostReason.TOPIC, f"{header.sender!r} stated it of another topic than {self.topic.name!r}")
        if header.receiver != self.node:  # (3)
            refuse(PostReason.RECEIVER, f"{header.sender!r} stated it to {header.receiver!r}, not to {self.node!r}")
        if header.sender not in self.overlay.parents or header.sender == self.node:  # (4)
            refuse(PostReason.SENDER, f"{header.sender!r} is no other broker of the overlay")
        if not self._certified(header.sender, record.time_us).verify(said.to_be_signed, said.signature):  # (5), (6)
            refuse(PostReason.SIGNATURE, f"{header.sender!r} did not sign this")
        return header

    def _certified(self, name: str, at_us: int) -> VerifyKey:
        who = self.state.entities.get(name)
        if who is None or who.revoked:
            refuse(PostReason.CERTIFICATE, f"{name!r} was revoked, or never enrolled")
        try:
            found = self._trust.verify(who.certificate, at_us, self.state.revoked, name=name)
        except CertificateRejected as error:
            refuse(PostReason.CERTIFICATE, error.message)
        if name not in self._keys:
            self._keys[name] = VerifyKey(found.verify_key)
        return self._keys[name]

    def _check_tree(self, tree: TreeId, stream: Stream, at_us: int, kept: Kept) -> None:
        sender = stream.sender
        # (7) an epoch that is, or for its grace was
        in_time = not stream.own or self.topic.epoch_admissible(tree.epoch, at_us)
        if not (in_time and kept.epoch <= tree.epoch <= self.topic.epoch):
            refuse(PostReason.EPOCH, f"it is for epoch {tree.epoch}; {self.topic.name!r} is in {self.topic.epoch}")
        # (8) and the overlay as it stands, or for its grace stood
        in_time = not stream.own or in_grace(self.state, self.topic, tree.generation, at_us)
        if not (in_time and kept.generation <= tree.generation <= self.overlay.generation):
            refuse(
                PostReason.GENERATION,
                f"it is for generation {tree.generation} of the overlay, which is in {self.overlay.generation}",
            )
        # (9) somebody who publishes, and is above the sender
        if tree.epoch not in self._publishers:
            self._publishers[tree.epoch] = frozenset(self.state.publishers_of(self.topic.name, tree.epoch))
        if tree.publisher not in self._publishers[tree.epoch] or tree.publisher == sender:
            refuse(PostReason.TREE, f"there is no tree of publisher {tree.publisher!r} with {sender!r} in it")

    def check_number(self, proven: ProvenPost, heads: Mapping[Stream, int]) -> None:
        # (10) newer than all before
        number, head = proven.post.header.number, heads.get(proven.stream, -1)
        if number <= head:
            refuse(PostReason.SEEN, f"number {number} of {proven.stream.sender!r}; it is at {head}")

    def check_token(self, proven: ProvenPost) -> int:
        """Until when the sender may read, by its token; for subscribers only."""
        name, post = proven.stream.sender, proven.post
        # (11) a token for this, and its holder's
        try:
            token = self._gate.verify(
                post.token, self.topic, proven.time_us, Right.SUBSCRIBE, proven.verify_key, holder=name
            )
        except TokenRejected as error:
            refuse(PostReason.TOKEN, f"{error.reason}: {error.message}")
        if token.claims.expires_us <= proven.time_us:
            # Clocks may differ, and a token may still open doors; rows that it gave would end at once.
            refuse(PostReason.TOKEN, f"expired: the token of {name!r} has ended")
        # (12) and a right that was not taken away since
        if not self.state.may_subscribe(self.topic.name, name, proven.time_us):
            refuse(PostReason.RIGHT, f"{name!r} may not subscribe to {self.topic.name!r} any more")
        return token.claims.expires_us

    def still_reads(self, name: str, token: bytes, now_us: int, epoch: int) -> bool:
        """Whether a subscriber's rows of an epoch are still to be kept: as checks 5, 11 and 12 say now. An ended token
        has ended, whatever clocks may differ by; but a token of an epoch that is over, with its grace, is still good
        for what was published in it."""
        who = self.state.entities.get(name)
        if who is None or who.revoked or not self.state.may_subscribe(self.topic.name, name, now_us):
            return False
        for at_us in dict.fromkeys((now_us, min(now_us, self._grace_ends(epoch, now_us)))):
            try:
                found = self._gate.verify(token, self.topic, at_us, Right.SUBSCRIBE, who.verify_key, holder=name)
            except TokenRejected:
                continue
            return now_us < found.claims.expires_us
        return False

    def _grace_ends(self, epoch: int, otherwise: int) -> int:
        """The last moment at which anything is admitted in an epoch that is over."""
        if epoch >= self.topic.epoch:
            return otherwise
        return self.topic.epoch_starts[epoch + 1 - FIRST_EPOCH] + self.topic.parameters.grace_s * _SECOND_US

    def has_left(self, name: str) -> bool:
        """Whether somebody stands nowhere, neither as a broker nor to read."""
        return name not in self.overlay.parents and name not in self.overlay.places

    def back_us(self, name: str) -> int | None:
        """When somebody came back who had left in this generation. What was asked in its name before is over: brokers
        above have ended it, whether the one that it stands below has noticed or not."""
        return self.overlay.left[name].back_us if name in self.overlay.left else None

    def still_routes(self, name: str) -> bool:
        who = self.state.entities.get(name)
        return who is not None and not who.revoked

    # --- a filter of one ------------------------------------------------------------------------------

    def check_path(self, generation: int, stream: Stream, wanted: PostedFilter, layers: int) -> None:
        """(15) It came the way that it says. What ends a row is held to the row alone: its way may be gone."""
        path = wanted.path
        if path[0] != stream.sender or len(path) > layers or (len(path) == 1) != stream.own:
            refuse(PostReason.PATH, f"what {stream.sender!r} sends did not come by {' '.join(path)}")
        if wanted.remove or stream.own:
            return
        # Whoever moves begins a new generation: within one, everybody stands where it stood when this was sent.
        if not self._stands(self.overlay_in(generation), path, layers):
            refuse(PostReason.PATH, f"the overlay has no way {' '.join(path)} below {self.node!r}")

    def _stands(self, overlay: Overlay, path: Path, layers: int) -> bool:
        parents, places = overlay.parents, overlay.places
        *hops, end = path
        for above, below in pairwise(hops):
            if parents.get(below) != above:
                return False
        who = self.state.entities.get(end)
        if who is None or who.revoked or self.has_left(end):
            return False
        # A broker whose own layer it is, r hops below; nearer, only somebody who reads there.
        return places.get(end) == hops[-1] or (len(path) == layers and parents.get(end) == hops[-1])
