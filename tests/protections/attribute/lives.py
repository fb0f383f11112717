"""Lives of a process that hosts all peers of a realm, each of which dies on order.

    python -m tests.protections.attribute.lives REALM      for each number k on stdin: a process of peers that carries
                                                           everything and dies before its k-th step on the disk (0: it
                                                           does not), and its exit code on stdout

Each life is a fork of one process that has everything imported: a start takes milliseconds.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from typing import NoReturn

from sealcast.control import at_hand
from sealcast.primitives.pairing import best
from sealcast.protections.attribute.peering.host import PeerHost
from sealcast.protections.attribute.peering.hosting import with_heartbeat
from sealcast.trust.handles import EntityRealm
from sealcast.trust.storage import store
from tests.death import Death

#: Nothing has happened for so long when all is done.
SETTLED_S = 0.5


def live(realm: str, death_at: int) -> NoReturn:
    code = 1
    try:
        if death_at:
            Death(death_at)
        limits, settings = with_heartbeat(0.5)
        host = PeerHost(EntityRealm(realm), limits=limits, settings=settings, told=print)
        asyncio.run(host.run(lambda: False, once=SETTLED_S))
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)


def main(realm: str) -> None:
    assert at_hand and store
    best()
    gc.freeze()
    answers = os.dup(1)
    os.dup2(2, 1)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            live(realm, int(line))
        _, status = os.waitpid(child, 0)
        os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
