"""From the log out to MQTT: what lies in subscribers' mailboxes, each to its own channel.

Deliveries leave in the mailbox's order, some messages at a time. A subscriber's cursor moves on when the MQTT broker
has acknowledged, and is durable. So a bridge that is killed sends a few messages twice, and leaves none out; clients
drop what comes twice.

MQTT 5 says when nobody listens on a channel. Then the cursor stays, and it is tried again later. MQTT 3.1.1 does not
say so: there, a subscriber connects once, with a persistent session, before its mail is sent.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Protocol

from sealcast.errors import Misuse, Rejected
from sealcast.log.closing import Closing
from sealcast.mqtt import channels, mail
from sealcast.protections.port import client_side
from sealcast.protections.stays import Place, Stays
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.changes import Right

#: Messages of one subscriber that are sent and not acknowledged.
WINDOW: Final = 8
#: Pauses, in seconds, before a subscriber is tried again whom nothing reached.
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0


class Sends(Protocol):
    """Publishes at QoS 1; the number by which it will be acknowledged, or None where there is no room now."""

    def __call__(self, channel: str, data: bytes) -> int | None: ...


@dataclass(slots=True)
class _Sent:
    mid: int
    place: Place
    events: int
    acknowledged: bool = False


class Mailing(Closing):
    """One subscriber's mail on one topic."""

    def __init__(self, realm: EntityRealm, topic: str, subscriber: str, counts: Counter[str]) -> None:
        self._realm, self._topic, self._name, self._counts = realm, topic, subscriber, counts
        self._channel = channels.mail(topic, subscriber)
        self._mail: Stays[Any] | None = None
        self._sent: deque[_Sent] = deque()
        self._pause, self._not_before = FIRST_PAUSE, 0.0
        self.trouble: str | None = None

    @property
    def waits(self) -> bool:
        """Whether something is sent and not acknowledged, or could not be sent yet."""
        return bool(self._sent) or self.trouble is not None

    def send(self, publish: Sends) -> list[int]:
        """Sends what waits, as far as there is room; the numbers that it will be acknowledged by."""
        if len(self._sent) >= WINDOW or time.monotonic() < self._not_before:
            return []
        state = self._realm.state()
        try:
            state.require(Right.SUBSCRIBE, self._topic, self._name, self._realm.clock())
            if self._mail is None:
                side = client_side(state.topic(self._topic).protection)
                self._mail = side.mail(self._realm, self._topic, self._name)
        except (Rejected, Misuse) as error:
            return self._later(error.message)
        self.trouble, numbers = None, list[int]()
        found = list(islice(self._mail.deliveries(), mail.MAX_EVENTS))
        while found and len(self._sent) < WINDOW:
            recipient = self._mail.mailbox(found[0].broker).recipient
            post = next(mail.posts(found, recipient))
            mid = publish(self._channel, post.data)
            if mid is None:
                break
            for each in found[: post.events]:
                self._mail.passed(each)
            self._sent.append(_Sent(mid, dict(self._mail.handed_out or {}), post.events))
            numbers.append(mid)
            del found[: post.events]
        return numbers

    def acknowledged(self, mid: int) -> None:
        for sent in self._sent:
            if sent.mid == mid:
                sent.acknowledged = True

    def nobody_listens(self) -> None:
        """What was sent reached nobody: it is sent again, from the durable cursor on, after a pause."""
        self._counts["unheard"] += 1
        self._sent.clear()
        self.close()
        self._later("nobody listens on its channel")

    def settle(self) -> bool:
        """Moves the durable cursor past everything that was acknowledged without a gap; whether it moved."""
        place, events = None, 0
        while self._sent and self._sent[0].acknowledged:
            done = self._sent.popleft()
            place, events = done.place, events + done.events
        if place is None or self._mail is None:
            return False
        self._mail.acknowledge(place)
        self._pause = FIRST_PAUSE
        self._counts["deliveries"] += events
        return True

    def close(self) -> None:
        if self._mail is not None:
            self._mail.close()
            self._mail = None

    def _later(self, why: str) -> list[int]:
        self.trouble = why
        self._not_before = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return []


class Outbound(Closing):
    """The way out, for all subscribers of a bridge. One thread uses it; `acknowledge` may be called by any."""

    def __init__(
        self,
        realm: EntityRealm,
        subscribers: tuple[tuple[str, str], ...],
        *,
        counts: Counter[str],
        told: Callable[[str], None],
    ) -> None:
        """`subscribers` are pairs of a topic and a name."""
        self._mailings = {pair: Mailing(realm, *pair, counts) for pair in subscribers}
        self._by_mid: dict[int, Mailing] = {}
        self._heard: deque[tuple[int, bool]] = deque()
        self._told, self._said = told, dict[tuple[str, str], str | None]()

    def acknowledge(self, mid: int, listened: bool) -> None:
        """The MQTT broker has it; and somebody was there to take it, as far as the broker says."""
        self._heard.append((mid, listened))

    def turn(self, publish: Sends) -> bool:
        """Takes acknowledgements in, and sends what waits; whether anything happened."""
        busy = False
        while self._heard:
            mid, listened = self._heard.popleft()
            mailing = self._by_mid.pop(mid, None)
            if mailing is not None:
                mailing.acknowledged(mid) if listened else mailing.nobody_listens()
        for pair, mailing in self._mailings.items():
            busy |= mailing.settle()
            sent = mailing.send(publish)
            self._by_mid.update(dict.fromkeys(sent, mailing))
            busy |= bool(sent)
            if mailing.trouble != self._said.get(pair):
                self._said[pair] = mailing.trouble
                if mailing.trouble is not None:
                    self._told(f"mail of {pair[1]!r} on topic {pair[0]!r} waits: {mailing.trouble}")
        return busy

    @property
    def waits(self) -> bool:
        return bool(self._heard) or any(mailing.waits for mailing in self._mailings.values())

    def close(self) -> None:
        for mailing in self._mailings.values():
            mailing.close()
