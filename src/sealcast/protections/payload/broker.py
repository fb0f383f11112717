"""The broker's side of `payload`: one step, which matches attributes and hands on what publishers sealed."""

from __future__ import annotations

from typing import Final

from sealcast.protections.enveloped.hand_on import HandingOn
from sealcast.protections.frame_steps import MatchingStep
from sealcast.protections.port import BrokerSide
from sealcast.trust.realm.machine import RealmState, Topic


class PayloadStep(MatchingStep):
    """Admit, match, group, hand on, deliver."""

    def sealing(self, state: RealmState, topic: Topic) -> HandingOn:
        return HandingOn()


BROKER: Final = BrokerSide((PayloadStep,), joining="sealcast topic serve {topic} {broker}")
