"""The broker's side of `layered`: a root admits what it cannot read, then every broker routes it one hop further."""

from __future__ import annotations

from typing import Final

from sealcast.protections.layered.admit import AdmitStep
from sealcast.protections.layered.node import HopStep
from sealcast.protections.port import BrokerSide

BROKER: Final = BrokerSide((AdmitStep, HopStep), joining="sealcast overlay add {topic} {broker}")
