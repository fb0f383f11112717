"""Subscribers move between brokers, and lose or double nothing.

    attach   at version v: from its next batch on the new broker seals for the subscriber, too, and the old one goes on
    settle   when the old broker has sealed all that the new one took in before v: the old one is done with

Between the two, both seal. The new broker's first batch at v or later begins somewhere (*the cut*, in offsets of the
origins): everything from the cut on is with the new broker, everything before it with the old one, once that is as far.
(A broker is not sent what it had no subscriber for: then the old one has to be as far as its link begins.) What the old
one sealed beyond the cut comes twice; from which record of its ledger on that may be so is noted, and the
subscriber leaves those out that it had (`protections.stays`). The same for brokers that it was at before: a broker that
lags behind may bring what was read there.

Filters that come later are matched with retained events by the broker that serves their subscriber then. So a move is
settled when that broker has known all of them in a batch.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import ExitStack
from typing import Final

from sealcast.errors import Misuse
from sealcast.log.ledger import LedgerReader
from sealcast.overlay.parts import BrokerPart
from sealcast.transports.problems import GatewayUnreachable
from sealcast.trust.handles import OpenRealm, at_hand
from sealcast.trust.keys.filter_texts import keys_in_use
from sealcast.trust.realm.changes import AttachSubscriber, Change, SettleSubscriber
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Stay
from sealcast.trust.statements import Author

#: How long a broker on another machine is tried before it counts as gone, where somebody says that it is.
GONE_S: Final = 10.0


def move(realm: OpenRealm, topic: str, subscriber: str, broker: str) -> RealmState:
    """A subscriber gets another home. It goes on reading where it was, and then there."""
    own = at_hand(realm.paths.entity_key(subscriber))
    site = realm.site.of(subscriber) if own else realm.asking(realm.state())
    with LedgerReader(site.journal(topic, broker)) as ledger:
        first = ledger.end()

    def decide(state: RealmState) -> list[Change]:
        if state.slot_of(topic, subscriber) is None:
            raise Misuse(
                f"{subscriber!r} has no subscription on topic {topic!r}",
                hint=f"it can begin there: sealcast subscription add {topic} --as {subscriber} --broker {broker}",
            )
        return [AttachSubscriber(topic, subscriber, broker, first)]

    return realm.registry.transact(decide)


def moving(state: RealmState) -> list[tuple[str, str]]:
    """(topic, subscriber) of all who are on their way."""
    return [
        (topic, subscriber)
        for topic, found in state.topics.items()
        for subscriber, stays in found.stays.items()
        if len(stays) > 1 and stays[-2].until is None
    ]


def settle(
    realm: OpenRealm,
    *authors: Author,
    abandon: Sequence[tuple[str, str]] = (),
    only: Container[tuple[str, str]] | None = None,
) -> list[tuple[str, str]]:
    """Ends every move that can be ended, or those among `only`; (topic, subscriber) of each.

    These authors state it, else somebody who may and whose key the handle reaches.

    A move away from a broker that is gone for good never can. Those in `abandon` end where that broker stopped: what it
    had not sealed yet, and the new one had taken in before the move, is lost to the subscriber. If its machine is gone,
    too, so is what the subscriber had not read there.
    """
    state, done = realm.state(), list[tuple[str, str]]()
    for topic, subscriber in moving(state):
        if only is not None and (topic, subscriber) not in only:
            continue
        left = (topic, subscriber) in abandon
        try:
            if left and _is_gone(realm, state, topic, subscriber):
                change: SettleSubscriber | None = _given_up(state, topic, subscriber)
            else:
                change = settlement(realm, state, topic, subscriber, abandon=left)
            known = None if left else _known(realm, state, topic, subscriber)
        except GatewayUnreachable:
            continue  # a broker on another machine cannot say how far it is; the next turn asks again
        if change is None or not _knows(known, state, topic, subscriber):
            continue

        def decide(
            newest: RealmState, change: SettleSubscriber = change, known: Container[str] | None = known
        ) -> list[Change]:
            same = newest.stays_of(change.topic, change.subscriber) == state.stays_of(change.topic, change.subscriber)
            return [change] if same and _knows(known, newest, change.topic, change.subscriber) else []

        after = realm.registry.transact(decide, *authors)
        if (topic, subscriber) not in moving(after):
            done.append((topic, subscriber))
    return done


def _is_gone(realm: OpenRealm, state: RealmState, topic: str, subscriber: str) -> bool:
    """Whether nobody answers for the ledger of the broker that a subscriber leaves."""
    left = state.stays_of(topic, subscriber)[-2].broker
    try:
        with LedgerReader(realm.asking(state).journal(topic, left, patience_s=GONE_S)) as ledger:
            ledger.end()
    except GatewayUnreachable:
        return True
    return False


def _given_up(state: RealmState, topic: str, subscriber: str) -> SettleSubscriber:
    """The end of a move away from a broker of which nobody knows how far it was: nothing more is read there. What the
    next broker brings again is known by what the reader had."""
    before = state.stays_of(topic, subscriber)[:-1]
    ends = (*(stay.until or 0 for stay in before[:-1]), before[-1].first)
    return SettleSubscriber(topic, subscriber, before[-1].first, ends)


def _known(realm: OpenRealm, state: RealmState, topic: str, subscriber: str) -> Container[str] | None:
    """Where brokers match filters that come later with what they retain: the filters that the broker which is left has
    known in its last batch. None where there is nothing to wait for."""
    left = state.stays_of(topic, subscriber)[-2].broker
    with LedgerReader(realm.asking(state).journal(topic, left)) as ledger:
        last = ledger.last_span()
    if state.topic(topic).protection.retention is None or last is None:
        return None
    return realm.state(last.version).topic_state(topic).subscriptions


def _knows(known: Container[str] | None, state: RealmState, topic: str, subscriber: str) -> bool:
    """Whether all filters of a subscriber are among them: the broker that it moves to has not handled what was there
    before it came."""
    return known is None or all(s.id in known for s in state.subscriptions_of(topic) if s.subscriber == subscriber)


def rehome(realm: OpenRealm, broker: str, *, gone: bool = True) -> list[tuple[str, str, str]]:
    """Everyone whom a broker serves gets another home, shared out among those that serve the topic; (topic, subscriber,
    its new home). Where no other broker serves a topic, or none that can read its filters, its subscribers stay.

    One that is gone for good is not waited for. Any other goes on until each has all that was on its way there, and
    whoever is on the way there itself has to arrive first, and stays until this is asked for again."""
    arriving = [(topic, who) for topic, who in moving(realm.state()) if realm.state().home_of(topic, who) == broker]
    if gone:
        settle(realm, abandon=arriving)
    state, moved = realm.state(), list[tuple[str, str, str]]()
    for topic, found in state.topics.items():
        used = keys_in_use(found.subscriptions)
        homes = [
            name
            for name in state.serving(topic)
            if name != broker and all((key, name) in found.filter_keys for key in used)
        ]
        there = dict.fromkeys(
            s.subscriber for s in found.subscriptions.values() if state.home_of(topic, s.subscriber) == broker
        )
        leaving = [who for who in there if gone or (topic, who) not in arriving]
        if not homes:
            continue
        for number, subscriber in enumerate(leaving):
            moved.append((topic, subscriber, homes[number % len(homes)]))
            move(realm, *moved[-1])
    if gone:
        settle(realm, abandon=[(topic, subscriber) for topic, subscriber, _ in moved])
    return moved


def settlement(
    realm: OpenRealm, state: RealmState, topic: str, subscriber: str, *, abandon: bool = False
) -> SettleSubscriber | None:
    """How a move ends, if it can by now."""
    stays = state.stays_of(topic, subscriber)
    before, home = stays[:-1], stays[-1]
    with ExitStack() as held:
        served = {broker for _, broker in state.topic_state(topic).topic_keys}
        site = realm.asking(state)
        parts = {name: held.enter_context(BrokerPart(state, site, topic, name)) for name in served}
        brokers = state.brokers()
        each = state.topic(topic).partitions
        new, left = parts[home.broker], parts[before[-1].broker]
        records = left.ledger.end()
        first = new.first_since(home.since, home.first)
        if first is None:
            if not abandon:
                return None
            first = new.ledger.end()
        cut, caught_up = dict[int, int](), True
        for partition in range(each * len(brokers)):
            origin = parts.get(brokers[partition // each])
            if origin is None:
                continue
            cut[partition] = new.through(first, partition)
            # Beyond this the new broker has everything: whatever it had no subscriber for, it was not sent.
            complete = max(cut[partition], _begin(origin, home, partition))
            reached = max(left.through(records, partition), _begin(origin, before[-1], partition))
            missing = next(origin.admitted(partition, reached), None) if reached < complete else None
            caught_up &= missing is None or missing >= complete
        if not caught_up and not abandon:
            return None
        overlaps = [_overlap(parts[stay.broker], stay, cut, records) for stay in before]
        return SettleSubscriber(topic, subscriber, max(records, before[-1].first), tuple(overlaps))


def _begin(origin: BrokerPart, stay: Stay, partition: int) -> int:
    """From where on all that an origin admits is sent to the broker of a stay."""
    if stay.broker == origin.broker:
        return 0
    return origin.starts(stay.since)[partition - origin.own.start]


def _overlap(part: BrokerPart, stay: Stay, cut: dict[int, int], records: int) -> int:
    """The first record of a stay that took a frame from beyond the cut; its end, when none did."""
    until = records if stay.until is None else stay.until
    limits = {partition: part.index_of(partition, origin) for partition, origin in cut.items()}
    at = until
    while at > stay.first and any(part.consumed(at, partition) > limit for partition, limit in limits.items()):
        at -= 1
    return max(at, min(stay.first, until))
