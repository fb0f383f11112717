"""Who can read and publish what: tried, not looked up. Before and after a compromise it is the proof that it is over.

Those who have done nothing wrong read as they always do, with the client, some of their mailbox; and publish a frame
that admission is asked about, and that no log ever sees. Whoever is compromised is played by a thief who has taken all
it had while it was good: key file, the keys of all epochs that it was handed, agreement keys, tokens; from a broker the
topics' keys, from a center the secrets that they follow from. The thief obeys nothing: it tries every delivery to its
victim in every file of sealed pieces and hop pieces, every frame in every log, and what waits in MQTT brokers' logs
(lab/theft/); and it publishes with what it took. Where the keys are not here, what they could open counts as opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

from sealcast.clients.subscriber import Subscriber
from sealcast.control.wallet import Wallet
from sealcast.errors import NotFound
from sealcast.lab.theft.loot import Loot
from sealcast.lab.theft.publishing import ADMITTED, NO, publish
from sealcast.lab.theft.reads import Thief
from sealcast.trust.certificates.roles import Role
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.changes import Right

#: Events that one who did nothing wrong opens of its mailbox, at most.
EVENTS_TRIED: Final = 200
#: How many of those are asked.
OTHERS_TRIED: Final = 20


@dataclass(frozen=True, slots=True)
class AccessCell:
    """What one entity can do on one topic."""

    #: Events that it opened, of those that it found for itself.
    opened: int = 0
    tried: int = 0
    #: `admitted`, the reason of the check that refused it, or `no`: it has nothing to try it with.
    publishes: str = NO
    #: Messages that a thief read in frames: what publishers sealed for brokers.
    frames: int = 0
    #: Messages that a thief read in logs of MQTT brokers.
    queued: int = 0
    #: Events of a layered topic whose labels a stolen layer key follows.
    routed: int = 0

    @property
    def harmless(self) -> bool:
        """Whether a thief can read nothing and publish nothing."""
        return not any((self.opened, self.frames, self.queued, self.routed)) and self.publishes != ADMITTED

    def as_json(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if value or name not in _THIEVES}

    def __str__(self) -> str:
        shown = (("in frames", self.frames), ("in MQTT logs", self.queued), ("routed", self.routed))
        return ", ".join((f"{self.opened} of {self.tried}", *(f"{count} {what}" for what, count in shown if count)))


#: What only a thief looks at.
_THIEVES: Final = ("frames", "queued", "routed")


Matrix = dict[tuple[str, str], AccessCell]


def attempts(realm: Realm, others: Iterable[str], topics: Sequence[str], thief: Thief | None = None) -> Matrix:
    """Lets everybody try to read and publish: the others as themselves, the thief with what it has taken."""
    found: Matrix = {}
    for name in others:
        for topic in topics:
            with suppress(NotFound):  # its keys are not on this machine: nobody can try
                found[name, topic] = _honest(realm, name, topic)
    if thief is not None:
        found |= {(thief.name, topic): tried(thief, topic) for topic in topics}
    return found


def tried(thief: Thief, topic: str) -> AccessCell:
    """What somebody with stolen keys can do on a topic."""
    reads = thief.reads(topic)
    return AccessCell(reads.opened, reads.tried, thief.publishes(topic), reads.frames, reads.queued, reads.routed)


def others(realm: Realm, topics: Sequence[str], but: str, most: int = OTHERS_TRIED) -> list[str]:
    """Chooses who else tries: first those who subscribe, then whoever else may use one of the topics."""
    state, now = realm.state(), realm.clock()
    subscribed = [s.subscriber for topic in topics for s in state.subscriptions_of(topic)]
    entitled = (who.name for topic in topics for who in state.entitled(topic, now))
    found = dict.fromkeys(name for name in (*subscribed, *entitled) if name != but and state.entity(name).member)
    return list(found)[:most]


# --- those who did nothing wrong ----------------------------------------------------------------------


def _honest(realm: Realm, name: str, topic: str) -> AccessCell:
    state, refused = realm.state(), list[object]()
    identity, opened = realm.identity(name), 0
    if state.may_subscribe(topic, name, realm.clock()):
        with (
            suppress(NotFound),  # it never subscribed
            Subscriber(realm, topic, name, from_=0, unopenable=lambda *about: refused.append(about)) as reader,
        ):
            opened = len(reader.poll(EVENTS_TRIED))
    loot = Loot(name, frozenset({Role.ENTITY}), identity)
    epoch = state.topic(topic).epoch
    if state.may_publish(topic, name, realm.clock()):
        loot.keys[topic, epoch] = identity.topic_keys(state, topic, epoch)
        with Wallet(realm, name, identity=identity, keep=False) as wallet:
            loot.tokens[topic] = wallet.get(topic, Right.PUBLISH, state).token
    return AccessCell(opened, opened + len(refused), publish(realm, loot, topic))


def rows(
    before: Mapping[tuple[str, str], AccessCell], after: Mapping[tuple[str, str], AccessCell]
) -> Iterator[tuple[str, ...]]:
    """The rows of a table for people: entity, topic, and both cells side by side."""
    for entity, topic in dict.fromkeys((*before, *after)):
        was, now = before.get((entity, topic), AccessCell()), after.get((entity, topic), AccessCell())
        yield entity, topic, str(was), str(now), was.publishes, now.publishes
