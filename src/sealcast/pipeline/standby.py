"""A run that stands by: it waits until nobody else runs its topics, and then takes over.

Who runs a topic holds a lock on its ledger. The lock goes with the process, however that ends, and on a network file
system with the machine. Whoever takes it begins a new term, and a ledger takes nothing of an older one
(`Ledger.exclusive`): what is left of the other run, its JVM and its workers, can commit nothing any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from sealcast.errors import Locked
from sealcast.pipeline.queries import signals
from sealcast.pipeline.run import queries_of, taken
from sealcast.trust.handles import BrokerRealm

#: How often it looks. A part of the time that a takeover takes.
POLL_SECONDS: Final = 0.2


def wait_for_turn(
    realm: BrokerRealm, topics: tuple[str, ...], node: str | None, on_wait: Callable[[Locked], None]
) -> bool:
    """Waits until nobody runs any of these topics; False when SIGINT or SIGTERM came before. Tells whom it waits for,
    and again when that is another."""
    told = ""
    with signals() as asked:
        while not asked():
            other = next(filter(None, taken(queries_of(realm, topics, node))), None)
            if other is None:
                return True
            if other.message != told:
                on_wait(other)
                told = other.message
            time.sleep(POLL_SECONDS)
    return False
