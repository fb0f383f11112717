"""What a broker's desk answers about group keys: the key requests of subscribers (`key_requests`).

    desk/keys      a signed key request     -> desk/keys     the reply to it, over the broker's control topic

(1) the request is well-formed, and signed by the one who asks; over the control topic, its sender and its asker are the
    same: nobody spends another's budget by passing its request on;
(2) it is of now: one that was kept would spend its asker's budget for somebody else;
(3) its asker has not asked too often (`control.budgets`);
(4) the piece is the one that the ledger names for the first event, authenticated by the topic's journal key.

Then `answer` decides, a pure function of the request, the state of the realm and the piece:

(5) the request is for this piece: its topic, its epoch, its partition;
(6) the asker is enrolled, not revoked, and may read the topic now: rights of the past open nothing;
(7) each event that it names is in the piece, and was delivered to it;
(8) the key that it would open the event through is the key of exactly those who open through it, the asker among them.

What is given is what a handout would have given it: the key itself, or its part of the table that the key is of.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, cached_property, lru_cache
from typing import Final

from sealcast.control.budgets import Allowance, Budgets
from sealcast.control.desk import More
from sealcast.control.envelopes import ProvenMessage
from sealcast.control.service import Answer
from sealcast.errors import NotFound, Rejected, Unavailable
from sealcast.groupkeys.interface import PairKey, TableKey
from sealcast.log.piece_reader import PieceReader, sealed_reader
from sealcast.primitives.secrets import Unpicklable
from sealcast.primitives.sign import SigningKey, VerifyKey
from sealcast.protections.endpoint.key_requests import KEYS, GivenPart, KeyReply, KeyRequest, parse_request
from sealcast.protections.endpoint.refs import PieceKeys
from sealcast.protections.endpoint.sealer import EndpointSealer, sealer_of
from sealcast.trust.handles import OpenRealm
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.machine import RealmState
from sealcast.wire.sealed import SealedPiece

#: A request may be this much older, or newer, than the broker's clock says.
MAX_SKEW_US: Final = 300 * 1_000_000
#: Requests of one asker: one brings up to 512 keys.
ALLOWANCE: Final = Allowance(per_second=20, burst=200)
#: Epochs and incarnations whose keys are kept ready.
MAX_SEALERS: Final = 8
#: Parts of tables in one reply: each takes a few milliseconds to make. The other keys are given one by one.
MAX_PARTS: Final = 4
#: A key under which nobody signs anything.
_NOBODY: Final = SigningKey.generate().verify_key


class KeyAnswers(Unpicklable):
    """Answers the key requests of one topic, in a process that has the broker's secrets."""

    def __init__(self, realm: OpenRealm, topic: str, broker: BrokerSecrets, budgets: Budgets | None = None) -> None:
        self._realm, self._topic, self._broker = realm, topic, broker
        self._budgets = budgets or Budgets(ALLOWANCE)
        self._about = realm.state().topic(topic)
        self._opened: PieceReader[SealedPiece] | None = None
        self._sealer = lru_cache(MAX_SEALERS)(self._load)

    def reply(self, data: bytes, now_us: int) -> bytes:
        """The answer to a request; Rejected, or Unavailable when it comes too soon."""
        state = self._realm.state()
        # (1)
        request = parse_request(data, lambda name: VerifyKey(state.entity(name).verify_key))
        # (2)
        if abs(now_us - request.time) > MAX_SKEW_US:
            raise Rejected("the key request is not of now", hint="is the clock of this machine right?")
        # (3)
        verdict = self._budgets.spend(request.entity, now_us)
        if not verdict.admitted:
            wait = (verdict.retry_at_us - now_us) / 1_000_000
            raise Unavailable(f"{request.entity!r} asks for keys too often", hint=f"try again in {wait:.1f} s")
        # (4)
        try:
            reader = self._reader(state)
            _, _, ref = reader.find(request.partition, request.events[0][0])
            if ref is None:
                raise Rejected("no piece has the events that the key request names")
            piece = reader.piece(ref)
            incarnation = state.incarnation(self._topic, self._broker.name, piece.version)
            found = answer(request, self._topic, state, self._sealer(request.epoch, incarnation), piece, now_us)
        except Rejected:
            self._budgets.bogus(request.entity, now_us)
            raise
        self._budgets.good(request.entity)
        return found.encode()

    def _reader(self, state: RealmState) -> PieceReader[SealedPiece]:
        """What the broker delivered, where it is by now: a topic may be moved while this answers."""
        journal = self._realm.carriers.journal(state, self._topic, self._broker.name)
        if self._opened is None or self._opened.journal.shown != journal.shown:
            self.close()
            self._opened = sealed_reader(journal, key=self._broker.journal_key(self._about.id))
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def _load(self, epoch: int, incarnation: bytes) -> EndpointSealer:
        def name_of(slot: int) -> str:
            # Slots are never given twice: a newer state says of old ones what an older one did.
            return list(self._realm.state().slots_of(self._topic))[slot]

        about = replace(self._about, epoch=epoch)
        try:
            return sealer_of(self._realm.state(), about, self._broker, name_of, incarnation)
        except NotFound:
            # It may have forgotten them (`keys.receiving`): whoever asks in good faith need not wait for it.
            raise Unavailable("this broker has no keys, or no more, of the epoch that the key request names") from None


class KeyRequests(Unpicklable):
    """Answers the key requests to one broker, on all topics that it serves. A topic is opened when first asked for."""

    def __init__(self, realm: OpenRealm, broker: str) -> None:
        self._realm, self._name = realm, broker
        self._answers = cache(self._opened)

    def handle(self, request: ProvenMessage, now_us: int, /) -> Answer:
        state, data = self._realm.state(), request.message.body
        asked = parse_request(data, lambda name: _key_of(name, state))
        if asked.entity != request.sender.name:
            raise Rejected(f"the key request is {asked.entity!r}'s, and {request.sender.name!r} sent it")
        topic = {found.topic.id: found.topic.name for found in state.topics.values()}.get(asked.topic)
        if topic is None or not state.may_subscribe(topic, asked.entity, now_us):
            raise Rejected("there is no such topic that its asker may read")
        return Answer(KEYS, self._answers(topic).reply(data, now_us))

    @cached_property
    def _broker(self) -> BrokerSecrets:
        return BrokerSecrets.load(self._realm.paths.broker_key_of(self._name))

    def _opened(self, topic: str) -> KeyAnswers:
        return KeyAnswers(self._realm, topic, self._broker)


def _key_of(name: str, state: RealmState) -> VerifyKey:
    """A name that nobody has is like one whose key did not sign: who is enrolled is not to be learnt here."""
    found = state.entities.get(name)
    return _NOBODY if found is None else VerifyKey(found.verify_key)


def key_requests(realm: OpenRealm, broker: str) -> More:
    """For `control.desk`: what else a broker of that name answers."""
    return {KEYS: KeyRequests(realm, broker).handle}


def answer(
    request: KeyRequest, topic: str, state: RealmState, sealer: EndpointSealer, piece: SealedPiece, now_us: int
) -> KeyReply:
    """The keys that the asker needs for the events it names, sealed for it; Rejected if it may not have one of them.

    `topic` is the name of the topic whose keys `sealer` makes, in the piece's epoch.
    """
    # (5)
    about = state.topic(topic)
    here = (piece.topic, piece.epoch, piece.partition)
    if (request.topic, request.epoch, request.partition) != here or about.id != piece.topic:
        raise Rejected("the key request is about other events than those at hand")
    # (6)
    state.require(Right.SUBSCRIBE, topic, request.entity, now_us)
    slot = state.slot_of(topic, request.entity)
    if slot is None:
        raise Rejected(f"entity {request.entity!r} never subscribed to topic {topic!r}")
    # (7)
    delivered = _delivered(piece, slot)
    known, found = PieceKeys(piece, sealer), dict[bytes, bytes]()
    parts: dict[bytes, GivenPart] = {}
    for event in request.events:
        use = delivered.get(event)
        if use is None:
            raise Rejected(f"event {piece.partition}/{event[0]}/{event[1]} was not delivered to {request.entity!r}")
        # (8)
        key = int(piece.uses[use])
        key_id = piece.key_id(key)
        if key_id in found:
            continue
        ref = known.held_by(key, piece.readers(use))
        if ref is None:
            raise Rejected("the piece names a key that is not its readers'")
        if isinstance(ref, PairKey):
            continue  # the asker has it from the start
        if request.tables and isinstance(ref, TableKey) and len(parts) < MAX_PARTS:
            name = sealer.table_name(ref.slots)
            if name not in parts:
                (part,) = sealer.hand_out_table(ref.slots, [slot])
                parts[name] = GivenPart(name, ref.slots.index(slot), len(ref.slots), part)
        else:
            found[key_id] = sealer.hand_out(PairKey(slot), ref, key_id)
    return KeyReply(tuple(found.items()), tuple(parts.values()))


def _delivered(piece: SealedPiece, slot: int) -> dict[tuple[int, int], int]:
    """What is in a slot's mailbox: offset and row of each event, and the use through which it opens."""
    events, uses = piece.rows_for(slot)
    positions = map(piece.position, events.tolist())
    return {(p.offset, p.row): use for p, use in zip(positions, uses.tolist(), strict=True)}
