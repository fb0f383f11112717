"""The desk with its door: a signed request in, a reply out. What `desk` decides, on the broker's ledger and secrets.

(1) the request is well-formed, and signed by the one who asks;
(2) it is of now: one that was kept would spend its asker's budget for somebody else;
(3) its asker has not asked too often (`control.budgets`);
(4) the piece is the one that the ledger names for the first event, authenticated by the topic's journal key.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from sealcast.control.budgets import Allowance, Budgets
from sealcast.errors import Rejected, Unavailable
from sealcast.log.mailbox import TopicReader
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.primitives.sign import VerifyKey
from sealcast.protections.endpoint.desk import answer
from sealcast.protections.endpoint.requests import parse_request
from sealcast.protections.endpoint.sealer import EndpointSealer
from sealcast.trust.handles import OpenRealm
from sealcast.trust.keys.broker import BrokerSecrets

#: A request may be this much older, or newer, than the desk's clock says.
MAX_SKEW_US: Final = 300 * 1_000_000
#: Requests of one asker: one brings up to 512 keys.
ALLOWANCE: Final = Allowance(per_second=20, burst=200)
MAX_EPOCHS: Final = 8


class KeyDesk(Unpicklable):
    """One topic's desk, in a process that has the broker's secrets."""

    def __init__(self, realm: OpenRealm, topic: str, broker: BrokerSecrets, budgets: Budgets | None = None) -> None:
        self._realm, self._topic, self._broker = realm, topic, broker
        self._budgets = budgets or Budgets(ALLOWANCE)
        self._about = realm.state().topic(topic)
        self._reader = TopicReader(realm.paths.topic(topic, broker.name).root, key=broker.journal_key(self._about.id))
        self._sealer = lru_cache(MAX_EPOCHS)(self._load)

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
            _, _, ref = self._reader.find(request.partition, request.events[0][0])
            if ref is None:
                raise Rejected("no piece has the events that the key request names")
            piece = self._reader.piece(ref)
            found = answer(request, self._topic, state, self._sealer(request.epoch), piece, now_us)
        except Rejected:
            self._budgets.bogus(request.entity, now_us)
            raise
        self._budgets.good(request.entity)
        return found.encode()

    def close(self) -> None:
        self._reader.close()

    def _load(self, epoch: int) -> EndpointSealer:
        state = self._realm.state()
        ours = self._broker.topic_keys(state, self._about, epoch)
        bits = self._about.parameters.key_bits

        def pair_of_slot(slot: int) -> Secret:
            # Slots are never given twice: a newer state says of old ones what an older one did.
            return ours.mailbox_key(list(self._realm.state().slots_of(self._topic))[slot], self._broker.name)

        return EndpointSealer(self._about.id, epoch, ours.content_root(self._broker.name), pair_of_slot, bits)
