"""A service: someone who listens on a control topic, and answers what passes.

    post -> origin's budget -> open (checks 1 to 13) -> came before? (14) -> sender's budget -> handle -> answer

1. The **origin's budget** comes before any cryptography. What then turns out to be no envelope of an honest sender
   costs its origin a strike, and its next posts wait: they are counted and dropped unread, longer each time.
2. The **sender's budget** comes after the signature, so that nobody spends another's. The first request beyond it is
   told when to come back; the others are dropped.
3. A request that **came before** is never handled again. Its answer is sent again, a few times: that is what an honest
   asker needs whose first answer was lost, and all that who replays it gets. Further ones are strikes.
4. **Handling** is `Handler`'s: one function from a proven request to an answer. A refusal is an answer too.

A turn reads a bounded number of posts, writes answers and cursor in one transaction (`journal`), then posts them.
When most of what comes in is noise the service `wants_to_move`: `move` listens under a new random id, has it announced,
and drops the old topic with all that is queued there. Who may find it finds it, and asks again under the same id.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from sealcast.control.budgets import SECOND_US, Allowance, Budgets
from sealcast.control.envelopes import (
    DEFAULT_WINDOW,
    ControlMessage,
    EnvelopeParty,
    EnvelopeReason,
    EnvelopeRecipient,
    EnvelopeRejected,
    ProvenMessage,
    Verify,
    Window,
    open_request,
    seal,
)
from sealcast.control.journal import MAX_ANSWERED, MAX_ANSWERED_EACH, Answered, ListeningPlace, ServiceJournal
from sealcast.errors import Busy, Corrupt, FrameRejected, Misuse, NotFound, Rejected, SealcastError, Unavailable
from sealcast.log.control_topics import Posted, ServingPlane
from sealcast.wire import cbor

REFUSED: Final = "refused"
#: How often the answer to one request is sent at most, however often the request comes.
MAX_SENT: Final = 4
TURN_RECORDS: Final = 256
ORIGIN_ALLOWANCE: Final = Allowance(per_second=200, burst=400)
SENDER_ALLOWANCE: Final = Allowance(per_second=20, burst=40)
ANNOUNCE_RETRY_US: Final = 5 * SECOND_US
_MAX_WORDS: Final = 1_024


@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler says: a kind, and a body (deterministic CBOR, by custom)."""

    kind: str
    body: bytes


class Handler(Protocol):
    """What a service does. It must stand being asked the same twice: a service that dies may be asked again."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of request it knows."""

    def handle(self, request: ProvenMessage, now_us: int, /) -> Answer:
        """The answer; SealcastError becomes the answer that says why not."""


@dataclass(frozen=True, slots=True)
class Noise:
    """When a service has had enough of a topic."""

    #: So many posts that were no honest requests, within the span, and most of all posts.
    posts: int = 512
    span_us: int = 10 * SECOND_US
    #: It stays at least this long wherever it goes: otherwise noise would keep it on the move.
    stay_us: int = 30 * SECOND_US


@dataclass(frozen=True, slots=True)
class ServiceTurn:
    """What one turn did: posts by what became of them ("answered", "again", "early", ... a word each)."""

    counts: Mapping[str, int]
    #: How many posts were worth cryptography.
    opened: int = 0

    @property
    def taken(self) -> int:
        return sum(self.counts.values())


class Service:
    """Listens for `me` and answers through `handler`. Many processes may hold one; one of them turns at a time."""

    def __init__(
        self,
        plane: ServingPlane,
        me: EnvelopeParty,
        realm: bytes,
        verify: Verify,
        handler: Handler,
        journal: ServiceJournal,
        *,
        announce: Callable[[bytes, int], None],
        announce_every_us: int | None = None,
        origins: Budgets | None = None,
        senders: Budgets | None = None,
        window: Window = DEFAULT_WINDOW,
        noise: Noise | None = None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """`announce` tells where it listens, to whoever may know: when that changes, and again every so often.
        `on_close` closes what belongs to the handler."""
        self._plane, self._me, self._realm, self._verify = plane, me, realm, verify
        self._handler, self._journal, self._tell = handler, journal, announce
        self._every_us, self._on_close = announce_every_us, on_close
        self._origins = Budgets(ORIGIN_ALLOWANCE) if origins is None else origins
        self._senders = Budgets(SENDER_ALLOWANCE) if senders is None else senders
        self._window, self._noise = window, noise or Noise()
        #: (time, noise, all) of recent turns.
        self._recent: deque[tuple[int, int, int]] = deque()
        self._settled_us = 0
        #: When to announce again after it failed.
        self._not_before_us = 0

    @property
    def name(self) -> str:
        return self._me.name

    @property
    def topic(self) -> bytes:
        """Where it listens now."""
        place = self._journal.place()
        if place is None:
            raise Misuse(f"service {self.name!r} does not listen yet", hint="call start first")
        return place.topic

    # --- listening -------------------------------------------------------------------------------

    def start(self, now_us: int, topic: bytes | None = None) -> bytes:
        """Listen: where it did before it was stopped, else on `topic` or a new one; a move that was cut short ends."""
        with self._journal.turn():
            place = self._journal.place()
            if place is not None and self._plane.exists(place.topic):
                if not place.announced_us:
                    self._announce(place.topic, now_us)
                self._leave()
                return place.topic
            return self._settle(topic, now_us)

    def move(self, now_us: int) -> bytes:
        """Listen under a new random id, have it announced, and drop the old topic."""
        with self._journal.turn():
            return self._settle(None, now_us)

    def announce(self, now_us: int) -> None:
        """Tell where it listens, also if nothing has changed."""
        with self._journal.turn():
            self._announce(self.topic, now_us)

    def wants_to_move(self, now_us: int) -> bool:
        """Is most of what comes in noise, and much of it?"""
        if now_us < self._settled_us + self._noise.stay_us:
            return False
        while self._recent and self._recent[0][0] < now_us - self._noise.span_us:
            self._recent.popleft()
        noise, every = (sum(turn[i] for turn in self._recent) for i in (1, 2))
        return noise >= self._noise.posts and 2 * noise > every

    def take_turn(self, now_us: int) -> ServiceTurn:
        """`serve_once`, and then `move` if it wants to."""
        turn = self.serve_once(now_us)
        if self.wants_to_move(now_us):
            self.move(now_us)
        return turn

    def close(self) -> None:
        """Let go of files. It listens no less: whoever opens it next goes on where it was."""
        self._plane.close()
        self._journal.close()
        self._on_close()

    def _settle(self, topic: bytes | None, now_us: int) -> bytes:
        # In this order a death at any point leaves one place that is "here": known to us, and announced on `start`.
        topic = self._plane.create(topic)
        self._journal.settle(topic)
        self._recent.clear()
        self._settled_us = now_us
        self._announce(topic, now_us)
        self._leave()
        return topic

    def _announce(self, topic: bytes, now_us: int) -> None:
        self._tell(topic, now_us)
        self._journal.announced(topic, now_us)

    def _announce_again(self, place: ListeningPlace, now_us: int) -> None:
        """When it is time to. Who already knows where it listens is served whether or not discovery is well."""
        if self._every_us is None or now_us < max(place.announced_us + self._every_us, self._not_before_us):
            return
        try:
            self._announce(place.topic, now_us)
        except (Rejected, Unavailable):
            self._not_before_us = now_us + ANNOUNCE_RETRY_US

    def _leave(self) -> None:
        place = self._journal.place()
        for old in place.leaving if place is not None else ():
            self._plane.drop(old)
            self._journal.left(old)

    # --- one turn --------------------------------------------------------------------------------

    def serve_once(self, now_us: int, *, records: int = TURN_RECORDS) -> ServiceTurn:
        """Take what is queued, at most so much, and answer it."""
        with self._journal.turn():
            self._send(self._journal.unsent())
            place = self._journal.place()
            if place is None:
                raise Misuse(f"service {self.name!r} does not listen yet", hint="call start first")
            self._announce_again(place, now_us)
            try:
                posts = self._plane.read(place.topic, place.cursor, records=records)
            except (Corrupt, NotFound):
                # Someone had a hand in its files. Nothing that was queued there can be relied on.
                self._settle(None, now_us)
                return ServiceTurn({"lost-topic": 1})
            if not posts:
                return ServiceTurn({})
            turn = _Taken(self, now_us)
            for post in posts:
                turn.take(post)
            cursor = posts[-1].offset + 1
            self._journal.commit(place.topic, cursor, list(turn.answers.values()))
            self._send([*turn.answers.values(), *turn.again.values()])
            self._plane.take(place.topic, cursor)
            self._journal.forget(now_us - self._window.age_us)
        self._recent.append((now_us, turn.noise, len(posts)))
        return ServiceTurn(dict(turn.counts), turn.opened)

    def _send(self, answers: list[Answered]) -> None:
        if not answers:
            return
        for answer in answers:
            if answer.reply is not None and self._plane.awaits_reply(answer.reply_topic):
                try:
                    self._plane.post(answer.reply_topic, answer.reply)
                except (NotFound, Busy):
                    # Nobody waits there any more, or nobody reads: it was theirs to do. It can be asked for again.
                    continue
        self._journal.sent(answers)


class _Taken:
    """The posts of one turn, and what became of them."""

    def __init__(self, service: Service, now_us: int) -> None:
        self._service, self._now = service, now_us
        self.counts: Counter[str] = Counter()
        self.opened = 0
        self.noise = 0
        self.answers: dict[tuple[str, bytes], Answered] = {}
        self.again: dict[tuple[str, bytes], Answered] = {}
        self._copies: Counter[tuple[str, bytes]] = Counter()
        #: By sender, and of all.
        self._remembered: dict[str | None, int] = {}

    def take(self, post: Posted) -> None:
        s, now = self._service, self._now
        if not s._origins.spend(post.origin, now).admitted:
            self._count("origin-waits", noise=True)
            return
        self.opened += 1
        try:
            request = open_request(post.data, s._me, s._realm, s._verify, now, s._handler.kinds, s._window)
        except EnvelopeRejected as error:
            s._origins.bogus(post.origin, now)
            self._count(error.reason, noise=True)
            return
        self._proven(post, request)

    def _proven(self, post: Posted, request: ProvenMessage) -> None:
        s, now, sender = self._service, self._now, request.sender.name
        key = (sender, request.message.request_id)
        before = self.answers.get(key) or s._journal.find(*key)
        if before is not None:
            self._came_before(post, key, before)
            return
        s._origins.good(post.origin)
        verdict = s._senders.spend(sender, now)
        if not verdict.admitted:
            if verdict.first:
                wait = Busy(f"{sender!r} asks too often", hint=f"ask again in {_seconds(verdict.retry_at_us - now)}")
                self._answer(request, _refusal(wait))
            self._count("told-to-wait" if verdict.first else "sender-waits", noise=True)
            return
        if not self._room_for(sender):
            self._count("no-room", noise=True)
            return
        try:
            answer = s._handler.handle(request, now)
        except (Rejected, Misuse, Unavailable) as error:
            answer = _refusal(error)
        self._answer(request, answer)
        self._count("answered")

    def _came_before(self, post: Posted, key: tuple[str, bytes], before: Answered) -> None:
        # (14) Never handled again; its own answer may be sent again, once a turn.
        self._copies[key] += 1
        if before.sent + self._copies[key] > MAX_SENT:
            self._service._origins.bogus(post.origin, self._now)
            self._count(EnvelopeReason.REPLAY, noise=True)
            return
        if key not in self.answers:
            self.again[key] = before
        self._count("again")

    def _room_for(self, sender: str) -> bool:
        """Whether one more request can be remembered, as it must be before it is handled: for each and for all."""
        for who, most in ((sender, MAX_ANSWERED_EACH), (None, MAX_ANSWERED)):
            if who not in self._remembered:
                self._remembered[who] = self._service._journal.remembered(who)
            if self._remembered[who] >= most:
                return False
        self._remembered[sender] += 1
        self._remembered[None] += 1
        return True

    def _answer(self, request: ProvenMessage, answer: Answer) -> None:
        s, message = self._service, request.message
        reply: ControlMessage = message.reply(answer.kind, answer.body, self._now)
        sealed = seal(s._me, s._realm, EnvelopeRecipient.of(request.sender), reply)
        assert message.reply_topic is not None  # a request names one: check 9
        sender = request.sender.name
        self.answers[sender, message.request_id] = Answered(
            sender, message.request_id, message.time_us, message.reply_topic, sealed
        )

    def _count(self, outcome: str, *, noise: bool = False) -> None:
        self.counts[str(outcome)] += 1
        self.noise += noise


# --- refusals -----------------------------------------------------------------------------------------


class ServiceRefused(Rejected):
    """A service was asked, and said no: its own words, and its code."""

    code = "service-refused"

    def __init__(self, code: str, reason: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        #: The code of the error that the service had, and its reason where that error has one.
        self.service_code = code
        self.reason = reason

    def as_json(self) -> dict[str, object]:
        return {**super().as_json(), "service_code": self.service_code, "reason": self.reason}


def _refusal(error: SealcastError) -> Answer:
    reason = str(getattr(error, "reason", ""))
    # The hint of a name that is not found is the nearest one that is: for whoever may see all names.
    hint = "" if isinstance(error, NotFound) else error.hint or ""
    words = [error.code, reason, error.message[:_MAX_WORDS], hint[:_MAX_WORDS]]
    return Answer(REFUSED, cbor.encode(words))


def unwrap(reply: ProvenMessage) -> ProvenMessage:
    """The reply, unless it says why not: then ServiceRefused."""
    if reply.message.kind != REFUSED:
        return reply
    try:
        words = cbor.decode(reply.message.body, max_depth=1, max_items=8)
    except FrameRejected:
        words = None
    match words:
        case [str(code), str(reason), str(message), str(hint)]:
            raise ServiceRefused(code, reason, message, hint=hint or None)
        case _:
            raise ServiceRefused("unknown", "", f"{reply.sender.name!r} refused, in words this release does not know")


def _seconds(micros: int) -> str:
    return f"{max(1, -(-micros // SECOND_US))} s"
