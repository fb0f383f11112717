"""Asking a service: find where it listens, post a sealed request, wait for its answer on a topic of one's own.

No daemon is needed where the service's secrets are at hand: `turn` runs one turn of it in this process, over the same
topics, with the same bytes, through the same checks. Without it one waits for whoever serves.

A service may move while it is asked (`service`): the question is then asked again at its new place, in the same
envelope and so under the same id, which is answered once however often it arrives.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sealcast.control.envelopes import (
    ControlMessage,
    EnvelopeParty,
    EnvelopeRecipient,
    EnvelopeRejected,
    ProvenMessage,
    Verify,
    open_reply,
    seal,
)
from sealcast.control.service import ServiceTurn, unwrap
from sealcast.errors import Busy, NotFound, Unavailable
from sealcast.log.closing import Closing
from sealcast.log.control_topics import ABANDONED_US, LOOK_SECONDS, AskingPlane

ATTEMPTS: Final = 4
PATIENCE_S: Final = 5.0
#: A topic for answers is replaced after so long: those who serve drop it at twice that age, and from afar one learns of
#: it only when an answer is lost.
OLD_S: Final = ABANDONED_US / 2e6
#: A whole queue is taken in fewer.
_MOST_TURNS: Final = 16
#: Answers on one topic before another takes its place, files and all.
_ENOUGH: Final = 128


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """Where a service listens, and to whom what is posted there is sealed."""

    topic: bytes
    recipient: EnvelopeRecipient


class Asker(Closing):
    """One entity that asks services of its realm, and hears their answers on one topic that it drops when it closes."""

    def __init__(
        self,
        plane: AskingPlane,
        me: EnvelopeParty,
        realm: bytes,
        verify: Verify,
        *,
        clock: Callable[[], int] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._plane, self.me, self.realm, self.verify = plane, me, realm, verify
        self.clock = clock or (lambda: time.time_ns() // 1000)
        self._patience_s = patience_s
        self._answers: bytes | None = None
        self._heard, self._since = 0, 0.0
        #: Questions under way: to find out where one goes, another may be asked.
        self._asking = 0

    def ask(
        self,
        where: Callable[[], ServiceAddress],
        kind: str,
        body: bytes,
        *,
        turn: Callable[[], object] | None = None,
        attempts: int = ATTEMPTS,
    ) -> ProvenMessage:
        """The answer, proven; ServiceRefused when it is no; Unavailable when there is none.

        `where` is asked again before every further attempt: a service that moved is found where it is now.
        """
        answers = self._reply_topic()
        self._asking += 1
        try:
            return self._ask(answers, where, kind, body, turn, attempts)
        finally:
            self._asking -= 1

    def _ask(
        self,
        answers: bytes,
        where: Callable[[], ServiceAddress],
        kind: str,
        body: bytes,
        turn: Callable[[], object] | None,
        attempts: int,
    ) -> ProvenMessage:
        question = ControlMessage.request(kind, body, answers, self.clock())
        envelope, sealed_for, trouble = b"", None, "nobody answered"
        for attempt in range(attempts):
            address = where()
            if sealed_for != address.recipient:
                envelope = seal(self.me, self.realm, address.recipient, question)
                sealed_for = address.recipient
            try:
                self._plane.post(address.topic, envelope)
            except (NotFound, Busy) as error:
                trouble = error.message
                self._wait(turn, attempt)
                continue
            reply = self._answer(answers, question, address.recipient.name, turn)
            if reply is not None:
                return unwrap(reply)
        raise Unavailable(
            f"no answer after {attempts} attempts: {trouble}",
            hint="is the service running? In an embedded realm its key must be readable here",
        )

    def _answer(
        self, topic: bytes, question: ControlMessage, of: str, turn: Callable[[], object] | None
    ) -> ProvenMessage | None:
        """The first post on our topic that is a proven answer to the question."""
        until, turns = time.monotonic() + self._patience_s, 0
        while True:
            done = None if turn is None else turn()
            turns += 1
            for post in self._plane.read(topic, self._heard):
                self._heard = post.offset + 1
                try:
                    return open_reply(post.data, self.me, self.realm, self.verify, self.clock(), question, of)
                except EnvelopeRejected:
                    # Anyone may post here; only the one who was asked can answer.
                    continue
            if isinstance(done, ServiceTurn) and done.taken and turns < _MOST_TURNS:
                # Others were before us in the queue.
                continue
            if turn is not None or time.monotonic() >= until:
                return None
            self._plane.wait(topic, self._heard, until - time.monotonic())

    def close(self) -> None:
        """Nobody need answer any more."""
        topic, self._answers, self._heard = self._answers, None, 0
        if topic is not None:
            self._plane.drop(topic)

    def _reply_topic(self) -> bytes:
        if self._answers is not None and not self._asking and self._is_worn(self._answers):
            self.close()
        if self._answers is None or not self._plane.exists(self._answers):
            self._answers, self._heard, self._since = self._plane.create(reply=True), 0, time.monotonic()
        return self._answers

    def _is_worn(self, topic: bytes) -> bool:
        """Whether another one should be taken. Never while an answer is awaited on it."""
        old = time.monotonic() - self._since > OLD_S
        return old or (self._plane.exists(topic) and self._plane.end(topic) > _ENOUGH)

    def _wait(self, turn: Callable[[], object] | None, attempt: int) -> None:
        if turn is not None:
            turn()
        else:
            time.sleep(LOOK_SECONDS * (2 << attempt))
