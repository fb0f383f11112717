"""Makes the realm of a cluster campaign, on the machine of its clients.

python -m tests.soak.cluster.realm make DIRECTORY REGISTRY CARRIER HOMES TOPIC ...   the realm, and homes of workers
python -m tests.soak.cluster.realm secrets DIRECTORY                                 its keys, and what they are
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from sealcast import Realm
from sealcast.trust import worker_home
from sealcast.trust.handles import BrokerRealm
from tests.pipeline.test_canaries import unlocked
from tests.soak import world

CARRIER: Final = "carrier"
#: What the filters of a campaign say, in words that no other topic has: where brokers match what they cannot read,
#: these are in no file.
HIDDEN: Final = {
    "low": "price BETWEEN 0 AND 7",
    "high": "price BETWEEN 8 AND 15",
    "middle": "(price BETWEEN 4 AND 11)",
}


def make(directory: Path, registry: str, carrier: str, homes: Path, topics: tuple[str, ...]) -> None:
    realm = world.create(directory, topics, registry, HIDDEN)
    realm.add_carrier(CARRIER, carrier)
    for topic in topics:
        realm.move_topic(topic, CARRIER)
    for broker in realm.state().brokers():
        made = worker_home.make(BrokerRealm(directory), homes / broker, broker)
        assert not made.shared, made


def secrets(directory: Path) -> dict[str, str]:
    """Every secret that is sealed in a key file, and every key that a broker derives for a topic, by its bytes."""
    realm = Realm(directory)
    found = dict(unlocked(directory))
    state, broker = realm.state(), realm.broker()
    for name in state.topics:
        topic = state.topic(name)
        for each in state.brokers():
            found[realm.broker(each).journal_key(topic.id).reveal()] = f"journal key of {each} for {name}"
        if topic.protection.brokers_read:
            ours = broker.topic_keys(state, topic)
            for incarnation in {b"", *state.topic_state(name).incarnations.values()}:
                found[ours.content_root("broker", incarnation).reveal()] = f"secret of {name}"
    return {raw.hex(): what for raw, what in found.items()}


if __name__ == "__main__":
    what, where, *rest = sys.argv[1:]
    if what == "make":
        make(Path(where), rest[0], rest[1], Path(rest[2]), tuple(rest[3:]))
    else:
        print(json.dumps(secrets(Path(where))))
