"""The broker's side of `layered`: a root admits what it cannot read, then every broker routes it one hop further."""

from __future__ import annotations

from typing import Final

from sealcast.protections.layered.admit import AdmitStep
from sealcast.protections.layered.node import HopStep
from sealcast.protections.layered.reports import broker_requests
from sealcast.protections.port import BrokerSide

BROKER: Final = BrokerSide((AdmitStep, HopStep), "sealcast overlay add {topic} {broker}", broker_requests)
