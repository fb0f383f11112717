"""A member of a group as a process of its own, which is killed at any moment: python -m tests.clients.group_member."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from random import Random

from sealcast.clients.subscriber import Subscriber


def main(realm: str, seed: str, stop: str) -> None:
    random, stopping = Random(int(seed)), Path(stop)
    with Subscriber(realm, "quotes", as_="alice", group="workers") as member:
        while not stopping.exists():
            if member.poll(random.randint(1, 9), timeout=0.2):
                time.sleep(random.random() / 20)  # the work
                member.ack()


if __name__ == "__main__":
    main(*sys.argv[1:])
