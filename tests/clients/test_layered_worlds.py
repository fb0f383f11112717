"""Random realms with a layered topic, through real clients, keepers, tables and hops: deliveries are the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Misuse
from sealcast.model.protection import Layered
from sealcast.protections.layered.together import refresh_all
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.changes import Right
from tests.clients.layered_pump import pump
from tests.clients.test_layered_clients import SCHEMA, World, random_filter

PUBLISHERS = ["p1", "p2", "s1"]  # who also subscribes
SUBSCRIBERS = ["s1", "s2", "s3", "s4"]


class RandomWorld(World):
    """Everything that may happen to a layered topic, in any order."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random = Random(seed)
        realm = Realm.create(directory / "realm")
        realm.create_topic(
            "quotes",
            SCHEMA,
            protection=Layered(random.randint(2, 4)),
            nodes=0,
            access="granted",
            partitions=random.randint(1, 2),
        )
        realm.enrol_many([*dict.fromkeys((*PUBLISHERS, *SUBSCRIBERS))])
        super().__init__(realm)
        self.brokers = 0
        for _ in range(random.randint(2, 6)):
            self.join()
        for name in PUBLISHERS:
            realm.grant("quotes", name, [Right.PUBLISH])
        for name in SUBSCRIBERS:
            realm.grant("quotes", name, [Right.SUBSCRIBE])
        self.sleeping: dict[str, dict[str, str]] = {}

    def join(self) -> None:
        self.brokers += 1
        parents = [None, *self.realm.state().overlay("quotes").parents]
        self.realm.place_node("quotes", f"b{self.brokers}", under=self.random.choice(parents))

    def step(self) -> None:
        random, realm, overlay = self.random, self.realm, self.realm.state().overlay("quotes")
        awake = [name for name in SUBSCRIBERS if name not in self.sleeping]
        match random.choice(
            [*3 * ["add"], *6 * ["publish"], "remove", "pump", "rotate", "move", "node", "leave", "right"]
        ):
            case "add" if awake:
                self.settle()
                self.add(random.choice(awake), random_filter(random))
            case "remove":
                self.settle()
                having = [(name, id) for name in awake for id in self.filters.get(name, {})]
                if having:
                    self.remove(*random.choice(having))
            case "publish":
                self.publish_or_not(random.choice(PUBLISHERS))
            case "pump":
                pump(realm, "quotes")
            case "rotate":
                realm.rotate("quotes")
            case "move" if overlay.places and awake:
                who, where = random.choice(awake), random.choice([*overlay.parents])
                self.quietly(lambda: realm.place_subscriber("quotes", who, where))
            case "node":
                node, onto = random.choice([*overlay.parents]), random.choice([None, *overlay.parents])
                self.quietly(lambda: realm.place_node("quotes", node, under=onto))
            case "leave":
                self.settle()
                node = random.choice([*overlay.parents])
                self.quietly(random.choice([self.join, lambda: realm.remove_node("quotes", node)]))
                if not realm.state().overlay("quotes").parents:
                    self.join()
            case "right":
                self.settle()
                self.change_right(random.choice(SUBSCRIBERS))

    def settle(self) -> None:
        """A filter counts for what waits when it comes: so that the truth is one, nothing waits then. Whoever moves,
        and whatever epoch begins, what was published before goes the way that it began."""
        list(refresh_all(self.realm))
        while pump(self.realm, "quotes"):
            pass  # along old ways and new, as many hops as there are

    def quietly(self, act: Callable[[], object]) -> None:
        with suppress(Misuse):  # the rules say why not
            act()

    def change_right(self, name: str) -> None:
        if name in self.sleeping:
            self.realm.grant("quotes", name, [Right.SUBSCRIBE])
            self.filters |= {name: had} if (had := self.sleeping.pop(name)) else {}
        else:
            self.realm.revoke("quotes", name, [Right.SUBSCRIBE])
            self.sleeping[name] = self.filters.pop(name, {})

    def publish_or_not(self, publisher: str) -> None:
        try:
            self.publish(publisher, self.random, self.random.randint(2, 6))
        except Misuse:
            overlay = self.realm.state().overlay("quotes")
            assert not overlay.places or len(overlay.parents) < 2, "there was somewhere to go"

    def finish(self) -> None:
        """Everyone has exactly the truth, each event once. Their order is not asked for here: what is on its way when
        brokers move may be overtaken by what takes the new way."""
        self.settle()
        for name in list(self.sleeping):
            self.change_right(name)
        for name, truth in self.truth.items():
            with Subscriber(self.realm, "quotes", name, from_=0) as reader:
                got = Counter((event.publisher, event.payload) for event in reader)
            assert got == Counter(truth), name


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_random_worlds(tmp_path: Path, seed: int) -> None:
    world = RandomWorld(tmp_path, seed)
    for _ in range(40):
        world.step()
    world.finish()
