"""The broker's side of `attribute`: there is none. Peers carry events themselves, and run no step of a pipeline."""

from __future__ import annotations

from typing import Final

from sealcast.protections.port import BrokerSide

BROKER: Final = BrokerSide((), joining="sealcast peer run")
