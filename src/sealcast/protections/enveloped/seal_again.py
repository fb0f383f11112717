"""How brokers seal envelopes of earlier epochs: for each reader, under its own key of the present epoch.

Those epochs' keys may have been stolen since. After a compromise nothing may lie there that such keys open, so that
what was sealed in an earlier epoch is never handed on bare.
"""

from __future__ import annotations

from functools import cached_property

from sealcast.broker.context import Sealing
from sealcast.groupkeys.naive import Naive
from sealcast.model.stages import Grouped, GroupSealed
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.endpoint.seal import seal
from sealcast.protections.endpoint.sealer import EndpointSealer, sealer_of
from sealcast.protections.past import senders
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.realm.machine import RealmState, Topic
from sealcast.wire.sealed import SealedPiece


class ReaderSealing(Unpicklable):
    """Seals for each reader alone, at one version."""

    def __init__(self, state: RealmState, topic: Topic, secrets: BrokerSecrets) -> None:
        self._state, self._topic, self._secrets = state, topic, secrets

    @cached_property
    def _sealer(self) -> EndpointSealer:
        names = list(self._state.slots_of(self._topic.name))
        return sealer_of(self._state, self._topic, self._secrets, names.__getitem__)

    def seal(self, grouped: Grouped) -> GroupSealed:
        return seal(grouped, Naive(), self._sealer)


class SealingAgain(ReaderSealing):
    """Hands on what was sealed in the present epoch. What is older it seals for each of its readers."""

    def __init__(self, state: RealmState, topic: Topic, secrets: BrokerSecrets, handing_on: Sealing) -> None:
        super().__init__(state, topic, secrets)
        self._handing_on = handing_on

    def seal(self, grouped: Grouped) -> GroupSealed:
        sent = senders(grouped.admitted)
        if all(sent[event].epoch >= self._topic.epoch for event in grouped.events.tolist()):
            return self._handing_on.seal(grouped)
        return super().seal(grouped)

    def made(self, piece: SealedPiece, data: bytes) -> None:
        """Nothing is remembered."""
