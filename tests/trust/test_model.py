"""Random histories of a realm against an oracle of who may publish and who may read what: no disagreement.

The machine does to a real realm (`model_world`) and to the oracle (`oracle`, plain Python) what hypothesis makes up,
and compares: what was refused, whom a broker sealed each event for, what each client opens, and, at the end of every
history, what each entity can open with everything that it ever had.
"""

from __future__ import annotations

import atexit
import itertools
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sealcast.broker import served
from sealcast.broker.replay import Windows
from sealcast.broker.tables import SubscriptionTable
from sealcast.errors import SealcastError, TokenRejected
from sealcast.trust.admin import compromise, deletion
from sealcast.trust.certificates.revocation import RevocationView
from sealcast.trust.keys.topic_keys import TopicKeys
from sealcast.trust.realm import topics
from sealcast.trust.realm.changes import DeleteTopic, ForgetEpochs, Right
from sealcast.trust.realm.machine import RULES
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.templates import Template
from sealcast.trust.realm.topics import Terms
from sealcast.trust.tokens import gates
from sealcast.trust.tokens import token as tokens
from tests.effort import seeds
from tests.trust.model_world import GRACE, SECOND, SKEW, STALE, TOKEN, TOPICS, World, founded
from tests.trust.oracle import PUBLISH, RIGHTS, SUBSCRIBE, Frame, Oracle, Said, Taken, Term, Ticket, Topic

EVERYONE = ("ann", "ben", "cid", "dot", "eve", "fay")
NAMES = st.sampled_from(EVERYONE)
DATA = st.data()
TOPIC = st.sampled_from(list(TOPICS))
SOME_RIGHTS = st.sampled_from([(PUBLISH,), (SUBSCRIBE,), RIGHTS])
SYMBOLS = ("IBM", "XYZ")
WANTED = st.sampled_from([None, *SYMBOLS])
#: Sums of these and the limits (grace, skew, staleness, lives) never meet within a second.
WAITS = st.sampled_from([3, 3, 3, 37, 37, 37, 211, 211, 1_903, 4_507])
FOREVER_S = 400 * 86_400
#: How long a certificate is for: longer than any history, or not.
CERTIFIED = st.sampled_from([FOREVER_S, FOREVER_S, 3_001])

SAID = st.sampled_from([["IBM"], ["XYZ"], ["IBM", "XYZ"]])
EITHER = st.sampled_from([False, True])
#: Whether a batch follows at once.
THEN = st.sampled_from([True, True, False])

_template: list[Path] = []


def template() -> Path:
    if not _template:
        directory = Path(tempfile.mkdtemp(prefix="sealcast-model-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        _template.append(founded(directory))
    return _template[0]


class Histories(RuleBasedStateMachine):
    """One history."""

    numbers = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        path = template()
        self.world = World(path, path.parent / f"history-{next(self.numbers)}")
        self.oracle = Oracle(grace=GRACE * SECOND, skew=SKEW * SECOND, stale=STALE * SECOND, token=TOKEN)
        state = self.world.realm.state()
        for name, access in TOPICS.items():
            starts = list(state.topic(name).epoch_starts)
            self.oracle.topics[name] = Topic(name, access == "members", starts)
        self.events = itertools.count()
        self.places: dict[tuple[str, int, int], int] = {}
        self.frames: list[tuple[Frame, bytes]] = []
        self.tickets: list[tuple[Ticket, bytes]] = []
        #: The tokens that frames came with.
        self.wallet: dict[bytes, Ticket] = {}

    def teardown(self) -> None:
        try:
            self.compare_loot()
        finally:
            self.world.close()

    def compare_loot(self) -> None:
        for topic, who in itertools.product(self.oracle.topics, self.oracle.entities):
            assert self.world.loot(topic, who) == self.oracle.can_open(topic, who), (topic, who)

    # --- helpers ------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        return self.world.clock.now

    @property
    def living(self) -> int:
        return sum(map(self.oracle.alive, EVERYONE))

    def attempt(self, allowed: bool, act: Any, *args: Any, **kwargs: Any) -> Any:
        """Done if it is allowed; else refused, and nothing has changed."""
        if allowed:
            return act(*args, **kwargs)
        before = self.world.realm.registry.version()
        with pytest.raises(SealcastError):
            act(*args, **kwargs)
        assert self.world.realm.registry.version() == before
        return None

    def said(self, symbols: list[str]) -> tuple[Said, ...]:
        return tuple(Said(next(self.events), symbol) for symbol in symbols)

    def arrived(self, topic: str, frame: Frame) -> None:
        offset, time_us = self.world.last(topic)
        self.oracle.topics[topic].waiting.append(Taken(frame, offset, time_us))
        for row, event in enumerate(frame.events):
            self.places[topic, offset, row] = event.number

    # --- who is here --------------------------------------------------------------------------------

    @initialize(who=st.permutations(EVERYONE), certified=CERTIFIED)
    def begin(self, who: Sequence[str], certified: int) -> None:
        for name in who[:3]:
            self.enrol(name, certified)
        self.grant("shut", who[0], RIGHTS, 0, None, None)
        for topic, name in (("open", who[0]), ("open", who[1]), ("shut", who[0])):
            self.subscribe(topic, name, None)
            self.ask_for_token(topic, name, PUBLISH)

    @rule(certified=CERTIFIED)
    def enrol_another(self, certified: int) -> None:
        strangers = [who for who in EVERYONE if who not in self.oracle.entities]
        if strangers:
            self.enrol(strangers[0], certified)

    def enrol(self, who: str, certified: int) -> None:
        self.world.realm.enrol_many([who], lifetime_us=certified * SECOND)
        self.oracle.enrol(who, self.world.realm.state().entity(who).expires_us)

    @precondition(lambda self: self.living > 2)
    @rule(who=NAMES, betrayed=EITHER)
    def lose(self, who: str, betrayed: bool) -> None:
        """Somebody leaves, or somebody's keys are known to others; also somebody who had left before."""
        if betrayed:
            known = who in self.oracle.entities
            self.attempt(known, compromise.respond, self.world.realm, who)
            if known:
                self.oracle.compromise(who, self.now)
        else:
            allowed = self.oracle.alive(who)
            self.attempt(allowed, self.world.realm.revoke_entity, who)
            if allowed:
                self.oracle.entities[who].revoked = True
        self.show_tokens()

    @rule(who=NAMES)
    def enrol_twice(self, who: str) -> None:
        if who in self.oracle.entities:
            self.attempt(False, self.world.realm.enrol, who)

    @precondition(lambda self: not self.oracle.revoked_centers)
    @rule()
    def lose_the_center(self) -> None:
        name = next(iter(self.oracle.topics))
        gone = self.oracle.topics[name].center
        compromise.respond(self.world.realm, gone)
        self.oracle.replace_center(gone, self.world.realm.state().topic(name).center, self.now)

    @rule(who=NAMES)
    def renew_certificate(self, who: str) -> None:
        allowed = self.oracle.alive(who)
        self.attempt(allowed, self.world.realm.renew, who, lifetime_us=FOREVER_S * SECOND)
        if allowed:
            self.oracle.entities[who].certified_until = self.world.realm.state().entity(who).expires_us

    # --- rights -------------------------------------------------------------------------------------

    @rule(
        topic=TOPIC,
        who=NAMES,
        rights=SOME_RIGHTS,
        after=st.sampled_from([0, 0, 0, 601]),
        length=st.sampled_from([None, None, 307, 2_503]),
        symbol=WANTED,
    )
    def grant(
        self, topic: str, who: str, rights: tuple[str, ...], after: int, length: int | None, symbol: str | None
    ) -> None:
        allowed, start = self.oracle.alive(who), self.now + after * SECOND if after else 0
        end = None if length is None else self.now + (after + length) * SECOND
        terms = {"not_before_us": start, "until_us": end, "template": f"symbol={symbol}" if symbol else "*"}
        self.attempt(allowed, self.world.realm.grant, topic, who, [Right(r) for r in rights], **terms)
        if allowed:
            self.oracle.grant(topic, who, rights, Term(start, end, symbol), self.now)

    @rule(
        topic=TOPIC,
        data=DATA,
        early=EITHER,
        after=st.sampled_from([0, 601]),
        length=st.sampled_from([None, 307, 2_503]),
        symbol=WANTED,
        seconds=WAITS,
    )
    def decide_anew(
        self,
        topic: str,
        data: st.DataObject,
        early: bool,
        after: int,
        length: int | None,
        symbol: str | None,
        seconds: int,
    ) -> None:
        """Other terms for somebody who is at work; events of every symbol, from before or after; a while between."""
        busy = {its.who for its in self.oracle.interests.values() if its.topic == topic} | set(self.publishers(topic))
        living = sorted(filter(self.oracle.alive, busy))
        if not living:
            return
        if early:
            self.publish_by_all(topic)
        self.grant(topic, data.draw(st.sampled_from(living)), RIGHTS, after, length, symbol)
        self.wait(seconds)
        self.publish_by_all(topic)
        self.deliver(topic)

    def publish_by_all(self, topic: str) -> None:
        for who in self.publishers(topic):
            self.publish(topic, who, list(SYMBOLS), False)

    @rule(topic=TOPIC, who=NAMES, rights=SOME_RIGHTS, then=THEN)
    def revoke(self, topic: str, who: str, rights: tuple[str, ...], then: bool) -> None:
        known = who in self.oracle.entities
        self.attempt(known, self.world.realm.revoke, topic, who, [Right(r) for r in rights])
        if known:
            self.oracle.revoke(topic, who, rights)
        if then:
            self.publish_by_all(topic)
            self.deliver(topic)

    @rule(topic=TOPIC, who=NAMES, symbol=WANTED)
    def subscribe(self, topic: str, who: str, symbol: str | None) -> None:
        ticket = self.oracle.ticket(SUBSCRIBE, topic, who, self.now)
        text = f"symbol = '{symbol}'" if symbol else "number >= 0"
        made = self.attempt(ticket is not None, self.world.realm.subscribe, topic, who, text)
        if ticket is not None:
            self.oracle.subscribe(made.id, topic, who, symbol, self.now)

    @precondition(lambda self: self.oracle.interests)
    @rule(data=DATA)
    def unsubscribe(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.oracle.interests)))
        self.world.realm.unsubscribe(id)
        del self.oracle.interests[id]
        self.attempt(False, self.world.realm.unsubscribe, id)

    # --- time, epochs, tokens -----------------------------------------------------------------------

    @rule(seconds=WAITS)
    def wait(self, seconds: int) -> None:
        self.world.clock.wait(seconds)

    @rule(topic=TOPIC)
    def rotate(self, topic: str) -> None:
        self.world.realm.rotate(topic)
        self.oracle.rotate(topic, self.now)

    @rule(topic=TOPIC)
    def forget_epochs(self, topic: str) -> None:
        about = self.oracle.topics[topic]
        allowed = about.remembered < about.epoch
        self.attempt(allowed, self.world.realm.registry.apply, ForgetEpochs(topic, about.epoch))
        about.remembered = about.epoch

    @rule()
    def renew_tokens(self) -> None:
        self.world.realm.renew_subscriptions()
        self.oracle.renew_tickets(self.now)

    @rule(topic=TOPIC, who=NAMES, right=st.sampled_from(RIGHTS))
    def ask_for_token(self, topic: str, who: str, right: str) -> None:
        ticket = self.oracle.ticket(right, topic, who, self.now)
        token = self.attempt(ticket is not None, self.world.realm.token, topic, who, Right(right))
        if ticket is not None:
            self.tickets.append((self.told(token, ticket), token))

    @rule()
    def show_tokens(self) -> None:
        """Everyone shows every token that it ever got, for either right."""
        state, at = self.world.realm.state(), self.now
        gate = gates.gate_of(state)
        for (ticket, token), right in itertools.product(self.tickets, RIGHTS):
            if ticket.topic not in state.topics:
                assert not self.oracle.counts(ticket, right, at), (ticket, right)
                continue
            topic, holder = state.topic(ticket.topic), state.entity(ticket.who).verify_key
            try:
                gate.verify(token, topic, at, Right(right), holder, holder=ticket.who)
                taken = True
            except TokenRejected:
                taken = False
            assert taken == self.oracle.counts(ticket, right, at), (ticket, right)

    @rule()
    def crash(self) -> None:
        self.world.crash()

    # --- events -------------------------------------------------------------------------------------

    def sealed(self, topic: str, who: str, symbols: list[str], act: Any) -> tuple[Frame, bytes] | None:
        ticket, events = self.oracle.ticket(PUBLISH, topic, who, self.now), self.said(symbols)
        data = self.attempt(ticket is not None, act, topic, who, [(e.number, e.symbol) for e in events])
        if ticket is None:
            return None
        token = self.world.token_of(data)
        shown = self.wallet.get(token)
        if shown is None:
            # Asked for just now: it says what the oracle says. Else it is one that the publisher had.
            shown = self.wallet[token] = self.told(token, ticket)
        frame = Frame(len(self.frames), topic, who, self.oracle.topics[topic].epoch, self.now, events, shown)
        self.frames.append((frame, data))
        self.tickets.append((shown, token))
        return self.frames[-1]

    def told(self, token: bytes, ticket: Ticket) -> Ticket:
        claims = tokens.parse(token).claims
        rights = frozenset(map(str, claims.rights))
        assert (claims.subject, claims.not_before, claims.expires) == (ticket.who, ticket.begins, ticket.ends)
        assert (rights, claims.epoch, claims.issuer) == (ticket.rights, ticket.epoch, ticket.center)
        assert str(claims.template) == (f"symbol={ticket.symbol}" if ticket.symbol else "*")
        return ticket

    @rule(topic=TOPIC, who=NAMES, symbols=SAID, then=THEN)
    def publish(self, topic: str, who: str, symbols: list[str], then: bool) -> None:
        made = self.sealed(topic, who, symbols, self.world.publish)
        if made is not None:
            self.arrived(topic, made[0])
        if then:
            self.deliver(topic)

    @rule(topic=TOPIC, data=DATA, symbols=SAID, again=EITHER)
    def publish_by_who_may(self, topic: str, data: st.DataObject, symbols: list[str], again: bool) -> None:
        """Most who publish may: so that there is something to read."""
        may = self.publishers(topic)
        if may:
            self.publish(topic, data.draw(st.sampled_from(may)), symbols, True)
            if again:
                self.append(topic, self.frames[-1], True)

    @rule(topic=TOPIC, data=DATA, symbols=SAID, rotated=EITHER, seconds=WAITS)
    def publish_late(self, topic: str, data: st.DataObject, symbols: list[str], rotated: bool, seconds: int) -> None:
        """Sealed now, and in the log only after a while: by whoever was cut off, or by somebody who kept it back."""
        may = self.publishers(topic)
        made = self.sealed(topic, data.draw(st.sampled_from(may)), symbols, self.world.seal) if may else None
        if rotated:
            self.rotate(topic)
        self.wait(seconds)
        if made is not None:
            self.append(topic, made, True)

    def publishers(self, topic: str) -> list[str]:
        return [who for who in EVERYONE if self.oracle.ticket(PUBLISH, topic, who, self.now) is not None]

    def append(self, topic: str, made: tuple[Frame, bytes], then: bool) -> None:
        self.world.append(topic, made[1])
        self.arrived(topic, made[0])
        if then:
            self.deliver(topic)

    @precondition(lambda self: self.frames)
    @rule(data=DATA, topic=TOPIC, then=THEN)
    def replay(self, data: st.DataObject, topic: str, then: bool) -> None:
        """Any frame that ever was, or the last one; into its own topic, or into another."""
        made = data.draw(st.sampled_from([self.frames[-1], *self.frames]))
        where = data.draw(st.sampled_from([made[0].topic, topic]))
        self.append(where if where in self.oracle.topics else topic, made, then)

    @rule(topic=TOPIC)
    def deliver(self, topic: str) -> None:
        if not self.oracle.topics[topic].waiting:
            return
        due = self.oracle.deliver(topic, self.now)
        sealed = dict[int, set[str]]()
        for who, places in self.world.deliver(topic).items():
            for place in places:
                sealed.setdefault(self.places[topic, *place], set()).add(who)
        assert sealed == {number: set(readers) for number, readers in due.items() if readers}
        for who in set().union(*due.values()):
            self.read(topic, who)

    @rule(topic=TOPIC, who=NAMES)
    def read(self, topic: str, who: str) -> None:
        allowed = self.oracle.may(SUBSCRIBE, topic, who, self.now) and who in self.oracle.topics[topic].mailboxes
        got = self.attempt(allowed, self.world.read, topic, who)
        if allowed:
            assert got == self.oracle.can_open(topic, who)

    def delete(self, topic: str) -> None:
        """No rule: what comes after it is about the topics that are left (`outlive`)."""
        self.world.crash()
        deletion.delete_topic(self.world.realm, topic)
        self.oracle.delete(topic)
        realm = self.world.realm
        assert topic not in realm.state().topics and not realm.paths.topic(topic).frames_root.exists()
        for who in EVERYONE:
            self.attempt(False, realm.grant, topic, who, [Right.SUBSCRIBE])
            self.attempt(False, realm.subscribe, topic, who, "number >= 0")
            self.attempt(False, realm.token, topic, who, Right.PUBLISH)
            self.attempt(False, self.world.publish, topic, who, [(0, "IBM")])
            self.attempt(False, self.world.read, topic, who)
        self.attempt(False, realm.rotate, topic)
        self.attempt(False, deletion.delete_topic, realm, topic)
        self.show_tokens()

    # --- at every moment ------------------------------------------------------------------------------

    @invariant()
    def everyone_may_what_it_may(self) -> None:
        state, now = self.world.realm.state(), self.now
        for topic, who, right in itertools.product(TOPICS, EVERYONE, RIGHTS):
            assert state.may(Right(right), topic, who, now) == self.oracle.may(right, topic, who, now)


def run(examples: int, steps: int) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        suppress_health_check=checks,
        database=None,
        report_multiple_bugs=False,
    )
    run_state_machine_as_test(Histories, settings=chosen)


class Dice:
    """Draws evenly, where hypothesis looks for what is special: the more happens in a history, the more it proves."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        #: The topics that things happen on.
        self.topics = list(TOPICS)

    def draw(self, strategy: Any) -> Any:
        if strategy is DATA:
            return self
        return self._random.choice(self.topics if strategy is TOPIC else strategy.elements)


def wander(seed: int, steps: int, then: int = 0) -> None:
    """A history of so many steps, by lot; a failure tells how it came to it. `then`, a topic is deleted, and so many
    more steps follow."""
    dice, machine, told = Dice(seed), Histories(), list[str]()
    machine.begin(dice.draw(st.sampled_from(list(itertools.permutations(EVERYONE, 3)))), dice.draw(CERTIFIED))
    try:
        _walk(machine, dice, steps, told)
        machine.compare_loot()
        if then:
            gone = dice.topics.pop(dice.draw(st.sampled_from(range(len(dice.topics)))))
            told.append(f"delete {gone}")
            machine.delete(gone)
            _walk(machine, dice, then, told)
            machine.compare_loot()
    except BaseException as error:
        error.add_note("\n".join(told))
        raise
    finally:
        machine.world.close()


def _walk(machine: Histories, dice: Dice, steps: int, told: list[str]) -> None:
    kinds = st.sampled_from(machine.rules)
    for _ in range(steps):
        step = dice.draw(kinds)
        if all(holds(machine) for holds in step.preconditions):
            given = {name: dice.draw(strategy) for name, strategy in step.arguments.items()}
            told.append(f"{step.function.__name__} {given}")
            step.function(machine, **given)
            machine.everyone_may_what_it_may()


def test_no_history_and_the_oracle_disagree() -> None:
    run(6, 30)


@pytest.mark.parametrize("seed", seeds(range(6), daily=3))
def test_nothing_that_can_happen_and_the_oracle_disagree(seed: int) -> None:
    wander(seed, 80)


@pytest.mark.parametrize("seed", range(2))
def test_nothing_of_a_deleted_topic_is_left_to_anybody(seed: int) -> None:
    wander(100 + seed, 30, then=30)


@pytest.mark.soak
def test_no_long_history_and_the_oracle_disagree() -> None:
    run(200, 100)
    for seed in range(1_000, 1_100):
        wander(seed, 300, then=100)


# --- and it would notice ----------------------------------------------------------------------------------------


def _revoked_but_not_really(patch: pytest.MonkeyPatch) -> None:
    """A revoked entity keeps its rights."""

    def terms_of(self: RealmState, topic: str, entity: str) -> Terms:
        who, where = self.entities.get(entity), self.topics.get(topic)
        return {} if who is None or where is None else where.terms_of(entity, who.member)

    patch.setattr(RealmState, "terms_of", terms_of)


def _interested_is_authorised(patch: pytest.MonkeyPatch) -> None:
    """A subscription with a token is enough to be sealed for."""
    patch.setattr(served, "_right", lambda state, topic, subscriber: (0, served.FOR_EVER))


def _nothing_was_here_before(patch: pytest.MonkeyPatch) -> None:
    """A replayed frame is as good as new."""
    patch.setattr(Windows, "decide", lambda self, claims: np.zeros(claims.size, np.uint8))


def _one_key_for_all(patch: pytest.MonkeyPatch) -> None:
    """Everyone's pair key is the same: what is sealed for one opens for all."""
    real = TopicKeys.pair_key
    patch.setattr(TopicKeys, "pair_key", lambda self, entity: real(self, "everyone"))


def _old_epochs_for_ever(patch: pytest.MonkeyPatch) -> None:
    """What was sealed before a rotation is admitted, however late it comes."""
    patch.setattr(topics.Topic, "epoch_admissible", lambda self, epoch, log_time_us: True)


def _no_list_is_read(patch: pytest.MonkeyPatch) -> None:
    """Revoked certificates count."""
    patch.setattr(RevocationView, "is_revoked", lambda self, serial: False)


def _rights_without_end(patch: pytest.MonkeyPatch) -> None:
    """A right that was given for an hour stays."""
    patch.setattr(topics.Term, "holds", lambda self, at_us: self.not_before_us <= at_us)


def _decided_in_vain(patch: pytest.MonkeyPatch) -> None:
    """What a token is for counts until it ends, whatever was decided since."""
    patch.setattr(Template, "meet", lambda self, other, schema: self)


def _subscribed_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A subscription whose token has ended is served."""
    patch.setattr(SubscriptionTable, "at", lambda self, time_us: self)


MISTAKES = (
    _revoked_but_not_really,
    _interested_is_authorised,
    _nothing_was_here_before,
    _one_key_for_all,
    _old_epochs_for_ever,
    _no_list_is_read,
    _rights_without_end,
    _decided_in_vain,
    _subscribed_for_ever,
)


def _name(mistake: Callable[..., None]) -> str:
    return mistake.__name__.strip("_")


def test_a_topic_that_is_deleted_in_vain_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weakened rule: the topic stays as it was."""
    monkeypatch.setitem(cast(dict[Any, Any], RULES), DeleteTopic, lambda draft, change: None)
    with pytest.raises((AssertionError, pytest.fail.Exception, SealcastError)):
        wander(100, 10, then=10)


@pytest.mark.parametrize("mistake", MISTAKES, ids=_name)
def test_a_mistake_in_a_rule_is_found(mistake: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mistake(patch)
        with pytest.raises((AssertionError, pytest.fail.Exception, SealcastError)):
            for seed in range(40):
                wander(seed, 80)
