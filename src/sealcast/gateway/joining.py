"""Newcomers: their requests are carried to the reception, and its answers back. A gateway cannot enrol anybody.

Nobody who asks has proven anything. So a request costs its address as much as many others, one that is refused is a
bogus attempt, few wait at a time, and bodies are small. A request is the same when it comes again: none is remembered.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sealcast.errors import NotFound
from sealcast.gateway import access
from sealcast.gateway.asked import ApiCall, CborAnswer
from sealcast.gateway.problems import Refusal
from sealcast.log import receiving
from sealcast.log.closing import Closing
from sealcast.log.control_topics import ControlPlane
from sealcast.log.receiving import JoinPost
from sealcast.trust.handles import OpenRealm

if TYPE_CHECKING:
    from sealcast.gateway.hub import Hub

#: How long the reception has.
ANSWER_S: Final = 20
#: What a request to join costs its address, in other requests.
JOIN_COST: Final = 50


class JoinRelay(Closing):
    """This gateway's way to the reception. For many threads."""

    def __init__(self, realm: OpenRealm, name: str) -> None:
        self._plane, self._lock = ControlPlane(realm.paths.root, origin=f"gateway {name}"[:64]), threading.Lock()
        self.root = self._plane.root

    def hand_over(self, request: bytes) -> bytes:
        """Posts it; the topic that the answer comes to. NotFound where nobody ever answered."""
        with self._lock:
            topic = receiving.found(self._plane)
            if topic is None:
                raise NotFound(
                    "nobody here enrols newcomers",
                    hint="the administrator runs `sealcast serve` where the authority's keys are",
                )
            reply = self._plane.create(reply=True)
            try:
                self._plane.post(topic, JoinPost(reply, request).to_bytes())
            except BaseException:
                self._plane.drop(reply)
                raise
            return reply

    def take(self, reply: bytes) -> bytes | None:
        """What came, if anything did; the topic is gone then."""
        with self._lock:
            try:
                found = self._plane.read(reply, 0, records=1)
            finally:
                self._plane.drop(reply)
        return found[0].data if found else None

    def close(self) -> None:
        with self._lock:
            self._plane.close()


async def join(hub: Hub, asked: ApiCall) -> CborAnswer:
    """Carries a request to the reception, and its answer back."""
    access.be_realms(home=hub.home)
    request = asked.body["request"]
    with hub.waiting(asked.caller):
        reply = await hub.workers.run(lambda: hub.joins.hand_over(request))
        directory = hub.joins.root / reply.hex()
        try:
            with suppress(NotFound):
                await asked.wait_for(hub.feeds.of(directory).beyond(0), ANSWER_S)
        finally:
            found = await hub.workers.run(lambda: hub.joins.take(reply))
            hub.feeds.drop(directory)
    match None if found is None else receiving.read_answer(found):
        case bytes(answer):
            return CborAnswer({"answer": answer})
        case [str(reason), str(words)]:
            raise Refusal(403, "join-refused", words, reason=reason, hint="ask the administrator for another code")
        case _:
            raise Refusal(
                503, "unavailable", "the reception does not answer", hint="is `sealcast serve` running there?"
            )
