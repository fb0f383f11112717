"""What admission says to a frame that somebody makes with the keys it has. No log ever sees the frame."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from sealcast.broker.admit import admit
from sealcast.broker.authenticate import check_one
from sealcast.broker.context import gate_at
from sealcast.broker.rulings import admitted_before
from sealcast.errors import FrameRejected
from sealcast.lab.attacks import Insider
from sealcast.lab.theft.loot import Loot
from sealcast.log.port import Record
from sealcast.model import Reason
from sealcast.trust.deployment import Realm

ADMITTED: Final = "admitted"
#: It has nothing to try it with.
NO: Final = "no"
REVOKED: Final = str(Reason.REVOKED)


def publish(realm: Realm, loot: Loot, topic: str) -> str:
    """Asks admission about a frame of an empty event, signed and sealed with the newest keys that were taken."""
    state = realm.state()
    about, now = state.topic(topic), time.time_ns() // 1000
    epochs = [epoch for where, epoch in loot.keys if where == topic]
    serving = [name for name in state.serving(topic) if realm.paths.broker_key_of(name).exists()]
    if not epochs or not serving:
        return NO
    taken = Insider(loot.name, loot.keys[topic, max(epochs)].pair, loot.identity.signer, loot.tokens.get(topic, b""))
    sealer = taken.sealer(replace(about, epoch=max(epochs)))
    data = sealer.seal([about.schema.parse({})], [b""], ["text/plain"], now)
    gate = gate_at(state, about, realm.broker(serving[0]))
    try:
        check_one(data, now, gate)
    except FrameRejected as refused:
        return str(refused.reason)
    admitted = admit(admitted_before(0, [Record(0, now, data)]), gate)
    if admitted.messages:
        return ADMITTED
    # The last check is about the event alone: brokers of some protections take none that readers' keys did not seal.
    # Whoever comes so far publishes.
    reason = admitted.rejections[0].reason
    return ADMITTED if reason is Reason.EVENT else str(reason)
